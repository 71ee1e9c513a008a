"""The account and the one exit."""

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from tests.claims import servers_claim

import tallystick
from tallystick.core.errors import BudgetExceeded, LocalProtocolError
from tallystick.privacy.accountant import ORDERS, rho_from_epsilon
from tallystick.privacy.gaussian_curve import gaussian_epsilon, gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Budget, Ledger, charge_of, covers
from tallystick.privacy.payment import Payment, paid_from
from tallystick.privacy.release import release
from tallystick.privacy.sum_plan import make_plan
from tallystick.privacy.totals import STEPS, Charge, Totals, steps

STUDY = b"s" * 32


def plan_for(epsilon, mechanism="gaussian"):
    c = servers_claim(
        epsilon=epsilon,
        delta=1e-6 if mechanism == "gaussian" else 0.0,
        neighbours="add-remove",
        mechanism=mechanism,
        rounds=1,
        allow_not_private=True,
    )
    return make_plan(c, [(Group(name="g", size=1, bound=1.0),)])


def test_admission_at_the_cap_and_just_over_it():
    ledger = Ledger(Budget(epsilon=1.0, delta=1e-6))
    # Composition in rho: 1.0 buys about rho(1.0)/rho(0.3) studies at 0.3, more than the 3 of plain addition.
    fits = int(gaussian_rho(1.0, 1e-6) / plan_for(0.3).rho)
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
    assert spent.epsilon == pytest.approx(gaussian_epsilon(4 * plan_for(0.5).rho, 1e-6))
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


def test_a_release_needs_the_payment_of_its_own_study():
    ledger, plan = Ledger(), plan_for(1.0)
    open_entry = ledger.reserve(charge_of(STUDY, plan))
    with pytest.raises(LocalProtocolError):
        paid_from(open_entry)
    payment = paid_from(ledger.commit(open_entry))
    with pytest.raises(LocalProtocolError):
        release(1, plan=plan, study=b"t" * 32, payment=payment)
    with pytest.raises(LocalProtocolError):
        release(1, plan=plan_for(2.0), study=STUDY, payment=payment)
    with pytest.raises(LocalProtocolError):  # nobody has paid
        release(1, plan=plan, study=STUDY, payment=Payment(study=STUDY, rho=plan.rho, proof=()))
    out = release(1, plan=plan, study=STUDY, payment=payment)
    assert out.privacy.as_dict()["epsilon"] == 1.0
    assert "any one of the 2 servers" in out.privacy.statement


def _makers(*names: str) -> dict[str, set[str]]:
    """Which files of the wheel call these names."""
    root = Path(tallystick.__file__).parent
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if called in found:
                found[called].add(path.relative_to(root).as_posix())
    return found


def test_one_exit():
    """One function makes a Release, from a Payment; and what is a Payment is said in two places."""
    made = _makers("Release", "Payment", "release", "Ledger", "pack_outcome", "pack_interim")
    assert made["Release"] == {"privacy/release.py"}
    assert made["Payment"] == {"privacy/payment.py", "protocol/governance/receipt_contents.py"}
    # There it is the ledger's own word; and published records, which are paid for like every result, leave by it too.
    assert made["release"] - {"roles/governance/clearance.py"} == {
        "engines/engine.py", "application/published_records.py",
    }  # fmt: skip
    rounds = {"roles/processes/coordinated_rounds.py"}
    assert made["pack_interim"] == rounds
    # Ended early: of an Outcome, too. Published records: of a paid one. Of what a peer added up only the digest leaves.
    assert made["pack_outcome"] == rounds | {
        "roles/processes/pausable_rounds.py", "application/published_records.py", "trust/masks/parts.py",
    }  # fmt: skip
    # An account of what fits have cost: where records or a whole federation are in hand, and the analyst's own tally.
    assert made["Ledger"] == {
        "data/dataset.py", "engines/federation.py", "estimators/base.py", "roles/analyst/connected.py",
    } & made["Ledger"]  # fmt: skip


def _charged(neighbours: str, rho: Fraction, *, number: int) -> Charge:
    curve = tuple(Fraction(steps(rho * order), STEPS) for order in ORDERS)
    return Charge(study=bytes([number]) * 32, curve=curve, rho=rho, pure_epsilon=None, neighbours=neighbours)


def test_add_remove_counts_four_times_beside_replace_one():
    """ρ-zCDP for add-remove is 4ρ-zCDP for replace-one; alone it counts as it is."""
    whole = rho_from_epsilon(1.0, 1e-6)
    budget = Budget(epsilon=1.0, delta=1e-6)
    alone = Totals().plus(_charged("add-remove", whole, number=1))
    assert covers(budget, alone)
    fifth = whole / 5
    mixed = Totals().plus(_charged("replace-one", fifth, number=1)).plus(_charged("add-remove", fifth, number=2))
    assert mixed.composed().rho == whole
    assert covers(budget, mixed)  # 1/5 + 4/5: equality is allowed
    over = mixed.plus(_charged("add-remove", fifth / 100, number=3))
    assert not covers(budget, over)
    assert covers(budget, over.minus(_charged("add-remove", fifth / 100, number=3)))
    assert over.spent(1e-6).epsilon > 1.0 >= mixed.spent(1e-6).epsilon * (1 - 1e-9)


def test_four_is_what_two_steps_of_a_gaussian_cost():
    """Brute force: shift by D (one step) and by 2D (remove, then add), discrete Gaussian of variance 9."""
    x = np.arange(-300, 301)
    logs = -(x**2) / 18.0
    logs -= np.logaddexp.reduce(logs)

    def divergence(shift, order):
        return np.logaddexp.reduce(order * np.roll(logs, shift) + (1 - order) * logs) / (order - 1)

    for order in (1.5, 2.0, 5.0):
        one, two = divergence(1, order), divergence(2, order)
        assert two == pytest.approx(4 * one, rel=1e-6)
        assert two > 2.5 * one  # the planted bug "twice" would not cover it
