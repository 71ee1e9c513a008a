"""A program file that fails in its own code: the program's words, an exit code by contract, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import STUDY, Run, study_file

Runner = Callable[..., Run]
PROGRAM = """
import numpy as np
import tallystick as ts


class Sums(ts.Program):
    rounds = 2
    bound = 2.0

    def init(self, public):
        return np.zeros(START)

    def map_in_client(self, record, state):
        return record * 1.0

    def reduce_in_aggregator(self, total, state):
        return state + total[NEXT]

    def finished(self, state):
        return state[END] > 1e9
"""
SOUND = {"START": "len(public.features) + 1", "NEXT": ":", "END": "0"}


def failing(folder: Path, **changes: str) -> Path:
    text = PROGRAM.lstrip()
    for name, value in (SOUND | changes).items():
        text = text.replace(name, value)
    (folder / "sums.py").write_text(text, encoding="utf-8")
    words = STUDY.replace('"logistic_regression"', '"sums.py"').replace("[program]\nrounds = 3\n", "")
    return study_file(folder, words)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"START": "public.features[99]"}, 2, "the program's init fails: IndexError"),
        ({"NEXT": "99"}, 4, "the program's reduce_in_aggregator fails: IndexError: index 99 is out of bounds"),
        ({"END": "99"}, 4, "the program's finished fails: IndexError"),
    ],
)
def test_simulate_shows_the_programs_own_words(
    run: Runner, data: Path, tmp_path: Path, changes: dict[str, str], code: int, words: str
) -> None:
    options = ("simulate", failing(tmp_path, **changes), "--data", data, "--clients", 3, "--seed", 1)
    told = run(*options, "--format", "json")
    assert told.code == code
    assert words in told.error["cause"]
    assert told.error["round"] == (1 if code == 4 else None)
    assert told.error["rule"] == "run"
    plain = run(*options)
    assert plain.code == code
    assert words in plain.err
    assert "Traceback" not in plain.err
    assert "check-program" in plain.err


def test_the_same_program_without_the_fault_runs(run: Runner, data: Path, tmp_path: Path) -> None:
    done = run("simulate", failing(tmp_path), "--data", data, "--clients", 3, "--seed", 1, "--format", "json")
    assert done.code == 0
