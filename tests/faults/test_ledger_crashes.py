"""kill -9 at every step of reserve, release, commit and void: nothing released uncharged, nothing charged twice.

A child process lives as a client does and kills itself right after the step a crash point is named for; then the
ledger is looked at, a new child takes up where the records say the old one was, and the ledger is looked at again.
``out`` stands for the world: a line in it is something somebody has seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from crash_point_list import CrashPoint
from ledger_processes import Worker
from ledger_worker import DATASET, new_ledger, open_ledger, study

from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.ledger import Budget

POINTS = [p.value for p in CrashPoint if p.value.startswith("client:ledger-")]
BUDGET = Budget(epsilon=1.0, delta=1e-6)
STUDIES, GIVEN_BACK = [1, 2, 3, 4, 5], [2, 4]
RHO = rho_from_epsilon(BUDGET.epsilon, BUDGET.delta) / 3  # exactly the three that are not given back


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


@pytest.fixture
def life(worker: Worker, tmp_path: Path) -> Any:
    new_ledger(tmp_path, BUDGET)

    def live(**how: object) -> int:
        answer = worker.ask("life", folder=str(tmp_path), studies=STUDIES, given_back=GIVEN_BACK, rho=str(RHO), **how)
        return int(answer["code"])

    return live


def out(folder: Path) -> list[int]:
    file = folder / "out"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def check(folder: Path) -> Fraction:
    """Every release is on the ledger as such, and the ledger holds the sum of the releases or more."""
    with open_ledger(folder) as ledger:
        ledger.verify()
        for number in out(folder):
            assert ledger.standing(study(number)) in ("released", "committed"), number
        with ledger.file.reading() as account:
            total = account.groups[DATASET].totals.rho
    assert total >= RHO * len(out(folder))
    return total


@pytest.mark.parametrize("visits", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(life: Any, tmp_path: Path, point: str, visits: int) -> None:
    assert life(point=point, visits=visits) == -9, f"{point} was not reached {visits} time(s)"
    check(tmp_path)
    assert life() == 0
    assert sorted(out(tmp_path)) == [1, 3, 5], "each is let out once"
    assert check(tmp_path) == 3 * RHO == RHO * len(out(tmp_path)), "in the end: exactly what was let out"
    with open_ledger(tmp_path) as ledger:
        assert [ledger.standing(study(n)) for n in STUDIES] == [
            "committed",
            "voided",
            "committed",
            "voided",
            "committed",
        ]


def test_killed_again_and_again(life: Any, tmp_path: Path) -> None:
    """A crash at every point in turn, on the way through one list of studies."""
    deaths = sum(life(point=point, visits=1) == -9 for point in POINTS)
    assert deaths >= 6  # a point behind the last study is not passed any more
    check(tmp_path)
    assert life() == 0
    assert check(tmp_path) == 3 * RHO
    assert sorted(out(tmp_path)) == [1, 3, 5]


def test_killed_at_any_moment(life: Any, tmp_path: Path) -> None:
    """Not at a point but by the clock, wherever that is."""
    for turn in range(8):
        life(after=0.004 + 0.013 * turn)
        check(tmp_path)
    assert life() == 0
    assert check(tmp_path) == 3 * RHO
    assert sorted(out(tmp_path)) == [1, 3, 5]


def test_an_unkept_reservation_is_no_reservation(life: Any, tmp_path: Path) -> None:
    assert life(point="client:ledger-reserve-written", visits=1) == -9
    with open_ledger(tmp_path) as ledger:
        assert ledger.standing(study(1)) is None


def test_a_kept_reservation_is_spent_though_nobody_was_told(life: Any, tmp_path: Path) -> None:
    assert life(point="client:ledger-reserve-kept", visits=1) == -9
    with open_ledger(tmp_path) as ledger:
        assert ledger.standing(study(1)) == "reserved"
        assert ledger.view(DATASET).spent.fits == 1
        assert ledger.file.anchor.read() == ledger.head(), "the lagging anchor was brought forward"
