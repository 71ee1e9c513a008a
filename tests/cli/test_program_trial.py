"""check-program on records: planted faults are found, clipping counted, own data stay local, the tutorial is true."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from cli_runs import Run
from numpy.typing import NDArray

from tallystick.algorithms.program import Program, Public
from tallystick.algorithms.user_programs.program_file import compile_program, read_program
from tallystick.application.check_program import check_program, describe
from tallystick.application.program_trial import check_sums, clipping, grid_for, same_again, trial_rounds
from tallystick.core.errors import DataError, StudyError
from tallystick.privacy.contribution import Dense, total
from tallystick.privacy.grid import Grid, Group

Runner = Callable[..., Run]
Floats = NDArray[np.float64]
ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
HUBER = PROGRAMS / "huber_regression.py"
STUDY = PROGRAMS / "huber_regression.toml"
GRID = Grid(groups=(Group(name="all", size=2, bound=1.0),), fraction_bits=20, norm="l2")
RECORDS = np.random.default_rng(1).normal(size=(90, 2))


class Model(NamedTuple):
    """The state of the tutorial's program."""

    weights: Floats
    records: float


class PlainMap:
    """A record map that can be made wrong: ``fault`` changes the vectors of a block."""

    def __init__(self, fault: Callable[[Floats, int], Floats] = lambda vectors, _call: vectors) -> None:
        self._fault, self._calls = fault, 0

    def vector_size(self, record_size: int, state: Any) -> int:
        return record_size

    def vectors_leaving_out(self, records: Floats, state: Any, size: int) -> tuple[Floats, int]:
        self._calls += 1
        return self._fault(np.array(records), self._calls), 0

    def total_leaving_out(self, records: Floats, state: Any, grid: Grid) -> tuple[NDArray[np.int64], int]:
        vectors, left_out = self.vectors_leaving_out(records, state, grid.size)
        return total(Dense(values=vectors), grid), left_out


def rules(fault: Callable[[Floats, int], Floats]) -> set[str]:
    return {f.rule for f in check_sums(PlainMap(fault), RECORDS, None, GRID)}


def test_an_honest_map_passes() -> None:
    assert rules(lambda v, _: v) == set()
    assert check_sums(PlainMap(), RECORDS[:1], None, GRID) == []
    assert check_sums(PlainMap(), RECORDS[:0], None, GRID) == []


def test_planted_faults_are_found() -> None:
    assert "determinism" in rules(lambda v, call: v + 0.01 * call)
    assert rules(lambda v, _: v - v.mean(axis=0)) == {"exactness"}  # a mean over the block
    assert "exactness" in rules(lambda v, _: v / len(v))
    assert rules(lambda v, _: v + 1e-3 * np.arange(len(v))[:, None]) >= {"exactness", "order"}
    weighted = rules(lambda v, _: v * (np.arange(len(v))[:, None] % 2))
    assert "order" in weighted


class Toy(Program):
    """A Python program with a compiled map beside it, as the sandbox has them."""

    rounds, bound = 3, 1.0

    def __init__(self, jitter: float = 0.0, after: float = 0.0) -> None:
        self.compiled_map, self._jitter, self._after = PlainMap(), jitter, after

    def init(self, public: Public) -> Any:
        return np.zeros(2) + self._jitter

    def reduce_in_aggregator(self, total: Floats, state: Any) -> Any:
        return state + total + self._after


def test_a_second_process_must_agree() -> None:
    public = Public(features=("a", "b"))
    assert same_again(Toy(), Toy, public, RECORDS, 2) == []
    changed = same_again(Toy(), lambda: Toy(jitter=1e-9), public, RECORDS, 2)
    assert [f.cause.split()[0] for f in changed] == ["init", "reduce_in_aggregator"]
    changed = same_again(Toy(), lambda: Toy(after=1e-9), public, RECORDS, 2)
    assert [f.cause.split()[0] for f in changed] == ["reduce_in_aggregator"]


def test_rounds_without_noise() -> None:
    public = Public(features=("a", "b"), records=900)
    findings, report = trial_rounds(Toy(), PlainMap(), public, RECORDS, GRID)
    assert (findings, [row["round"] for row in report]) == ([], [1, 3])
    findings, _ = trial_rounds(Toy(after=math.inf), PlainMap(), public, RECORDS, GRID)
    assert [f.rule for f in findings] == ["state-is-finite"]


def test_clipping_is_counted_by_group_and_norm() -> None:
    records = np.array([[3.0, 4.0, 0.5], [0.3, 0.4, -2.0], [0.0, 0.0, 0.0], [0.6, 0.8, 1.0]])
    groups = (Group(name="pair", size=2, bound=1.0, share=0.5), Group(name="last", size=1, bound=1.5, share=0.5))
    pair, last = clipping(PlainMap(), records, None, Grid(groups=groups, fraction_bits=20, norm="l2"))
    assert (pair["clipped"], pair["largest_norm"], pair["records"]) == (0.25, 5.0, 4)
    assert (last["clipped"], last["largest_norm"]) == (0.25, 2.0)
    pair, last = clipping(PlainMap(), records, None, Grid(groups=groups, fraction_bits=20, norm="l1"))
    assert (pair["clipped"], pair["largest_norm"]) == (0.5, 7.0)
    signs = Grid(groups=(Group(name="all", size=3, bound=10.0, nonnegative=True),), fraction_bits=20, norm="l2")
    assert clipping(PlainMap(), records, None, signs)[0]["clipped"] == 0.25  # a negative number is changed, too
    assert clipping(PlainMap(), records[:0], None, signs)[0]["clipped"] == 0.0


def test_a_real_program_by_the_compiled_map() -> None:
    file = read_program(HUBER.read_text(encoding="utf-8"), name="huber_regression.py")
    compiled = compile_program(file)
    named = Model(weights=np.array([0.0, 0.0, 0.0, 0.0, 50.0]), records=1000.0)
    records = np.array([[1.0, 1.0, 0.0, 1.0, 99.0], [0.0, 0.0, 1.0, 0.0, 45.0], [-1.0, 1.0, 1.0, 0.0, 50.0]])
    grid = Grid(groups=(Group(name="all", size=5, bound=1.0),), fraction_bits=20, norm="l2")
    (row,) = clipping(compiled, records, named, grid)
    assert row["largest_norm"] == pytest.approx(2.0)
    assert row["clipped"] == pytest.approx(1 / 3)
    assert grid_for(Toy(), 5, "l1").norm == "l1"


# -- the command and the tutorial -------------------------------------------------------------------------------------


def test_the_tutorial_s_program(run: Runner, tmp_path: Path) -> None:
    text = HUBER.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 40
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    assert text in tutorial
    assert STUDY.read_text(encoding="utf-8") in tutorial
    report = run("check-program", HUBER, "--study", STUDY, "--format", "json").json
    assert (report["ok"], report["tried"]) == (True, True)
    assert report["tried_on"] == "1,000 made-up records"
    assert [(c["round"], c["clipped"], c["failed"]) for c in report["clipping"]] == [(1, 0.0, 0), (20, 0.0, 0)]
    shown = _screen(tutorial, "$ tallystick check-program huber_regression.py --study")
    assert describe(report).splitlines()[1:] == shown.splitlines()[1:]


def _screen(tutorial: str, command: str) -> str:
    """What the tutorial shows below a command."""
    block = tutorial.split(command, 1)[1].split("```", 1)[0]
    return block.split("\n", 1)[1].strip()


def test_own_records_are_tried_where_they_are(tmp_path: Path) -> None:
    lines = [f"{20 + i % 60},{1 + i % 16},{'Female' if i % 3 else 'Male'},{30 + i % 30}" for i in range(200)]
    data = tmp_path / "own.csv"
    data.write_text("\n".join(["age,education_num,sex,hours_per_week", *lines]) + "\n", encoding="utf-8")
    bad = tmp_path / "huber_regression.py"
    bad.write_text(HUBER.read_text(encoding="utf-8").replace("bound = 2.0", "bound = 0.25"), encoding="utf-8")
    report = check_program(bad, STUDY, data=(data,))
    assert (report["ok"], report["tried_on"]) == (True, "200 records of your own")
    first = report["clipping"][0]
    assert first["records"] == 200
    assert first["clipped"] > 0.8
    assert "of records shortened to 0.25" in describe(report)
    with pytest.raises(StudyError, match="--data without --study"):
        check_program(bad, data=(data,))
    data.write_text("age,education_num,sex,hours_per_week\n", encoding="utf-8")
    with pytest.raises(DataError):
        check_program(bad, STUDY, data=(data,))


def test_a_bound_that_nothing_reaches_is_said(tmp_path: Path) -> None:
    wide = tmp_path / "huber_regression.py"
    wide.write_text(HUBER.read_text(encoding="utf-8").replace("bound = 2.0", "bound = 50.0"), encoding="utf-8")
    assert "no record comes near the bound" in describe(check_program(wide, STUDY))
