"""Receipts where the clients make the noise: each vouches for the rounds it was in, more than half for each round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.protocol.governance.client_attestations import attested_by_clients, unattested
from tallystick.protocol.governance.plan_summary import fold, plan_digest

CLIENTS = ("a", "b", "c", "d")
ROUNDS = [["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b", "c", "d"]]
PLAN: dict[str, Any] = {"rounds": 3, "noise": [[1, ["9/1"]]], "rho": "1/2"}
OPEN: dict[str, Any] = {**PLAN, "open": {"whole": "1/1", "costs": ["3/1"], "least": "1/1"}}


def said(client: str, *, plan: dict[str, Any] = PLAN, rounds: int = 3, **other: Any) -> Any:
    names = [names if client in names else [] for names in ROUNDS[:rounds]]
    noise = [["9/1"] if found else [] for found in names] if plan is OPEN else [["9/1"]] * rounds
    body = {"plan": plan_digest(plan), "rounds": rounds, "noise": fold(noise), "participants": fold(names)}
    return SimpleNamespace(kind="attestation", signer=client, body={**body, "partials": [], **other})


def rules(known: list[Any], plan: dict[str, Any] = PLAN) -> list[tuple[str, str]]:
    return [(rule, where) for rule, where, _, _ in attested_by_clients(known, ROUNDS, plan, CLIENTS)]


@pytest.mark.parametrize("plan", [PLAN, OPEN])
def test_everybody_who_was_in_a_round_vouches_for_it(plan: dict[str, Any]) -> None:
    assert rules([said(c, plan=plan) for c in CLIENTS], plan) == []


def test_one_that_was_lost_is_not_missed_and_half_are() -> None:
    assert rules([said(c) for c in "abc"]) == []
    assert rules([said("a"), said("b"), said("c", rounds=2)]) == [("missing-attestation", "attestation of c")]
    assert [who for who, _ in unattested([said("a"), said("b")], ROUNDS, PLAN)] == ["c", "c"]


def test_colluders_alone_vouch_for_nothing() -> None:
    """Of five in a round three may collude: more than half of them, none of whom has to be believed."""
    trust = {"model": "masks", "clients": 5, "min_clients": 5, "honest": 2, "colluding": 3, "reducer": "reducer"}
    plan, names = {**PLAN, "rounds": 1, "privacy": {"trust": trust}}, list("abcde")
    body = {"plan": plan_digest(plan), "rounds": 1, "noise": fold([["9/1"]]), "participants": fold([names])}
    known: list[Any] = [SimpleNamespace(kind="attestation", signer=c, body={**body, "partials": []}) for c in "abcd"]
    assert list(attested_by_clients(known, [names], plan, names)) == []
    (missed,) = attested_by_clients(known[:3], [names], plan, names)
    assert missed[0] == "missing-attestation"


@pytest.mark.parametrize(
    "lie",
    [
        {"plan": "sha256:" + "0" * 64},
        {"noise": fold([["9/1"], ["9/1"], ["1/1"]])},
        {"participants": fold([["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b"]])},
    ],
)
def test_whoever_speaks_must_say_what_the_receipt_says(lie: dict[str, Any]) -> None:
    known = [said("a", **lie), said("b"), said("c"), said("d")]
    assert rules(known) == [("wrong-attestation", "attestation of a")]


def test_two_things_said_by_one_are_named() -> None:
    known = [*(said(c) for c in CLIENTS), said("b", partials=["another"])]
    assert ("two-attestations", "attestation of b") in rules(known)


def test_open_prices_are_the_same_at_everybody_and_within_what_was_reserved() -> None:
    known = [said(c, plan=OPEN) for c in "abc"]
    cheap = said("d", plan=OPEN, noise=fold([["9/1"], [], ["99/1"]]))
    assert rules([*known, cheap], OPEN) == [("wrong-attestation", "attestation of d")]
    dear = {**OPEN, "open": {**OPEN["open"], "whole": "1/2"}}  # 3 rounds of 3/9 are 1
    again = [said(c, plan=OPEN, plan_digest=None) for c in "abc"]
    for one in again:
        one.body["plan"] = plan_digest(dear)
    assert rules(again, dear) == [("wrong-attestation", "the attestations")]


# -- each for itself ---------------------------------------------------------------------------------------------------


def own(client: str, **other: Any) -> Any:
    body = {"plan": plan_digest(PLAN), "rounds": 1, "noise": [[1, ["9/1"]]], "participants": fold([[client]])}
    return SimpleNamespace(kind="attestation", signer=client, body={**body, "partials": [], **other})


def alone(known: list[Any]) -> list[tuple[str, str]]:
    found = attested_by_clients(known, [["a", "b", "c"]], PLAN, CLIENTS, themselves=True)
    return [(rule, where) for rule, where, _, _ in found]


def test_under_local_privacy_nobody_else_s_word_is_worth_anything() -> None:
    assert alone([own("a"), own("b"), own("c")]) == []
    assert alone([own("a"), own("b"), own("c"), own("d")]) == []  # its records came too late: it vouches all the same
    assert alone([own("a"), own("b")]) == [("missing-attestation", "attestation of c")]


@pytest.mark.parametrize("lie", [{"participants": fold([["a", "b", "c"]])}, {"noise": [[1, ["1/1"]]]}])
def test_it_vouches_for_its_own_part_with_the_noise_of_the_plan(lie: dict[str, Any]) -> None:
    assert alone([own("a"), own("b"), own("c", **lie)]) == [("wrong-attestation", "attestation of c")]
