"""A study at its coordinator that misses a party: what it has released goes out, and the rest waits.

A party is lost for longer than a round waits. Then all parties stop where they are and keep what they have; the last
state that was released becomes an interim release, marked as ended early, with its receipt: it was paid for, since the
charge is the whole study's from the start. The analyst goes on with the study when the party is back (the same round,
over the same set, with the same bytes), or closes it, and after a week it is closed without being asked: then the
interim release is its result, and every key is erased. A round that cannot be gone on with is spent: it has no total,
and the program asks what it asked in it in the next one, if that is of the same kind.
"""

from __future__ import annotations

import contextlib
import json
import logging
from typing import Any

from tallystick.algorithms.local_program import ReducedAtLabels
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.engines.engine import Computed
from tallystick.engines.rounds import LOST, SPENT, run_rounds
from tallystick.engines.setup import Setup, set_up
from tallystick.engines.totals import NoisyTotal, RoundRequest
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol import study as studies
from tallystick.protocol.governance.receipt import make_receipt
from tallystick.protocol.governance.standing import RESUMED
from tallystick.protocol.study.messages import Wish, result_digest
from tallystick.roles.governance.messages import Op
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.processes.coordinated_rounds import (
    PAYMENT,
    PAYMENT_SECONDS,
    VOUCHERS,
    CoordinatedRounds,
    pack_outcome,
)
from tallystick.roles.processes.part import CoordinatorPart, Driver
from tallystick.roles.storage.database import is_storage_failure
from tallystick.roles.streams.losses import pack_lost

_log = logging.getLogger("tallystick.roles")
PAUSE, PAUSED = "pause", "paused"  # the layer that looks at the clock; what is kept of a pause
WAIT_SECONDS = 7 * 86400
LOOK_SECONDS = 60.0
_SPENT_HERE = LOST | {"absent"}  # how a round that was held may end without anybody being at fault
_INTERIM = "interim"


class _NoMoreError(Exception):
    """The program asks for a total that is not kept."""


class PausableRounds(CoordinatedRounds):
    """What a coordinator's session does when a study cannot go on, and when it goes on."""

    _machine: studies.AggregatorMachine
    _study: Driver
    _consortium: Consortium
    _held = 0
    """The round that was open when the study was paused last, while it is still to be gone on with."""
    _replaying = False

    def run_rounds(self, setup: Setup, part: CoordinatorPart) -> None:
        self._held = part.round if self.process.store.release(self.study_hash, part.round) is None else 0
        super().run_rounds(setup, part)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def round_held(self, error: TallystickError) -> None:
        """A party is missed, and the round can still go on when it is back."""
        if error.rule == "too-few-clients":  # the server that says so is there: name who is not
            roster, hub = self._machine.roster, self.process
            there = {*hub.node.connected(), hub.name}
            away = [name for name in (roster.keys if roster is not None else ()) if name not in there]
            cause = error.cause + (f"; not connected to {hub.name}: {', '.join(away[:5])}" if away else "")
            error = RoundAborted(cause, party=away[0] if away else None, round=error.round, rule=error.rule)
        self._pause(error)

    def round_aborted(self, error: TallystickError) -> None:
        again = self._machine.pauses and error.round == self._held and error.rule in _SPENT_HERE
        super().round_aborted(self._spend(error) if again else error)

    def _spend(self, error: TallystickError) -> RoundAborted:
        """Keep that a round has no total and never will have, in the place of its total."""
        spent = RoundAborted(
            f"round {error.round} is spent: {error.cause}",
            party=error.party,
            round=error.round,
            rule="round-spent",  # SPENT
            remedy="It is skipped if the next round can make up for it. It stays charged.",
        )
        self.process.store.put_release(self.study_hash, error.round or 0, pack_lost(spent), secret=self.secret_rounds)
        _log.warning("%s", spent)
        return spent

    def _fail(self, error: TallystickError) -> None:
        if error.rule == SPENT:  # no other round can make up for it
            self.close_early(error)
        elif isinstance(error, RoundAborted) and error.rule in _SPENT_HERE and self._clock is None and error.round:
            self._spend(error)
            self._pause(error)
        elif self._machine.pauses and self.interim() is not None and not is_storage_failure(error):
            _log.error("the study ends with what it had released before its pause: %s", error)
            self.close_early(error)
        else:
            super()._fail(error)

    def _pause(self, error: TallystickError) -> None:
        """All stop where they are; what was released so far goes out as soon as it is seen to be paid for."""
        self.close()  # the program waits for no total; it is run again on those that are kept
        self.part = None
        usable = self._usable()
        facts = {"code": (error.rule or "failed")[:200], "party": error.party or "", "usable": usable}
        facts["until"] = int(self.process.parts.wall()) + WAIT_SECONDS
        self.process.store.persist(self.study_hash, PAUSED, json.dumps(facts).encode())
        self._study(self._machine.pause(self._told(error, usable)))
        self.watch_pause()

    def _usable(self) -> bool:
        setup, released = self.setup, self._released
        if setup is None or not any(total is not None for _, total in released):
            return False
        return bool(getattr(setup.design.program, "usable", lambda _state: True)(released[-1][0]))

    def _told(self, error: TallystickError, usable: bool) -> RoundAborted:
        """The message: what was charged at whom, what was released, what to do."""
        setup, name = self.setup, self.study_hash.hex()[:12]
        done, planned = len(self._released), setup.plan.claim.rounds if setup is not None else 0
        docket = self.process.exchange.docket(self.study_hash)
        charged = sorted({s.signer for s in docket.statements("charge")})
        whom = ", ".join(charged[:5]) + (f" and {len(charged) - 5} more" if len(charged) > 5 else "")
        paid = f"The whole study stays charged at {whom}" if charged else "Nobody was charged yet"
        got = "the state after it is released, marked as ended early" if usable else "no interim state is usable"
        return RoundAborted(
            f"{error.cause}. Paused after round {done} of {planned}: {got if done else 'nothing was released'}. {paid}",
            party=error.party,
            round=error.round,
            rule=error.rule,
            remedy=(
                f"Start {error.party or 'the clients and servers that are missed'} on the state it had last, then: "
                f"tallystick study resume {name}. Or keep what there is: study result {name}, study close {name}. "
                "Closed by itself in 7 days."
            ),
        )

    def answer(self, request: RoundRequest) -> NoisyTotal:
        if self._replaying and self.process.store.release(self.study_hash, request.round) is None:
            raise _NoMoreError
        return super().answer(request)

    def _replay(self) -> Setup:
        """What was released before, after a restart in a pause: the program once more, on the totals that are kept."""
        stored = self.process.store.study(self.study_hash)
        if self.setup is None and stored is not None:
            setup = self.setup = set_up(stored.canonical, stored.program, allow_not_private=True)
            # Of what does not sum there is one round, or none released before it; of what needs labels, the last alone.
            if isinstance(setup.plan, SumPlan) and not isinstance(setup.design.program, ReducedAtLabels):
                self._run_again(setup)
        if self.setup is None:
            raise RoundAborted("a study is paused that is not stored here")
        return self.setup

    def _run_again(self, setup: Setup) -> None:
        self._replaying = True
        with contextlib.suppress(_NoMoreError, RoundAborted):  # or a round is spent, and none makes up for it
            run_rounds(
                setup.design.program,
                setup.public,
                setup.sum_plan,
                self,
                released=lambda state, total: self._released.append((state, total)),
            )
        self._replaying = False

    def _tell_pause(self, facts: dict[str, Any]) -> None:
        """Say it for the record, with the digest of what is released, once that is paid for."""
        known = self.process.exchange.docket(self.study_hash).statements("pause")
        if any(statement.body["number"] >= self._machine.pauses for statement in known):
            return
        setup, packed = self._replay(), b""
        if facts["usable"]:
            totals = [total for _, total in self._released]
            computed = Computed(
                history=tuple(state for state, _ in self._released),
                contributors=tuple(() if total is None else total.participants for total in totals),
                dropped=tuple(() if total is None else total.dropped for total in totals),
            )
            payment = self._payment(computed.contributors)
            if payment is None:
                self.process.wake(self.process.now() + PAYMENT_SECONDS, self, PAYMENT)
                return
            outcome = computed.paid(setup.plan, self.study_hash, payment)
            packed = pack_outcome(outcome, ended_early=setup.plan.claim.rounds)
            self.process.store.persist(self.study_hash, _INTERIM, packed)
        self._say_pause(facts["code"], facts["party"], packed)
        if packed:
            self._early_receipt(packed)

    def _say_pause(self, code: str, party: str, packed: bytes) -> None:
        body = {
            "hash": format_hash(self.study_hash),
            "number": self._machine.pauses,
            "result": format_hash(result_digest(self.study_hash, packed)) if packed else "",
            "rounds": len(self._released),
            "code": code,
            "party": party,
            "at": int(self.process.exchange.wall()),
        }
        self.process.exchange.say("pause", body)

    def interim(self) -> bytes | None:
        """What was released before a pause; of a running stream, so far."""
        kept = self.process.store.records(self.study_hash).get(_INTERIM)
        return kept if kept is not None else super().interim()

    def _early_receipt(self, packed: bytes) -> None:
        """The receipt of an interim release: what each noise maker signed in each round is in place of attestations."""
        process, records = self.process, self.process.store.records(self.study_hash)
        participants = json.loads(packed)["contributors"]
        vouchers = [json.loads(records.get(f"{VOUCHERS}{n}", b"null")) for n in range(1, len(participants) + 1)]
        raw = make_receipt(
            process.exchange.docket(self.study_hash),
            consortium=self._consortium.to_toml(),
            participants=participants,
            now=process.exchange.wall(),
            key=process.parts.identity.signing,
            early={"start": records["study/start"].hex(), "vouchers": vouchers},
        )
        self.give_receipt(raw)

    def give_receipt(self, raw: bytes) -> None:
        """Keep a receipt, and give it to everybody."""
        process = self.process
        process.receipts.put(self.study_hash, raw)
        for party in (*process.members.parties, *process.members.analysts):
            process.exchange.send(party, Op.RECEIPT, raw, self.study_hash)

    # -- going on, or ending -----------------------------------------------------------------------------------------

    def tick(self, layer: str) -> None:
        if layer == PAUSE:
            self.watch_pause()
        elif layer == PAYMENT and self._machine.waits:
            self._tell_pause(self._facts())
        else:
            super().tick(layer)

    def watch_pause(self) -> None:
        """Of a study that waits: say so if that is not said yet; close it if it has waited for too long."""
        if not self._machine.waits:
            return
        self.process.health.studies[self.study_hash.hex()[:12]] = "paused"
        facts = self._facts()
        self._tell_pause(facts)
        if self.process.parts.wall() >= facts["until"]:
            self.close_early(RoundAborted("the study was paused, and nobody went on with it in time", rule="paused"))
        else:
            self.process.wake(self.process.now() + LOOK_SECONDS, self, PAUSE)

    def _facts(self) -> dict[str, Any]:
        """What is kept of the last pause: why, for whom, until when, and whether its last state is usable."""
        found: dict[str, Any] = json.loads(self.process.store.records(self.study_hash)[PAUSED])
        return found

    def may_wish(self, sender: str, message: object) -> bool:
        """Whoever proposed a study goes on with it or closes it, and nobody else."""
        proposal = self.process.exchange.standing(self.study_hash).proposal
        return not isinstance(message, Wish) or (proposal is not None and sender == proposal.signer)

    def say_resumed(self) -> None:
        """For the record: a pause is over, and the study goes on."""
        standing = self.process.exchange.standing(self.study_hash)
        if self._machine.pauses and standing.state == "paused":
            self._say_pause(RESUMED, "", b"")

    def close_early(self, error: TallystickError) -> None:
        """The study ends with what it had released before, or else without a result."""
        self.close()
        self.part = None
        packed = self.interim()
        if packed is not None:
            self.finish(packed)
            return
        closed = RoundAborted(
            f"closed without a result: {error.cause}",
            party=error.party or self.process.name,
            round=error.round,
            rule=error.rule or "paused",
            remedy="Nothing usable was released, and what it cost stays spent. Propose a new version of the study.",
        )
        self.failed(closed)
