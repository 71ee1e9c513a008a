"""10,000 reservations race for one budget from threads of several processes; not one step over the cap.

A refusal writes nothing, so only the admitted ones wait for the disk (two or three fsyncs each): the full count fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from ledger_processes import Worker
from ledger_worker import DATASET, charge, new_ledger, open_ledger, study

from tallystick.core.errors import BudgetExceeded
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.ledger import Budget

BUDGET = Budget(epsilon=1.0, delta=1e-6)
WHOLE = rho_from_epsilon(BUDGET.epsilon, BUDGET.delta)
PROCESSES, THREADS = 4, 4


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def lots_of(numbers: list[int]) -> list[list[list[int]]]:
    """Studies dealt out to the threads of the processes."""
    hands = PROCESSES * THREADS
    return [[numbers[p * THREADS + t :: hands] for t in range(THREADS)] for p in range(PROCESSES)]


def test_ten_thousand_racing_reservations_never_exceed_the_cap(worker: Worker, tmp_path: Path) -> None:
    fits = 200
    rho = WHOLE / fits  # exactly so many fit: one more is one step over
    new_ledger(tmp_path, BUDGET)
    answer = worker.ask("race", folder=str(tmp_path), lots=lots_of(list(range(10_000))), rho=str(rho))
    assert answer["codes"] == [0] * PROCESSES
    admitted = [number for numbers in answer["admitted"] for number in numbers]
    assert len(admitted) == len(set(admitted)) == fits
    assert all(answer["admitted"]), "a process has not taken part"
    with open_ledger(tmp_path) as ledger:
        ledger.verify()  # which does every admission again
        view = ledger.view(DATASET)
        with ledger.file.reading() as account:
            assert account.groups[DATASET].totals.rho == WHOLE
            assert {int.from_bytes(s, "big") for s in account.studies} == set(admitted)
        assert view.spent.fits == fits
        assert view.left_epsilon == 0.0
        with pytest.raises(BudgetExceeded):
            ledger.reserve(DATASET, charge(99_999, Fraction(1, 2**200)))


def test_the_same_study_from_everywhere_is_charged_once(worker: Worker, tmp_path: Path) -> None:
    """Every thread asks for the same studies; all are told yes, each study is on the ledger once."""
    studies = list(range(12))
    new_ledger(tmp_path, BUDGET)
    lots = [[studies[t:] + studies[:t] for t in range(THREADS)] for _ in range(PROCESSES)]
    answer = worker.ask("race", folder=str(tmp_path), lots=lots, rho=str(WHOLE / len(studies)))
    told = Counter(number for numbers in answer["admitted"] for number in numbers)
    assert told == dict.fromkeys(studies, PROCESSES * THREADS)
    with open_ledger(tmp_path) as ledger:
        assert ledger.verify().links == 2 + len(studies)
        assert {ledger.standing(study(number)) for number in studies} == {"reserved"}
        assert ledger.view(DATASET).spent.fits == len(studies)


def test_the_race_would_show_a_ledger_that_does_not_look_again(tmp_path: Path) -> None:
    """Planted bug: two connections that decide on what they knew when they were opened overspend."""
    new_ledger(tmp_path, BUDGET)
    first, second = open_ledger(tmp_path), open_ledger(tmp_path)
    stale = second.file._account.groups[DATASET]
    first.reserve(DATASET, charge(1, WHOLE))
    assert second._admit(stale, charge(2, WHOLE)).rho == WHOLE  # what a careless ledger would say
    with pytest.raises(BudgetExceeded):
        second.reserve(DATASET, charge(2, WHOLE))
    first.close()
    second.close()
