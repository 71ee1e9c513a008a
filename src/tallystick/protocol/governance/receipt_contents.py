"""What the statements in a receipt must say together: agreed, paid, attested, released.

Every check looks at the one statement it is about, so that a missing or changed statement is named by itself and not
by what follows from it. ``who`` says who could have done it, since that is what a reader asks next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tallystick.core.errors import RemoteProtocolError, TallystickError
from tallystick.core.identifiers import canonical
from tallystick.privacy.payment import PaidHead, Payment
from tallystick.protocol.governance.bodies import check_folded_names
from tallystick.protocol.governance.client_attestations import attested_by_clients, unattested
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.plan_summary import fold, plan_digest, unfold, within_reservation
from tallystick.protocol.governance.receipt import EARLY, study_facts
from tallystick.protocol.governance.standing import quorum_of
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Cast
from tallystick.study.proposed import proposed_study

PlanOf = Callable[[str, str], Mapping[str, Any]]
"""The plan's summary that follows from a study's canonical text and its program's text."""

MAKER = "The aggregator, which put the receipt together, or whoever had the file since could have left it out."


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it must be."""

    rule: str
    where: str
    what: str
    who: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} [{self.rule}] {self.who}"


def finding(rule: str, where: str, what: str, who: str) -> Finding:
    """One, in so many words."""
    return Finding(rule=rule, where=where, what=what, who=who)


def _of(known: Sequence[Statement], kind: str, signer: str | None = None) -> list[Statement]:
    return [s for s in known if s.kind == kind and (signer is None or s.signer == signer)]


def _participants(sections: Mapping[str, Any]) -> list[list[Any]]:
    """``[first round, clients]`` wherever they change; empty if the receipt lists nothing sensible."""
    folded: list[list[Any]] = sections["participants"]
    fine = check_folded_names(folded) is None and folded and folded[-1][0] <= sections["rounds"]
    return folded if fine else []


def clients_of(sections: Mapping[str, Any]) -> set[str]:
    """Every client that took part in a round."""
    return {name for _, names in _participants(sections) for name in names}


# -- agreed: proposal, start, approvals --------------------------------------------------------------------------------


def agreed(
    sections: Mapping[str, Any], cast: Cast, known: Sequence[Statement], start: Statement, proposal: Statement
) -> Iterator[Finding]:
    """The proposal is of this study, and everybody who took part had approved it before it started."""
    docket = Docket(proposal.study_hash, cast.members)
    for statement in known:
        try:
            docket.apply(statement)
            if statement.body["hash"] != proposal.body["hash"]:
                raise RemoteProtocolError("a statement about another study")
        except TallystickError as error:
            where = f"{statement.kind} of {statement.signer}"
            yield finding("not-this-study", where, f"{error.cause}: it does not belong here.", MAKER)
    if sections["study"] != study_facts(proposal):
        yield finding("study", "section study", "it is not the study that was proposed and approved.", MAKER)
    if len(_of(known, "start")) > 1:
        what = "the study was started twice, or by different accounts of it."
        yield finding("start", "the start", what, f"{cast.coordinator} signed them.")
    expires, quorum = proposal.body["expires"], quorum_of(proposal.body["study"])
    if start.body["at"] >= expires:
        what = "it was made after the proposal had expired."
        yield finding("start", "the start", what, f"{cast.coordinator} started it, and the clients took part.")
    by_ident = {s.ident: s for s in _of(known, "decision")}
    approvals = start.body["approvals"]
    if len(approvals) < quorum:
        what = f"{len(approvals)} clients, and the study asks for {quorum} approvals."
        yield finding("quorum", "the start", what, f"{cast.coordinator} started it.")
    for client, ident in approvals.items():
        where, approval = f"approval of {client}", by_ident.get(ident)
        if approval is None:
            yield finding("missing-approval", where, f"{ident}, on which the study was started, is missing.", MAKER)
        elif approval.signer != client or approval.body["decision"] != "approve":
            what = f"what the study was started on is a {approval.body['decision']} of {approval.signer}."
            yield finding("not-approved", where, what, f"{cast.coordinator} started it all the same.")
        elif approval.body["proposal"] != proposal.ident or approval.body["at"] >= expires:
            what = "it is of another proposal, or was given after this one had expired."
            yield finding("not-approved", where, what, f"{cast.coordinator} started it all the same.")
    rounds = _participants(sections)
    if not any(names for _, names in rounds):
        yield finding("participants", "section participants", "it does not list the clients of each round.", MAKER)
    stream = proposed_study(proposal.body["study"]).is_stream
    for number, names in rounds:
        if (stream or _of(known, "pause")) and not names:
            continue  # a tick that was lost, or a round that was spent in a pause: nothing was released in it
        strangers = [name for name in names if name not in approvals]
        if strangers:
            what = f"{', '.join(strangers)} took part, and the study was not started with them."
            yield finding("participants", f"round {number}", what, f"{cast.coordinator} and all that sum let them.")
        if len(names) < quorum:
            what = f"{len(names)} clients took part, and the study asks for {quorum}."
            yield finding("quorum", f"round {number}", what, f"{cast.coordinator} and all that sum went on.")


# -- paid: charges and their countersignatures -------------------------------------------------------------------------


def _charges(known: Sequence[Statement]) -> dict[str, list[Statement]]:
    """Each client's charges, the last entry of its ledger last: that is the one that counts."""
    found: dict[str, list[Statement]] = {}
    for charge in sorted(_of(known, "charge"), key=lambda s: (s.body["sequence"], s.ident)):
        found.setdefault(charge.signer, []).append(charge)
    return found


def paid(known: Sequence[Statement], clients: Sequence[str], cast: Cast, rho: str | None) -> Iterator[Finding]:
    """Each client's ledger holds the whole charge, and its witnesses, or enough of them, have signed its head."""
    charges, signed = _charges(known), dict[tuple[str, str], list[Statement]]()
    for one in _of(known, "countersignature"):
        signed.setdefault((one.signer, one.body["client"]), []).append(one)
    for client in clients:
        where, own = f"charge of {client}", charges.get(client)
        if not own:
            yield finding("missing-charge", where, "it is missing.", f"{client} did not charge its ledger, or: {MAKER}")
            continue
        last = own[-1].body
        if any(s.body["sequence"] == last["sequence"] and s.body["head"] != last["head"] for s in own):
            what = f"its ledger has two different heads at entry {last['sequence']}."
            yield finding("forked-ledger", where, what, f"{client} signed both: its ledger was copied or rolled back.")
        if rho is not None and last["rho"] != rho:
            what = f"it charged rho = {last['rho']}, and the study costs {rho}."
            yield finding("wrong-charge", where, what, f"{client} signed it.")
        missing = cast.countersigners_of(client)
        for witness in cast.witnesses_of(client):
            if _countersigns(signed.get((witness, client), []), last):
                missing -= 1
        for witness in cast.witnesses_of(client) if missing > 0 else ():
            place = f"countersignature of {witness} for {client}"
            mine = signed.get((witness, client), [])
            if not mine:
                yield finding(
                    "missing-countersignature", place, "it is missing.", f"{witness} did not sign, or: {MAKER}"
                )
            elif not _countersigns(mine, last):
                what = f"it is of another head than the one {client} charged the study on."
                yield finding("wrong-countersignature", place, what, f"{client} told {witness} something else.")


def _countersigns(signed: Sequence[Statement], charge: Mapping[str, Any]) -> bool:
    return any(all(s.body[k] == charge[k] for k in ("ledger", "sequence", "head")) for s in signed)


def countersigned(
    known: Sequence[Statement], cast: Cast, participants: Iterable[Sequence[str]], *, study: bytes, rho: Fraction
) -> Payment | None:
    """The payment that these statements prove, for everybody who took part in a round; None if one is missing.

    ``known`` are statements whose signatures were checked when they came in.
    """
    known = [s for s in known if s.study_hash == study]
    took_part = {name for names in participants for name in names}
    clients = [name for name in cast.clients if name in took_part]
    cost = f"{rho.numerator}/{rho.denominator}"
    if not clients or len(clients) != len(took_part) or next(paid(known, clients, cast, cost), None):
        return None
    heads = {name: str(own[-1].body["head"]) for name, own in _charges(known).items()}
    proof = tuple(PaidHead(client=name, head=heads[name], witnesses=cast.witnesses_of(name)) for name in clients)
    return Payment(study=study, rho=rho, proof=proof)


# -- attested, planned, released ---------------------------------------------------------------------------------------


MAX_ROUNDS = 100_000
_ATTESTED = ("rounds", "participants", "plan", "noise")


def _padded(body: Mapping[str, Any], rounds: int) -> list[list[str]]:
    """One's participants by round, and nobody in the rounds after its last one."""
    names = unfold(body["participants"], body["rounds"])
    return [*names, *([] for _ in range(rounds - len(names)))]


def attested(
    sections: Mapping[str, Any],
    cast: Cast,
    known: Sequence[Statement],
    proposal: Statement,
    plan: Mapping[str, Any],
) -> Iterator[Finding]:
    """Everybody who makes noise says the same of rounds, participants, plan and noise, and it is what the receipt says.

    Of a stream's tick that the receipt calls lost (no participants) one may have released its part before another
    one was missed, or not; of the last ticks, if lost, it may not even have heard. Everything else must be the same.
    """
    rounds, told = sections["rounds"], _participants(sections)
    span = min(rounds, MAX_ROUNDS)  # a receipt can claim any number; nobody attests to more
    lost = {number for number, names in enumerate(unfold(told, span), start=1) if not names}
    if not 1 <= rounds <= plan["rounds"]:
        what = f"{rounds} rounds were run, and the plan has {plan['rounds']}."
        yield finding("rounds", "section rounds", what, "Everybody who sums went on, or it was changed.")
    if EARLY in sections:
        yield from _vouched(sections, cast, proposal.study_hash, plan)
        return
    if cast.clients_make_noise:
        names = unfold(told, span)
        themselves = cast.model.vouch_for_themselves
        told_wrong = attested_by_clients(known, names, plan, cast.clients, themselves=themselves)
        yield from (finding(*one) for one in told_wrong)
        return
    for maker in cast.makers:
        where, own = f"attestation of {maker}", _of(known, "attestation", maker)
        if not own:
            yield finding("missing-attestation", where, "it is missing.", f"{maker} did not make it, or: {MAKER}")
            continue
        body = own[0].body
        if any(s.body[key] != body[key] for s in own for key in ("partials", *_ATTESTED)):
            yield finding("two-attestations", where, "it says two different things.", f"{maker} signed both.")
        attests = fold([[] if n in lost else names for n, names in enumerate(_padded(body, span), start=1)])
        reaches = body["rounds"] <= rounds and all(n in lost for n in range(body["rounds"] + 1, rounds + 1))
        noise: Any = [entry for entry in plan["noise"] if entry[0] <= body["rounds"]]
        if "open" in plan:  # the prices were chosen as the rounds came: the same at everybody, and within what was paid
            said = _of(known, "attestation", cast.makers[0])
            planned_for = body["rounds"] <= plan["rounds"]
            inside = planned_for and within_reservation(plan["open"], body["noise"], body["rounds"])
            noise = said[0].body["noise"] if said and inside else None
        wanted = {
            "rounds": rounds if reaches else None,
            "participants": told,
            "plan": plan_digest(plan),
            "noise": noise,
        }
        has = {**{key: body[key] for key in _ATTESTED}, "rounds": rounds, "participants": attests}
        different = [key for key, value in wanted.items() if has[key] != value]
        if different:
            what = f"{', '.join(different)} differ from what was approved and from the rest of the receipt."
            yield finding("wrong-attestation", where, what, f"{maker} did, or signed, something else than agreed.")


def _vouched(sections: Mapping[str, Any], cast: Cast, study: bytes, plan: Mapping[str, Any]) -> Iterator[Finding]:
    """Nobody attests to the rounds of a study that waits: what each noise maker has signed in every round must do."""
    where, participants = f"section {EARLY}", unfold(_participants(sections), min(sections["rounds"], MAX_ROUNDS))
    if not cast.model.unsigned:
        yield finding("missing-attestation", where, "nothing is signed round by round in such a study.", MAKER)
        return
    find, facts = cast.model.load(cast.model.unsigned), plan.get("privacy", {}).get("trust", {})
    for who, what in find(sections[EARLY], cast, study, participants, facts):
        yield finding("missing-attestation", where, what, f"{who} did not sign, or: {MAKER}")


def planned(
    sections: Mapping[str, Any], proposal: Statement, plan_of: PlanOf | None
) -> tuple[Mapping[str, Any], list[Finding]]:
    """The plan, derived anew from the study where that is possible, and what differs from it."""
    stated: Mapping[str, Any] = proposal.body["plan"]
    plan, findings = stated, []
    if plan_of is not None:
        try:
            plan = json.loads(canonical(plan_of(proposal.body["study"], proposal.body["program"])))
        except TallystickError as error:
            what = f"it has no plan at all: {error.cause}."
            findings.append(finding("plan", "the study", what, f"{proposal.signer} proposed it."))
    different = sorted(key for key in {*plan, *stated} if plan.get(key) != stated.get(key))
    if different:
        what = f"{', '.join(different)} are not what follows from the study (another release may compute other words)."
        findings.append(finding("plan", f"proposal of {proposal.signer}", what, f"{proposal.signer} signed it."))
    if sections["privacy"] != plan.get("privacy", {}):
        what = "it promises something else than the study's plan."
        findings.append(finding("privacy", "section privacy", what, MAKER))
    return plan, findings


def released(
    sections: Mapping[str, Any], teller: str, known: Sequence[Statement], result: str | None
) -> Iterator[Finding]:
    """One result, the one that was announced, and the one at hand."""
    told = {(s.body["result"], s.body["code"]) for s in _of(known, "outcome")}
    if EARLY in sections:
        said = {(s.body["result"], s.body["rounds"]) for s in _of(known, "pause", teller)}
        if (sections["result"], sections["rounds"]) not in said:
            what = f"{teller} has not said that this was released after {sections['rounds']} rounds."
            yield finding("missing-outcome", "the pause", what, MAKER)
    elif not told:
        yield finding("missing-outcome", "the outcome", "it is missing.", MAKER)
    elif told != {(sections["result"], next(iter(told))[1])}:
        what = "the result that was announced is another one, or several were."
        yield finding("outcome", "the outcome", what, f"{teller} signed it.")
    if result is not None and result != sections["result"]:
        what = f"this result is {result}, the receipt is of {sections['result']}."
        yield finding("result", "the result", what, "Whoever had the result, or swapped the receipts, could have.")


def lacking(docket: Docket, participants: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """What a receipt of this study would still lack, in words: the coordinator waits until this is empty."""
    known, proposal = docket.statements(), docket.started_proposal()
    cast = None if proposal is None else docket.cast(proposal)
    if proposal is None or cast is None:
        return ("the start: it is missing.",)
    clients = [c for c in cast.clients if any(c in names for names in participants)]
    found = [f"{f.where}: {f.what}" for f in paid(known, clients, cast, None)]
    if cast.clients_make_noise:
        missed = unattested(known, participants, proposal.body["plan"], themselves=cast.model.vouch_for_themselves)
        return (*found, *(f"attestation of {who}: {what}" for who, what in missed))
    found += [f"attestation of {s}: it is missing." for s in cast.makers if not _of(known, "attestation", s)]
    return tuple(found)
