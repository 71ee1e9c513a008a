"""Accounts of Gaussian studies: by the exact curve, with their distances added up, and never where it does not hold."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims import servers_claim

from tallystick.core.errors import BudgetExceeded
from tallystick.privacy import conversion
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.gaussian_curve import distance_delta, gaussian_delta, gaussian_epsilon, gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Budget, Ledger, charge_of, covers, how_many_fit, typical_charge
from tallystick.privacy.sum_plan import make_plan
from tallystick.privacy.totals import Charge, Totals, UnitTotals
from tallystick.privacy.units import RECORD
from tallystick.trust.proxy import PROXY
from tallystick.trust.proxy.section import ProxySection

ONE = [(Group(name="g", size=3, bound=1.0),)]
BUDGET = Budget(epsilon=1.0, delta=1e-6)


def charge(epsilon: float = 1.0, *, delta: float = 1e-6, bits: int | None = None, **facts: Any) -> Charge:
    told = {"epsilon": epsilon, "delta": delta, "neighbours": "replace-one", "mechanism": "gaussian", "rounds": 1}
    claim = servers_claim(**{**told, "records": 99, **facts})
    return charge_of(bytes(32), make_plan(claim, ONE, fraction_bits=bits))


def laplace(epsilon: float, **facts: Any) -> Charge:
    return charge(epsilon, delta=0.0, mechanism="laplace", **facts)


def through_a_proxy(epsilon: float = 1.0, delta: float = 1e-6) -> Charge:
    claim = replace(
        servers_claim(
            epsilon=epsilon, delta=delta, neighbours="replace-one", mechanism="gaussian", rounds=1, records=9
        ),
        trust=PROXY.trust(ProxySection()),
    )
    return charge_of(bytes(32), make_plan(claim, ONE))


def account(*charges: Charge) -> Totals:
    totals = Totals()
    for one in charges:
        totals = totals.plus(one)
    return totals


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.3, 1.0, 5.0, 12.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
@pytest.mark.parametrize("facts", [{}, {"servers": 3, "colluding": 1}, {"bits": 12}], ids=str)
def test_a_study_that_asks_for_the_whole_budget_is_admitted(epsilon: float, delta: float, facts: Any) -> None:
    whole = charge(epsilon, delta=delta, **facts)
    budget = Budget(epsilon=epsilon, delta=delta)
    assert covers(budget, account(whole))
    assert not covers(budget, account(whole, charge(epsilon * 0.05, delta=delta, **facts)))
    spent = account(whole).spent(delta)
    assert epsilon * 0.99 < spent.epsilon <= epsilon
    assert spent.delta == delta


def test_a_study_through_a_proxy_that_asks_for_the_whole_budget_is_admitted() -> None:
    whole = through_a_proxy()
    assert whole.distance_aside > 0
    assert covers(BUDGET, account(whole))
    assert not covers(BUDGET, account(whole, charge(0.05)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.7, 1e-2), (1.0, 1e-6), (10.0, 8e-4), (50.0, 1e-9)])
def test_what_a_study_through_a_proxy_has_spent_is_no_more_than_it_asked_for(epsilon: float, delta: float) -> None:
    """A steward who granted 10 must not read that 10.0005 are spent."""
    told = Totals().plus(through_a_proxy(epsilon, delta)).spent(delta)
    assert epsilon * 0.99 < told.epsilon <= epsilon
    assert told.delta == delta


def test_a_thousand_studies_add_up_by_their_root() -> None:
    """μ adds up in squares: about 1/√1000 of the ε each, far below the thousandth of plain addition."""
    small = charge(0.02)
    many = Totals().plus(small, 1000)
    spent = many.spent(1e-6)
    assert spent.epsilon == pytest.approx(gaussian_epsilon(1000 * small.rho, 1e-6), rel=1e-9)
    assert spent.epsilon < 1.2 < 1000 * 0.02
    fits = how_many_fit(Totals(), small, BUDGET)
    assert covers(BUDGET, Totals().plus(small, fits))
    assert not covers(BUDGET, Totals().plus(small, fits + 1))
    assert fits == int(gaussian_rho(1.0, 1e-6) / small.rho)
    assert fits > int(rho_from_epsilon(1.0, 1e-6) / small.rho)


def test_distances_add_up_over_studies() -> None:
    """On a coarse grid each study may be half a millionth of δ away; two million of them are all of it."""
    coarse = charge(0.001, bits=12)
    assert coarse.gaussian_distance is not None
    each = distance_delta(coarse.gaussian_distance, Fraction(1))
    tiny = replace(coarse, rho=Fraction(1, 10**12), curve=tuple(Fraction(1) for _ in coarse.curve))
    most = int(Fraction(1e-6) / each)
    below, above = (UnitTotals.of(tiny).joined(UnitTotals(), 1) for _ in range(2))
    below = replace(below, distance=most // 2 * coarse.gaussian_distance)
    above = replace(above, distance=2 * most * coarse.gaussian_distance)
    assert below.to_convert().on_curve(Fraction(1), 1e-6)
    assert not above.to_convert().on_curve(Fraction(1), 1e-6)
    with patch.object(conversion, "distance_delta", lambda distance, epsilon: Fraction(0)):
        assert above.to_convert().on_curve(Fraction(1), 1e-6)  # planted: the slack forgotten


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0.05, 1.0), min_size=1, max_size=5), st.lists(st.floats(0.01, 0.5), max_size=3))
def test_what_is_told_is_never_below_what_the_parts_promise(gaussian: list[float], pure: list[float]) -> None:
    charges = [*(charge(e) for e in gaussian), *(laplace(e) for e in pure)]
    spent = account(*charges).spent(1e-6)
    rho = sum((c.rho for c in charges[: len(gaussian)]), Fraction(0))
    epsilon = sum((c.pure_epsilon or Fraction(0) for c in charges), Fraction(0))
    assert spent.epsilon is not None
    by_renyi = epsilon_from_rho(sum((c.rho for c in charges), Fraction(0)), 1e-6)
    on_top = float(epsilon) + gaussian_epsilon(rho, 1e-6)
    assert spent.epsilon == pytest.approx(min(by_renyi, on_top), rel=1e-6)
    if spent.epsilon < by_renyi * (1 - 1e-9):  # told by the curve: it must hold with the pure part on top
        left = Fraction(1e-6) - distance_delta(sum(c.gaussian_distance or 0 for c in charges), Fraction(spent.epsilon))
        assert gaussian_delta(rho, Fraction(spent.epsilon) - epsilon) <= left
    assert spent.epsilon >= max(gaussian) * (1 - 1e-6)
    budget = Budget(epsilon=spent.epsilon * (1 + 1e-9), delta=1e-6)
    assert covers(budget, account(*charges))
    assert not covers(Budget(epsilon=spent.epsilon * 0.98, delta=1e-6), account(*charges))


def test_a_laplace_charge_is_not_hidden_by_the_gaussian_curve() -> None:
    full, more = charge(1.0), laplace(0.05)
    assert covers(BUDGET, account(full))
    ledger = Ledger(BUDGET)
    ledger.reserve(full)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(more)
    assert covers(Budget(epsilon=1.06), account(full, more))
    totals = account(full, more).whole()[0][1].to_convert()
    forgotten = replace(totals, pure_epsilon=Fraction(0))  # planted
    assert forgotten.on_curve(Fraction(1), 1e-6)
    assert not totals.on_curve(Fraction(1), 1e-6)


def test_charges_that_are_not_gaussian_take_the_account_back_to_renyi_curves() -> None:
    """Sampled rounds, and charges of versions that did not say so."""
    full = charge(0.7)
    sampled = charge(0.1, neighbours="add-remove", sampling=0.1)
    earlier = replace(charge(0.1), gaussian_distance=None)
    assert sampled.gaussian_distance is None
    for other in (sampled, earlier):
        both = account(full, other)
        (_, part), *_ = both.whole()
        assert part.to_convert().gaussian_rho is None
        assert both.spent(1e-6).epsilon == pytest.approx(epsilon_from_rho(part.composed().rho, 1e-6))
    taken = replace(sampled, gaussian_distance=Fraction(0))  # planted: a sampled round taken for Gaussian
    assert account(full, taken).whole()[0][1].to_convert().gaussian_rho is not None


def test_groups_and_relations_count_as_shifts_that_are_longer() -> None:
    one = UnitTotals.of(charge(0.3))
    twice = one.grouped(2)
    assert twice.gaussian_rho == 4 * one.gaussian_rho
    assert twice.distance == 2 * one.distance
    added = UnitTotals.of(charge(0.3, neighbours="add-remove"))
    mixed = one.joined(added).composed()
    assert mixed.gaussian_rho == one.gaussian_rho + 4 * added.gaussian_rho
    assert mixed.distance == one.distance + 2 * added.distance
    assert mixed.to_convert().gaussian_rho == mixed.gaussian_rho


def test_taking_back_leaves_no_trace() -> None:
    kinds = [charge(0.3), laplace(0.2), through_a_proxy(0.1), charge(0.2, neighbours="add-remove", sampling=0.5)]
    totals = account(*kinds)
    for one in kinds[1:]:
        totals = totals.minus(one)
    assert totals == account(kinds[0])


def test_what_trust_models_set_aside_adds_up() -> None:
    """A thousandth of δ each: a thousand studies' shares are a δ of their own, and the statement has it."""
    one = through_a_proxy(0.01)
    many = Totals().plus(one, 1000)
    spent = many.spent(1e-6)
    aside = distance_delta(1000 * one.distance_aside, Fraction(spent.epsilon or 0))
    assert aside > Fraction(1e-6)  # (1 + e^ε) has grown with ε besides
    assert spent.delta >= 1e-6 + float(aside) * (1 - 1e-9)
    assert not covers(Budget(epsilon=5.0, delta=1e-6), many)
    assert covers(Budget(epsilon=5.0, delta=1e-5), many)
    few = Totals().plus(one, 100).spent(1e-6)
    assert few.delta == 1e-6
    plain = Totals().plus(replace(one, distance_aside=Fraction(0)), 100).spent(1e-6)
    assert few.epsilon > plain.epsilon  # planted: what is set aside is forgotten
    assert not covers(Budget(epsilon=5.0, delta=0.0), account(one))


def test_a_typical_charge_is_that_of_a_real_study() -> None:
    told, real = typical_charge(0.5, 1e-6, RECORD, "replace-one"), charge(0.5)
    assert real.rho <= told.rho <= real.rho * (1 + Fraction(1, 10**6))
    assert told.gaussian_distance is not None


def test_a_charge_that_says_both_makes_no_other_one_gaussian() -> None:
    """A link, as any text, may say that a pure charge is Gaussian too: that must not stand for a sampled one."""
    sampled = charge(sampling=0.1, neighbours="add-remove", records=None)
    both = replace(laplace(0.01, neighbours="add-remove", records=None), gaussian_distance=Fraction(0))
    honest = replace(both, gaussian_distance=None)
    account, forged = Totals().plus(sampled).plus(honest), Totals().plus(sampled).plus(both)
    assert forged.units[0][1].to_convert().gaussian_rho is None
    assert forged.spent(1e-6).epsilon == account.spent(1e-6).epsilon
