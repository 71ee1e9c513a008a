"""The reducer's machine: open, relay, add up, name the survivors once, unmask what enough of them have signed.

THEORY. The reducer is trusted with nothing. It sees sealed packets, masked vectors and, once the survivors have signed,
one secret of each dealer; the total that comes out holds the noise of every survivor. It names one set of dealers and
one survivor set a round, each kept before it is told. What it guards: a wrong answer is never returned as right. Seeds
and wrapping keys are compared with what their owners committed to, and the total must lie within what honest clients
could have produced; otherwise the round ends in a typed abort and nothing is handed on. Wrong shares are left out as
long as enough right ones are told (``rebuilding``).

Clients keep what they have said and say it again: so the reducer keeps only what it has itself decided (the dealings,
the survivor set with the sum of the masked vectors, the result), and a restart asks for the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, VerificationError
from tallystick.crypto.field import add_into, from_bytes
from tallystick.crypto.shamir import SHARE_BYTES
from tallystick.protocol.instructions import Aborted, Finished, Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.masked_sum.codec import decode, encode
from tallystick.protocol.masked_sum.machine import Instruction, abort_error
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Dealing,
    Evidence,
    Inquiry,
    Masked,
    Message,
    Missed,
    Refused,
    Revealed,
    RoundClosed,
    RoundOpen,
    Signed,
    Survivors,
)
from tallystick.protocol.masked_sum.opening import OUT_OF_RANGE, fitting, unmasked
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters
from tallystick.protocol.masked_sum.rebuilding import Rebuilding
from tallystick.protocol.masked_sum.records import DealersRecord, ResultRecord, SumRecord
from tallystick.protocol.masked_sum.reducer_collecting import ACTIVE, CollectingReducer, ReducerEvent, ReducerState
from tallystick.protocol.masked_sum.vouchers import pack_vouchers

_S, _E = ReducerState, ReducerEvent
OUTCOME = "outcome/"  # what came of each round, by its number, where every peer adds up itself


class ReducerMachine(CollectingReducer):
    """Starts rounds, adds masked vectors and learns their noised totals."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.DEALING,
        (_S.DEALING, _E.RELAY): _S.MASKING,
        (_S.MASKING, _E.FIX): _S.AGREEING,
        (_S.AGREEING, _E.AGREE): _S.UNMASKING,
        (_S.UNMASKING, _E.FINISH): _S.FINISHED,
        (_S.DEALING, _E.ABORT): _S.ABORTED,
        (_S.MASKING, _E.ABORT): _S.ABORTED,
        (_S.AGREEING, _E.ABORT): _S.ABORTED,
        (_S.UNMASKING, _E.ABORT): _S.ABORTED,
        (_S.FINISHED, _E.OPEN): _S.DEALING,
        (_S.ABORTED, _E.OPEN): _S.DEALING,
    }

    def __init__(self, parameters: MaskedSumParameters) -> None:
        super().__init__(parameters)
        self._outcomes: dict[int, bytes] = {}
        self._handlers = {
            Dealing: self._on_dealing,
            Masked: self._on_masked,
            Signed: self._on_signed,
            Revealed: self._on_revealed,
            Refused: self._on_refused,
            Abort: self._on_abort,
            Inquiry: self._on_inquiry,
            Missed: self._on_missed,
        }

    # -- agreeing ----------------------------------------------------------------------------------------------------

    def _on_signed(self, sender: str, message: Signed, now: float) -> list[Instruction]:
        p, survivors = self.parameters, self._survivors
        if self._check(sender, message) is not None:
            return self._ended(sender, message)
        if survivors is None or message.client not in survivors.clients or message.client in self._signed:
            return []
        if message.agreement != survivors.digest():
            return self._abort(Code.SET_DISAGREEMENT, sender, "a client signed another survivor set than was named")
        try:
            p.identities[sender].verify(message.signed_part(), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the signature does not verify")
        self._signed[message.client] = message
        return self._try_agree(now)

    def _try_agree(self, now: float, *, patient: bool = True) -> list[Instruction]:
        """Unmask what enough have signed; who is still to sign is waited for a moment, for the receipt's sake."""
        survivors, quorum = self._survivors, self._quorum()
        if self.state is not _S.AGREEING or survivors is None or quorum is None:
            return []
        if patient and len(self._signed) < len(survivors.clients):
            return []
        self._move(_E.AGREE)
        self._start_rebuilding(survivors)
        return [*(Send(self.parameters.clients[i], quorum) for i in survivors.clients), self._phase(now)]

    # -- unmasking ---------------------------------------------------------------------------------------------------

    def _start_rebuilding(self, survivors: Survivors) -> None:
        dealt = self._dealings
        fits = fitting(
            self.parameters,
            survivors,
            commitments={client: dealing.seed_commitment for client, dealing in dealt.items()},
            keys={client: dealing.key_commitment for client, dealing in dealt.items()},
            wrapped={client: dealing.wrapped for client, dealing in dealt.items()},
        )
        self._rebuilding = Rebuilding(self.parameters, survivors, fits)

    def _on_revealed(self, sender: str, message: Revealed, now: float) -> list[Instruction]:
        survivors, rebuilding = self._survivors, self._rebuilding
        if self._check(sender, message) is not None:
            return self._ended(sender, message)
        if survivors is None or rebuilding is None or message.client not in survivors.clients:
            return []
        if message.client in self._revealed or message.client in rebuilding.misshapen:
            return []  # what was told first counts
        held = self.parameters.held_by(sender, self._dealers)
        if message.agreement != survivors.digest() or len(message.shares) != SHARE_BYTES * len(held):
            rebuilding.misshapen.add(message.client)
            cause = "the shares are not those of the agreed set"
            return [*self._refuse(sender, message, Code.WRONG_SHAPE, cause), *self._try_unmask()]
        self._revealed[message.client] = message
        rebuilding.take(message.client, message.shares)
        return self._try_unmask()

    def _try_unmask(self, *, over: bool = False) -> list[Instruction]:
        """Unmask with the first shares that do; while some are wrong, others are waited for, and left out who is."""
        survivors, rebuilding = self._survivors, self._rebuilding
        if survivors is None or rebuilding is None:
            return []
        left = 0 if over else len(survivors.clients) - len(self._revealed) - len(rebuilding.misshapen)
        if rebuilding.ready() and rebuilding.attempt(left=left):
            return self._unmask(rebuilding)
        return [] if left else self._without_secrets(rebuilding)

    def _without_secrets(self, rebuilding: Rebuilding) -> list[Instruction]:
        """No more shares will come, and those that are there do not do: say whose fault it is, or that one cannot."""
        faults, p = rebuilding.faults(), self.parameters
        if rebuilding.ready():
            cause = f"wrong shares leave a secret of the round closed: {faults.said}"
            return self._abort(Code.BAD_SHARE, faults.named[0] if faults.named else "", cause)
        cause = f"{len(self._revealed)} of the survivors have told their shares, and {p.threshold} or more must"
        missing = [p.clients[i] for i in self._survivors.clients if i not in self._revealed] if self._survivors else []
        said = f"{cause}; {faults.said}" if faults.named else cause
        return self._abort(Code.THRESHOLD, (*faults.named, *missing, self.name)[0], said)

    def _unmask(self, rebuilding: Rebuilding) -> list[Instruction]:
        p, survivors = self.parameters, self._survivors
        if survivors is None or self._total is None:
            raise LocalProtocolError("nothing was added up", party=self.name, round=self.round)
        total, self._total = self._total, None
        wrapped = {client: dealing.wrapped for client, dealing in self._dealings.items()}
        try:
            values = unmasked(p, survivors, total=total, secrets=rebuilding.secrets, wrapped=wrapped)
        except RemoteProtocolError as error:
            code = Code.OUT_OF_RANGE if error.rule == OUT_OF_RANGE else Code.BAD_SHARE
            return self._abort(code, error.party or self.name, error.cause)
        record = ResultRecord(round=self.round, agreement=survivors.digest(), clients=survivors.clients, total=values)
        shown, faults = self._evidence(survivors, rebuilding), rebuilding.faults().said
        self._move(_E.FINISH)
        signatures = {p.clients[i]: said.signature for i, said in sorted(self._signed.items())}
        end = self._finish(record, pack_vouchers(survivors, signatures), faults)
        return [*shown, Persist("result", record.to_bytes()), *end]

    def _evidence(self, survivors: Survivors, rebuilding: Rebuilding) -> list[Instruction]:
        """Where every peer adds up itself: all that the total follows from, kept for whoever asks later."""
        quorum = self._quorum()
        if not self.parameters.every_peer or quorum is None:
            return []
        gone = sorted(set(self._dealers) - set(survivors.clients))
        reveals = sorted(self._revealed.items(), key=lambda told: (rebuilding.doubts[told[0]], told[0]))
        evidence = Evidence(
            study_hash=self.study_hash,
            round=self.round,
            survivors=encode(survivors),
            quorum=encode(quorum),
            commitments=b"".join(self._dealings[client].seed_commitment for client in survivors.clients),
            vectors=b"".join(self._vectors[client] for client in survivors.clients),
            dealt=b"".join(self._dealings[client].signature for client in gone),
            wrapped=tuple(self._dealings[client].wrapped for client in gone),
            reveals=tuple(encode(said) for _, said in reveals),
        )
        return self._keep_outcome(evidence)

    def _keep_outcome(self, outcome: Evidence | Abort) -> list[Instruction]:
        raw = self._outcomes[self.round] = encode(outcome)
        return [Persist(f"{OUTCOME}{self.round}", raw)]

    def _finish(self, record: ResultRecord, vouchers: bytes = b"", faults: str = "") -> list[Instruction]:
        p = self.parameters
        self._clear()
        self._closed = RoundClosed(study_hash=p.study_hash, round=record.round, agreement=record.agreement)
        result = record.summed(p.clients, vouchers, faults)
        shown = decode(self._outcomes[record.round]) if record.round in self._outcomes else None
        evidence = [Send(to, shown) for to in p.clients] if isinstance(shown, Evidence) else []
        return [*evidence, *(Send(to, self._closed) for to in p.clients), Finished(result)]

    # -- ending, repeating, restarting -------------------------------------------------------------------------------

    def cancel(self, cause: str) -> list[Instruction]:
        """Give up the open round, for a reason of the one who runs the study."""
        return self._abort(Code.REPLACED, self.name, cause) if self.state in ACTIVE else []

    def _abort(self, code: Code, party: str, cause: str, remedy: str | None = None) -> list[Instruction]:
        abort = self._abort_message = self._abort_of(self.round, code, party, cause, remedy)
        self._clear()
        self._move(_E.ABORT)
        tell = [Send(to, abort) for to in self.parameters.clients]
        kept = self._keep_outcome(abort) if self.parameters.every_peer else []
        return [*kept, Persist("aborted", encode(abort)), *tell, Aborted(abort_error(abort))]

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        if self.state not in ACTIVE or message.round != self.round or sender not in self.parameters.client_index:
            return []
        return self._abort(Code(message.code), message.party, f"{sender} stopped the round: {message.cause}")

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        client = self.parameters.client_index.get(sender)
        if client is None or message.round != self.round or message.code != Code.ABSENT:
            return []
        if self.state is _S.DEALING:
            self._dealings.pop(client, None)
        self._absent.add(client)
        return [*self._try_relay(now), *self._try_fix(now)]

    def _ended(self, sender: str, message: Message) -> list[Instruction]:
        """Someone speaks of a round that has ended, or is not open: say how it stands."""
        end = self._closed or self._abort_message
        if sender in self.parameters.client_index and message.round == self.round and end is not None:
            return [Send(sender, end)]
        code = Code.PAST_ROUND if message.round <= self.round else Code.TOO_EARLY
        return self._refuse(sender, message, code, "this round is not open")

    def _on_inquiry(self, sender: str, message: Inquiry, now: float) -> list[Instruction]:
        client = self.parameters.client_index.get(sender)
        if client is None:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        if self.state not in ACTIVE or self._opened is None:
            end = self._closed or self._abort_message
            return [Send(sender, end)] if end is not None else []
        left = int(1000 * (self._deadline - now))
        if self.state is _S.DEALING and left <= 0 and client not in self._dealings:
            return []  # too late to join
        if self.state is not _S.DEALING and client not in self._dealers:
            return []
        opened = replace(self._opened, deadline_ms=max(1, min(left, self._opened.deadline_ms)))
        return [Send(sender, opened), *self._tell(client)]

    def _on_missed(self, sender: str, message: Missed, now: float) -> list[Instruction]:
        """A peer lacks what came of a round: it is told again, however long ago that was."""
        if sender not in self.parameters.client_index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        kept = self._outcomes.get(message.round)
        if message.round == self.round and self.state in ACTIVE:
            return []  # kept before a restart, and not over yet: it may still be given up
        return [] if kept is None else [Send(sender, decode(kept))]

    def _tell(self, client: int) -> list[Instruction]:
        """What this client is asked for now, if it has not answered."""
        name, quorum = self.parameters.clients[client], self._quorum()
        message: Message | None = None
        if self.state is _S.MASKING and client in self._dealers and client not in self._sent:
            message = self._relay_for(client)
        elif self._survivors is not None and client in self._survivors.clients:
            if self.state is _S.AGREEING and client not in self._signed:
                message = self._survivors
            elif self.state is _S.UNMASKING and client not in self._revealed:
                message = quorum
        return [] if message is None else [Send(name, message)]

    def tick(self, now: float) -> list[Instruction]:
        """Ask again; go on without those who are missing; give up when too many are."""
        p = self.parameters
        if self.state not in ACTIVE:
            return []
        over = now >= self._phase_ends
        if self.state is _S.DEALING:
            out = self._try_relay(now, over=over)
        elif self.state is _S.MASKING:
            out = self._try_fix(now, over=over)
        else:
            out = self._try_agree(now, patient=False)
            if not out and over and self.state is _S.UNMASKING:
                out = self._try_unmask(over=True)
            elif not out and over:
                cause = (
                    f"{len(self._signed)} of the survivors have signed the survivor set, and {p.quorum} or more must"
                )
                return self._abort(Code.THRESHOLD, self._missing(self._signed), cause)
        if out:
            return out
        again = [step for client in range(len(p.clients)) for step in self._tell(client)]
        return [*again, Wake(min(now + p.retry_seconds, self._phase_ends))]

    @classmethod
    def restore(
        cls, parameters: MaskedSumParameters, records: Mapping[str, bytes], now: float
    ) -> tuple[ReducerMachine, list[Instruction]]:
        """The machine as its records have it: the same round, with the same sets, or the same end."""
        machine = cls(parameters)
        machine._outcomes = {
            int(key.removeprefix(OUTCOME)): kept for key, kept in records.items() if key.startswith(OUTCOME)
        }
        opened = decode(records["open"]) if "open" in records else None
        if not isinstance(opened, RoundOpen):
            return machine, []
        out = machine._announce(opened, now)
        result = ResultRecord.from_bytes(records["result"]) if "result" in records else None
        aborted = decode(records["aborted"]) if "aborted" in records else None
        if result is not None and result.round == opened.round:
            machine.state = _S.FINISHED
            return machine, machine._finish(result)
        if isinstance(aborted, Abort) and aborted.round == opened.round:
            machine.state, machine._abort_message = _S.ABORTED, aborted
            return machine, [Aborted(abort_error(aborted))]
        machine.state = _S.DEALING
        dealers = DealersRecord.from_bytes(records["dealers"]) if "dealers" in records else None
        if dealers is not None and dealers.round == opened.round:
            machine._recall(dealers, records)
            out = [*out, machine._phase(now)]
        return machine, out

    def _recall(self, dealers: DealersRecord, records: Mapping[str, bytes]) -> None:
        dealings = [decode(raw) for raw in dealers.dealings]
        self._dealings = {d.client: d for d in dealings if isinstance(d, Dealing)}
        self._dealers, self.state = tuple(sorted(self._dealings)), _S.MASKING
        kept = SumRecord.from_bytes(records["masked-sum"]) if "masked-sum" in records else None
        if kept is not None and kept.round == self.round:
            survivors = decode(kept.survivors)
            if isinstance(survivors, Survivors):
                self._sent = dict(zip(survivors.clients, survivors.signatures))
                self._survivors, self.state = survivors, _S.AGREEING
                self._add_up(survivors, kept.total)

    def _add_up(self, survivors: Survivors, kept: bytes) -> None:
        """The sum as it was kept; where every peer adds up itself, the vectors one by one."""
        size = self.parameters.size
        if self.parameters.every_peer:
            rows = [kept[at : at + 8 * size] for at in range(0, len(kept), 8 * size)]
            self._vectors = dict(zip(survivors.clients, rows))
        else:
            rows = [kept]
        self._total = np.zeros(size, dtype=np.uint64)
        for row in rows:
            add_into(self._total, from_bytes(row, size))
