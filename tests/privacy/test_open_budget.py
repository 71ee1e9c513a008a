"""Rounds whose prices are chosen as they come: what they may cost together holds whatever anybody asks for.

Exact arithmetic against a plain oracle; the noise at a price against the formula, by brute force on tiny domains; and
planted bugs that the same checks must catch.
"""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.claims import servers_claim

from tallystick.core.errors import PrivacyRefused, VerificationError
from tallystick.privacy import open_budget
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import charge_of
from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.privacy.round_plan import _charged_rho
from tallystick.privacy.sum_plan import SumPlan, make_plan

GROUPS = (Group(name="cells", size=6, bound=1.0, share=0.75), Group(name="sum", size=2, bound=3.0, share=0.25))


def claim(**facts: Any) -> Any:
    defaults = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace-one", "mechanism": "gaussian", "records": 1000}
    return servers_claim(**{**defaults, **facts})


def plan(rounds: int = 8, least: int = PARTS // 64, **facts: Any) -> SumPlan:
    return make_plan(claim(rounds=rounds, **facts), [GROUPS] * rounds, least_price=least)


def model(price: float) -> bytes:
    return struct.pack("<3d", price, 0.5, -1.0)


def cost(made: SumPlan, price: int) -> Fraction:
    """What a round at this price costs, by the product's own charge for sums of shares."""
    round_plan = made.round_at(1, model(price))
    if made.claim.mechanism == "laplace":
        return sum((Fraction(n.sensitivity) / n.parameter for n in round_plan.noise), Fraction(0))
    return sum(
        (_charged_rho(n.sensitivity, n.parameter, made.honest, n.group.size) for n in round_plan.noise), Fraction(0)
    )


@pytest.mark.parametrize("facts", [
    {}, {"servers": 5, "colluding": 1}, {"servers": 20, "colluding": 2}, {"mechanism": "laplace", "delta": 0.0},
    {"mechanism": "laplace", "delta": 0.0, "servers": 5, "colluding": 1},
    {"neighbours": "add-remove"}, {"epsilon": 40.0, "servers": 6, "colluding": 1},
], ids=str)  # fmt: skip
@given(prices=st.lists(st.integers(PARTS // 64, PARTS), min_size=1, max_size=8))
def test_admitted_rounds_cost_no_more_than_was_reserved(facts: dict[str, Any], prices: list[int]) -> None:
    made = plan(**facts)
    whole = made.pure_epsilon if facts.get("mechanism") == "laplace" else made.rho
    filter, spent = Prices(), Fraction(0)
    for round, price in enumerate(prices, start=1):
        allowed = sum(filter.by_round.values()) + price <= PARTS
        try:
            filter = filter.admit(round, price)
        except PrivacyRefused:
            assert not allowed
        else:
            assert allowed
            spent += cost(made, price)
    assert spent <= whole
    if sum(filter.by_round.values()) == PARTS and not facts.get("epsilon"):
        assert spent >= whole * Fraction(99, 100)


def test_the_whole_budget_is_charged_and_nothing_less() -> None:
    made = plan()
    assert made.rho == gaussian_rho(made.claim.epsilon, Fraction(made.claim.delta) * (1 - Fraction(1, 10**6)))
    assert charge_of(bytes(32), made).rho == made.rho
    pure = plan(mechanism="laplace", delta=0.0)
    assert pure.pure_epsilon == Fraction(pure.claim.epsilon)
    assert charge_of(bytes(32), pure).pure_epsilon == pure.pure_epsilon


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_every_price_on_a_tiny_domain(monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    """All lists of four prices of six parts: what is admitted never costs more than was reserved, exactly."""
    monkeypatch.setattr(open_budget, "PARTS", 6)
    monkeypatch.setattr("tallystick.privacy.sum_plan.PARTS", 6)
    facts = {"delta": 0.0} if mechanism == "laplace" else {}
    made = plan(rounds=4, least=1, mechanism=mechanism, **facts)
    whole = made.pure_epsilon if mechanism == "laplace" else made.rho
    costs = {price: cost(made, price) for price in range(1, 7)}
    for prices in itertools.product(range(1, 7), repeat=4):
        filter, spent = Prices(), Fraction(0)
        for round, price in enumerate(prices, start=1):
            try:
                filter = filter.admit(round, price)
            except PrivacyRefused:
                continue
            spent += costs[price]
        assert spent <= whole


def test_noise_at_a_price_is_the_formula() -> None:
    made = plan(servers=4, colluding=1)
    assert made.open is not None
    for price in (made.open.least, 23_456, PARTS // 3, PARTS):
        for noise in made.round_at(1, model(price)).noise:
            rho = made.open.whole * price / PARTS * Fraction(noise.group.share)
            exact = max(Fraction(noise.sensitivity**2) / (2 * rho * made.honest), Fraction(4))
            assert exact <= noise.parameter <= exact * (1 + Fraction(1, 2**31))


def test_what_is_set_aside_for_sums_of_shares_covers_their_charge() -> None:
    """τd/4 at the smallest share variance, against the float formula with a little room."""
    for servers in (3, 5, 40):
        made = plan(servers=servers, colluding=1)
        h, d = made.honest, sum(n.group.size for n in made.rounds[0].noise)
        tau = 10 * sum(math.exp(-2 * math.pi**2 * 4 * k / (k + 1)) for k in range(1, h))
        assert open_budget.shares_overhead(made.rounds[0], h) >= Fraction(tau * d / 4)


@pytest.mark.parametrize("price", [0, 1, -5, PARTS + 1, 0.5, PARTS // 64 + 0.25, math.inf, math.nan, 1e300])
def test_a_state_that_states_no_price_is_refused(price: float) -> None:
    with pytest.raises(PrivacyRefused, match="begins with no price"):
        plan().round_at(3, model(price))


def test_short_states_are_refused() -> None:
    with pytest.raises(PrivacyRefused, match="begins with no price"):
        plan().round_at(1, b"")


def test_a_round_has_one_price() -> None:
    filter = Prices().admit(1, 1000)
    assert filter.admit(1, 1000) == filter
    for other in (999, 1001):
        with pytest.raises(PrivacyRefused, match="another price"):
            filter.admit(1, other)


@given(st.dictionaries(st.integers(1, 10_000), st.integers(1, PARTS // 100), max_size=60))
def test_kept_prices_are_read_back(prices: dict[int, int]) -> None:
    assert Prices.from_bytes(Prices(prices).to_bytes()).by_round == prices


def test_damaged_prices_are_not_guessed_at() -> None:
    with pytest.raises(VerificationError, match="damaged"):
        Prices.from_bytes(b"123")


def test_rounds_that_differ_cannot_be_left_open() -> None:
    other = (Group(name="cells", size=6, bound=2.0),)
    with pytest.raises(PrivacyRefused, match="alike"):
        make_plan(claim(rounds=2), [GROUPS, other], least_price=10)
    with pytest.raises(PrivacyRefused, match="alike"):
        make_plan(claim(rounds=2), [GROUPS] * 2, least_price=PARTS)  # two rounds could not both be paid for
    with pytest.raises(PrivacyRefused, match="alike"):
        plan(sampling=0.5, neighbours="add-remove")
    with pytest.raises(PrivacyRefused, match="alike"):
        plan(parallel=True, neighbours="add-remove")


def test_a_budget_that_shares_of_noise_use_up_is_refused_with_what_to_do() -> None:
    wide = (Group(name="cells", size=1 << 12, bound=1.0),)

    def made(**facts: Any) -> SumPlan:
        stated = claim(**{"rounds": 8, "epsilon": 1e-6, "delta": 1e-12, "servers": 4, "colluding": 1, **facts})
        return make_plan(stated, [wide] * 8, least_price=PARTS // 64)

    with pytest.raises(PrivacyRefused, match="3 makers share") as caught:
        made()
    assert caught.value.rule == "noise-covers-budget"
    assert caught.value.remedy is not None
    assert "Raise epsilon, tenfold" in caught.value.remedy
    assert "colluding = 3 under [trust]" in caught.value.remedy
    assert made(epsilon=1e-5).open is not None
    assert made(colluding=3).open is not None


# -- planted bugs: the checks above must catch each -------------------------------------------------------------------


def _admit_anything(self: Prices, round: int, price: int) -> Prices:
    return Prices({**self.by_round, round: price})


def _forgets(self: Prices, round: int, price: int) -> Prices:
    return Prices({round: price})


def _twice_the_amount(real: Any) -> Any:
    def noise(self: Any, mechanism: Any, noise: Any, amount: Fraction, price_of: Fraction) -> Any:
        return real(self, mechanism, noise, 2 * amount, price_of)

    return noise


@pytest.mark.parametrize("bug", ["admits anything", "forgets", "half the noise", "nothing set aside"])
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    match bug:
        case "admits anything":
            monkeypatch.setattr(Prices, "admit", _admit_anything)
        case "forgets":
            monkeypatch.setattr(Prices, "admit", _forgets)
        case "half the noise":
            monkeypatch.setattr(open_budget.OpenBudget, "_noise", _twice_the_amount(open_budget.OpenBudget._noise))
        case "nothing set aside":
            monkeypatch.setattr("tallystick.privacy.sum_plan.shares_overhead", lambda *_: Fraction(-1, 10**6))
    made = plan(servers=5, colluding=1, epsilon=40.0)
    filter, spent = Prices(), Fraction(0)
    for round in range(1, 9):
        try:
            filter = filter.admit(round, PARTS // 4)
        except PrivacyRefused:
            continue
        spent += cost(made, PARTS // 4)
    assert spent > made.rho
