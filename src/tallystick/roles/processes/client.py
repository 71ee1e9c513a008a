"""A client: reads the institution's own records, and lets out secret shares of their bounded sum.

It decides to take part by its own policy before it reads a record. A record with a bad or missing cell adds zeros, and
is counted here, on the institution's own screen: no record decides whether its institution takes part. What no single
record decides (no file, no column, a column of another type) is shown here, in full; outside it is "unavailable",
because what is wrong with the data is nobody else's business.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path

from tallystick.core.allowance import Allowances
from tallystick.core.errors import (
    DataError,
    LocalProtocolError,
    StudyError,
    TallystickError,
    VerificationError,
)
from tallystick.core.redaction import Secret
from tallystick.engines.client_map import ClientMap
from tallystick.engines.client_maps import ClientMaps
from tallystick.engines.record_choice import ChosenMap
from tallystick.engines.round_vectors import padded
from tallystick.engines.setup import Setup
from tallystick.engines.study_records import study_records
from tallystick.privacy.ledger import Budget, charge_of
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.instructions import Compute
from tallystick.roles.governance.clearance import ASK_SECONDS, CLEARANCE, Clearance, unpack_head
from tallystick.roles.governance.exchange import Op
from tallystick.roles.governance.own_approval import check_own_approval, check_own_rules
from tallystick.roles.governance.results import ResultRequest, may_see
from tallystick.roles.governance.review import BY_POLICY, decision_body, review
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import write_private
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.roles.processes.part import ClientPart
from tallystick.roles.processes.participant import ParticipantProcess, ParticipantSession
from tallystick.roles.processes.session import Parts
from tallystick.roles.storage.crash_points import CrashPoint
from tallystick.roles.storage.database import is_storage_failure
from tallystick.roles.streams.batches import StreamMap
from tallystick.roles.streams.ticks import TICKS, SeenTicks
from tallystick.study import Study

__all__ = ["ClientProcess", "ClientSession"]

_log = logging.getLogger("tallystick.roles")
LOOKING, LOOKING_AT_ONCE = 0.1, 60.0  # of a client's time for one analyst's proposals: a tenth, after a minute


class ClientSession(ParticipantSession):
    """A study at a client."""

    part: ClientPart | None

    key_kept = CrashPoint.CLIENT_KEY_KEPT
    ready_sent = CrashPoint.CLIENT_READY_SENT
    keys_erased = CrashPoint.CLIENT_KEYS_ERASED

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._map: ClientMap | ChosenMap | StreamMap | None = None
        self._rules_hold = False  # as this process has seen: its rules are read when it starts
        self._has_started = False
        own = self.own
        self._clearance = Clearance(
            self.study_hash,
            own.exchange,
            own.ledger,
            seen_by=own.seen_by,
            check=own.check_ledger,
            again=lambda: own.wake(own.now() + ASK_SECONDS, self, CLEARANCE),
            witnesses=self.cast.witnesses,
        )
        self._held: Compute | None = None
        self._seen_ticks = SeenTicks(
            self.cast.witnesses,
            party=own.name,
            ask=lambda server, body: own.exchange.send(server, Op.TICK, body, self.study_hash),
            again=lambda: own.wake(own.now() + ASK_SECONDS, self, TICKS),
        )

    def cleared(self) -> None:
        """A witness has countersigned: go on if it was the last one."""
        step, self._held = self._held, None
        if step is not None and self.part is not None and step.round == self.part.round:
            self.compute(step)

    def tick(self, layer: str) -> None:
        if layer == CLEARANCE:
            if self._held is not None:
                self._clearance.ask()
            return
        if layer == TICKS:
            self.cleared()  # asks again, if an answer is still missing
            return
        super().tick(layer)

    def heard_tick(self, server: str, body: bytes) -> None:
        """A server says which tick of a stream it has seen last: go on if it was the last answer."""
        if self._seen_ticks.hear(server, body):
            self.cleared()

    def _may_use_records(self, step: Compute) -> bool:
        """Whether no server knows a later tick of a stream than this client does.

        False while that is being asked: the step is taken up again with the last answer. False for good if one does:
        then this client sits the tick out, and every later one, until its newest state runs.
        """
        if self.setup is None or self.setup.study.stream is None or self.part is None:
            return True
        made = self._records()
        try:
            given = not isinstance(made, StreamMap) or self._seen_ticks.given(step.round, made.tick)
        except VerificationError as error:
            _log.error("this client takes no part in the stream: %s", error)
            self.own.health.green, self.own.health.reason = False, str(error)
            self.part.withdraw(step.round)
            return False
        self._held = None if given else step
        return given

    def approved(self) -> None:
        """This client has itself approved the study, and its approval is in force."""
        own = self.own
        check_own_approval(self.study_hash, own.exchange, own.ledger, own.parts.config)

    def reconsider(self) -> None:
        """The same, with the rules of a process that has not looked at the study before: it was started anew."""
        self._in_force()

    def _in_force(self, *, in_time: bool = False) -> None:
        own, look = self.own, check_own_approval if self._rules_hold else check_own_rules
        look(self.study_hash, own.exchange, own.ledger, own.parts.config, in_time=in_time)
        self._rules_hold = True

    def _may_start(self) -> bool:
        """Whether this client has itself started the study, with its charge released, or may do so now.

        Between the aggregator's start and the first share there may be as long as the aggregator likes. (A stream's
        first share leaves at the end of its first tick, as agreed: it was started before it expired, that is enough.)
        """
        if not self._has_started:
            self._has_started = self.own.ledger.standing(self.study_hash) in ("released", "committed")
        if not self._has_started:
            try:
                self._in_force(in_time=self.setup is not None and self.setup.study.stream is not None)
            except TallystickError as error:
                if is_storage_failure(error):
                    raise
                self.leave(error)
                return False
        return True

    def decide(self, setup: Setup) -> None:
        """Its steward has approved, its limits still hold, and its budget covers it: reserved before anything is said.

        The approval is the client's own word and counts for this very study; a limit made stricter since then holds.
        """
        process, exchange = self.own, self.process.exchange
        setup.check_cast(self.cast)
        process.check_ledger()
        check_own_rules(self.study_hash, exchange, process.ledger, process.parts.config)
        self._rules_hold = True
        policy = process.parts.config.policy
        process.ledger.reserve(
            process.parts.config.dataset,
            charge_of(self.study_hash, setup.plan),
            study_name=setup.study.study.name,
            allow_not_private=policy is not None and policy.allow_not_private,
        )

    @property
    def own(self) -> ClientProcess:
        """The process, as what it is."""
        if not isinstance(self.process, ClientProcess):
            raise LocalProtocolError("a client's session outside a client")
        return self.process

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """The charge is committed with the result's digest; given back only if nothing can have left."""
        ledger = self.own.ledger
        standing = ledger.standing(self.study_hash)
        if standing == "reserved":
            ledger.void(self.study_hash, reason="the study ended before anything was sent")
        elif standing == "released" and error is None and result is not None:
            ledger.commit(self.study_hash, result)

    def compute(self, step: Compute) -> None:
        """A round asks for the sum of the records: let it out if it may leave, now or when it may."""
        if self.part is None or self.setup is None or not self._may_start():
            return
        if not self._clearance.given(self.setup):
            self._held = step  # taken up again when the last witness has countersigned
            return
        if not self._may_use_records(step):
            return
        try:
            plan = self.setup.plan.rounds[step.round - 1]
            records = self._records()
            values = padded(records.contribute(step.model, plan, step.round), self.setup.size)
            if records.left_out:
                _log.warning(
                    "round %d: the study's program failed on %d of %d records, which added zeros. "
                    "This stays on this machine.",
                    step.round,
                    records.left_out,
                    records.mapped,
                )
        except DataError as error:
            _log.error("the data of this client cannot be used: %s", error)
            self.part.withdraw(step.round)
            return
        self.part.contribute(step.round, values)

    def _records(self) -> ClientMap | ChosenMap | StreamMap:
        """The records, read when the first round asks for them, and kept for the study; a stream's tick by tick."""
        if self._map is None:
            if self.setup is None:
                raise StudyError("the study has not started")
            study, source = self.setup.study, self.own.source()
            if study.stream is not None:
                self._map = StreamMap(self.setup, source, self.process.store, self.study_hash, party=self.process.name)
                return self._map
            records = study_records(study, source, party=self.process.name, lenient=True)
            said = records.tallies.left_out()
            if said is not None:
                _log.warning("%s. This stays on this machine.", said)
            maps = ClientMaps(study, self.setup.design.program, self.setup.template)
            self._map = maps.of(records, self.process.parts.streams, self.process.name)
        return self._map


def result_path(parts: Parts, study_hash: bytes) -> Path:
    """Where a client keeps a result that it may see."""
    return parts.config.state / "results" / f"{study_hash.hex()}.packed"


class ClientProcess(ParticipantProcess):
    """``tallystick client start``."""

    session = ClientSession
    booted = CrashPoint.CLIENT_BOOTED

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.ledger = LedgerStore(parts.config.state / LEDGER, party=self.name, signing=parts.identity.signing)
        self._asked: dict[bytes, ResultRequest] = {}
        self._waiting: dict[str, deque[Statement]] = {}  # proposals to be looked at, by analyst
        self._looks = Allowances(rate=LOOKING, burst=LOOKING_AT_ONCE)
        self.seen_by: dict[str, int] = {}
        """How far into this client's ledger each server has seen."""

    def start(self) -> None:
        self._guarded(self._register)  # a client that cannot read its records stays up, and declines
        super().start()

    def close(self) -> None:
        super().close()
        self.ledger.close()

    def resume(self) -> None:
        super().resume()
        self._guarded(self._give_back)

    def _give_back(self) -> None:
        """What was set aside just before a crash, for studies that this client then never said it was ready for."""
        for study in self.ledger.reserved():
            stored = self.store.study(study)
            if stored is None or stored.status == "proposed":
                self.ledger.void(study, reason="the client was stopped before it said that it takes part")

    def _register(self) -> None:
        """The records named in this client's file, entered in its ledger; a data error is this machine's business."""
        config = self.parts.config
        if config.data is not None:
            budget = Budget(epsilon=config.budget_epsilon, delta=config.budget_delta)
            made = make_dataset(config.dataset, config.data, party=self.name)
            self.ledger.register(made, budget, by=str(config.path))
        _log.info("%s", self.ledger.view(config.dataset).words)

    def source(self) -> str | Path:
        """Where the records of this client are."""
        config = self.parts.config
        return config.data if config.data is not None else self.ledger.dataset(config.dataset).source

    # -- proposals ------------------------------------------------------------------------------------------------

    def heard(self, statement: Statement) -> None:
        if statement.kind == "proposal":
            self._consider(statement.study_hash)
        elif statement.kind == "outcome":
            self._want_result(statement.study_hash)
        elif statement.kind == "countersignature" and statement.body["client"] == self.name:
            session = self.sessions.get(statement.study_hash)
            self.ledger.add_countersignature(statement.encode(), self.members.identities)
            if isinstance(session, ClientSession):
                self.post_for(session, session.cleared)

    def adopt(self, consortium: Consortium) -> None:
        super().adopt(consortium)
        for proposal in [s for s in self.exchange.store.statements() if s.kind == "proposal"]:
            self.hear(proposal)  # it may have come before the file it is meant for

    def hear(self, statement: Statement) -> None:
        if statement.kind == "proposal":
            self._waiting.setdefault(statement.signer, deque()).append(statement)
        else:
            self.heard(statement)

    @property
    def puts_off(self) -> bool:
        return bool(self._waiting)

    def between(self) -> None:
        """Look at one proposal, of each analyst in turn.

        To look at a program takes as long as its author likes, up to a limit: an analyst whose proposals take long has
        a minute of this client's time, a tenth of it after that, and nobody else waits for them.
        """
        now = self.now()
        analyst = next((name for name in self._waiting if self._looks.wait(name, now) == 0), None)
        if analyst is None:
            return
        waiting = self._waiting.pop(analyst)
        proposal = waiting.popleft()
        if waiting:
            self._waiting[analyst] = waiting  # behind the others
        try:
            self.heard(proposal)
        finally:
            self._looks.take(analyst, now, self.now() - now)

    def _consider(self, study_hash: bytes) -> None:
        """Let the rules decide what they can; the rest waits for a person."""
        docket = self.exchange.docket(study_hash)
        standing = docket.standing(self.exchange.wall())
        if standing.proposal is None or standing.state not in ("open", "approved") or docket.decisions(self.name):
            return
        seen = review(standing.proposal, self.parts.config, self.ledger, members=self.members)
        verdict, name = seen.verdict, standing.proposal.body["hash"]
        if verdict.decision == "ask":
            why = f" ({verdict.because})" if verdict.because else ""
            _log.warning("%s waits for the data steward%s: tallystick study show %s", name, why, name)
            return
        body = decision_body(
            docket,
            standing.proposal,
            self.name,
            verdict.decision,
            reason=verdict.because,
            by=f"{BY_POLICY}{verdict.rule}",
            now=self.exchange.wall(),
            dataset=self.ledger.dataset(self.parts.config.dataset).ident,
        )
        self.exchange.say("decision", body)
        _log.info("%s: %s by the policy's %s", name, verdict.decision, verdict.rule)

    # -- a result that is shown to this institution ----------------------------------------------------------------

    def _want_result(self, study_hash: bytes) -> None:
        """Ask for the result of a study that names this client among those who may see it."""
        standing = self.exchange.standing(study_hash)
        if standing.proposal is None or standing.state != "finished" or result_path(self.parts, study_hash).exists():
            return
        study = Study.from_canonical(standing.proposal.body["study"])
        if may_see(study, self.name, proposer=standing.proposal.signer):
            source = self.parts.streams(study_hash, b"result-key", self.name.encode())
            asked = ResultRequest(study_hash, self.name, self.parts.identity.signing, source)
            self._asked[study_hash] = asked
            self.exchange.send(self.members.board, Op.RESULT_WANTED, asked.body, study_hash)

    def _take_result(self, study_hash: bytes, body: bytes) -> None:
        asked, outcome = self._asked.pop(study_hash, None), self.exchange.standing(study_hash).outcome
        if asked is None or outcome is None:
            return
        board = self.members.board
        packed = asked.open(
            body,
            aggregator=board,
            identity=self.members.identities[board],
            expected=str(outcome.body["result"]),
        )
        path = result_path(self.parts, study_hash)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(path, Secret(packed))

    # -- the ledger as the servers have seen it -------------------------------------------------------------------

    def check_ledger(self) -> None:
        """Raise if a server has seen a later or another ledger of this client."""
        if self.fault is not None:
            raise self.fault

    def connected_to(self, peer: str) -> None:
        super().connected_to(peer)
        if peer == self.members.board:
            for study_hash in self.exchange.store.hashes():
                self._want_result(study_hash)
        if peer in self.members.witnesses:
            self.exchange.send(peer, Op.HEAD, self.ledger.head().ledger)

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        if op == Op.RESULT and sender == self.members.board:
            self._take_result(study_hash, body)
            return
        if op == Op.TICK_SEEN and sender in self.members.witnesses:
            session = self.sessions.get(study_hash)
            if isinstance(session, ClientSession):
                self.post_for(session, lambda: session.heard_tick(sender, body))
            return
        if op != Op.SEEN or sender not in self.members.witnesses:
            super().governance(sender, study_hash, op, body)
            return
        if not body:
            return  # it has seen nothing yet
        try:
            seen = unpack_head(body, sender)
            self.ledger.compare(seen, by=sender)
            self.seen_by[sender] = seen.sequence
        except VerificationError as error:
            self.fault = error
            self.health.green, self.health.reason = False, str(error)
            raise
