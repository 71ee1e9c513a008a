"""The rounds of a study at its coordinator: the program's thread asks, the process's loop answers.

The program's loop (:mod:`tallystick.engines.rounds`) runs in a thread of its own and asks for one noisy total after
another. Every noisy total is kept before the program sees it, and the program is deterministic: so a restarted
coordinator runs it again from the start on the totals it has, comes to the same model bytes, and goes on with the round
that was open. The result leaves with proof that everybody who took part has paid, and not before.
"""

from __future__ import annotations

import base64
import json
import logging
import queue
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallystick.algorithms.program import State, pack_state
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.core.identifiers import digest, format_hash
from tallystick.crypto.prg import SEED_BYTES
from tallystick.engines.engine import Computed
from tallystick.engines.rounds import answer_of, is_lost_tick
from tallystick.engines.setup import Setup
from tallystick.engines.totals import NoisyTotal, RoundRequest, SumRequest
from tallystick.privacy.payment import Payment
from tallystick.protocol.governance.receipt_contents import countersigned, lacking
from tallystick.protocol.instructions import NoisySum
from tallystick.roles.processes.part import CoordinatorPart
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.session import Session
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.database import is_storage_failure
from tallystick.roles.streams.clock import StreamClock
from tallystick.roles.streams.losses import lost_of, pack_lost

_log = logging.getLogger("tallystick.roles")
CLOCK, PAYMENT = "clock", "payment"
LABELS = 0  # as a round: the answer to who reduces with labels, which is no round's
VOUCHERS = "vouchers/"  # what noise makers have signed of each round, by its number
PAYMENT_SECONDS = 0.5
PAYMENT_PATIENCE = 3600.0  # a client that took part and does not show its charge holds a result up no longer


class _Stopped(Exception):  # noqa: N818 - the process stops; the thread ends quietly
    pass


class CoordinatedRounds(Session):
    """What a coordinator's session does between the start of a study and its end."""

    answered = False

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        super().__init__(process, study_hash)
        self.setup: Setup | None = None
        self.part: CoordinatorPart | None = None
        self.cast = process.cast(study_hash)
        self._answers: queue.Queue[tuple[int, NoisyTotal | TallystickError] | None] = queue.Queue()  # by round
        self._clock: StreamClock | None = None
        self._awaited: RoundRequest | None = None
        self._unpaid: Computed | None = None
        self._patience = 0.0  # with who has not paid, until when
        self._released: list[tuple[State, NoisyTotal | None]] = []
        """What the study has released so far."""

    @property
    def secret_rounds(self) -> bool:
        return self.setup is not None and self.setup.design.tells_of_people

    @abstractmethod
    def progressed(self, done: int, rounds: int) -> None:
        """So many of so many rounds are done."""

    @abstractmethod
    def failed(self, error: TallystickError) -> None:
        """The study ends without a result."""

    @abstractmethod
    def finish(self, packed: bytes) -> None:
        """The study ends with this result."""

    def run_rounds(self, setup: Setup, part: CoordinatorPart) -> None:
        """Begin, or go on where the durable records end."""
        process, self.part = self.process, part
        self._released, self._answers = [], queue.Queue()
        if setup.study.stream is not None:
            wall, now = process.parts.wall(), process.now()
            self._clock = StreamClock(setup.study.stream, process.store, self.study_hash, wall=wall, now=now)
        part.begin()
        threading.Thread(target=self._program, name=f"study {self.study_hash.hex()[:12]}", daemon=True).start()

    def tick(self, layer: str) -> None:
        if layer == PAYMENT:
            if self._unpaid is not None:
                self._release(self._unpaid)
        elif layer == CLOCK:
            if self._awaited is not None:
                self._open(self._awaited)
        elif self.part is not None:
            self.part.tick()

    def interim(self) -> bytes | None:
        """What a running stream has released so far, if it has and that is paid for."""
        so_far = tuple(self._released)  # the program's thread goes on: what it adds meanwhile is not looked at
        took_part = [total.participants for _, total in so_far if total is not None]
        paid = self._clock is not None and self._payment(took_part) is not None
        return pack_interim(so_far) if paid else None

    def close(self) -> None:
        self._answers.put(None)

    def _program(self) -> None:
        part = self.part
        if part is None:
            return
        try:
            computed = part.compute(
                progress=lambda done, rounds: self._post(lambda: self.progressed(done, rounds)),
                released=lambda state, total: self._released.append((state, total)),
            )
        except _Stopped:
            return
        except TallystickError as error:
            failure = error
            self._post(lambda: self._fail(failure))
            return
        except Exception:
            _log.exception("the program of a study failed")
            failure = RoundAborted("the program failed", remedy="See the aggregator's log.")
            self._post(lambda: self._fail(failure))
            return
        self._post(lambda: self._release(computed))

    def _release(self, computed: Computed) -> None:
        """Let the result out once it is seen that everybody who took part has paid, as all witnesses have signed.

        What a client sends has been charged and countersigned before; its signatures may still be on their way here.
        """
        if self.over:
            return
        payment, now = self._payment(computed.contributors), self.process.now()
        if payment is None and self._unpaid is None:
            _log.info("the result waits for the institutions' signed charges")
            self._patience = now + PAYMENT_PATIENCE
        self._unpaid = computed if payment is None else None
        if payment is None and now >= self._patience:
            missing = lacking(self.process.exchange.docket(self.study_hash), computed.contributors)
            self.failed(
                RoundAborted(
                    f"the result was not paid for: {missing[0] if missing else 'a charge is not that of the plan.'}",
                    rule="missing-charge",
                    remedy="What was spent stays spent. Look at the client named; then propose the study anew.",
                )
            )
        elif payment is None:
            self.process.wake(now + PAYMENT_SECONDS, self, PAYMENT)
        elif self.setup is not None:
            outcome = computed.paid(self.setup.plan, self.study_hash, payment)
            self.finish(pack_outcome(outcome))

    def _payment(self, participants: Sequence[Sequence[str]]) -> Payment | None:
        known = self.process.exchange.docket(self.study_hash).statements("charge", "countersignature")
        rho = self.setup.plan.rho if self.setup is not None else Fraction(-1)
        return countersigned(known, self.cast, participants, study=self.study_hash, rho=rho)

    def _post(self, work: Callable[[], None]) -> None:
        self.process.post_for(self, work)

    def _fail(self, error: TallystickError) -> None:
        if is_storage_failure(error):
            raise error  # not the study's fault: it is taken up again once the disk works
        self.failed(error)

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        """A kept total, or a round (:class:`tallystick.engines.totals.NoisyTotals`)."""
        total = self.answer(request)
        return replace(total, values=answer_of(request.plan, total.values, request.round))

    def answer(self, request: RoundRequest) -> NoisyTotal:
        """What a round came to: as it was kept, or as its parties answer now."""
        kept = self.process.store.release(self.study_hash, request.round)
        if kept is None:
            self._post(lambda: self._open(request))
            return self._answer(request.round)
        return self._kept(kept)

    def tell_labels(self, told: NoisyTotal | TallystickError) -> None:
        """What was heard of the labels that the program waits for."""
        self._answers.put((LABELS, told))

    def labels(self) -> NoisyTotal:
        """Wait for them, on the program's thread, as for the total of a round."""
        return self._answer(LABELS)

    def _answer(self, round: int) -> NoisyTotal:
        """Wait for the total of this round.

        A round that ends while the program asks for it is answered twice, by its end and by the question: what is left
        of an earlier round is never taken for the next one's total.
        """
        while True:
            found = self._answers.get()
            if found is None:
                raise _Stopped
            if found[0] == round:
                if isinstance(found[1], TallystickError):
                    raise found[1]
                return found[1]

    def _kept(self, body: bytes) -> NoisyTotal:
        """The total of a round that has ended; raises if it was a tick that was lost."""
        loss = lost_of(body)
        if loss is not None:
            raise loss
        return unpack_total(body)

    def _open(self, request: RoundRequest) -> None:
        if self.part is None:
            return
        kept = self.process.store.release(self.study_hash, request.round)
        if kept is not None:
            self._answers.put((request.round, lost_of(kept) or unpack_total(kept)))
        elif self.part.round < request.round:
            self._awaited = None
            due = 0.0 if self._clock is None else self._clock.due(request.round)
            if due > self.process.now():
                self._awaited = request
                self.process.wake(due, self, CLOCK)
                return
            self.part.open_round(request.round, request.model)

    def round_finished(self, result: NoisySum) -> None:
        """A round has ended with its total."""
        self._answers.put((result.round, self._keep(result)))

    def round_aborted(self, error: TallystickError) -> None:
        """A round has ended without one."""
        self._keep_loss(error)
        self._answers.put((self.part.round if self.part is not None else 0, error))

    def ended_before(self, end: NoisySum | TallystickError) -> None:
        """A round had ended when this process last did, and what came of it may not have been kept yet."""
        if isinstance(end, NoisySum):
            self._keep(end)
        elif not self._keep_loss(end):
            self._answers.put((self.part.round if self.part is not None else 0, end))

    def _keep(self, result: NoisySum) -> NoisyTotal:
        total = NoisyTotal(
            values=result.total, participants=result.participants, dropped=result.dropped, makers=result.makers
        )
        store = self.process.store
        with store.transaction():
            store.put_release(self.study_hash, result.round, pack_total(total), secret=self.secret_rounds)
            if result.vouchers and self._clock is None:
                store.persist(self.study_hash, f"{VOUCHERS}{result.round}", result.vouchers)
        crashpoint("model-kept")
        if result.faults:
            _log.warning("round %d has its total, and yet: %s", result.round, result.faults)
        self.process.health.rounds = result.round
        return total

    def _keep_loss(self, error: TallystickError) -> bool:
        """Keep that a tick was lost, if that is what it is: the stream goes on without it, also after a restart."""
        setup = self.setup
        if setup is None or setup.study.stream is None or error.round is None:
            return False
        if not is_lost_tick(setup.sum_plan, error):
            return False
        self.process.store.put_release(self.study_hash, error.round, pack_lost(error))
        crashpoint("loss-of-a-tick-kept")
        _log.warning("tick %d of the stream is lost: %s", error.round, error)
        return True

    def _notes(self, *, secret: bool) -> dict[int, dict[str, Any]]:
        """Where the coordinator itself makes the noise: what it let out is the totals it has kept.

        Their digests travel to everybody. ``secret``: totals tell of single people, and follow from few unknowns for
        whoever knows the rest, who would find these by trying: such a digest is taken with bytes that nobody keeps.
        """
        found, streams = {}, self.process.parts.streams
        for round, body in self.process.store.releases(self.study_hash):
            if lost_of(body) is None:
                labels = (self.study_hash, b"total-blind", round.to_bytes(8, "little"))
                hidden = (streams(*labels).bytes(SEED_BYTES),) if secret else ()
                participants = list(unpack_total(body).participants)
                found[round] = {"participants": participants, "partial": format_hash(digest(body, *hidden))}
        return found


# What a coordinator keeps and hands on, as bytes: noisy totals, and the released states of a study.


def pack_total(total: NoisyTotal) -> bytes:
    """One round's release as it is kept: noisy values and who took part."""
    noise = [] if total.makers is None else [total.makers]  # written where it is not what the plan says anyway
    facts = json.dumps([list(total.participants), list(total.dropped), *noise]).encode()
    return len(facts).to_bytes(4, "little") + facts + total.values.astype("<i8").tobytes()


def unpack_total(body: bytes) -> NoisyTotal:
    """Inverse of :func:`pack_total`."""
    length = int.from_bytes(body[:4], "little")
    participants, dropped, *noise = json.loads(body[4 : 4 + length])
    values = np.frombuffer(body[4 + length :], dtype="<i8").astype(np.int64)
    makers = noise[0] if noise else None
    return NoisyTotal(values=values, participants=tuple(participants), dropped=tuple(dropped), makers=makers)


def pack_outcome(outcome: Computed, *, ended_early: int | None = None) -> bytes:
    """What the analyst receives: released states and who took part; nothing else exists.

    ``ended_early`` marks what is released before the last round: how many rounds were planned.
    """
    marks = {} if ended_early is None else {"ended_early": ended_early}
    return _pack(outcome.history, outcome.contributors, outcome.dropped, **marks)


def pack_interim(released: Sequence[tuple[State, NoisyTotal | None]]) -> bytes:
    """The same of a stream that is still running: what it has released so far, and marked so."""
    totals = [total for _, total in released]
    return _pack(
        [state for state, _ in released],
        [total.participants if total is not None else () for total in totals],
        [total.dropped if total is not None else () for total in totals],
        interim=True,
    )


def _pack(
    history: Iterable[State], contributors: Iterable[Sequence[str]], dropped: Iterable[Sequence[str]], **marks: int
) -> bytes:
    body = {
        "history": [base64.b64encode(pack_state(state)).decode() for state in history],
        "contributors": [list(names) for names in contributors],
        "dropped": [list(names) for names in dropped],
    }
    return json.dumps(body | marks).encode()
