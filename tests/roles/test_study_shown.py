"""What a steward is told may still be decided, and what a study has cost: in every state that a study can be in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from governance_examples import PROPOSAL, T0, WEEK, decision, members, outcome, pause, start, withdrawal

from tallystick.application.studies import words
from tallystick.application.studies.still_open import DECISIONS, still_open
from tallystick.core.identifiers import parse_hash
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.statements import Statement

OK = [decision(name) for name in ("c0", "c1", "c2")]
BEGUN = [PROPOSAL, *OK, start(OK)]
ALL, SOME, NONE = list(DECISIONS), ["reject", "counter"], []
NOW = T0 + 3000


def docket(*statements: Statement) -> Docket:
    return Docket.of(parse_hash(PROPOSAL.body["hash"]), members(4), statements)


@pytest.mark.parametrize(
    ("said", "charge", "now", "state", "may"),
    [
        ([PROPOSAL], None, NOW, "open", ALL),
        ([PROPOSAL, *OK], None, NOW, "approved", ALL),
        ([PROPOSAL], None, NOW + 99 * WEEK, "expired", NONE),
        ([PROPOSAL, withdrawal()], None, NOW, "withdrawn", NONE),
        (BEGUN, None, NOW, "running", SOME),
        (BEGUN, "reserved", NOW, "running", SOME),
        (BEGUN, "released", NOW, "running", NONE),
        ([*BEGUN, pause()], "released", NOW, "paused", SOME),
        ([*BEGUN, outcome()], "committed", NOW, "finished", NONE),
        ([*BEGUN, outcome()], None, NOW, "finished", NONE),
        ([*BEGUN, outcome(result="", code="too-few-clients")], "released", NOW, "failed", NONE),
    ],
)
def test_what_may_still_be_decided(
    said: list[Statement], charge: str | None, now: int, state: str, may: list[str]
) -> None:
    found = docket(*said)
    assert found.standing(now).state == state
    assert still_open(found, charge, now) == may


def shown(state: str, **own: Any) -> str:
    """What a client's steward reads of a study, from what a screen is made of."""
    told = {
        "problem": "", "dataset": "default", "budget_before": "one fit", "budget_after": "two fits", "fits": True,
        "share_of_what_is_left": 0.25, "records": None, "refused": None, "charge": None, "decided": None,
        "decided_by": None, "out_of_force": None, "verdict": "ask", "verdict_because": "", "verdict_rule": "",
        "open_decisions": ALL,
    }  # fmt: skip
    contents = {
        "target": None, "rounds": 1, "columns": ["x"], "holders": {}, "identifier": None, "options": {},
        "visible_to": ["ana"], "if_a_party_is_lost": "", "plan": [], "program_text": "", "privacy": {"epsilon": 1.0},
        "trust": {},
    }  # fmt: skip
    decided = {"approved": [], "rejected": [], "countered": [], "waiting": [], "equivocators": []}
    study = {"name": "means", "version": 1, "hash": PROPOSAL.body["hash"]}
    found = {
        "study": study, "state": state, "analyst": "ana", "expires": "tomorrow", "purpose": "", "program": "summary",
        "epsilon": 1.0, "contents": contents, "own": {**told, **own}, **decided,
    }  # fmt: skip
    return " ".join(words.show(found).split())


APPROVED = {"decided": "approve", "decided_by": "Ada"}


@pytest.mark.parametrize(
    ("state", "own", "told"),
    [
        ("open", {}, "It waits for you. One of:"),
        ("approved", APPROVED, "Decided: approve, by Ada. Until it runs you may decide anew."),
        ("running", {**APPROVED, "open_decisions": SOME}, "It has started; you may still take your approval back"),
        ("running", {**APPROVED, "open_decisions": NONE}, "by Ada. Nothing is left to decide: the study is running."),
        ("running", {"decided": "reject", "decided_by": "Ada", "open_decisions": SOME}, "by Ada. Nothing is left"),
        ("finished", {**APPROVED, "open_decisions": NONE}, "Nothing is left to decide: the study is finished."),
        ("finished", {"open_decisions": NONE}, "Nothing is left to decide: the study is finished."),
        ("expired", {"open_decisions": NONE}, "Nothing is left to decide: the study is expired."),
    ],
)  # fmt: skip
def test_a_steward_is_told_so(state: str, own: dict[str, Any], told: str) -> None:
    said = shown(state, **own)
    assert told in said
    assert ("decide anew" in said) == (state == "approved")
    assert ("It waits for you" in said) == (state == "open")


@pytest.mark.parametrize("charge", ["reserved", "released", "committed"])
def test_a_study_that_is_charged_is_in_what_has_been_spent(charge: str) -> None:
    said = shown("paused", **APPROVED, charge=charge, open_decisions=SOME)
    assert (
        "So far, this study among it: two fits. It takes 25% of what is left without it. Without it: one fit." in said
    )


@pytest.mark.parametrize("charge", [None, "voided"])
def test_one_that_is_not_charged_is_not(charge: str | None) -> None:
    assert "So far: one fit. With this study: two fits. It takes 25% of what is left." in shown("open", charge=charge)
    short = shown("open", charge=charge, fits=False, budget_after="Too much.")
    assert "So far: one fit. YOUR BUDGET DOES NOT COVER IT. Too much." in short
