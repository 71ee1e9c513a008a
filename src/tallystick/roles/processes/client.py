"""A client's process: it looks at proposals by its institution's rules, keeps its ledger, fetches what it may see."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path

from tallystick.core.allowance import Allowances
from tallystick.core.errors import (
    VerificationError,
)
from tallystick.core.identifiers import format_hash
from tallystick.core.redaction import Secret
from tallystick.engines.client_map import HeldRecords
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.study.messages import result_digest
from tallystick.roles.governance.messages import Op, unpack_head
from tallystick.roles.governance.results import ResultRequest, may_see
from tallystick.roles.governance.review import BY_POLICY, decision_body, review
from tallystick.roles.governance.store import STATEMENTS
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import write_private
from tallystick.roles.ledger.registration import engine_of, register_own
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.processes.participant import ParticipantProcess
from tallystick.roles.processes.process import POLL_SECONDS
from tallystick.roles.processes.relaying import Relayed
from tallystick.roles.processes.session import Parts
from tallystick.roles.steward.acceptances import Acceptances
from tallystick.roles.steward.delivery import Waiting
from tallystick.roles.steward.steward_notices import StewardNotices
from tallystick.roles.steward.witness_answers import WitnessAnswers
from tallystick.study import Study

_log = logging.getLogger("tallystick.roles")
OPEN = ("open", "approved")  # how a study stands that a client may still decide about
LOOKING, LOOKING_AT_ONCE = 0.1, 60.0  # of a client's time for one analyst's proposals: a tenth, after a minute


def result_path(parts: Parts, study_hash: bytes) -> Path:
    """Where a client keeps a result that it may see."""
    return parts.config.state / "results" / f"{study_hash.hex()}.packed"


class ClientProcess(Relayed, ParticipantProcess):
    """``tallystick client start``."""

    session = ClientSession

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.ledger = LedgerStore(parts.config.state / LEDGER, party=self.name, signing=parts.identity.signing)
        self._asked: dict[bytes, ResultRequest] = {}
        self._answers = WitnessAnswers(parts.config.state / "governance.sqlite", party=self.name)
        self._question = self._answers.question()
        notify, file = parts.config.notify, parts.config.state / "governance.sqlite"
        self._notices = None if notify is None else StewardNotices(file, notify, party=self.name, wall=parts.wall)
        self._waiting: dict[str, deque[Statement]] = {}  # proposals to be looked at, by analyst
        self._looked = -POLL_SECONDS
        self._looks = Allowances(rate=LOOKING, burst=LOOKING_AT_ONCE)
        self._acceptances = Acceptances(parts.config.state / STATEMENTS, party=self.name)
        self._accepted = self._acceptances.count()
        self.seen_by: dict[str, int] = {}
        """How far into this client's ledger each server has seen."""

    def start(self) -> None:
        self._guarded(self._register)  # a client that cannot read its records stays up, and declines
        super().start()

    def close(self) -> None:
        super().close()
        self._answers.close()
        if self._notices is not None:
            self._notices.close()
        self.ledger.close()
        self._acceptances.close()

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
        register_own(config, self.ledger)
        _log.info("%s", self.ledger.view(config.dataset).words)

    def source(self) -> str | Path:
        """Where the records of this client are."""
        config = self.parts.config
        return config.data if config.data is not None else self.ledger.dataset(config.dataset).source

    def open_records(self, study: Study) -> HeldRecords:
        """The records as a study reads them: kept in memory as far as its share of it goes, else read in blocks."""
        return engine_of(self.parts.config).records(study, self.source(), party=self.name, lenient=True)

    # -- proposals ------------------------------------------------------------------------------------------------

    def heard(self, statement: Statement) -> None:
        if statement.kind == "proposal":
            self._consider(statement.study_hash)
        elif statement.kind in ("outcome", "pause"):
            self._want_result(statement.study_hash)
            if self._lacks_receipt(statement.study_hash):  # it may have come before the outcome, and was refused then
                self.exchange.send(self.members.board, Op.RECEIPT_WANTED, b"", statement.study_hash)
        elif statement.kind == "countersignature" and statement.body["client"] == self.name:
            session = self.sessions.get(statement.study_hash)
            self.ledger.add_countersignature(statement.encode(), self.members.identities)
            if isinstance(session, ClientSession):
                self.post_for(session, session.cleared)

    def adopt(self, consortium: Consortium) -> None:
        super().adopt(consortium)
        self._look_again()  # a proposal may have come before the file it is meant for

    def _look_again(self) -> None:
        for proposal in [s for s in self.exchange.store.statements() if s.kind == "proposal"]:
            self.hear(proposal)

    def _look_at_acceptances(self) -> None:
        """A person has accepted more columns: rules may decide now what has waited for that."""
        count = self._acceptances.count()
        if count != self._accepted:
            self._accepted = count
            self._look_again()

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
        if standing.proposal is None or standing.state not in OPEN or docket.decisions(self.name):
            return
        seen = review(standing.proposal, self.parts.config, self.ledger, members=self.members)
        verdict, name = seen.verdict, standing.proposal.body["hash"]
        if verdict.decision == "ask":
            why = f" ({verdict.because})" if verdict.because else ""
            _log.warning("%s waits for the data steward%s: tallystick study show %s", name, why, name)
            if self._notices is not None:
                self._notices.add(Waiting.of(standing.proposal))
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

    def _still_waits(self, study_hash: bytes) -> bool:
        docket = self.exchange.docket(study_hash)
        return docket.standing(self.exchange.wall()).state in OPEN and not docket.decisions(self.name)

    # -- a result that is shown to this institution ----------------------------------------------------------------

    def _want_result(self, study_hash: bytes) -> None:
        """Ask for the result of a study that names this client among those who may see it."""
        standing, path = self.exchange.standing(study_hash), result_path(self.parts, study_hash)
        if standing.proposal is None or not standing.result:
            return
        if path.exists() and format_hash(result_digest(study_hash, path.read_bytes())) == standing.result:
            return
        study = Study.from_canonical(standing.proposal.body["study"])
        if may_see(study, self.name, proposer=standing.proposal.signer):
            source = self.parts.streams(study_hash, b"result-key", self.name.encode())
            asked = ResultRequest(study_hash, self.name, self.parts.identity.signing, source)
            self._asked[study_hash] = asked
            self.exchange.send(self.members.board, Op.RESULT_WANTED, asked.body, study_hash)

    def _take_result(self, study_hash: bytes, body: bytes) -> None:
        asked, expected = self._asked.pop(study_hash, None), self.exchange.standing(study_hash).result
        if asked is None or not expected:
            return
        board = self.members.board
        packed = asked.open(
            body,
            aggregator=board,
            identity=self.members.identities[board],
            expected=expected,
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
            self._ask_for_head(peer)

    def _ask_for_head(self, witness: str) -> None:
        self.exchange.send(witness, Op.HEAD, self.ledger.head().ledger)

    def due(self, now: float) -> None:
        super().due(now)
        if now >= self._looked + POLL_SECONDS:
            self._looked = now
            self._guarded(self._look_at_acceptances)
            self._guarded(self._answer_steward)
            if (notices := self._notices) is not None:
                self._guarded(lambda: notices.due(self._still_waits))

    def _answer_steward(self) -> None:
        """A command beside this process wants to know what the witnesses have seen."""
        question = self._answers.question()
        if question > self._question:
            self._question = question
            for witness in self.members.witnesses:
                self._ask_for_head(witness)

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
        self._answers.note(sender, body)
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
