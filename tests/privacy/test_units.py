"""Units are never added as they stand: each is stated for itself, or converted by group privacy, k²ρ and kε."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims import servers_claim

import tallystick as ts
from tallystick.core.errors import BudgetExceeded, StudyError
from tallystick.core.identifiers import canonical
from tallystick.privacy.accountant import ORDERS, epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.contribution import Dense, total, total_by_person
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.ledger import Budget, Ledger, admit, charge_of, covers
from tallystick.privacy.release import state_privacy
from tallystick.privacy.sensitivity import Neighbours, vector_sensitivity
from tallystick.privacy.sum_plan import make_plan
from tallystick.privacy.totals import STEPS, Charge, Totals, steps
from tallystick.privacy.units import RECORD, Unit
from tallystick.roles.ledger.account import charge_facts

BUDGET = Budget(epsilon=1.0, delta=1e-6)
WHOLE = rho_from_epsilon(1.0, 1e-6)
PID = Unit(kind="person", person="pid", max_records=4, max_institutions=3)


def charge(number: int, rho: Fraction, unit: Unit = RECORD, *, pure: Fraction | None = None, **more: Any) -> Charge:
    curve = tuple(Fraction(steps(rho * a if pure is None else min(rho * a, pure)), STEPS) for a in ORDERS)
    named = {"person": unit.person, "max_records": unit.max_records, "max_institutions": unit.max_institutions}
    return Charge(
        study=number.to_bytes(32, "big"), curve=curve, rho=rho, pure_epsilon=pure, unit=unit.kind, **named, **more
    )


def totals(*charges: Charge, person_records: int | None = None) -> Totals:
    made = Totals(person_records=person_records)
    for one in charges:
        made = made.plus(one)
    return made


# -- one change of one unit in changes of another: brute force ---------------------------------------------------------


def moved(grid: Grid, one: Any, other: Any) -> float:
    """How far two data sets' sums by person lie apart; a record is (value, person)."""
    sums = []
    for records in (one, other):
        values = np.array([[v] for v, _ in records], dtype=float).reshape(-1, 1)
        sums.append(total_by_person(Dense(values=values), grid, np.array([p for _, p in records], dtype=np.int64)))
    return float(np.abs(sums[0] - sums[1]).max())


RECORDS = list(itertools.product((-9.0, -0.4, 0.0, 9.0), (0, 1)))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_record_is_two_steps_of_a_fit_for_persons(neighbours: Neighbours) -> None:
    """Every data set of up to three records of two persons; one step alone, the planted bug, does not reach."""
    grid = Grid(groups=(Group(name="all", size=1, bound=1.0),), fraction_bits=6, norm="l2")
    step = vector_sensitivity(grid.integer_bounds[0], neighbours)
    worst = 0.0
    for rest in itertools.combinations_with_replacement(RECORDS, 2):
        if neighbours == "add-remove":
            worst = max(worst, *(moved(grid, rest, (*rest, record)) for record in RECORDS))
        else:
            pairs = itertools.combinations(RECORDS, 2)
            worst = max(worst, *(moved(grid, (*rest, a), (*rest, b)) for a, b in pairs))
    assert PID.chain(RECORD) == 2
    assert step < worst <= 2 * step


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("records", [1, 2, 3])
def test_a_person_is_as_many_steps_of_a_fit_for_records_as_it_has_records(neighbours: Neighbours, records: int) -> None:
    grid = Grid(groups=(Group(name="all", size=1, bound=1.0),), fraction_bits=6, norm="l2")
    step = vector_sensitivity(grid.integer_bounds[0], neighbours)

    def summed(values: tuple[float, ...]) -> int:
        return int(total(Dense(values=np.array(values, dtype=float).reshape(-1, 1)), grid)[0])

    own = [summed(values) for values in itertools.product((-9.0, 0.0, 9.0), repeat=records)]
    worst = max(map(abs, own)) if neighbours == "add-remove" else max(own) - min(own)
    assert worst == records * step
    assert RECORD.chain(PID, records=records) == records
    assert RECORD.chain(PID) is None  # what another study clips to is no fact about the data


@pytest.mark.parametrize(("known", "fitted"), [(1, 1), (3, 1), (3, 2), (4, 2), (2, 3)])
def test_a_person_at_more_institutions_is_several_of_a_fit_for_fewer(known: int, fitted: int) -> None:
    """J institutions move the total by J·D; the fit's own sensitivity is I·D."""
    fit, asked = replace(PID, max_institutions=fitted), replace(PID, max_institutions=known)
    size = fit.chain(asked)
    assert size is not None
    assert known <= size * fitted
    assert size == 1 or known > (size - 1) * fitted
    assert fit.chain(replace(asked, max_records=99)) == size  # the sum is clipped, however many records


def test_group_privacy_is_the_square_of_the_group() -> None:
    """The discrete Gaussian attains it: k steps cost k² times one. Dropping the square, planted here, is caught."""
    x = np.arange(-400, 401)
    logs = -(x**2) / 32.0
    logs -= np.logaddexp.reduce(logs)

    def divergence(shift: int, order: float) -> float:
        return float(np.logaddexp.reduce(order * np.roll(logs, shift) + (1 - order) * logs) / (order - 1))

    rho = Fraction(1, 32)  # D = 1, s² = 16
    for size in (1, 2, 3, 12):
        grouped = totals(charge(1, rho), person_records=size).figure(PID)[0]
        assert grouped.rho == size**2 * rho
        for order in (1.5, 2.0, 3.0):
            cost = divergence(size, order)
            assert cost <= float(grouped.rho) * order * (1 + 1e-9)
            assert size == 1 or cost > float(size * rho) * order * 1.5  # the planted bug
        assert all(part == steps(size**2 * rho * order) for part, order in zip(grouped.curve, ORDERS))


def test_pure_epsilon_grows_with_the_group_itself() -> None:
    """A Laplace of scale 1/ε moved by k: log-odds of kε, no less and no more."""
    epsilon = Fraction(1, 10)
    grouped = totals(charge(1, epsilon**2 / 2, pure=epsilon), person_records=5).figure(PID)[0]
    assert (grouped.pure_epsilon, grouped.rho) == (5 * epsilon, 25 * epsilon**2 / 2)
    k = np.arange(-200, 201)
    odds = -abs(k - 5) * float(epsilon) + abs(k) * float(epsilon)
    assert odds.max() == pytest.approx(float(grouped.pure_epsilon))


# -- accounts ----------------------------------------------------------------------------------------------------------


def test_one_unit_adds_up_as_it_always_did() -> None:
    for unit in (RECORD, PID):
        both = totals(charge(1, WHOLE / 2, unit), charge(2, WHOLE / 2, unit))
        assert (both.rho, both.spent().fits, both.spent().unit) == (WHOLE, 2, unit)
        assert covers(BUDGET, both)
        assert unit.words in both.spent().statement


@pytest.mark.parametrize(
    "other",
    [
        RECORD,
        replace(PID, person="household"),
        replace(PID, max_records=5),
        replace(PID, max_institutions=1),
        replace(PID, max_institutions=4),
    ],
)
def test_different_units_are_stated_for_each(other: Unit) -> None:
    fifth = WHOLE / 5
    spent = totals(charge(1, fifth, PID), charge(2, fifth, other)).spent()
    assert {PID, other} <= {one.unit for one in spent.units}
    for unit in (PID, other):
        assert unit.words in spent.statement
    assert all(one.fits + one.left_out == 2 for one in spent.units)
    assert spent.rho >= 2 * float(fifth)  # never less than the plain sum, and told as converted


def test_a_fit_for_records_bounds_nothing_for_a_person_unless_their_number_is_declared() -> None:
    """The attack: a model for persons, an evaluation for records, both ε = 1."""
    model, evaluation = charge(1, WHOLE, PID), charge(2, WHOLE)
    spent = totals(model, evaluation).spent()
    record, person = spent.units
    assert (record.unit, person.unit) == (RECORD, PID)
    assert record.epsilon == pytest.approx(epsilon_from_rho(5 * WHOLE, 1e-6))
    assert (record.fits, record.left_out, person.fits, person.left_out) == (2, 0, 1, 1)
    assert person.epsilon == pytest.approx(1.0)
    assert "the other 1 bound(s) nothing here" in spent.statement
    assert (spent.unit, spent.epsilon) == (RECORD, record.epsilon)
    silent = epsilon_from_rho(2 * WHOLE, 1e-6)
    assert f"{silent:.6g}" not in spent.statement
    declared = totals(model, evaluation, person_records=12).spent()
    assert declared.unit == PID
    assert declared.epsilon == pytest.approx(epsilon_from_rho(145 * WHOLE, 1e-6))
    assert [one.left_out for one in declared.units] == [0, 0]


def test_relations_and_units_convert_one_after_the_other() -> None:
    """Persons, added or removed, beside records, replaced: two steps to a replaced person, two of those to a record."""
    one = charge(1, WHOLE, PID, neighbours="add-remove")
    mixed = totals(one, charge(2, WHOLE))
    assert mixed.composed().rho == 17 * WHOLE
    assert totals(one, charge(2, WHOLE, neighbours="add-remove")).composed().rho == 5 * WHOLE


def test_a_budget_is_never_held_against_the_plain_sum() -> None:
    half = WHOLE / 2
    records = totals(charge(1, half))
    admit(records, charge(2, half), BUDGET)
    with pytest.raises(BudgetExceeded, match="any one record"):
        admit(records, charge(2, half, PID), BUDGET)  # half and half, for different units
    fits = admit(records, charge(2, half / 4, PID), BUDGET)  # 1/2 + 4 · 1/8: equality is allowed
    assert fits.rho == WHOLE
    with pytest.raises(BudgetExceeded):
        admit(fits, charge(3, Fraction(1, 10**9), PID), BUDGET)
    declared = totals(charge(1, half), person_records=2)
    with pytest.raises(BudgetExceeded, match="any one person"):
        admit(declared, charge(2, half / 4, PID), BUDGET)  # for the person 4 · 1/2 + 1/8


def test_a_budget_for_persons_bounds_those_known_to_most_institutions() -> None:
    few, many = replace(PID, max_institutions=1), replace(PID, max_institutions=3)
    both = totals(charge(1, WHOLE / 10, few), charge(2, WHOLE / 10, many))
    assert both.largest[0] == many
    assert both.rho == WHOLE
    assert covers(BUDGET, both)
    assert not covers(BUDGET, both.plus(charge(3, Fraction(1, 10**9), few)))


UNITS = st.sampled_from([RECORD, PID, replace(PID, person="b"), replace(PID, max_institutions=1)])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(UNITS, st.integers(1, 10**6), st.booleans(), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([None, 1, 7]),
    st.randoms(use_true_random=False),
)
def test_no_figure_is_below_the_sum_it_converts_and_order_leaves_no_trace(
    parts: list[tuple[Unit, int, bool, bool]], declared: int | None, random: Any
) -> None:
    charges = [
        charge(
            i,
            Fraction(n, 10**6),
            unit,
            pure=Fraction(n, 10**3) if pure else None,
            neighbours="add-remove" if added else "replace-one",
        )
        for i, (unit, n, pure, added) in enumerate(parts)
    ]
    made = totals(*charges, person_records=declared)
    for unit, part in made.whole():
        assert part.charges == len(charges)
        assert part.rho >= sum(c.rho for c in charges)
        assert all(a >= b for a, b in zip(part.curve, _least(charges)))
        assert made.figure(unit) == (part, 0)
    taken = random.sample(charges, len(charges) // 2)
    rest = made
    for one in taken:
        rest = rest.minus(one)
    assert rest == totals(*(c for c in charges if c not in taken), person_records=declared)


def _least(charges: list[Charge]) -> list[int]:
    return [sum(steps(c.curve[i]) for c in charges) for i in range(len(ORDERS))]


# -- what is written and said ------------------------------------------------------------------------------------------


def test_links_about_records_are_what_they_were_to_the_byte() -> None:
    """SHA-256 of the facts that b305a84 wrote for these charges."""
    for neighbours, known in (
        ("replace-one", "21374e7bd8c851cf744d341a99e93bba8ee3f7e7ceae3f07f33e00dafafa1322"),
        ("add-remove", "8d2ff0f3e0def6686f67ebd6371a1f845ca9ca5cf2c5d3c21faff5d434189f5b"),
    ):
        one = replace(charge(1, Fraction(1, 8), neighbours=neighbours), study=bytes([1]) * 32)
        assert hashlib.sha256(canonical(charge_facts(one))).hexdigest() == known
    assert {"person", "max_records", "max_institutions"} <= set(charge_facts(charge(1, WHOLE, PID)))


def _plan(**more: Any) -> Any:
    claim = servers_claim(epsilon=1.0, delta=1e-6, neighbours="add-remove", mechanism="gaussian", rounds=1, **more)
    return make_plan(claim, [(Group(name="g", size=1, bound=1.0),)])


def test_a_plan_its_charge_and_its_statement_say_the_same_unit() -> None:
    plan = _plan(unit="person", person="pid", max_records=4, max_institutions=3)
    assert charge_of(b"s" * 32, plan).protects == state_privacy(plan).protects == PID
    told = state_privacy(plan).as_dict()
    assert (told["unit"], told["person"], told["max_records"], told["max_institutions"]) == ("person", "pid", 4, 3)
    assert "'pid'" in told["statement"]
    plain = _plan()
    assert charge_of(b"s" * 32, plain).protects == state_privacy(plain).protects == RECORD
    assert not {"person", "max_records", "max_institutions"} & set(state_privacy(plain).as_dict())


def test_a_declared_number_of_records_is_a_whole_positive_number() -> None:
    frame = {"x": [1.0, 2.0]}
    data = ts.Dataset(frame, budget=1.0, max_records=3)
    data.ledger.reserve(charge(1, WHOLE / 100))
    data.ledger.reserve(charge(2, WHOLE / 100, PID))
    assert data.spent.unit == PID
    assert data.spent.rho == pytest.approx(float(WHOLE / 10))
    for wrong in (0, -1, 2.0, True):
        with pytest.raises(StudyError, match="max_records"):
            ts.Dataset(frame, budget=1.0, max_records=wrong)  # type: ignore[arg-type]
    assert Ledger().spent().statement.startswith("0 fit(s)")
