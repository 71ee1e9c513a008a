"""Which files does one number pass through? `python -m benchmarks.doors` counts them, in a simulation and deployed.

A file is a door if one of its functions is handed the number, or something computed from it, by another file: as an
argument, or as what a call returned. Simulated, two seeded runs that differ in one cell are compared call by call.
Deployed, real processes run a study whose vectors are longer than anything else they handle, and every call that is
handed something of that length counts; what only holds noise does not.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import polars as pl

import tallystick as ts

_SOURCE = str(Path(ts.__file__).parent) + os.sep
_BYTES = 12_000
_BINS = 1_500
_ONLY_NOISE = ("privacy/mechanisms", "privacy/noise", "engines/round_vectors")
Seen = Callable[[str, str, str, list[Any]], None]
"""Called with the file, the function, the file it was called from, and what was handed over."""


def _profiler(seen: Seen) -> Callable[[FrameType, str, Any], None]:
    def profile(frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(_SOURCE):
            return
        outer = frame.f_back
        while outer is not None and not outer.f_code.co_filename.startswith(_SOURCE):
            outer = outer.f_back
        if outer is None or outer.f_code.co_filename == code.co_filename:
            return
        here, there = (f.f_code.co_filename.removeprefix(_SOURCE) for f in (frame, outer))
        if event == "call":
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            handed = [frame.f_locals.get(name) for name in names if name not in ("self", "cls")]
            seen(here, code.co_qualname, there, handed)
        else:
            seen(there, f"{code.co_qualname}()", here, [value])

    return profile


# -- simulated ---------------------------------------------------------------------------------------------------------


def _parts(value: Any, depth: int = 0) -> Iterator[bytes]:
    """What a value is made of, down to numbers and bytes."""
    if isinstance(value, (pl.DataFrame, pl.Series)):
        yield str(value.to_dict(as_series=False) if isinstance(value, pl.DataFrame) else value.to_list()).encode()
    elif isinstance(value, (np.ndarray, np.generic)):
        yield value.tobytes()
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield bytes(value)
    elif value is None or isinstance(value, (bool, int, float, str)):
        yield repr(value).encode()
    elif depth < 8 and isinstance(value, dict):
        for pair in value.items():
            yield from _parts(list(pair), depth + 1)
    elif depth < 8 and isinstance(value, (list, tuple)):
        for part in value:
            yield from _parts(part, depth + 1)
    elif depth < 8 and dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _parts(getattr(value, field.name, None), depth + 1)
    elif hasattr(value, "to_pylist"):
        yield str(value.to_pylist()).encode()


def _run(cell: float) -> dict[tuple[str, str, str], list[bytes]]:
    rng = np.random.default_rng(7)
    frames = [pl.DataFrame({"age": rng.uniform(17, 90, 30)}) for _ in range(3)]
    frames[1] = frames[1].with_columns(age=pl.Series([cell, *frames[1]["age"][1:]]))
    log: dict[tuple[str, str, str], list[bytes]] = {}

    def seen(file: str, function: str, other: str, handed: list[Any]) -> None:
        sys.setprofile(None)
        log.setdefault((file, function, other), []).append(hashlib.sha256(b"|".join(_parts(handed))).digest())
        sys.setprofile(profile)

    profile = _profiler(seen)
    sys.setprofile(profile)
    try:
        fed = ts.Federation.simulate(frames, schema=ts.Schema({"age": ts.Number(17, 90)}), seed=1)
        ts.Summary(epsilon=1.0, delta=1e-6).fit(fed)
    finally:
        sys.setprofile(None)
    return log


def simulated() -> list[str]:
    """The doors of a simulation, in alphabetical order."""
    _run(47.0)  # caches are warm
    first, again, other = _run(47.0), _run(47.0), _run(83.0)
    doors = set()
    for key, values in first.items():
        steady = [a == b for a, b in zip(values, again.get(key, []))]
        if any(same and a != b for same, a, b in zip(steady, values, other.get(key, []))):
            doors.add(key[0])
    return sorted(doors)


# -- deployed ----------------------------------------------------------------------------------------------------------


def _is_long(value: Any, depth: int = 0) -> bool:
    if isinstance(value, np.ndarray):
        return value.nbytes >= _BYTES and value.dtype != object and bool(value.any())
    if isinstance(value, (bytes, bytearray, memoryview)):
        raw = bytes(value)
        middle = raw[len(raw) // 2 :][:256]
        return len(raw) >= _BYTES and raw.count(0) < 0.9 * len(raw) and not middle.isascii()  # studies are text
    if hasattr(value, "to_pylist") or isinstance(value, (pl.DataFrame, pl.Series)):
        return len(value) >= _BINS
    if depth > 3:
        return False
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return len(value) < 200 and any(_is_long(part, depth + 1) for part in value)
    if dataclasses.is_dataclass(value):
        return any(_is_long(getattr(value, field.name, None), depth + 1) for field in dataclasses.fields(value))
    return False


def watch(out: str) -> None:
    """In every process: note each door once, as soon as it is passed."""
    import threading

    known: set[str] = set()

    def seen(file: str, _: str, other: str, handed: list[Any]) -> None:
        if file in known or file.startswith(_ONLY_NOISE) or other.startswith(_ONLY_NOISE):
            return
        if any(map(_is_long, handed)):
            known.add(file)
            with Path(out).open("a", encoding="utf-8") as notes:
                notes.write(file + "\n")

    profile = _profiler(seen)
    sys.setprofile(profile)
    threading.setprofile(profile)


def _deploy(folder: Path) -> None:
    """Three clients, two servers and an aggregator, from the fixture of the fault tests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "faults"))
    import consortium_fixture  # type: ignore[import-not-found]

    rng = np.random.default_rng(7)
    files = [folder / f"{i}.csv" for i in range(3)]
    for file in files:
        file.write_text("x\n" + "\n".join(str(float(x)) for x in rng.integers(0, _BINS, 1_600)) + "\n")
    parties = consortium_fixture.Parties(folder / "parties", files=files)
    try:
        parties.start()
        schema = ts.Schema({"x": ts.Number(0, _BINS, bins=list(range(1, _BINS)))})
        fed = parties.federation(schema=schema, records=4_800, round_timeout_s=120)
        model = ts.Summary(epsilon=1.0, delta=1e-6)
        parties.accept(model.study_for(fed))
        model.fit(fed)
    finally:
        parties.close()


def deployed() -> list[str]:
    """The doors between real processes, in alphabetical order."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = "import os; from benchmarks.doors import watch; watch(os.environ['DOORS'])\n"
        (folder / "sitecustomize.py").write_text(start)
        root = Path(__file__).parents[1]
        paths = os.pathsep.join([name, str(root)])
        environment = {**os.environ, "PYTHONPATH": paths, "DOORS": str(folder / "doors")}
        code = f"from pathlib import Path; from benchmarks.doors import _deploy; _deploy(Path({name!r}))"
        subprocess.run([sys.executable, "-c", code], env=environment, cwd=root, check=True)
        return sorted(set((folder / "doors").read_text(encoding="utf-8").split()))


def main() -> None:
    """Print both lists."""
    parser = argparse.ArgumentParser(description="Which files one number passes through.")
    parser.add_argument("way", choices=["simulated", "deployed"], nargs="?")
    asked = parser.parse_args().way
    warnings.simplefilter("ignore")
    for name, count in (("simulated", simulated), ("deployed", deployed)):
        if asked in (None, name):
            doors = count()
            print(f"{name}: {len(doors)} doors", *doors, sep="\n  ")


if __name__ == "__main__":
    main()
