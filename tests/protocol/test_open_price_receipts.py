"""The receipt of a study whose prices were left open: what noise makers attest to is added up, exactly, by the reader.

A reader believes nobody: not a maker that attests to less noise than was paid for, in sum or below what a sum of shares
may have; not a proposal whose plan is nonsense; and no numbers that would keep the reader busy for hours.
"""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import pytest
from tests.claims import servers_claim
from tests.protocol.governance_examples import (
    CONSORTIUM,
    KEYS,
    RESULT,
    SERVERS,
    T0,
    attestation,
    charge,
    countersignature,
    decision,
    digest_of,
    members,
    outcome,
    proposal,
    start,
)

from tallystick.core.errors import RemoteProtocolError, StudyError, TallystickError
from tallystick.privacy.grid import Group
from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.privacy.sum_plan import SumPlan, make_plan
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.plan_summary import noise_of, plan_digest, summarise, within_reservation
from tallystick.protocol.governance.receipt import make_receipt
from tallystick.protocol.governance.receipt_check import check_receipt

MEMBERS = members()
CLIENTS = ("c0", "c1", "c2")
ROUNDS = 4
LEAST = PARTS // 16


def made(**facts: Any) -> SumPlan:
    told = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "add-remove", "mechanism": "gaussian", "rounds": ROUNDS}
    groups = ((Group(name="g", size=3, bound=1.0),),) * ROUNDS
    return make_plan(servers_claim(**told | facts), groups, least_price=LEAST)


def receipt(plan: dict[str, Any], noise: dict[str, Any], rounds: int = 2) -> bytes:
    proposed = proposal(plan=plan)
    approved = [decision(c, proposal=proposed.ident) for c in CLIENTS]
    charged = [charge(c, rho=plan["rho"]) for c in CLIENTS]
    said = [proposed, *approved, start(approved, proposal=proposed.ident), *charged, outcome()]
    said += [countersignature(s, one) for one in charged for s in SERVERS]
    for server in SERVERS:
        partials = [digest_of(f"{server} {r}") for r in range(rounds)]
        told = {"plan": plan_digest(plan), "noise": noise[server], "rounds": rounds, "partials": partials}
        said.append(attestation(server, **told))
    docket = Docket.of(proposed.study_hash, MEMBERS, said)
    return make_receipt(docket, consortium="", participants=[list(CLIENTS)] * rounds, now=T0 + 5000, key=KEYS["hub"])


def rules(raw: bytes, plan_of: Any) -> set[str]:
    report = check_receipt(
        raw, members_of=lambda _text: MEMBERS, plan_of=plan_of, consortium_hash=CONSORTIUM, result=RESULT
    )
    return {f.rule for f in report.findings}


def found(plan: SumPlan, **noise: Any) -> set[str]:
    """What is found, but for the number of servers: this consortium has two."""
    summary = summarise(plan)
    return rules(receipt(summary, noise), lambda _study, _program: copy.deepcopy(summary)) - {"number-of-servers"}


def at(plan: SumPlan, *prices: int) -> list[list[Any]]:
    return noise_of(plan.noise_parameters(len(prices), Prices(dict(enumerate(prices, start=1)))))


@pytest.mark.parametrize("facts", [{}, {"mechanism": "laplace", "delta": 0.0}, {"servers": 4, "colluding": 1}], ids=str)
def test_rounds_within_the_reservation_are_sound_and_beyond_it_are_not(facts: dict[str, Any]) -> None:
    plan = made(**facts)
    half, more = at(plan, PARTS // 2, PARTS // 2), at(plan, PARTS // 2, PARTS // 2 + 1)
    assert found(plan, s0=half, s1=half) == set()
    assert found(plan, s0=more, s1=more) == {"wrong-attestation"}
    assert found(plan, s0=half, s1=at(plan, PARTS // 4, PARTS // 2)) == {"wrong-attestation"}  # not the same at all


def test_a_study_without_noise_says_so_and_is_sound() -> None:
    plan = made(mechanism="none", allow_not_private=True)
    none = at(plan, PARTS // 2, LEAST)
    assert none == [[1, ["0/1"]]]
    assert found(plan, s0=none, s1=none) == set()


def test_a_maker_that_admitted_no_such_round_attests_to_no_noise_in_it() -> None:
    """A coordinator may skip a round's number: what was never drawn is not attested to, and no receipt is sound."""
    plan = made()
    skipped = noise_of(plan.noise_parameters(2, Prices({2: LEAST})))
    assert skipped == [[1, []], [2, at(plan, LEAST)[0][1]]]
    assert found(plan, s0=skipped, s1=skipped) == {"wrong-attestation"}


def test_shares_below_the_least_variance_are_not_sound_though_they_were_paid_for() -> None:
    """Below 4 a sum of shares costs more than D²/2s², and more than was set aside for that."""
    plan = made(servers=4, colluding=1, epsilon=1e4)
    assert plan.open is not None
    low = [[1, ["1/1"]]]
    cost = sum(plan.open.costs(plan.rounds[0]), Fraction(0))
    wide = {**summarise(plan)["open"], "whole": f"{2 * cost.numerator}/{cost.denominator}"}
    assert within_reservation({**wide, "least": "0/1"}, low, 2)
    assert not within_reservation(wide, low, 2)
    assert not within_reservation(wide, [[1, ["0/1"]]], 2)


def test_the_sum_is_exact_to_the_last_part() -> None:
    told = {"whole": "5/6", "costs": ["1/2", "1/3"], "least": "0/1"}
    one = [[1, ["1/1", "1/1"]]]
    assert within_reservation(told, one, 1)
    assert not within_reservation({**told, "whole": f"{5 * 10**40 - 1}/{6 * 10**40}"}, one, 1)
    three = [[1, ["3/1", "3/1"]], [2, ["3/1", "6/1"]], [3, ["3/1", "2/1"]]]  # 5/18 + 4/18 + 6/18
    assert within_reservation(told, three, 3)
    assert not within_reservation(told, three, 4)


def test_numbers_no_sampler_takes_are_refused_at_once() -> None:
    """Two hundred rounds of such fractions took a quarter of a minute to add, two thousand would take hours."""
    odd = [[i, [f"{10**3900 + i}/{10**3900 + i + 1}"]] for i in range(1, 2000)]
    assert not within_reservation({"whole": "9/1", "costs": ["1/1"], "least": "0/1"}, odd, 1999)
    plan = made()
    assert found(plan, s0=odd[:2], s1=odd[:2]) == {"wrong-attestation"}


@pytest.mark.parametrize("nonsense", [
    7, "x", {}, {"whole": "1/1", "costs": ["1/1"]}, {"whole": "1/1", "costs": ["1/0"], "least": "0/1"},
    {"whole": "1e999999999", "costs": ["1/1"], "least": "0/1"}, {"whole": "1/1", "costs": "1/1", "least": "0/1"},
    {"whole": "1/1", "costs": ["1/1"], "least": "0/1", "more": 1},
], ids=str)  # fmt: skip
def test_a_plan_that_leaves_prices_open_says_what_they_may_cost(nonsense: Any) -> None:
    """Otherwise an analyst could sign a proposal at which `tallystick verify` ends with a traceback."""

    def no_plan(study: str, program: str) -> Any:
        raise StudyError("epsilon is missing")

    plan = made()
    half = at(plan, PARTS // 2, PARTS // 2)
    with pytest.raises(TallystickError, match="prices left open"):
        receipt(summarise(plan) | {"open": nonsense}, {"s0": half, "s1": half})
    assert rules(receipt(summarise(plan), {"s0": half, "s1": half}), no_plan) == {"plan"}


def test_more_rounds_than_planned_are_not_added_up() -> None:
    plan = summarise(made())
    five = at(made(), *[LEAST] * 4)
    raw = receipt(plan, {"s0": five, "s1": five}, rounds=5)
    assert rules(raw, lambda *_: copy.deepcopy(plan)) == {"rounds", "wrong-attestation"}


def test_the_body_of_an_open_plan_is_checked_where_it_comes_in() -> None:
    from tallystick.protocol.governance.statements import decode

    plan = made()
    sound = proposal(plan=summarise(plan)).encode()
    assert decode(sound).body["plan"]["open"]["least"] == "0/1"
    with pytest.raises(RemoteProtocolError, match="prices left open"):
        decode(sound.replace(b'"least":"0/1"', b'"least":"0.1"'))
