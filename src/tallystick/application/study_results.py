"""``result.json`` of a study that was run for real, and ``tallystick verify``, which believes nothing in it.

The file holds the contract's fields, the released states they follow from, the privacy receipt, and the analyst's
signature over all of it, in one form, so that no byte can change unseen. ``verify`` derives the plan, the noise
and the model anew and compares; it needs no network, and for a real judgement the reader's own ``consortium.toml``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallystick.application.result_document import RESULT, readable, result_document
from tallystick.core.errors import TallystickError, VerificationError
from tallystick.core.identifiers import canonical, digest, format_hash, parse_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.crypto.signing import SigningKey
from tallystick.data.files import read_file
from tallystick.engines.planning import layout_of, plan_study
from tallystick.engines.setup import set_up
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.governance.receipt_check import Report, check_receipt
from tallystick.protocol.governance.receipt_contents import countersigned
from tallystick.protocol.governance.statements import Statement, decode
from tallystick.protocol.members import Members
from tallystick.protocol.study.messages import result_digest
from tallystick.roles.analyst.connected import took_part, unpack_result
from tallystick.roles.governance.results import ended_early, is_interim
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import read_consortium
from tallystick.roles.identity.places import members_of
from tallystick.study import Study

MAX_RESULT = 1 << 30
_LABEL = b"tallystick/result/analyst/1"


def document(
    docket: Docket, proposal: Statement, packed: bytes, receipt: bytes | None, *, signer: str, key: SigningKey
) -> dict[str, Any]:
    """The result of a real study as data, signed by the party whose machine made it.

    That it was paid for is seen from its receipt, or while there is none from what this party has heard (``docket``).
    """
    read = None if receipt is None else read_receipt(receipt)
    known = docket.statements() if read is None else _statements(read, proposal.study_hash, docket.members)
    made = _contents(proposal, packed, read, known, docket.members)
    return {**made, "signature": {"signer": signer, "value": key.sign(_signed(made)).hex()}}


def _signed(made: dict[str, Any]) -> bytes:
    return digest(_LABEL, canonical(made))


def _contents(
    proposal: Statement, packed: bytes, receipt: dict[str, Any] | None, known: Sequence[Statement], members: Members
) -> dict[str, Any]:
    """Everything in the file but the signature: a function of study, program, released states and receipt."""
    made = result_document(fitted(proposal, packed, known, members), _seconds(receipt), kind="study")
    if is_interim(packed):
        made["interim"] = True
    early = ended_early(packed)
    if early is not None:
        made["ended_early"] = {"rounds": early[0], "of": early[1]}
    return {**made, "released": base64.b64encode(packed).decode(), "receipt": receipt}


def fitted(proposal: Statement, packed: bytes, known: Sequence[Statement], members: Members) -> PrivateEstimator:
    """The estimator that a packed result makes, if these statements prove that it was paid for."""
    study, program = Study.from_canonical(proposal.body["study"]), str(proposal.body["program"])
    estimator, study = estimator_for(study, (lambda _name: program) if program else None, sandboxed=True)
    layout = layout_of(study)
    design = estimator.design_for(study, layout)
    plan = plan_study(study, design, allow_not_private=study.privacy.mechanism == "none")
    cast = members.cast(study.trust_model, study.trust.model_dump())
    payment = countersigned(known, cast, took_part(packed), study=study.hash, rho=plan.rho)
    if payment is None:
        raise VerificationError(
            "it is not shown that every institution has charged its ledger for this result",
            rule="missing-charge",
            remedy="Ask again later: a signature may be on its way. Do not use the result without it.",
        )
    return estimator.take_result(design, unpack_result(study, design, plan, packed, payment))


def estimator_of(made: Mapping[str, Any], docket: Docket | None = None) -> PrivateEstimator:
    """The estimator of a result: from its receipt, or while it has none from what this party has heard."""
    receipt, study = made["receipt"], parse_hash(made["study"]["hash"])
    if receipt is None and docket is None:
        raise _differs(
            "the result carries no privacy receipt, and so not the study it is of",
            "Fetch it again when the study has finished: tallystick study result.",
        )
    members = _members(receipt["consortium"]) if docket is None else docket.members
    known = docket.statements() if docket is not None and receipt is None else _statements(receipt, study, members)
    proposal = next(s for s in known if s.kind == "proposal" and s.study_hash == study)
    return fitted(proposal, base64.b64decode(made["released"]), known, members)


def _statements(receipt: Mapping[str, Any], study: bytes, members: Members) -> tuple[Statement, ...]:
    """The statements of a receipt that count: about this study, and signed by who may say so, as these members' keys
    have it. The aggregator wrote the receipt, and could have written anything into it."""
    found = []
    said = receipt.get("statements")
    for value in said if isinstance(said, list) else ():
        with suppress(TallystickError):
            found.append(decode(canonical(value)))
    return Docket.of(study, members, found).statements()


def _seconds(receipt: dict[str, Any] | None) -> float:
    """How long the rounds took, as the aggregator dated start and outcome."""
    statements = (receipt or {}).get("statements")
    dated: dict[Any, int] = {}
    for said in statements if isinstance(statements, list) else ():  # not verified yet: it may say anything
        body = said.get("body") if isinstance(said, dict) else None
        if isinstance(body, dict) and type(body.get("at")) is int and isinstance(said.get("kind"), str):
            dated[said["kind"]] = body["at"]
    return float(max(0, dated.get("outcome", 0) - dated.get("start", 0))) if "start" in dated else 0.0


def read_receipt(raw: bytes) -> dict[str, Any]:
    """A receipt as tables; what it says is not looked at here."""
    try:
        found = read_json(raw, limit=MAX_RESULT)
    except NotReadable as error:
        raise _differs(f"the privacy receipt cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise _differs("the privacy receipt is none")
    return found


# -- checking ----------------------------------------------------------------------------------------------------------


def verify(path: Path, consortium: Path | None = None) -> dict[str, Any]:
    """Check a result or a receipt; a ``VerificationError`` (exit 6) says everything that differs."""
    raw = read_file(path, limit=MAX_RESULT)
    own = None if consortium is None else read_consortium(consortium).hash
    try:
        schema = read_json(raw, limit=MAX_RESULT).get("schema")
    except (NotReadable, AttributeError):
        schema = None
    if schema == RESULT:
        report = _check_result(raw, own)
    else:
        report = check_receipt(raw.removesuffix(b"\n"), members_of=_members, plan_of=_plan_of, consortium_hash=own)
    report.check()
    return {
        "action": "verify",
        "file": str(path),
        "kind": "result" if schema == RESULT else "receipt",
        "sound": True,
        "study": dict(report.study),
        "privacy": dict(report.privacy),
        "participants": list(report.participants),
        "result": report.result,
        "consortium_compared": report.pinned,
        "noise_recomputed": report.recomputed,
        "signatures": len(report.statements),
        "ended_early": report.early,
    }


def _check_result(raw: bytes, own: bytes | None) -> Report:
    value: dict[str, Any] = read_json(raw, limit=MAX_RESULT)
    if value.get("kind") != "study":
        raise _differs(
            "this is the result of a simulation: nobody signed it, so there is nothing to verify",
            "A simulation with --seed can be repeated instead. Results of studies run between institutions carry "
            "their proof: tallystick study result STUDY --out DIR, then verify DIR/result.json.",
        )
    if raw not in (readable(value).encode() + b"\n", canonical(value) + b"\n"):
        raise _differs("the file is not written in the form a result has")
    receipt = value.get("receipt")
    if not isinstance(receipt, dict):
        raise _differs("the result carries no privacy receipt", "Fetch it again: tallystick study result.")
    try:
        packed = base64.b64decode(value["released"], validate=True)
        study_hash = parse_hash(value["study"]["hash"])
    except (KeyError, TypeError, binascii.Error, TallystickError):
        raise _differs("the released states or the study's hash cannot be read") from None
    digested = format_hash(result_digest(study_hash, packed))
    report = check_receipt(
        canonical(receipt), members_of=_members, plan_of=_plan_of, consortium_hash=own, result=digested
    )
    report.check()
    _check_signature(value, _members(receipt["consortium"]))
    proposal = next((s for s in report.statements if s.kind == "proposal" and s.study_hash == study_hash), None)
    if proposal is None:
        raise _differs("the result is of another study than its receipt")
    expected = _contents(proposal, packed, receipt, report.statements, _members(receipt["consortium"]))
    for key in sorted({*expected, *value} - {"signature", "version"}):
        if canonical(expected.get(key)) != canonical(value.get(key)):
            raise _differs(f"{key!r} does not follow from the released states, the study and the receipt")
    return report


def _check_signature(value: dict[str, Any], members: Members) -> None:
    signed = value.get("signature")
    try:
        signer, mark = signed["signer"], bytes.fromhex(signed["value"])  # type: ignore[index]
        key = members.identities[signer]
    except (KeyError, TypeError, ValueError):
        raise _differs("the result is not signed by a party of the consortium") from None
    rest = {name: part for name, part in value.items() if name != "signature"}
    try:
        key.verify(_signed(rest), mark)
    except VerificationError:
        raise _differs(f"the result is not what {signer} signed") from None


def _members(text: str) -> Members:
    return members_of(Consortium.parse(text))


def _plan_of(canonical_study: str, program: str) -> dict[str, Any]:
    return summarise(set_up(canonical_study.encode(), program, allow_not_private=True).plan)


def _differs(
    cause: str, remedy: str = "Do not rely on this file; ask the analyst and the aggregator for theirs."
) -> VerificationError:
    return VerificationError(cause, rule="result", remedy=remedy)


_MAKERS = {
    "servers": "every server",
    "masks": "more than half of each round's clients",  # a client lost in the midst of a round cannot give its word
    "parties": "every computing party",
    "proxy": "proxy and data user",
}


def describe_verdict(found: dict[str, Any]) -> str:
    """The verdict for people."""
    study = found["study"]
    derived = "derived anew from the study and " if found["noise_recomputed"] else ""
    word = "signed in every round" if found["ended_early"] else "attested"
    noise = f"{derived}{word} by {_MAKERS.get(found['privacy'].get('trust', {}).get('model'), 'all who made it')}"
    if found["privacy"].get("mechanism") == "none":
        noise = "NONE: exact sums were released"
    lines = [
        f"{found['file']}: everything in this {found['kind']} holds together.",
        f"  study          {study.get('name')} (version {study.get('version')}), {study.get('hash')}",
        f"  promise        {found['privacy'].get('statement', '')}",
        f"  took part      {', '.join(found['participants'])}: each had approved, and each one's ledger was charged",
        f"  noise          {noise}",
        f"  signatures     {found['signatures']} checked",
    ]
    if found["ended_early"]:
        lines.append("  ENDED EARLY    it is the state after the last round that was done; the whole study was charged")
    if not found["consortium_compared"]:
        lines.append(
            "  The keys were taken from the file itself. Compare them with your own: --consortium consortium.toml"
        )
    return "\n".join(lines)
