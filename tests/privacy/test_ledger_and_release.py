"""The account and the one exit."""

import ast
from fractions import Fraction
from pathlib import Path

import pytest

import tallystick
from tallystick.core.errors import BudgetExceeded, LocalProtocolError
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import ORDERS, Budget, Ledger, charge_of
from tallystick.privacy.plan import make_plan
from tallystick.privacy.release import release
from tallystick.privacy.rules import Claim

STUDY = b"s" * 32


def plan_for(epsilon, mechanism="gaussian"):
    c = Claim(
        epsilon=epsilon,
        delta=1e-6 if mechanism == "gaussian" else 0.0,
        neighbours="add-remove",
        mechanism=mechanism,
        rounds=1,
        simulation=True,
    )
    return make_plan(c, [(Group(name="g", size=1, bound=1.0),)])


def test_admission_at_the_cap_and_just_over_it():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6))
    # Composition in rho: 1.0 buys about rho(1.0)/rho(0.3) studies at 0.3, more than the 3 of plain addition.
    fits = int(rho_from_epsilon(1.0, 1e-6) / plan_for(0.3).rho)
    assert fits > 3
    for _ in range(fits):
        ledger.commit(ledger.reserve(charge_of(STUDY, plan_for(0.3))))
    with pytest.raises(BudgetExceeded) as caught:
        ledger.reserve(charge_of(STUDY, plan_for(0.3)))
    assert caught.value.exit_code == 3
    assert ledger.spent().fits == fits


def test_pure_budget_equality_is_allowed_and_over_is_refused():
    ledger = Ledger(Budget(epsilon=1.0, delta=0.0))
    half = plan_for(0.5, "laplace")
    for _ in range(2):
        ledger.commit(ledger.reserve(charge_of(STUDY, half)))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge_of(STUDY, plan_for(0.001, "laplace")))
    assert ledger.spent().epsilon <= 1.0


def test_a_reservation_is_spent_until_withdrawn():
    ledger = Ledger(Budget(epsilon=1.0))
    entry = ledger.reserve(charge_of(STUDY, plan_for(1.0)))
    with pytest.raises(BudgetExceeded):
        ledger.reserve(charge_of(STUDY, plan_for(1.0)))
    ledger.withdraw(entry)
    again = ledger.reserve(charge_of(STUDY, plan_for(1.0)))
    done = ledger.commit(again)
    for wrong in (again, done, entry):
        with pytest.raises(LocalProtocolError):
            ledger.withdraw(wrong)


def test_composed_statement():
    ledger = Ledger()
    for _ in range(4):
        ledger.commit(ledger.reserve(charge_of(STUDY, plan_for(0.5))))
    spent = ledger.spent(1e-6)
    assert spent.epsilon == pytest.approx(epsilon_from_rho(4 * plan_for(0.5).rho, 1e-6))
    assert spent.epsilon < 4 * 0.5
    assert "4 fit(s)" in spent.statement
    ledger.reserve(charge_of(STUDY, plan_for(1.0, "none")))
    assert ledger.spent().epsilon is None
    assert not ledger.spent().differentially_private


def test_without_noise_no_budget_covers_it():
    with pytest.raises(BudgetExceeded):
        Ledger(Budget(epsilon=100.0)).reserve(charge_of(STUDY, plan_for(1.0, "none")))


def test_curves_are_rationals_rounded_up():
    charge = charge_of(STUDY, plan_for(0.7))
    for order, value in zip(ORDERS, charge.curve):
        assert isinstance(value, Fraction)
        assert value >= charge.rho * order
    assert list(ORDERS[:31]) == sorted(ORDERS[:31])


def test_a_release_needs_its_own_committed_entry():
    ledger, plan = Ledger(), plan_for(1.0)
    open_entry = ledger.reserve(charge_of(STUDY, plan))
    with pytest.raises(LocalProtocolError):
        release(1, plan=plan, study=STUDY, entry=open_entry)
    entry = ledger.commit(open_entry)
    with pytest.raises(LocalProtocolError):
        release(1, plan=plan, study=b"t" * 32, entry=entry)
    with pytest.raises(LocalProtocolError):
        release(1, plan=plan_for(2.0), study=STUDY, entry=entry)
    out = release(1, plan=plan, study=STUDY, entry=entry)
    assert out.privacy.as_dict()["epsilon"] == 1.0
    assert "any one of the 2 servers" in out.privacy.statement


def test_one_exit():
    """Only privacy/release.py calls Release(...)."""
    root = Path(tallystick.__file__).parent
    makers = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "Release":
                makers.add(path.relative_to(root).as_posix())
    assert makers == {"privacy/release.py"}
