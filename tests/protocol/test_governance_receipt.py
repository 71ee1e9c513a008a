"""The privacy receipt: every byte counts, everything missing or untrue is named, and nobody need be believed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from governance_examples import (
    CONSORTIUM,
    HASH,
    KEYS,
    PLAN,
    PROPOSAL,
    RESULT,
    T0,
    WEEK,
    attestation,
    charge,
    countersignature,
    decision,
    digest_of,
    finished,
    hash_of,
    members,
    outcome,
    proposal,
    start,
    study_text,
)
from governance_plain import plain_canonical, plain_digest, plain_verify
from governance_world import mutated

from tallystick.core.errors import LocalProtocolError, StudyError, VerificationError
from tallystick.core.identifiers import canonical
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.protocol.governance import receipt as receipts
from tallystick.protocol.governance.docket import Docket, in_order
from tallystick.protocol.governance.plan_summary import plan_digest
from tallystick.protocol.governance.receipt import make_receipt
from tallystick.protocol.governance.receipt_check import Report, check_receipt
from tallystick.protocol.governance.receipt_contents import lacking
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Members

MEMBERS = members()
FILE = '[consortium]\nname = "flu"\n'
ROUNDS = [["c0", "c1", "c2"]] * 2
NOW = T0 + 5000


def members_of(text: str) -> Members:
    if text != FILE:
        raise StudyError("the consortium file is not TOML")
    return MEMBERS


def plan_of(study: str, program: str) -> Mapping[str, Any]:
    assert program == ""
    assert json.loads(study)["study"]["name"] == "flu"
    return copy.deepcopy(PLAN)


def sealed(sections: dict[str, Any], key: SigningKey = KEYS["hub"]) -> bytes:
    """A receipt with these sections, its digests and signature in order: what a lying aggregator can make."""
    digests = {
        name: "sha256:" + plain_digest(b"tallystick/receipt/section/1", name.encode(), canonical(v)).hex()
        for name, v in sections.items()
    }
    signed = plain_digest(b"tallystick/receipt/1", plain_canonical(digests).encode())
    return canonical({**sections, "digests": digests, "signature": key.sign(signed).hex()})


def sections_of(raw: bytes) -> dict[str, Any]:
    return {k: v for k, v in json.loads(raw).items() if k not in ("digests", "signature")}


def receipt_of(said: list[Statement], rounds: list[list[str]] | None = None) -> bytes:
    return make_receipt(
        Docket.of(PROPOSAL.study_hash, MEMBERS, said),
        consortium=FILE,
        participants=rounds or ROUNDS,
        now=NOW,
        key=KEYS["hub"],
    )


GOOD = receipt_of(finished())


def forged(change: Callable[[dict[str, Any]], None]) -> bytes:
    sections = sections_of(GOOD)
    change(sections)
    return sealed(sections)


def with_statements(said: list[Statement], **changes: Any) -> bytes:
    """A receipt a lying aggregator makes of these statements, in their order."""
    sections = sections_of(GOOD) | {"statements": [json.loads(s.encode()) for s in in_order(said)]} | changes
    return sealed(sections)


def check(raw: bytes, **options: Any) -> Report:
    wanted: dict[str, Any] = {"members_of": members_of, "plan_of": plan_of, "consortium_hash": CONSORTIUM}
    return check_receipt(raw, **wanted | {"result": RESULT} | options)


def rules(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


def wheres(report: Report) -> str:
    return " | ".join(f.where for f in report.findings)


# -- a good one -------------------------------------------------------------------------------------------------------


def test_a_good_receipt_is_sound() -> None:
    report = check(GOOD)
    assert report.findings == ()
    assert not report.findings
    assert report.pinned
    assert report.recomputed
    report.check()
    assert report.participants == ("c0", "c1", "c2")
    assert (report.result, report.study["hash"], report.study["name"]) == (RESULT, HASH, "flu")
    assert len(report.statements) == len(finished())


def test_it_is_what_its_description_says() -> None:
    """Read by hand: canonical, a digest for each section, signed by the aggregator; each statement by its signer."""
    value = json.loads(GOOD)
    assert plain_canonical(value).encode() == GOOD
    assert sealed(sections_of(GOOD)) == GOOD
    for said in value["statements"]:
        plain_verify(said, MEMBERS.identities[said["signer"]].encoded)
    assert value["privacy"] == PLAN["privacy"]
    assert (value["rounds"], value["participants"]) == (2, [[1, ["c0", "c1", "c2"]]])


def test_what_was_not_compared_is_said() -> None:
    report = check(GOOD, consortium_hash=None, plan_of=None, result=None)
    assert not report.findings
    assert not report.pinned
    assert not report.recomputed


def test_the_receipt_of_a_study_that_ended_early() -> None:
    said = [s for s in finished() if s.kind != "attestation"]
    fewer = {"rounds": 1, "noise": PLAN["noise"][:1], "partials": [digest_of("partial")]}
    said += [attestation(s, **fewer) for s in ("s0", "s1")]
    assert check(receipt_of(said, ROUNDS[:1])).findings == ()


def test_only_finished_studies_have_one() -> None:
    with pytest.raises(LocalProtocolError, match="running"):
        receipt_of([s for s in finished() if s.kind != "outcome"])


def test_what_is_lacking_is_named_before_it_is_made() -> None:
    said = finished()
    docket = Docket.of(PROPOSAL.study_hash, MEMBERS, said)
    assert lacking(docket, ROUNDS) == ()
    for gone in (s for s in said if s.kind in ("charge", "countersignature", "attestation")):
        less = Docket.of(PROPOSAL.study_hash, MEMBERS, [s for s in said if s != gone])
        assert any(gone.signer in words for words in lacking(less, ROUNDS))


# -- bytes ------------------------------------------------------------------------------------------------------------


SMALL_STUDY = study_text(3, min_clients=2)
SMALL = replace(MEMBERS, roles={"client": ("c0", "c1"), "server": ("s0",), "aggregator": ("hub",), "analyst": ("ana",)})


def small_receipt() -> bytes:
    """Two clients, one server, one round: as short as a receipt can be."""
    asked = proposal(study=SMALL_STUDY, plan=PLAN | {"rounds": 1, "noise": [[1, ["7/1"]]]}, purpose="")
    about = {"hash": hash_of(SMALL_STUDY)}
    agreed = [decision(c, proposal=asked.ident, by="", dataset="", **about) for c in ("c0", "c1")]
    paid = [charge(c, **about) for c in ("c0", "c1")]
    one_round = {
        "rounds": 1,
        "noise": [[1, ["7/1"]]],
        "partials": [digest_of("p")],
        "plan": plan_digest(asked.body["plan"]),
    }
    said = [asked, *agreed, start(agreed, proposal=asked.ident, parties=["s0", "c0", "c1"], **about), *paid]
    said += [countersignature("s0", c, **about) for c in paid]
    said += [attestation("s0", ("c0", "c1"), **one_round, **about), outcome(**about)]
    docket = Docket.of(asked.study_hash, SMALL, said)
    return make_receipt(docket, consortium=FILE, participants=[["c0", "c1"]], now=NOW, key=KEYS["hub"])


def regions(raw: bytes) -> list[tuple[int, int, str]]:
    """(from, to, name) of every statement and section in the bytes of a receipt."""
    found = []
    for number, said in enumerate(json.loads(raw)["statements"], 1):
        at = raw.index(canonical(said))
        found.append((at, at + len(canonical(said)), f"statement {number},"))
    for name, value in sections_of(raw).items():
        entry = canonical({name: value})[1:-1]
        at = raw.index(entry)
        found.append((at + len(canonical(name)) + 1, at + len(entry), f"section {name}"))
    return found


def test_each_byte_flipped_in_turn_is_detected_and_the_report_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven different single bits, one after the other; the eighth makes no ASCII. Signatures that were found good
    once are not computed again, so that the test takes seconds."""
    monkeypatch.setattr(VerifyKey, "verify", cache(VerifyKey.verify))
    good = small_receipt()
    plan = json.loads(good)["statements"][0]["body"]["plan"]
    options = {"members_of": lambda _: SMALL, "plan_of": lambda _s, _p: plan}
    assert check(good, **options).findings == ()
    places, named = regions(good), 0
    for at in range(len(good)):
        raw = bytearray(good)
        raw[at] ^= 1 << at % 7
        report = check(bytes(raw), **options)
        assert report.findings, at
        assert all(f.what and f.who for f in report.findings)
        if rules(report) == {"receipt-unreadable"} or f"byte {at}" in wheres(report):
            continue
        inside = [name for first, end, name in places if first <= at < end]
        assert all(name in wheres(report) for name in inside), (at, inside, wheres(report))
        assert inside or "receipt-signature" in rules(report), at
        named += bool(inside)
    assert named > len(good) // 2
    with pytest.raises(VerificationError) as refusal:
        report.check()
    assert refusal.value.exit_code == 6
    high = bytearray(good)
    high[7] ^= 0x80
    assert "byte 7 " in check(bytes(high), **options).findings[0].what


@pytest.mark.parametrize("cut", [0, 1, 100, len(GOOD) // 2, len(GOOD) - 1])
def test_a_truncated_receipt_is_detected(cut: int) -> None:
    report = check(GOOD[:cut])
    assert rules(report) == {"receipt-unreadable"}
    assert report.findings[0].who


@pytest.mark.parametrize(
    "raw, words",
    [
        (GOOD + b"\n", None),
        (GOOD.replace(b",", b", ", 1), None),
        (b"[]", "everything"),
        (b"\xff", "byte 0"),
        (b"[" * 100_000, "nesting"),
        (GOOD.replace(b'"made":', b'"made":1e999,"x":'), "numbers"),
        (GOOD.replace(b'"schema":"tallystick/receipt/1"', b'"schema":"tallystick/receipt/2"'), "receipt/2"),
        (GOOD.replace(b'"made":18', b'"made":"18",""x":'), "JSON"),
        (GOOD.replace(b'"made":', b'"made":"",'), "JSON"),
        (canonical(json.loads(GOOD) | {"made": "x"}), "made"),
        (canonical(json.loads(GOOD) | {"more": 1}), "more"),
        (canonical(json.loads(GOOD) | {"digests": {}}), "digests"),
        (canonical(json.loads(GOOD) | {"signature": "00"}), "signature"),
    ],
)
def test_what_is_no_receipt(raw: bytes, words: str | None) -> None:
    report = check(raw)
    assert report.findings
    if words is None:
        assert rules(report) == {"receipt-form"}
        assert report.findings[0].where.startswith("byte ")
    else:
        assert rules(report) == {"receipt-unreadable"}
        assert words in report.findings[0].what


def test_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "MAX_BYTES", 100)
    assert rules(check(GOOD)) == {"receipt-unreadable"}


# -- what is missing --------------------------------------------------------------------------------------------------

MISSING = {
    "decision": "missing-approval",
    "charge": "missing-charge",
    "countersignature": "missing-countersignature",
    "attestation": "missing-attestation",
    "outcome": "missing-outcome",
    "start": "missing-start",
    "proposal": "missing-proposal",
}


@pytest.mark.parametrize("gone", [s for s in finished() if s.signer != "c3"], ids=lambda s: f"{s.kind}-{s.signer}")
def test_each_missing_statement_is_named(gone: Statement) -> None:
    """Even if the aggregator itself leaves it out and signs the rest."""
    report = check(with_statements([s for s in finished() if s != gone]))
    assert MISSING[gone.kind] in rules(report)
    finding = next(f for f in report.findings if f.rule == MISSING[gone.kind])
    if gone.kind in ("decision", "charge", "countersignature", "attestation"):
        assert gone.signer in finding.where
        assert rules(report) == {MISSING[gone.kind]}  # named by itself, not by what follows from it
    if gone.kind == "countersignature":
        assert gone.body["client"] in finding.where
    assert finding.who


def test_a_refusal_may_be_left_out() -> None:
    assert not check(with_statements([s for s in finished() if s.signer != "c3"])).findings


# -- what is untrue: the aggregator signs anything, the others only what they said ------------------------------------

APPROVED = [decision(c) for c in ("c0", "c1", "c2")]


def swap(old_kind: str, new: Statement, signer: str | None = None) -> list[Statement]:
    who = signer or new.signer
    return [s for s in finished() if not (s.kind == old_kind and s.signer == who)] + [new]


def other_start(rests: list[Statement], **changes: Any) -> list[Statement]:
    kept = [s for s in finished() if s.kind != "start" and s not in APPROVED]
    return [*kept, *rests, start(rests, **changes)]


late = decision("c2", at=T0 + WEEK)
elsewhere = decision("c2", proposal=digest_of("another"))
c0 = charge("c0")
LIES: dict[str, tuple[list[Statement], str, str]] = {
    "approval withdrawn": (other_start([*APPROVED[:2], decision("c2", "reject")]), "not-approved", "c2"),
    "approval late": (other_start([*APPROVED[:2], late]), "not-approved", "c2"),
    "approval of another proposal": (other_start([*APPROVED[:2], elsewhere]), "not-approved", "c2"),
    "started late": (other_start(APPROVED, at=T0 + WEEK), "start", "start"),
    "started by two": (other_start(APPROVED[:2]), "quorum", "start"),
    "started twice": ([*finished(), start(APPROVED, attempt=2)], "start", "start"),
    "charge too small": (swap("charge", charge("c0", rho="1/21")), "wrong-charge", "c0"),
    "charge on another head": (swap("charge", charge("c0", head=digest_of("x"))), "wrong-countersignature", "c0"),
    "ledger forked": ([*finished(), charge("c0", head=digest_of("x"))], "forked-ledger", "c0"),
    "countersigned another entry": (
        [s for s in finished() if not (s.kind == "countersignature" and s.body["client"] == "c0" and s.signer == "s1")]
        + [countersignature("s1", c0, sequence=2)],
        "wrong-countersignature",
        "s1",
    ),
    "countersigned another ledger": (
        [s for s in finished() if not (s.kind == "countersignature" and s.body["client"] == "c0" and s.signer == "s1")]
        + [countersignature("s1", c0, ledger="ff" * 16)],
        "wrong-countersignature",
        "s1",
    ),
    "less noise": (swap("attestation", attestation("s0", noise=[[1, ["1/1", "40/1"]]])), "wrong-attestation", "s0"),
    "another plan": (swap("attestation", attestation("s0", plan=digest_of("plan"))), "wrong-attestation", "s0"),
    "other participants": (swap("attestation", attestation("s1", ("c0", "c1", "c3"))), "wrong-attestation", "s1"),
    "another number of rounds": (
        swap("attestation", attestation("s1", rounds=3, partials=[digest_of("p")] * 3)),
        "wrong-attestation",
        "s1",
    ),
    "attested twice": (
        [*finished(), attestation("s1", partials=[digest_of("p")] * 2)],
        "two-attestations",
        "s1",
    ),
    "another result": (swap("outcome", outcome(result=digest_of("another"))), "outcome", "outcome"),
    "two results": ([*finished(), outcome(result=digest_of("another"))], "outcome", "outcome"),
    "statement of another study": (
        [*finished(), decision("c3", hash=hash_of(study_text(2)))],
        "not-this-study",
        "c3",
    ),
    "a successor": (
        [*finished(), proposal(study=study_text(2), supersedes=HASH)],
        "not-this-study",
        "ana",
    ),
    "a client in a server's place": ([*finished(), attestation("c0")], "not-this-study", "c0"),
}


@pytest.mark.parametrize("lie", LIES)
def test_each_untruth_is_named_with_whoever_could_have_done_it(lie: str) -> None:
    said, rule, where = LIES[lie]
    report = check(with_statements(said))
    finding = next((f for f in report.findings if f.rule == rule), None)
    assert finding is not None, report.findings
    assert where in finding.where
    assert finding.what
    assert finding.who.endswith(".")
    assert rule in str(finding)


SECTION_LIES: dict[str, tuple[dict[str, Any], str]] = {
    "privacy": ({"privacy": PLAN["privacy"] | {"epsilon": 0.1}}, "privacy"),
    "study": ({"study": sections_of(GOOD)["study"] | {"purpose": "Another."}}, "study"),
    "result": ({"result": digest_of("another")}, "outcome"),
    "fewer rounds": ({"rounds": 1}, "wrong-attestation"),
    "no rounds": ({"rounds": 0}, "rounds"),
    "more rounds": ({"rounds": 3}, "rounds"),
    "participants": ({"participants": [[1, ["c0", "c1"]]]}, "quorum"),
    "a stranger": ({"participants": [[1, ["c0", "c1", "c2", "c3"]]]}, "participants"),
    "nobody": ({"participants": []}, "participants"),
    "nonsense": ({"participants": [["c0"]]}, "participants"),
    "unsorted": ({"statements": sections_of(GOOD)["statements"][::-1]}, "statement-order"),
    "double": (
        {"statements": sections_of(GOOD)["statements"] + sections_of(GOOD)["statements"][-1:]},
        "statement-order",
    ),
    "not a statement": ({"statements": [*sections_of(GOOD)["statements"], 7]}, "statement"),
    "consortium": ({"consortium": "x"}, "consortium"),
    "empty": ({"statements": []}, "missing-start"),
}


@pytest.mark.parametrize("lie", SECTION_LIES)
def test_sections_that_the_statements_do_not_bear_out(lie: str) -> None:
    changes, rule = SECTION_LIES[lie]
    assert rule in rules(check(sealed(sections_of(GOOD) | changes)))


def test_a_statement_changed_by_the_aggregator() -> None:
    def change(sections: dict[str, Any]) -> None:
        said = next(s for s in sections["statements"] if s["kind"] == "charge" and s["signer"] == "c1")
        said["body"]["rho"] = "1/1000"

    report = check(forged(change))
    assert {"statement", "missing-charge"} <= rules(report)
    finding = next(f for f in report.findings if f.rule == "statement")
    assert "the charge of c1" in finding.where
    assert "c1" in finding.who


def test_signed_by_somebody_else() -> None:
    report = check(sealed(sections_of(GOOD), KEYS["s0"]))
    assert rules(report) == {"receipt-signature"}


def test_another_consortium() -> None:
    report = check(GOOD, consortium_hash=bytes(32))
    assert rules(report) == {"other-consortium"}
    elsewhere_ = replace(MEMBERS, consortium_hash=bytes(32))
    report = check(GOOD, members_of=lambda _: elsewhere_, consortium_hash=bytes(32))
    assert "not-this-study" in rules(report)  # the proposal was made to the other one
    nobody = replace(MEMBERS, identities={n: k for n, k in MEMBERS.identities.items() if n != "hub"})
    assert "receipt-signature" in rules(check(GOOD, members_of=lambda _: nobody))


def test_another_result_file() -> None:
    assert rules(check(GOOD, result=digest_of("another"))) == {"result"}


def test_the_noise_is_recomputed_from_the_study() -> None:
    """All parties agree on too little noise; the study itself says otherwise."""
    more = copy.deepcopy(PLAN)
    more["noise"] = [[1, ["2000/3", "40/1"]], [2, ["500/1", "40/1"]]]
    report = check(GOOD, plan_of=lambda _s, _p: more)
    assert {"plan", "wrong-attestation"} <= rules(report)
    assert "noise" in next(f for f in report.findings if f.rule == "plan").what
    assert {"s0", "s1"} <= {f.where[-2:] for f in report.findings if f.rule == "wrong-attestation"}
    costly = PLAN | {"rho": "1/2"}
    assert "wrong-charge" in rules(check(GOOD, plan_of=lambda _s, _p: costly))


def test_a_study_that_cannot_be_planned() -> None:
    def refuse(study: str, program: str) -> Mapping[str, Any]:
        raise StudyError("epsilon is missing")

    report = check(GOOD, plan_of=refuse)
    assert rules(report) == {"plan"}
    assert "epsilon is missing" in report.findings[0].what


def test_planted_bugs_are_caught() -> None:
    """The checks, each taken away in turn: the lie that it is for is then not named."""
    bugs = {
        "approval late": (' or approval.body["at"] >= expires:', ":"),
        "approval of another proposal": ('approval.body["proposal"] != proposal.ident or ', ""),
        "approval withdrawn": (' or approval.body["decision"] != "approve":', ":"),
        "started by two": ("if len(approvals) < quorum:", "if len(approvals) < quorum - 1:"),
        "charge too small": ('if rho is not None and last["rho"] != rho:', "if False:"),
        "countersigned another entry": ('("ledger", "sequence", "head")', '("ledger", "head")'),
        "countersigned another ledger": ('("ledger", "sequence", "head")', '("sequence", "head")'),
        "charge on another head": ('("ledger", "sequence", "head")', '("ledger", "sequence")'),
        "less noise": ('            "noise": noise,\n', ""),
        "another plan": ('            "plan": plan_digest(plan),\n', ""),
        "other participants": ('            "participants": told,\n', ""),
        "two results": ("elif told != {", "elif (sections['result'], 'finished') not in told and told != {"),
    }
    real = check_receipt.__globals__
    for lie, change in bugs.items():
        broken = mutated("receipt_contents", change)
        said, rule, _ = LIES[lie]
        before = {name: real[name] for name in ("agreed", "attested", "paid", "planned", "released")}
        try:
            real.update({name: getattr(broken, name) for name in before})
            assert rule not in rules(check(with_statements(said))), lie
        finally:
            real.update(before)
        assert rule in rules(check(with_statements(said))), lie


# -- a stream's lost ticks ---------------------------------------------------------------------------------------------


STREAM_TEXT = json.dumps(json.loads(study_text()) | {"stream": {"ticks": 4}}, separators=(",", ":"))
STREAM_PLAN = PLAN | {"rounds": 4, "noise": [[1, ["500/1"]]]}
ALL = ["c0", "c1", "c2"]
LOSSES = [ALL, [], ALL, []]


def stream_receipt(rounds: list[list[str]], servers: Mapping[str, dict[str, Any]], text: str = STREAM_TEXT) -> bytes:
    """A study that went well but for ticks without a release, and what its servers attest to."""
    proposed = proposal(study=text, plan=STREAM_PLAN)
    of = {"hash": hash_of(text)}
    approved = [decision(c, **of, proposal=proposed.ident) for c in ALL]
    charged = [charge(c, **of) for c in ALL]
    said = [proposed, *approved, start(approved, **of, proposal=proposed.ident), *charged, outcome(**of)]
    said += [countersignature(s, one, **of) for one in charged for s in MEMBERS.helpers]
    for server, told in servers.items():
        attests = {"plan": plan_digest(STREAM_PLAN), "noise": STREAM_PLAN["noise"], **of, **told}
        attests["partials"] = [digest_of(f"{server} {r}") if r != 2 else "" for r in range(1, told["rounds"] + 1)]
        said.append(attestation(server, **attests))
    return make_receipt(
        Docket.of(proposed.study_hash, MEMBERS, said), consortium=FILE, participants=rounds, now=NOW, key=KEYS["hub"]
    )


def stream_rules(raw: bytes) -> set[str]:
    return rules(check(raw, plan_of=lambda _study, _program: copy.deepcopy(STREAM_PLAN)))


SAW_NOTHING = {"rounds": 3, "participants": [[1, ALL], [2, []], [3, ALL]]}
SAW_MORE = {"rounds": 4, "participants": [[1, ALL], [2, ["c0", "c1"]], [3, ALL]]}


def test_lost_ticks_of_a_stream_are_no_fault_whatever_the_servers_saw_of_them() -> None:
    assert stream_rules(stream_receipt(LOSSES, {"s0": SAW_NOTHING, "s1": SAW_NOTHING})) == set()
    assert stream_rules(stream_receipt(LOSSES, {"s0": SAW_NOTHING, "s1": SAW_MORE})) == set()


def test_a_tick_is_lost_only_in_a_stream() -> None:
    raw = stream_receipt(LOSSES, {"s0": SAW_NOTHING, "s1": SAW_NOTHING}, text=study_text())
    assert stream_rules(raw) == {"quorum"}


@pytest.mark.parametrize(
    "rounds",
    [
        [ALL, ALL, ALL, []],  # a tick that s0 released nothing in
        [ALL, [], ALL, ALL],  # and one after its last
        [ALL, [], ["c0", "c1", "c3"], []],
        [ALL, []],  # fewer than were run
    ],
)
def test_what_a_receipt_calls_released_every_server_released(rounds: list[list[str]]) -> None:
    assert "wrong-attestation" in stream_rules(stream_receipt(rounds, {"s0": SAW_NOTHING, "s1": SAW_MORE}))


def test_a_stream_that_released_nothing_has_no_receipt() -> None:
    assert "participants" in stream_rules(stream_receipt([[]] * 4, {"s0": SAW_NOTHING, "s1": SAW_NOTHING}))


def test_a_receipt_of_more_rounds_than_there_can_be_is_found_at_once() -> None:
    sections = sections_of(stream_receipt(LOSSES, {"s0": SAW_NOTHING, "s1": SAW_NOTHING}))
    assert "rounds" in stream_rules(sealed(sections | {"rounds": 2**60}))
