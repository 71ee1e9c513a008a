"""The fuzz targets on their seeds, on mutations of them, and under the coverage-guided fuzzer.

``make audit`` runs the fuzzer for ten minutes on each of the two (TALLYSTICK_FUZZ_SECONDS says otherwise); `make test`
for a few seconds, so that it is known to run. A finding prints its input: add it below as a test with a name.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from seeds import WORDS, study_seeds, wire_seeds, write_corpus
from study_targets import study_target
from wire_targets import TARGETS, wire_target

SECONDS = int(os.environ.get("TALLYSTICK_FUZZ_SECONDS", "600"))
HARNESS = Path(__file__).with_name("harness.py")
KINDS: dict[str, tuple[Callable[[bytes], None], Callable[[], list[bytes]]]] = {
    "wire": (wire_target, wire_seeds),
    "study": (study_target, study_seeds),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_seed_is_taken(kind: str) -> None:
    target, seeds = KINDS[kind]
    found = seeds()
    for seed in found:
        target(seed)
    if kind == "wire":
        assert {seed[0] for seed in found} == set(range(len(TARGETS)))


@pytest.mark.parametrize("kind, many", [("wire", 3000), ("study", 150)])
def test_mutations_of_seeds_are_read_or_refused(kind: str, many: int) -> None:
    """Blind, seeded and quick: what needs a coverage-guided search is found below."""
    target, seeds = KINDS[kind]
    rng = np.random.default_rng(11)
    pool = seeds()
    for _ in range(many):
        raw = bytearray(pool[rng.integers(len(pool))])
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(1, len(raw) + 1))
            match rng.integers(5):
                case 0:
                    raw[at : at + 1] = rng.bytes(1)
                case 1:
                    raw[at:at] = WORDS[rng.integers(len(WORDS))].encode()
                case 2:
                    del raw[at : at + int(rng.integers(1, 20))]
                case 3:
                    raw[at : at + 4] = [b"\xff" * 4, b"\0" * 4, b"\x01\0\0\0"][rng.integers(3)]
                case _:
                    other = pool[rng.integers(len(pool))]
                    raw[at:at] = other[int(rng.integers(len(other))) :][:50]
        try:
            target(bytes(raw))
        except BaseException:
            print("the input:", bytes(raw)[:2000])
            raise


def fuzz(kind: str, folder: Path, seconds: int) -> None:
    """Run the fuzzer on a fresh corpus; a finding is a failure that shows it."""
    if importlib.util.find_spec("atheris") is None:
        if (sys.platform, platform.machine()) == ("linux", "x86_64") and sys.version_info < (3, 14):
            pytest.fail("atheris is in requirements.lock and not installed here: run `make setup`")
        pytest.skip("atheris has no wheel for this system; the fuzzer runs on Linux, x86-64")
    corpus = folder / kind
    write_corpus(corpus, kind)
    words = [f"-max_total_time={seconds}", f"-dict={corpus.with_suffix('.dict')}", "-timeout=60", "-rss_limit_mb=3000"]
    words += ["-max_len=16384", "-print_final_stats=1", "-verbosity=1", f"-artifact_prefix={folder}/"]
    done = subprocess.run(
        [sys.executable, str(HARNESS), kind, str(corpus), *words], capture_output=True, text=True, errors="replace"
    )
    said = done.stdout + done.stderr
    found = [path for path in folder.iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
    inputs = "\n".join(f"{path.name}: {path.read_bytes()[:2000]!r}" for path in found)
    assert done.returncode == 0, f"{inputs}\n{said[-6000:]}"
    assert not found, inputs
    assert "number_of_executed_units" in said


@pytest.mark.parametrize("kind", KINDS)
def test_the_fuzzer_runs(kind: str, tmp_path: Path) -> None:
    fuzz(kind, tmp_path, 3)


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_the_fuzzer_finds_nothing(kind: str, tmp_path: Path) -> None:
    fuzz(kind, tmp_path, SECONDS)
