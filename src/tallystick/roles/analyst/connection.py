"""The analyst's connection: a line to the aggregator for as long as a command lasts.

Propose, see how it stands, run, fetch the result. What was said is kept in the analyst's own file of statements;
whoever comes back tomorrow finds it there, and the rest on the notice board.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Self

from tallystick.core.errors import NotApproved, RoundAborted, TallystickError, TooFewParties, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.crypto.prg import system_stream
from tallystick.privacy.payment import Payment
from tallystick.privacy.plan import Plan
from tallystick.protocol import study as studies
from tallystick.protocol.governance.receipt_contents import countersigned
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.messages import Op
from tallystick.roles.governance.receipts import ReceiptBook, receipt_result
from tallystick.roles.governance.results import MAX_BYTES, ResultRequest, is_interim
from tallystick.roles.governance.review import DEFAULT_DAYS, proposal_statement
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import load_identity, unix_time, wall_clock
from tallystick.roles.identity.places import members_of, node_for
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.study import Study
from tallystick.study.proposed import proposed_study
from tallystick.transport.link import Envelope
from tallystick.transport.wire import GOVERNANCE, STUDY, head, parse

SETTLE_SECONDS = 5.0
SYNC_SECONDS = 20.0
ASK_SECONDS = 10.0

Progress = Callable[[int, int], None]


class AnalystConnection:
    """Use it in a ``with`` block. Single-threaded: messages are taken while a method waits."""

    def __init__(self, config: RoleConfig, consortium: Consortium, *, timeout: float = 30.0) -> None:
        self.members = members_of(consortium)
        self._identity = load_identity(config, consortium, wall_clock())
        self._timeout = timeout
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = GovernanceStore(
            config.state / "governance.sqlite", party=config.name, identities=self.members.identities
        )
        self.exchange = Exchange(
            store,
            self.members,
            config.name,
            self._identity.signing,
            send=lambda to, raw: self._node.send(to, raw),
            wall=unix_time,
        )
        self._node = node_for(self._identity, consortium, listen=None)
        self._node.allow(MAX_BYTES, self.members.board)
        self.receipts = ReceiptBook(config.state)
        self._study: Callable[[Envelope], None] | None = None
        self._answers: list[tuple[int, bytes, bytes]] = []

    def __enter__(self) -> Self:
        aggregator = self.members.board
        try:
            self._node.__enter__()
            if not self._node.wait_connected([aggregator], self._timeout):
                raise RoundAborted(
                    "the aggregator cannot be reached",
                    party=aggregator,
                    rule="not-started",
                    remedy="Check its address in consortium.toml and that it is running (tallystick doctor).",
                )
            self.exchange.poll()
            self.exchange.connected(aggregator)
            self.wait(lambda: self.exchange.in_step(aggregator), SYNC_SECONDS)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; nothing that was said is lost."""
        self._node.stop()
        self.exchange.store.close()

    def wait(self, until: Callable[[], bool], seconds: float) -> bool:
        """Take messages until something holds; whether it came to that in time."""
        deadline = time.monotonic() + seconds
        while not until():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.pump(min(left, 0.5))
        return True

    def pump(self, timeout: float) -> None:
        """Take one message, if one comes."""
        self.exchange.poll()
        envelope = self._node.receive(timeout=timeout)
        if envelope is None:
            return
        kind, study_hash, payload = parse(envelope.raw, envelope.sender)
        if kind == STUDY and self._study is not None:
            self._study(envelope)
        elif kind == GOVERNANCE and envelope.sender == self.members.board and payload:
            op, body = payload[0], bytes(payload[1:])
            if not self.exchange.receive(envelope.sender, op, body):
                self._answers.append((op, study_hash, body))

    def propose(
        self, study: Study, plan: Plan, program: str, *, days: float = DEFAULT_DAYS, supersedes: bytes | None = None
    ) -> Statement:
        """Sign a proposal and put it on the board."""
        statement = proposal_statement(
            study,
            plan,
            program,
            analyst=self._identity.party,
            key=self._identity.signing,
            consortium=self.members.consortium_hash,
            now=self.exchange.wall(),
            days=days,
            supersedes=supersedes,
        )
        self.exchange.add(statement)
        return statement

    # -- approval ------------------------------------------------------------------------------------------------------

    def wait_for_approval(
        self, study: bytes, seconds: float, told: Callable[[Standing], None] | None = None
    ) -> Standing:
        """Until everybody has decided; a quorum is waited on a little, for those who are still reading.

        ``told`` hears how the study stands while it waits."""
        began = time.monotonic()

        def decided() -> bool:
            standing = self.exchange.standing(study)
            if told is not None:
                told(standing)
            settled = time.monotonic() - began > SETTLE_SECONDS
            return standing.state != "open" and (standing.state != "approved" or not standing.waiting or settled)

        self.wait(decided, seconds)
        return self.exchange.standing(study)

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, canonical: bytes, program: str, progress: Progress | None = None, *, wish: str = "run") -> bytes:
        """Have an approved study run, or fetch what it came to; the packed result.

        ``wish`` may also be to ``resume`` a study that is paused, or to ``close`` it.
        """
        machine = studies.AnalystMachine(
            self.members.cast(Study.from_canonical(canonical).trust_model),
            self._identity.party,
            study=canonical,
            program=program,
            request=os.urandom(16),
            wish=wish,
            retry_seconds=2.0,
        )
        wakes: list[float] = []
        over = False
        failed: TallystickError | None = None

        def carry_out(steps: list[studies.Instruction]) -> None:
            nonlocal over, failed
            for step in steps:
                match step:
                    case studies.Send(to=to, message=message):
                        self._node.send(to, head(STUDY, machine.study_hash) + studies.encode(message))
                    case studies.Wake(at=at):
                        wakes.append(at)
                    case studies.RoundsDone(round=done, rounds=rounds):
                        if progress is not None and rounds:
                            progress(done, rounds)
                    case studies.Ended(error=error):
                        over, failed = True, error
                    case _:
                        pass

        def heard(envelope: Envelope) -> None:
            _, study_hash, payload = parse(envelope.raw, envelope.sender)
            if study_hash == machine.study_hash:
                carry_out(machine.receive_bytes(envelope.sender, bytes(payload), time.monotonic()))

        self._study = heard
        try:
            carry_out(machine.propose(time.monotonic()))
            while not over:
                soonest = min(wakes, default=time.monotonic() + 0.5)
                self.pump(min(0.5, max(0.0, soonest - time.monotonic())))
                if wakes and min(wakes) <= time.monotonic():
                    wakes[:] = [at for at in wakes if at > time.monotonic()]
                    carry_out(machine.tick(time.monotonic()))
        finally:
            self._study = None
        if failed is not None:
            raise self._said_no(machine.study_hash, failed)
        return self.result(machine.study_hash)

    def _said_no(self, study: bytes, error: TallystickError) -> TallystickError:
        """Too few took part because they had not approved: that is another thing than too few being there."""
        if not isinstance(error, TooFewParties):
            return error
        standing = self.exchange.standing(study)
        if standing.state == "approved" or len(standing.approvals) >= standing.quorum:
            return error
        return NotApproved(
            f"{error.cause}; {standing.words}",
            rule="quorum",
            party=error.party,
            remedy="Ask those who did not approve.",
        )

    def result(self, study: bytes, seconds: float = 60.0) -> bytes:
        """The result of a finished study, or what one has released that is paused or a stream, if this analyst may."""
        aggregator, stream = self.members.board, self._is_running_stream(study)
        if not stream and not self.wait(lambda: bool(self._outcome(study)), SYNC_SECONDS):
            paused = self.exchange.standing(study).state == "paused"
            raise NotApproved(
                f"the study {format_hash(study)[:19]} has no result",
                rule="no-result",
                remedy="It is paused: study resume, or study close."
                if paused
                else "Once it is approved, run it: study run. Who has decided: study status.",
            )
        asked = ResultRequest(study, self._identity.party, self._identity.signing, system_stream())
        wanted = (Op.RESULT, Op.NO_RESULT)
        found = self._ask(Op.RESULT_WANTED, asked.body, study, wanted, every=ASK_SECONDS, seconds=seconds)
        if found is None:
            raise RoundAborted("the aggregator does not send the result", party=aggregator, rule="silent")
        op, body = found
        if op == Op.NO_RESULT:
            cause = body.decode(errors="replace")
            raise NotApproved(cause, party=aggregator, rule="results-visible-to")
        packed = asked.unseal(body, aggregator=aggregator, identity=self.members.identities[aggregator])
        if stream and is_interim(packed):
            return packed
        self.wait(lambda: bool(self._outcome(study)), SYNC_SECONDS)  # a stream may have ended just now
        asked.check(packed, aggregator=aggregator, expected=self._outcome(study))
        return packed

    def payment(self, study: Study, plan: Plan, participants: Sequence[Sequence[str]]) -> Payment:
        """The proof that everybody who took part has paid, as the notice board has it."""

        def there() -> Payment | None:
            known = self.exchange.docket(study.hash).statements("charge", "countersignature")
            cast = self.members.cast(study.trust_model, study.trust.model_dump())
            return countersigned(known, cast, participants, study=study.hash, rho=plan.rho)

        self.wait(lambda: there() is not None, SYNC_SECONDS)
        found = there()
        if found is None:
            raise VerificationError(
                "a result without proof that every institution has charged its ledger for it",
                rule="missing-charge",
                party=self.members.board,
                remedy="Do not use it. Ask again later: a signature may be on its way.",
            )
        return found

    def _is_running_stream(self, study: bytes) -> bool:
        standing = self.exchange.standing(study)
        if standing.state != "running" or standing.proposal is None:
            return False
        return proposed_study(standing.proposal.body["study"]).is_stream

    def receipt(self, study: bytes, seconds: float = 20.0) -> bytes | None:
        """The study's privacy receipt; None if its last signature is not in yet."""
        kept = self.receipts.of_result(study, self._outcome(study))
        if kept is None:
            found = self._ask(
                Op.RECEIPT_WANTED,
                b"",
                study,
                (Op.RECEIPT,),
                every=1.0,
                seconds=seconds,
                # Not that of a pause before; the outcome itself may still be on its way when this is asked.
                fits=lambda raw: "" != receipt_result(raw) == self._outcome(study),
            )
            if found is not None:
                kept = found[1]
                self.receipts.put(study, kept, sender=self.members.board)
        return kept

    def _ask(
        self,
        op: Op,
        body: bytes,
        study: bytes,
        wanted: Sequence[Op],
        *,
        every: float,
        seconds: float,
        fits: Callable[[bytes], bool] = lambda _body: True,
    ) -> tuple[int, bytes] | None:
        """The notice board's answer to a question, which is asked anew: one that came too soon is not answered."""

        def there() -> tuple[int, bytes] | None:
            found = ((op, body) for op, of, body in self._answers if op in wanted and of == study)
            return next((answer for answer in found if fits(answer[1])), None)

        self._answers.clear()
        for _ in range(max(1, round(seconds / every))):
            self.exchange.send(self.members.board, op, body, study)
            if self.wait(lambda: there() is not None, every):
                break
        return there()

    def _outcome(self, study: bytes) -> str:
        """The digest of the result or interim release, as the aggregator signed it; empty while there is none."""
        return self.exchange.standing(study).result
