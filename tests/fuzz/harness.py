"""The coverage-guided fuzzer: ``python tests/fuzz/harness.py wire|study FOLDER [libFuzzer's options]``.

FOLDER holds the corpus; a crash leaves its input beside it. Give that file instead of FOLDER to run it alone. Needs
atheris (Linux; in the dev extra). It watches the branches of our own code and of the TOML and JSON readers. Modules
with compiled kernels are left as they are: numba compiles them from the bytes that the fuzzer would change.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))


def compiled_modules() -> list[str]:
    """Our modules that speak of numba, by name; found without importing them."""
    found = importlib.util.find_spec("tallystick")
    package = Path(found.origin or "").parent if found is not None else Path()
    files = [path for path in package.rglob("*.py") if "numba" in path.read_text(encoding="utf-8")]
    return [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in files]


def main() -> None:
    """Fuzz until libFuzzer's limits are reached; it ends the process."""
    kind = sys.argv.pop(1)
    with atheris.instrument_imports(include=["tallystick", "tomllib", "json"], exclude=compiled_modules()):
        if kind == "wire":
            from wire_targets import wire_target as target
        else:
            from study_targets import study_target as target
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
