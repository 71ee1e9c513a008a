"""Where a study stands: a pure function of its statements, the consortium and the time.

A docket takes statements in any order, any number of times, and keeps those that their kind of party may make. The
standing is computed from the whole set, so that all parties that know the same statements agree (it converges), and
nothing depends on who was heard first. The rules:

* A client's decision with the highest sequence is the one in force, until the study starts. Two different decisions of
  one client with that sequence are a refusal, and the client is named.
* A decision counts for the very proposal it names, so another proposal of the same study cannot borrow an approval.
  Of several living proposals of one study the one most clients have decided on leads; among those the older one.
* Approvals count if they were made before the proposal expired, was withdrawn or was replaced by its own proposer.
* A start names the approvals it rests on. If these are a quorum it holds for good: whatever is dated back or said
  later, by anyone, cannot undo what the parties then took part in. A start without them is no start.

A start may itself be dated back, or rest on approvals that were taken back. It is a record of what was run, and no
reason to run it: a party that has not itself started looks at ``unstarted``, on its own copy of the statements and by
its own clock (``taking_part``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any

from tallystick.core.errors import RemoteProtocolError, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.protocol.governance.standing import DEFAULT_QUORUM, ENDED_EARLY, RESUMED, Standing, quorum_of
from tallystick.protocol.governance.statements import Statement, verify
from tallystick.protocol.members import Cast, Members
from tallystick.study.proposed import proposed_study

_SPEAKERS: dict[str, Callable[[Members], tuple[str, ...]]] = {
    "proposal": attrgetter("analysts"),
    "withdrawal": attrgetter("analysts"),
    "decision": attrgetter("clients"),
    "charge": attrgetter("clients"),
    "start": attrgetter("coordinators"),
    "outcome": attrgetter("coordinators"),
    "countersignature": attrgetter("witnesses"),
    "attestation": attrgetter("makers"),
    "pause": attrgetter("coordinators"),
}
_ORDER = {kind: i for i, kind in enumerate(_SPEAKERS)}
_WEIGHED = frozenset(_SPEAKERS) - {"charge", "countersignature", "attestation"}  # a standing is made of these


def in_order(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """The one order in which a set of statements is written down."""
    return tuple(sorted(set(statements), key=lambda s: (_ORDER[s.kind], s.signer, s.ident)))


def order_of(statement: Statement) -> int:
    """Where a kind of statement stands in a study's life: what rests on another comes after it."""
    return _ORDER[statement.kind]


def check_speaker(members: Members, statement: Statement) -> None:
    """Raise unless the party that signs such a statement is of the kind that may."""
    if statement.signer not in _SPEAKERS[statement.kind](members):
        raise _refuse(f"a {statement.kind} is made by no such party", statement, "wrong-signer")


class Docket:
    """The statements about one study."""

    def __init__(self, study_hash: bytes, members: Members) -> None:
        self.study_hash, self.members = study_hash, members
        self._hash = format_hash(study_hash)
        self._kept: dict[str, dict[str, Statement]] = {kind: {} for kind in _SPEAKERS}
        self._countersigned: dict[str, list[Statement]] = {}  # by client: a witness asks a thousand times
        self._found: dict[bool, tuple[float, float, Standing]] = {}  # a standing, and from when until when it holds

    @classmethod
    def of(cls, study_hash: bytes, members: Members, statements: Iterable[Statement]) -> Docket:
        """A docket of what counts among these; the rest is left out."""
        docket = cls(study_hash, members)
        for statement in statements:
            docket.apply_if_it_counts(statement)
        return docket

    def bears_on(self, statement: Statement) -> bool:
        """Whether a statement is about this study, or proposes what takes its place."""
        return self._hash in (statement.body["hash"], statement.body.get("supersedes"))

    def apply_if_it_counts(self, statement: Statement) -> bool:
        """As :meth:`apply`, leaving out what is refused."""
        try:
            return self.apply(statement)
        except TallystickError:
            return False

    def apply(self, statement: Statement) -> bool:
        """Take a statement; whether it was new. Refusals do not depend on what was taken before, or when.

        A statement that is taken may still count for nothing, now or ever: that is for :meth:`standing` to say.
        """
        if statement.ident in self._kept[statement.kind]:
            return False
        body, members = statement.body, self.members
        verify(statement, members.identities)
        if not self.bears_on(statement):
            raise _refuse("a statement about another study", statement, "not-this-study")
        check_speaker(members, statement)
        if statement.kind == "proposal" and body["consortium"] != format_hash(members.consortium_hash):
            raise _refuse("a proposal to another consortium, or to another version of it", statement, "consortium")
        if statement.kind == "start":
            clients = [name for name in members.clients if name in body["approvals"]]
            fitting = any(body["parties"] == [*helpers, *clients] for helpers in members.helpers_by_model)
            if not fitting or len(clients) != len(body["approvals"]):
                raise _refuse("a start with other parties than the consortium's", statement, "bad-roster")
        if statement.kind == "countersignature" and body["client"] not in members.clients:
            raise _refuse("a countersignature for no client of the consortium", statement, "wrong-signer")
        self._kept[statement.kind][statement.ident] = statement
        if statement.kind == "countersignature":
            self._countersigned.setdefault(body["client"], []).append(statement)
        if statement.kind in _WEIGHED:
            self._found.clear()
        return True

    def statements(self, *kinds: str) -> tuple[Statement, ...]:
        """What was taken, of these kinds or of all, in the order in which it is written down."""
        return in_order(s for kind in kinds or _SPEAKERS for s in self._kept[kind].values())

    def decisions(self, client: str) -> tuple[Statement, ...]:
        """Everything this client has decided about the study, the newest last."""
        own = [d for d in self._kept["decision"].values() if d.signer == client]
        return tuple(sorted(own, key=lambda d: (d.body["sequence"], d.ident)))

    def countersignatures(self, client: str) -> tuple[Statement, ...]:
        """What witnesses have countersigned of this client's ledger."""
        return tuple(self._countersigned.get(client, ()))

    def next_sequence(self, client: str) -> int:
        """The sequence of this client's next decision."""
        own = self.decisions(client)
        return own[-1].body["sequence"] + 1 if own else 1

    # -- the standing --------------------------------------------------------------------------------------------------

    def standing(self, now: float) -> Standing:
        """How the study stands at ``now`` (unix seconds), for the record."""
        return self._at(now, unstarted=False)

    def unstarted(self, now: float) -> Standing:
        """How it stands for a party that has not started it: as if nobody had, whatever the aggregator says."""
        return self._at(now, unstarted=True)

    def _at(self, now: float, *, unstarted: bool) -> Standing:
        """Worked out once for all who ask before a proposal expires, or something is said that changes it.

        Otherwise the charges of a thousand clients would have a thousand decisions weighed a thousand times.
        """
        since, until, known = self._found.get(unstarted, (inf, inf, None))
        if known is None or not since <= now < until:
            known = self._standing(now, [] if unstarted else self._started())
            ends = [proposal.body["expires"] for proposal in self._kept["proposal"].values()]
            passed, to_come = [end for end in ends if end <= now], [end for end in ends if end > now]
            self._found[unstarted] = max(passed, default=-inf), min(to_come, default=inf), known
        return known

    def _standing(self, now: float, started: Sequence[Statement]) -> Standing:
        in_force, equivocators = self._in_force()
        proposal = self._leading(in_force, started, now)
        if proposal is None:
            words = "Nobody has proposed this study."
            return Standing(state="unknown", words=words, quorum=DEFAULT_QUORUM, missing=DEFAULT_QUORUM)
        quorum = quorum_of(proposal.body["study"])
        if started:
            return self._running(proposal, started, quorum, equivocators)
        sorted_out: dict[str, dict[str, Statement]] = {"approve": {}, "reject": {}, "counter": {}}
        for client, decision in in_force.items():
            body = decision.body
            what = "reject" if client in equivocators else body["decision"]
            if body["proposal"] == proposal.ident and (what != "approve" or self._in_time(decision, proposal)):
                sorted_out[what][client] = decision
        approvals, rejections, counters = sorted_out.values()
        waiting = tuple(c for c in self.members.clients if not any(c in given for given in sorted_out.values()))
        missing = max(0, quorum - len(approvals))
        ended = self._ended(proposal, now)
        if ended is not None:
            state, words = ended
        elif not missing:
            state, words = "approved", f"Approved by {_listed(approvals)}; {quorum} approvals are needed."
        elif missing > len(waiting):
            state, words = "refused", f"{quorum} approvals are needed and at most {quorum - missing + len(waiting)} "
            words += f"can still be given. Against it: {_listed({**rejections, **counters}) or 'nobody'}."
        else:
            state = "open"
            words = f"{len(approvals)} of {quorum} approvals. Not yet decided: {_listed(waiting)}."
        if equivocators:
            words += f" Said two things at once, which counts as no: {_listed(equivocators)}."
        return Standing(
            state=state,
            words=words,
            quorum=quorum,
            missing=missing,
            proposal=proposal,
            approvals=approvals,
            rejections=rejections,
            counters=counters,
            waiting=waiting,
            equivocators=equivocators,
        )

    def cast(self, proposal: Statement) -> Cast | None:
        """Who does what in the study as it is proposed; None if nobody here knows such a study."""
        study = proposed_study(proposal.body["study"])
        model = study.trust_model
        try:
            return None if model is None else self.members.cast(model, study.section("trust"))
        except TallystickError:
            return None

    def _proposals(self) -> dict[str, Statement]:
        return {ident: p for ident, p in self._kept["proposal"].items() if p.body["hash"] == self._hash}

    def _in_force(self) -> tuple[dict[str, Statement], tuple[str, ...]]:
        """Each client's decision of the highest sequence, and the clients that have two of those."""
        newest: dict[str, list[Statement]] = {client: [] for client in self.members.clients}
        for decision in self._kept["decision"].values():
            known = newest[decision.signer]
            if not known or decision.body["sequence"] >= known[0].body["sequence"]:
                same = [d for d in known if d.body["sequence"] == decision.body["sequence"]]
                newest[decision.signer] = [*same, decision]
        double = tuple([client for client, own in newest.items() if len(own) > 1])
        return {client: in_order(own)[0] for client, own in newest.items() if own}, double

    def _leading(self, in_force: Mapping[str, Statement], started: Sequence[Statement], now: float) -> Statement | None:
        proposals = self._proposals()
        if started:
            return proposals[started[0].body["proposal"]]
        named = [d.body["proposal"] for d in in_force.values()]
        return min(
            proposals.values(),
            key=lambda p: (self._ended(p, now) is not None, -named.count(p.ident), p.body["created"], p.ident),
            default=None,
        )

    def _cut_off(self, proposal: Statement) -> tuple[list[Statement], list[Statement]]:
        """Its proposer's withdrawals, and the proposals with which its proposer replaces it."""
        withdrawn = [w for w in self._kept["withdrawal"].values() if w.signer == proposal.signer]
        later = [p for p in self._kept["proposal"].values() if p.body["supersedes"] == self._hash]
        return withdrawn, [p for p in later if p.signer == proposal.signer]

    def _in_time(self, approval: Statement, proposal: Statement) -> bool:
        withdrawn, later = self._cut_off(proposal)
        ends = [proposal.body["expires"], *(w.body["at"] for w in withdrawn), *(p.body["created"] for p in later)]
        return bool(approval.body["at"] < min(ends))

    def _ended(self, proposal: Statement, now: float) -> tuple[str, str] | None:
        withdrawn, later = self._cut_off(proposal)
        if withdrawn:
            reason = in_order(withdrawn)[0].body["reason"]
            return "withdrawn", f"Withdrawn by {proposal.signer}{': ' + reason if reason else ''}."
        if later:
            newest = max(later, key=lambda p: (p.body["created"], p.ident))
            return "superseded", f"Replaced by {proposal.signer} with {newest.body['hash']}."
        if now >= proposal.body["expires"]:
            return "expired", "Expired before it was run."
        return None

    # -- after the start -----------------------------------------------------------------------------------------------

    def _started(self) -> list[Statement]:
        """The starts that rest on a quorum of approvals, the first attempt first."""
        valid = [s for s in self._kept["start"].values() if self._rests(s)]
        return sorted(valid, key=lambda s: (s.body["attempt"], s.body["at"], s.ident))

    def _rests(self, start: Statement) -> bool:
        body, proposal = start.body, self._proposals().get(start.body["proposal"])
        if proposal is None or body["at"] >= proposal.body["expires"]:
            return False
        cast = self.cast(proposal)
        if cast is None or start.signer != cast.coordinator:
            return False
        if body["parties"] != [*cast.helpers, *(c for c in cast.clients if c in body["approvals"])]:
            return False  # without somebody who must be there, or with somebody who has no part in such a study
        if len(body["approvals"]) < quorum_of(proposal.body["study"]):
            return False
        for client, ident in body["approvals"].items():
            approval = self._kept["decision"].get(ident)
            if approval is None or approval.signer != client or approval.body["decision"] != "approve":
                return False
            if approval.body["proposal"] != proposal.ident or approval.body["at"] >= proposal.body["expires"]:
                return False
        return True

    def started_proposal(self) -> Statement | None:
        """The proposal that was started, if any was."""
        started = self._started()
        return self._proposals()[started[0].body["proposal"]] if started else None

    def _running(
        self, proposal: Statement, started: Sequence[Statement], quorum: int, equivocators: tuple[str, ...]
    ) -> Standing:
        start = started[0]
        ends = in_order(self._kept["outcome"].values())
        told = {(o.body["result"], o.body["code"]) for o in ends}
        if len(started) > 1 or len(told) > 1:
            equivocators = (*equivocators, start.signer)
        approvals = {c: self._kept["decision"][i] for c, i in start.body["approvals"].items()}
        by = f"with {_listed(approvals)}"
        said = in_order(self._kept["pause"].values())
        pauses = sorted(said, key=lambda s: (s.body["number"], s.body["code"] == RESUMED))
        waits = bool(pauses) and pauses[-1].body["code"] != RESUMED
        if not ends and waits:
            state, words = "paused", _paused_words(pauses[-1].body, proposal.body["plan"]["rounds"])
        elif not ends:
            state, words = "running", f"Running {by}."
        elif len(told) > 1:
            state, words = "failed", f"Run {by}; {start.signer} has told {len(told)} different outcomes."
        elif ends[0].body["result"]:
            early = ends[0].body["code"] == ENDED_EARLY
            state, words = "finished", f"Run {by}{'; ended early' if early else ''}."
        else:
            state, words = "failed", f"Run {by}; no result: {ends[0].body['code'] or 'no reason given'}."
        return Standing(
            state=state,
            words=words,
            quorum=quorum,
            missing=0,
            proposal=proposal,
            approvals=approvals,
            equivocators=equivocators,
            start=start,
            outcome=ends[0] if ends else None,
            pause=next((s for s in reversed(pauses) if s.body["result"]), None),
        )


def _paused_words(body: Mapping[str, Any], rounds: int) -> str:
    said = f"Paused after {body['rounds']} of {rounds} rounds, for {body['party'] or 'a party'} ({body['code']})."
    kept = "What was released so far can be fetched, marked as ended early" if body["result"] else "Nothing is released"
    return f"{said} {kept}. It stays charged as a whole, and may be resumed or closed by its analyst."


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")


def _refuse(cause: str, statement: Statement, rule: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        cause, party=statement.signer, rule=rule, remedy="It counts for nothing; ask its signer what was meant."
    )
