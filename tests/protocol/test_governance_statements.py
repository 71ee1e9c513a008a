"""Signed statements: golden vectors, a second encoder, bytes that are no statement, and signatures that do not fit."""

from __future__ import annotations

import copy
import itertools
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from governance_examples import (
    HASH,
    KEYS,
    PLAN,
    PROGRAM,
    T0,
    decision,
    every_kind,
    hash_of,
    members,
    proposal,
    study_text,
)
from governance_plain import plain_canonical, plain_check, plain_ident, plain_text, plain_verify
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import RemoteProtocolError, StudyError, VerificationError
from tallystick.core.identifiers import canonical
from tallystick.core.readable_text import one_line
from tallystick.protocol.governance import statements as module
from tallystick.protocol.governance.bodies import KINDS, BodyError, check_body, check_plan
from tallystick.protocol.governance.plan_summary import fold, plan_digest, unfold
from tallystick.protocol.governance.statements import decode, make, verify

VECTORS = Path(__file__).parents[1] / "vectors" / "governance"
KINDS_SAID = every_kind()


def changed(name: str, field: str, value: Any) -> bytes:
    """A statement with one field of its body changed, in canonical form: only its content is wrong."""
    raw = json.loads(KINDS_SAID[name].encode())
    raw["body"][field] = value
    return canonical(raw)


def outer(name: str, **changes: Any) -> bytes:
    return canonical(json.loads(KINDS_SAID[name].encode()) | changes)


def without(name: str, field: str) -> bytes:
    raw = json.loads(KINDS_SAID[name].encode())
    del raw["body"][field]
    return canonical(raw)


def mutations() -> dict[str, tuple[bytes, str]]:
    """Bytes that must be refused, each with the rule that refuses it."""
    good = KINDS_SAID["approval"].encode()
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    plan = copy.deepcopy(PLAN)
    return {
        "empty": (b"", "malformed"),
        "not_json": (good[:-1], "malformed"),
        "not_ascii": (good.replace(b"Dr. Wong", "Dr. Wöng".encode()), "malformed"),
        "a_list": (b"[]", "malformed"),
        "trailing_blank": (good + b" ", "malformed"),
        "blank_inside": (good.replace(b",", b", ", 1), "malformed"),
        "keys_out_of_order": (
            json.dumps(dict(reversed(json.loads(good).items())), separators=(",", ":")).encode(),
            "malformed",
        ),
        "key_twice": (good.replace(b'"kind":"decision"', b'"kind":"decision","kind":"decision"'), "malformed"),
        "escape_in_capitals": (outer("proposal with a program").replace(b"\\u00fc", b"\\u00FC"), "malformed"),
        "escape_not_needed": (good.replace(b"Dr. Wong", b"Dr. \\u0057ong"), "malformed"),
        "number_with_exponent": (good.replace(b'"sequence":1', b'"sequence":1e0'), "malformed"),
        "number_not_finite": (changed("counter", "terms", {"epsilon": 1.5}).replace(b"1.5", b"Infinity"), "malformed"),
        "number_nan": (changed("counter", "terms", {"epsilon": 1.5}).replace(b"1.5", b"NaN"), "malformed"),
        "number_overflows": (changed("counter", "terms", {"epsilon": 1.5}).replace(b"1.5", b"1e999"), "malformed"),
        "number_of_5000_digits": (good.replace(b'"sequence":1', b'"sequence":' + b"9" * 5000), "malformed"),
        "unknown_kind": (outer("approval", kind="veto"), "malformed"),
        "kind_is_a_list": (outer("approval", kind=["decision"]), "malformed"),
        "unknown_outer_field": (outer("approval", note=""), "malformed"),
        "signer_path": (outer("approval", signer="../c0"), "readable-text"),
        "signer_newline": (outer("approval", signer="c0\nc1"), "readable-text"),
        "signer_number": (outer("approval", signer=7), "readable-text"),
        "signature_short": (outer("approval", signature="00" * 63), "malformed"),
        "signature_capitals": (outer("approval", signature="AB" * 64), "malformed"),
        "signature_number": (outer("approval", signature=0), "malformed"),
        "body_list": (outer("approval", body=[]), "malformed"),
        "field_missing": (without("approval", "reason"), "malformed"),
        "field_unknown": (changed("approval", "weight", 2), "malformed"),
        "decision_unknown": (changed("approval", "decision", "abstain"), "malformed"),
        "sequence_negative": (changed("approval", "sequence", -1), "malformed"),
        "sequence_true": (changed("approval", "sequence", True), "malformed"),
        "sequence_beyond": (changed("approval", "sequence", 2**53), "malformed"),
        "time_is_a_float": (changed("approval", "at", 1.5), "malformed"),
        "reason_control": (changed("approval", "reason", "yes\x1b[2J"), "malformed"),
        "reason_newline": (changed("approval", "reason", "yes\nno"), "malformed"),
        "reason_right_to_left": (changed("approval", "reason", "yes \u202eon"), "malformed"),
        "reason_half_a_pair": (changed("approval", "reason", "\ud800"), "malformed"),
        "reason_too_long": (changed("approval", "reason", "a" * 4001), "malformed"),
        "terms_of_an_approval": (changed("approval", "terms", {"epsilon": 0.5}), "malformed"),
        "counter_without_terms": (changed("counter", "terms", {}), "malformed"),
        "terms_unknown": (changed("counter", "terms", {"delta": 1e-6}), "malformed"),
        "terms_epsilon_zero": (changed("counter", "terms", {"epsilon": 0}), "malformed"),
        "terms_epsilon_true": (changed("counter", "terms", {"epsilon": True}), "malformed"),
        "terms_column_twice": (changed("counter", "terms", {"columns": ["age", "age"]}), "malformed"),
        "hash_without_prefix": (changed("approval", "hash", "00" * 32), "malformed"),
        "hash_in_capitals": (changed("approval", "hash", "sha256:" + "AB" * 32), "malformed"),
        "proposal_of_another_study": (changed("proposal", "study", study_text(9)), "malformed"),
        "proposal_study_not_json": (changed("proposal", "study", "{"), "malformed"),
        "proposal_replaces_itself": (changed("proposal", "supersedes", HASH), "malformed"),
        "proposal_expires_before": (changed("proposal", "expires", T0), "malformed"),
        "proposal_never_expires": (changed("proposal", "expires", 2**52), "malformed"),
        "proposal_program_unnamed": (changed("proposal", "program", PROGRAM), "malformed"),
        "proposal_program_other": (changed("proposal with a program", "program", PROGRAM + "\n"), "malformed"),
        "proposal_program_missing": (changed("proposal with a program", "program", ""), "malformed"),
        "proposal_program_bell": (changed("proposal with a program", "program", "\x07"), "malformed"),
        "plan_without_noise": (
            changed("proposal", "plan", {k: v for k, v in plan.items() if k != "noise"}),
            "malformed",
        ),
        "plan_rho_not_reduced": (changed("proposal", "plan", plan | {"rho": "2/40"}), "malformed"),
        "plan_rho_negative": (changed("proposal", "plan", plan | {"rho": "-1/20"}), "malformed"),
        "plan_rho_over_zero": (changed("proposal", "plan", plan | {"rho": "1/0"}), "malformed"),
        "plan_rho_leading_zero": (changed("proposal", "plan", plan | {"rho": "01/20"}), "malformed"),
        "plan_noise_not_from_round_1": (changed("proposal", "plan", plan | {"noise": [[2, ["1/1"]]]}), "malformed"),
        "plan_noise_repeated": (
            changed("proposal", "plan", plan | {"noise": [[1, ["1/1"]], [2, ["1/1"]]]}),
            "malformed",
        ),
        "plan_noise_beyond": (changed("proposal", "plan", plan | {"noise": [[1, ["1/1"]], [3, ["2/1"]]]}), "malformed"),
        "plan_too_deep": (changed("proposal", "plan", plan | {"more": deep}), "malformed"),
        "plan_words_control": (changed("proposal", "plan", plan | {"words": ["a\tb"]}), "malformed"),
        "plan_key_control": (changed("proposal", "plan", plan | {"a\nb": 1}), "malformed"),
        "start_party_twice": (changed("start", "parties", ["s0", "s0"]), "malformed"),
        "start_party_path": (changed("start", "parties", ["../s0"]), "malformed"),
        "start_approval_no_hash": (changed("start", "approvals", {"c0": ""}), "malformed"),
        "outcome_result_short": (changed("outcome", "result", "sha256:00"), "malformed"),
        "charge_ledger_long": (changed("charge", "ledger", "00" * 17), "malformed"),
        "charge_rho_float": (changed("charge", "rho", 0.05), "malformed"),
        "countersigned_nobody": (changed("countersignature", "client", ""), "malformed"),
        "attested_no_rounds": (changed("attestation", "rounds", 0), "malformed"),
        "attested_too_few_partials": (changed("attestation", "rounds", 3), "malformed"),
        "attested_no_noise": (changed("attestation", "noise", []), "malformed"),
        "attested_nobody": (changed("attestation", "participants", []), "malformed"),
        "attested_round_beyond": (changed("attestation", "participants", [[1, ["c0"]], [3, ["c1"]]]), "malformed"),
    }


@pytest.mark.parametrize("at", [253_402_300_800, 2**52, 2**53 - 1])
def test_times_that_have_no_date(at: int) -> None:
    """A proposal that expires in the year 142,000,000 could be kept by everybody and shown by nobody."""
    raw = json.loads(KINDS_SAID["proposal"].encode())
    raw["body"] |= {"created": at - 10, "expires": at}
    for wrong in (canonical(raw), changed("approval", "at", at), changed("outcome", "at", at)):
        with pytest.raises(RemoteProtocolError):
            decode(wrong)


def golden() -> dict[str, str]:
    """The files under vectors/governance, as they should be."""
    identities = members().identities
    good = [
        {
            "name": name,
            "key": identities[s.signer].encoded.hex(),
            "ident": s.ident,
            "statement": json.loads(s.encode()),
            "raw": s.encode().decode(),
        }
        for name, s in KINDS_SAID.items()
    ]
    bad = [{"name": name, "raw": raw.hex(), "rule": rule} for name, (raw, rule) in mutations().items()]
    return {
        "statements.json": json.dumps(good, indent=1) + "\n",
        "malformed.json": json.dumps(bad, indent=1) + "\n",
    }


def stored(name: str) -> list[dict]:
    path = VECTORS / name
    return json.loads(path.read_text()) if path.exists() else []


def test_golden_vectors_are_what_the_code_writes() -> None:
    """TALLYSTICK_WRITE_VECTORS=1 writes them anew: a change there is a change of the protocol's version."""
    for name, text in golden().items():
        path = VECTORS / name
        if os.environ.get("TALLYSTICK_WRITE_VECTORS"):
            path.write_text(text)
        assert path.read_text() == text, f"{name} differs: what is signed has changed"


@pytest.mark.parametrize("vector", stored("statements.json"), ids=lambda v: v["name"])
def test_known_statements_are_read_the_same_by_a_second_implementation(vector: dict) -> None:
    raw = vector["raw"].encode()
    plain_check(vector["statement"])
    plain_verify(vector["statement"], bytes.fromhex(vector["key"]))
    assert plain_canonical(vector["statement"]).encode() == raw
    assert plain_ident(raw) == vector["ident"]
    mine = decode(raw)
    verify(mine, members().identities)
    assert (mine.ident, mine.encode(), mine) == (vector["ident"], raw, KINDS_SAID[vector["name"]])
    assert mine.study_hash.hex() == mine.body["hash"][7:]


def test_every_kind_has_a_vector() -> None:
    assert {s.kind for s in KINDS_SAID.values()} == set(KINDS)
    assert len(stored("malformed.json")) == len(mutations())


@pytest.mark.parametrize("vector", stored("malformed.json"), ids=lambda v: v["name"])
def test_malformed_statements_are_refused(vector: dict) -> None:
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(bytes.fromhex(vector["raw"]), party="hub")
    assert (refusal.value.rule, refusal.value.party) == (vector["rule"], "hub")
    assert refusal.value.cause
    assert refusal.value.remedy
    assert refusal.value.cause.isprintable()


def test_a_statement_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = KINDS_SAID["proposal"].encode()
    monkeypatch.setattr(module, "MAX_BYTES", len(raw))
    assert decode(raw).encode() == raw
    monkeypatch.setattr(module, "MAX_BYTES", len(raw) - 1)
    with pytest.raises(RemoteProtocolError) as refusal:
        decode(raw)
    assert refusal.value.rule == "too-long"
    with pytest.raises(StudyError, match="above the limit"):
        proposal()


def test_nesting_without_end_is_refused() -> None:
    raw = b'{"body":' + b"[" * 200_000 + b"]" * 200_000 + b',"kind":"start","signature":"","signer":"c0"}'
    with pytest.raises(RemoteProtocolError):
        decode(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None, max_examples=200)
@given(JSON)
def test_canonical_is_what_is_written_by_hand(value: Any) -> None:
    raw = canonical(value)
    assert raw == plain_canonical(value).encode()
    assert canonical(json.loads(raw)) == raw


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_canonical_has_finite_numbers_only(value: float) -> None:
    with pytest.raises(ValueError):
        canonical({"x": value})
    with pytest.raises(ValueError):
        plain_canonical({"x": value})


def test_text_beyond_the_basic_plane() -> None:
    assert canonical("𝛆\u007f") == plain_text("𝛆\u007f").encode() == b'"\\ud835\\udec6\\u007f"'


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_changed_byte_is_refused_or_does_not_verify(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(list(KINDS_SAID.values()))).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((RemoteProtocolError, VerificationError)):
        verify(decode(bytes(raw)), members().identities)


def test_signatures_are_of_one_kind_signer_and_body_only() -> None:
    identities = members().identities
    good = KINDS_SAID["approval"]
    verify(good, identities)
    for other in (
        decode(outer("approval", signer="c1")),
        decode(changed("approval", "sequence", 2)),
        decode(outer("approval", signature=KINDS_SAID["rejection"].signature.hex())),
    ):
        with pytest.raises(VerificationError) as refusal:
            verify(other, identities)
        assert (refusal.value.rule, refusal.value.party) == ("bad-signature", other.signer)
    with pytest.raises(VerificationError) as refusal:
        verify(good, {"c1": identities["c1"]})
    assert refusal.value.rule == "unknown-signer"


def test_what_is_signed_is_domain_separated() -> None:
    """A signature over a bare hash or over the canonical text, as other layers make them, is not a statement's."""
    good = KINDS_SAID["approval"]
    said = canonical({"kind": good.kind, "signer": good.signer, "body": good.body})
    for message in (said, good.study_hash):
        forged = decode(outer("approval", signature=KEYS["c0"].sign(message).hex()))
        with pytest.raises(VerificationError):
            verify(forged, members().identities)


def test_we_do_not_sign_what_others_would_refuse() -> None:
    for field, value in (("reason", "a\nb"), ("sequence", -1), ("decision", "maybe"), ("reason", "x" * 5000)):
        with pytest.raises(StudyError, match="cannot be signed"):
            decision("c0", **{"what": "reject", field: value} if field != "decision" else {"what": value})
    with pytest.raises(StudyError):
        make("decision", "../c0", KINDS_SAID["approval"].body, KEYS["c0"])
    with pytest.raises(StudyError, match="not JSON"):
        make("outcome", "hub", {"hash": b"bytes"}, KEYS["hub"])
    with pytest.raises(StudyError):
        make("outcome", "hub", {"hash": float("nan")}, KEYS["hub"])


def test_a_statement_does_not_change_with_what_it_was_made_from() -> None:
    body = dict(KINDS_SAID["outcome"].body)
    made = make("outcome", "hub", body, KEYS["hub"])
    body["result"] = ""
    assert made == KINDS_SAID["outcome"]
    assert decode(made.encode()) == made
    assert {made, KINDS_SAID["outcome"]} == {made}
    assert "signature" not in repr(made)


def test_once_verified_is_remembered_for_that_very_object_and_key() -> None:
    identities = members().identities
    good = decode(KINDS_SAID["approval"].encode())
    verify(good, identities)
    verify(good, identities)
    with pytest.raises(VerificationError):
        verify(good, {"c0": identities["c1"]})
    with pytest.raises(VerificationError):
        verify(replace(good, body=dict(good.body) | {"sequence": 2}), identities)
    with pytest.raises(VerificationError):
        verify(replace(good, signer="c1"), identities)


@pytest.mark.parametrize(
    "head, columns",
    [({"name": "flu\x1b[2J"}, {}), ({"features": ["a\nb"]}, {}), ({"purpose": "\u202e"}, {}), ({}, {"a\x07": {}})],
)
def test_names_in_a_study_can_be_shown(head: dict, columns: dict) -> None:
    """JSON escapes what a screen would obey: the names are looked at as they will be shown."""
    study = json.loads(study_text(4))
    study["study"] |= head
    study["data"] = {"columns": columns}
    text = json.dumps(study, separators=(",", ":"))
    assert text.isprintable()
    with pytest.raises(StudyError, match="invisible"):
        proposal(study=text)
    body = dict(proposal().body) | {"study": text, "hash": hash_of(text)}
    raw = canonical({"kind": "proposal", "signer": "ana", "body": body, "signature": "00" * 64})
    with pytest.raises(RemoteProtocolError, match="invisible"):
        decode(raw)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"study":1}', '{"study":{},"data":7}', "[" * 100_000, "9" * 5000])
def test_a_study_that_is_none(text: str) -> None:
    with pytest.raises(StudyError, match="readable"):
        proposal(study=text)


def test_shown() -> None:
    assert one_line("a\nb\x1b[2J\u202e") == "a b [2J "
    assert one_line("x" * 500) == "x" * 500
    assert one_line("x" * 501) == "x" * 499 + "…"
    assert decision("c0", "reject", reason=one_line("x\n" * 10_000)).body["reason"].endswith("…")


def test_tuples_are_lists() -> None:
    body = dict(KINDS_SAID["start"].body)
    body["parties"] = tuple(body["parties"])
    assert make("start", "hub", body, KEYS["hub"]) == KINDS_SAID["start"]


def test_check_body_and_plan_say_what_is_wrong() -> None:
    with pytest.raises(BodyError, match="'weight'"):
        check_body("outcome", dict(KINDS_SAID["outcome"].body) | {"weight": 1})
    with pytest.raises(BodyError, match="unknown"):
        check_body("nothing", {})
    assert check_plan(PLAN) is None
    assert "rounds" in check_plan(PLAN | {"rounds": 0})
    assert check_plan([]) == "is not an object"


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=12))
def test_folding_keeps_every_round(values: list[int]) -> None:
    folded = fold(values)
    assert unfold(folded, len(values)) == values
    assert all(a[1] != b[1] for a, b in itertools.pairwise(folded))
    for rounds in range(1, len(values) + 1):
        assert unfold(folded, rounds) == values[:rounds]
        assert [e for e in folded if e[0] <= rounds] == fold(values[:rounds])


def test_the_plans_digest_covers_all_of_it() -> None:
    seen = {plan_digest(PLAN)}
    for change in ({"rounds": 3}, {"rho": "1/21"}, {"words": []}, {"more": None}):
        seen.add(plan_digest(PLAN | change))
    assert len(seen) == 5
