"""How many studies still fit is what the ledger admits: that many can be reserved, and not one more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ledger_examples import charge, dataset, open_ledger, study

from tallystick.core.errors import BudgetExceeded
from tallystick.engines.setup import set_up
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.ledger import Budget, charge_of, typical_charge
from tallystick.privacy.totals import Charge
from tallystick.privacy.units import RECORD, Unit
from tallystick.study import Study

PERSON = Unit(kind="person", person="id", max_records=4, max_institutions=2)


def before(number: int, epsilon: float, unit: Unit = RECORD, neighbours: str = "replace-one") -> Charge:
    return replace(typical_charge(epsilon, 1e-6, unit, neighbours), study=study(number))


def planned(mechanism: str) -> Charge:
    """What a real study of epsilon 0.5 is charged."""
    raw = {
        "study": {"name": "s", "version": 1, "program": "summary", "accept_noise": True},
        "privacy": {"epsilon": 0.5, "mechanism": mechanism, **({"delta": 1e-6} if mechanism == "gaussian" else {})},
        "data": {"records": 9000, "columns": {"age": {"type": "number", "lower": 0, "upper": 100}}},
    }
    setup = set_up(Study.from_dict(raw).canonical(), "")
    try:
        return charge_of(bytes(32), setup.plan)
    finally:
        setup.close()


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(epsilon=1.0), []),
        (Budget(epsilon=0.5), []),  # exactly one: equality is within
        (Budget(epsilon=3.0), [before(1, 0.7), before(2, 0.3)]),
        (Budget(epsilon=2.0), [before(1, 0.7, neighbours="add-remove")]),
        (Budget(epsilon=2.0), [before(1, 0.6, PERSON)]),
        (Budget(epsilon=3.0), [before(1, 0.6, PERSON), before(2, 0.3)]),
        (Budget(epsilon=1.5, delta=0.0), []),
        (Budget(epsilon=0.4), []),
        (Budget(epsilon=1.0), [charge(1, rho_from_epsilon(1.0, 1e-6))]),
    ],
    ids=["1", "0.5", "after others", "add-remove", "persons", "mixed units", "pure", "too small", "spent"],
)
def test_as_many_as_are_said_to_fit_are_admitted(tmp_path: Path, budget: Budget, spent: list[Charge]) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), budget)
        for one in spent:
            ledger.reserve("default", one)
        view = ledger.view("default")
        unit, part = view.totals.largest
        asked = typical_charge(0.5, budget.delta, unit, part.neighbours)
        said = view.how_many_fit(0.5)
        for number in range(said):
            assert ledger.view("default").how_many_fit(0.5) == said - number
            ledger.reserve("default", replace(asked, study=study(100 + number)))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", replace(asked, study=study(100 + said)))
        assert ledger.view("default").how_many_fit(0.5) == 0


@pytest.mark.parametrize(("mechanism", "delta"), [("gaussian", 1e-6), ("laplace", 0.0)])
def test_real_studies_cost_what_is_counted(tmp_path: Path, mechanism: str, delta: float) -> None:
    """The charge that is counted with is the most that a study of this size is charged, and hardly more."""
    real = planned(mechanism)
    counted = typical_charge(0.5, delta, RECORD, "replace-one")
    assert real.rho <= counted.rho
    assert all(mine <= most for mine, most in zip(real.curve, counted.curve))
    cost, most = (real.rho, counted.rho) if delta else (real.pure_epsilon, counted.pure_epsilon)
    assert 0.999 * float(most or 0) < float(cost or 0) <= float(most or 0)
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=2.0, delta=delta))
        said = ledger.view("default").how_many_fit(0.5)
        for number in range(said):
            ledger.reserve("default", replace(real, study=study(1 + number)))
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", replace(real, study=study(1 + said)))


def test_plain_division_would_be_wrong(tmp_path: Path) -> None:
    """Why the ledger is asked: epsilons do not add up, so 2 / 0.5 = 4 is far too few."""
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=2.0))
        assert ledger.view("default").how_many_fit(0.5) > 2 / 0.5
        assert ledger.view("default").how_many_fit(1e-6) > 10**9  # and is asked quickly, however many they are


def test_nothing_fits_a_closed_budget(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=2.0))
        assert replace(ledger.view("default"), closed=True).how_many_fit(0.5) == 0
