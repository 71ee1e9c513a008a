"""Checking a receipt offline, believing nobody: every finding says where, what differs, and who could have done it.

Checked: the bytes; the consortium against the reader's own; every signature; that each client that took part had
approved this very proposal before the study started; that each one's ledger holds the study's whole charge and every
server countersigned that ledger's head; that every server attests to the same rounds, participants, plan and noise;
and, given ``plan_of``, that plan and noise are those that follow from the study itself.

Not shown by any receipt: that servers really drew the noise they attest to. One honest server is the assumption.
A consortium nobody compared proves nothing, since whoever writes a consortium file chooses its keys: pass the hash of
your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.core.identifiers import canonical, check_party_name, format_hash
from tallystick.protocol.governance.bodies import KINDS
from tallystick.protocol.governance.docket import in_order
from tallystick.protocol.governance.receipt import EARLY, Document, Unreadable, read_receipt
from tallystick.protocol.governance.receipt_contents import (
    MAKER,
    Finding,
    PlanOf,
    agreed,
    attested,
    clients_of,
    finding,
    paid,
    planned,
    released,
)
from tallystick.protocol.governance.statements import Statement, decode, verify
from tallystick.protocol.members import Members
from tallystick.study.proposed import proposed_study

MembersOf = Callable[[str], Members]
"""The members in a consortium file's text."""

_HOLDER = "Whoever had this file could have done it."


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was found, and what the receipt is about as far as it could be read."""

    findings: tuple[Finding, ...]
    pinned: bool
    """Whether the consortium was compared with the reader's own."""
    recomputed: bool
    """Whether plan and noise were derived anew from the study."""
    study: Mapping[str, Any]
    participants: tuple[str, ...] = ()
    result: str = ""
    statements: tuple[Statement, ...] = ()
    """Those whose signatures verify."""
    privacy: Mapping[str, Any] = field(default_factory=dict)
    """What is promised, and for whom."""
    early: bool = False
    """Whether it is of what a study had released when it could not go on."""

    def check(self) -> None:
        """Return if nothing was found; otherwise raise a ``VerificationError`` (exit 6) that says everything."""
        if self.findings:
            raise VerificationError(
                " ".join(map(str, self.findings[:20])),
                rule=self.findings[0].rule,
                remedy="Do not rely on this result; ask the parties named for their own copies.",
            )


def check_receipt(
    raw: bytes,
    *,
    members_of: MembersOf,
    plan_of: PlanOf | None = None,
    consortium_hash: bytes | None = None,
    result: str | None = None,
) -> Report:
    """Check a receipt; ``result`` is the digest of the result that it is said to belong to."""
    pinned, recomputed = consortium_hash is not None, plan_of is not None
    try:
        document = read_receipt(raw)
    except Unreadable as error:
        found = finding("receipt-unreadable", "the file", f"{error}.", _HOLDER)
        return Report(findings=(found,), pinned=pinned, recomputed=recomputed, study={})
    sections = document.sections
    findings = [*_bytes(document)]
    known: list[Statement] = []
    try:
        members = members_of(sections["consortium"])
    except TallystickError as error:
        what = f"its file cannot be read: {error.cause}."
        findings.append(finding("consortium", "the consortium", what, _HOLDER))
    else:
        findings += _consortium(document, members, consortium_hash)
        unsound, known = _statements(sections["statements"], members)
        findings += unsound
        findings += _contents(sections, members, known, plan_of, result)
    return Report(
        findings=tuple(findings),
        pinned=pinned,
        recomputed=recomputed,
        study=sections["study"],
        participants=tuple(sorted(clients_of(sections))),
        result=sections["result"],
        statements=tuple(known),
        privacy=sections["privacy"],
        early=EARLY in sections,
    )


def _bytes(document: Document) -> Iterator[Finding]:
    if document.out_of_form is not None:
        what = "it is not written in the one form a receipt has."
        yield finding("receipt-form", f"byte {document.out_of_form}", what, _HOLDER)
    for name in document.changed():
        what = "it is not what the aggregator put its digest to."
        yield finding("receipt-section", f"section {name}", what, _HOLDER)


def _consortium(document: Document, members: Members, own: bytes | None) -> Iterator[Finding]:
    if own is not None and own != members.consortium_hash:
        what = f"it has {format_hash(members.consortium_hash)}, yours has {format_hash(own)}."
        who = "It is another consortium, or another version of yours."
        yield finding("other-consortium", "the consortium", what, who)
    key = members.identities.get(members.board)
    try:
        if key is None:
            raise VerificationError(f"{members.board} has no identity")
        document.verify(key)
    except VerificationError:
        what = f"it is not that of {members.board} over these digests."
        yield finding("receipt-signature", "the receipt's signature", what, _HOLDER)


def _statements(values: Sequence[Any], members: Members) -> tuple[list[Finding], list[Statement]]:
    """What is wrong with some of them, and those that are in form and signed by their signers."""
    findings: list[Finding] = []
    known: list[Statement] = []
    for number, value in enumerate(values, 1):
        try:
            statement = decode(canonical(value))
            verify(statement, members.identities)
            known.append(statement)
        except TallystickError as error:
            kind, signer = _label(value)
            where, who = (
                f"statement {number}, the {kind} of {signer}",
                f"Whoever had it after {signer} signed could have.",
            )
            findings.append(finding("statement", where, f"{error.cause}.", who))
    if tuple(known) != in_order(known):
        what = "they are not in their order, or one is there twice."
        findings.append(finding("statement-order", "section statements", what, MAKER))
    return findings, known


def _label(value: Any) -> tuple[str, str]:
    said: dict[str, Any] = value if isinstance(value, dict) else {}
    kind = said.get("kind")
    try:
        name = check_party_name(said.get("signer", ""))
    except TallystickError:
        name = "nobody"
    return (kind if isinstance(kind, str) and kind in KINDS else "unknown statement"), name


def _contents(
    sections: Mapping[str, Any],
    members: Members,
    known: Sequence[Statement],
    plan_of: PlanOf | None,
    result: str | None,
) -> Iterator[Finding]:
    start = next((s for s in known if s.kind == "start"), None)
    if start is None:
        yield from released(sections, members.board, known, result)
        yield finding("missing-start", "the start", "it is missing.", MAKER)
        return
    yield from released(sections, start.signer, known, result)
    proposal = next((s for s in known if s.kind == "proposal" and s.ident == start.body["proposal"]), None)
    if proposal is None:
        what = f"{start.body['proposal']}, on which the study was started, is missing."
        yield finding("missing-proposal", "the proposal", what, MAKER)
        return
    study = proposed_study(proposal.body["study"])
    model = study.trust_model
    if model is None:
        what = "it names a trust model that this program does not know."
        yield finding("trust-model", "the study", what, f"{proposal.signer} proposed it.")
        return
    cast = members.cast(model, study.section("trust"))
    yield from agreed(sections, cast, known, start, proposal)
    plan, findings = planned(sections, proposal, plan_of)
    yield from findings
    wrong = model.check_plan(plan.get("privacy", {}).get("trust", {}), cast.counts())
    if wrong is not None:
        rule, what = wrong
        yield finding(rule, "the plan", what, "Every party that took part let it.")
    took_part = clients_of(sections)
    yield from paid(known, [c for c in cast.clients if c in took_part], cast, plan["rho"])
    yield from attested(sections, cast, known, proposal, plan)
