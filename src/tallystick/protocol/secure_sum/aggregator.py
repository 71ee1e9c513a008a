"""The aggregator's machine: open a round, wait for all m partials, add them, say so once.

THEORY. The aggregator sees noised sums only; it is trusted with nothing. It cannot
choose the set (it only learns U from the agreement all servers signed), cannot get
a second partial for a round, and a round it reopens with another model is refused by
clients and servers alike. What it guards: a wrong answer is never returned as
right. All m partials must be signed, bound to one agreement digest, each of the start
that was agreed (``boots``), and the decoded total must lie within what honest clients
could have produced; otherwise the round ends in a typed abort and nothing is
handed on. A failed round is never repeated under its number: a new try is a new round with its own charge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, unique
from typing import ClassVar

import numpy as np

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.crypto.field import decode_signed, from_bytes, sum_vectors
from tallystick.protocol.instructions import Aborted, Finished, Held, NoisySum, Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.secure_sum.boots import BootBook, MemoryBoots, SeenBoots, dispute
from tallystick.protocol.secure_sum.codec import decode, encode
from tallystick.protocol.secure_sum.instructions import Instruction
from tallystick.protocol.secure_sum.machine import SumMachine, abort_error, check_model
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Agreement,
    Code,
    HashOpen,
    Inquiry,
    Message,
    Partial,
    Refused,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    model_digest,
)
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.records import ResultRecord
from tallystick.protocol.secure_sum.vouchers import pack_vouchers
from tallystick.protocol.summing import opening


@unique
class AggregatorState(Enum):
    IDLE = "idle"
    OPEN = "open"
    FINISHED = "finished"
    ABORTED = "aborted"


@unique
class AggregatorEvent(Enum):
    OPEN = "round opened, model kept"
    FINISH = "all partials in, within range: result kept"
    ABORT = "round given up"


_S, _E = AggregatorState, AggregatorEvent


class AggregatorMachine(SumMachine):
    """Starts rounds and adds the servers' noised sums."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.OPEN,
        (_S.OPEN, _E.FINISH): _S.FINISHED,
        (_S.OPEN, _E.ABORT): _S.ABORTED,
        (_S.FINISHED, _E.OPEN): _S.OPEN,
        (_S.ABORTED, _E.OPEN): _S.OPEN,
    }

    def __init__(self, parameters: SumParameters, *, boots: BootBook | None = None) -> None:
        super().__init__(parameters, parameters.aggregator, _S.IDLE)
        self._opened: RoundOpen | None = None
        self._deadline = 0.0
        self._give_up = 0.0
        self._agreements: dict[bytes, Agreement] = {}
        self._partials: dict[int, Partial] = {}
        self._signed: dict[int, Agreement] = {}
        self._seen = SeenBoots(parameters, boots if boots is not None else MemoryBoots())
        self._closed: RoundClosed | None = None
        self._abort_message: Abort | None = None
        self._handlers = {
            Agreement: self._on_agreement,
            Partial: self._on_partial,
            Abort: self._on_abort,
            Inquiry: self._on_inquiry,
            Refused: self._on_refused,
        }

    def open_round(self, round: int, model: bytes, now: float, *, blind: bytes = b"") -> list[Instruction]:
        """Announce a round with its model; ``round`` must be higher than any before.

        ``blind`` is for models that tell of single people: 32 random bytes, drawn for this round.
        """
        p = self.parameters
        if self.state is _S.OPEN:
            raise LocalProtocolError("the last round has not ended", party=self.name, round=self.round)
        if not self.round < round <= p.last_round:
            raise LocalProtocolError(
                f"round {round} cannot follow round {self.round}", party=self.name, round=round,
                remedy=f"Number rounds upwards, to {p.last_round} at most; a failed round gets a new number.",
            )  # fmt: skip
        facts = {"study_hash": p.study_hash, "round": round, "deadline_ms": int(1000 * p.round_seconds)}
        hashed = model_digest(p.study_hash, round, model, blind)
        opened = opening(RoundOpen, SecretOpen, blind, **facts, model_hash=hashed, model=model)
        wrong = check_model(opened, p, told=True)
        if wrong is not None:
            raise LocalProtocolError(wrong, party=self.name, round=round, remedy="Look at the program's update.")
        self._move(_E.OPEN)
        return [Persist("open", encode(opened)), *self._announce(opened, now)]

    def cancel(self, cause: str) -> list[Instruction]:
        """Give up the open round, for a reason of the one who runs the study."""
        return self._abort(Code.REPLACED, self.name, cause) if self.state is _S.OPEN else []

    def _announce(self, opened: RoundOpen, now: float) -> list[Instruction]:
        p = self.parameters
        self._opened, self.round = opened, opened.round
        self._agreements, self._partials, self._signed = {}, {}, {}
        self._closed = self._abort_message = None
        self._deadline = now + opened.deadline_ms / 1000
        self._give_up = self._deadline + 2 * p.agreement_seconds
        to_servers = self._for_servers(opened)
        tell = [*(Send(to, to_servers) for to in p.servers), *(Send(to, opened) for to in p.clients)]
        return [*tell, Wake(now + p.retry_seconds)]

    def _for_servers(self, opened: RoundOpen) -> HashOpen:
        """Servers sum without computing on a model: they are told one that tells of people by its hash."""
        return opened.hashed() if isinstance(opened, SecretOpen) else opened

    def _check(self, sender: str, message: Agreement | Partial) -> Code | None:
        p = self.parameters
        if p.server_index.get(sender) != message.server:
            return Code.WRONG_PARTY
        if message.round != self.round:
            return Code.PAST_ROUND if message.round < self.round else Code.TOO_EARLY
        try:
            p.server_keys[message.server].verify(message.signed_part(), message.signature)
        except VerificationError:
            return Code.BAD_SIGNATURE
        return None

    def _on_agreement(self, sender: str, message: Agreement, now: float) -> list[Instruction]:
        p = self.parameters
        if self.state is not _S.OPEN or self._opened is None:
            return self._ended(sender, message)
        wrong = self._check(sender, message)
        if wrong is not None:
            return self._refuse(sender, message, wrong, "the agreement is not for this round or not valid")
        fits = (
            message.model_hash == self._opened.model_hash
            and message.honest == p.honest
            and len(message.starts) == len(p.servers)
            and len(message.clients) >= p.min_clients
            and message.clients[-1] < len(p.clients)
        )
        if not fits:
            return self._abort(Code.SET_DISAGREEMENT, sender, "a server agreed to another round than was opened")
        stale = self._seen.objection(message.server, message.starts[message.server])
        if stale is not None:
            return self._abort(Code.STALE_SERVER, sender, stale)
        common = message.digest()
        for known, agreement in self._agreements.items():
            if known != common:
                return self._abort(*dispute(agreement, message, p.servers))
        self._agreements[common] = self._signed[message.server] = message
        return self._seen.note(message.server, message.starts[message.server]) + self._try_finish()

    def _on_partial(self, sender: str, message: Partial, now: float) -> list[Instruction]:
        if self.state is not _S.OPEN:
            return self._ended(sender, message)
        wrong = self._check(sender, message)
        if wrong is None and message.size != self.parameters.size:
            wrong = Code.WRONG_SHAPE
        if wrong is not None:
            return self._refuse(sender, message, wrong, "the partial sum is not for this round or not valid")
        known = self._partials.get(message.server)
        if known == message:
            return []
        stale = self._seen.objection(message.server, message.start)
        if stale is not None:  # an older copy of this server is running
            return self._abort(Code.STALE_SERVER, sender, stale)
        if known is not None:
            return self._abort(Code.EQUIVOCATION, sender, "a server sent two different partial sums for one round")
        self._partials[message.server] = message
        return self._seen.note(message.server, message.start) + self._try_finish()

    def _try_finish(self) -> list[Instruction]:
        p = self.parameters
        if len(self._partials) < len(p.servers) or self._opened is None:
            return []
        if len({partial.agreement for partial in self._partials.values()}) > 1:
            return self._abort(Code.SET_DISAGREEMENT, p.servers[0], "the partial sums are over different sets")
        agreement = self._agreements.get(self._partials[0].agreement)
        if agreement is None:
            if self._agreements:
                return self._abort(Code.SET_DISAGREEMENT, p.servers[0], "the partial sums are over another set")
            return []  # its body is still under way
        partials = [self._partials[server] for server in range(len(p.servers))]
        for partial, start in zip(partials, agreement.starts):
            if partial.start != start:
                cause = "its partial sum is of another start than was agreed"
                return self._abort(Code.STALE_SERVER, p.servers[partial.server], cause)
        total = decode_signed(sum_vectors([from_bytes(partial.vector, p.size) for partial in partials]))
        if (np.abs(total) > p.result_limit).any():  # |total| <= (p-1)/2 < 2^63, abs is exact
            cause = "the total is outside what honest clients can produce; it is withheld"
            return self._abort(Code.OUT_OF_RANGE, p.aggregator, cause)
        record = ResultRecord(
            round=self.round,
            agreement=partials[0].agreement,
            clients=agreement.clients,
            total=total,
        )
        self._move(_E.FINISH)
        signed = {p.servers[i]: a.signature for i, a in sorted(self._signed.items())}
        vouchers = pack_vouchers(agreement, signed)
        return [Persist("result", record.to_bytes()), *self._finish(record, vouchers)]

    def _finish(self, record: ResultRecord, vouchers: bytes = b"") -> list[Instruction]:
        p = self.parameters
        inside = set(record.clients)
        self._closed = RoundClosed(study_hash=p.study_hash, round=record.round, agreement=record.agreement)
        self._agreements, self._partials = {}, {}
        result = NoisySum(
            round=record.round,
            total=record.total,
            participants=tuple([p.clients[client] for client in record.clients]),
            dropped=tuple([name for client, name in enumerate(p.clients) if client not in inside]),
            agreement=record.agreement,
            vouchers=vouchers,
        )
        return [*(Send(to, self._closed) for to in (*p.servers, *p.clients)), Finished(result)]

    def _abort(self, code: Code, party: str, cause: str, remedy: str | None = None) -> list[Instruction]:
        p = self.parameters
        abort = self._abort_message = self._abort_of(self.round, code, party, cause, remedy)
        self._agreements, self._partials = {}, {}
        self._move(_E.ABORT)
        tell = [Send(to, abort) for to in (*p.servers, *p.clients)]
        return [Persist("aborted", encode(abort)), *tell, Aborted(abort_error(abort))]

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        p = self.parameters
        if self.state is not _S.OPEN or message.round != self.round:
            return []
        if sender in p.client_index and message.code == Code.BAD_MODEL:
            return self._abort(Code.BAD_MODEL, sender, f"the client refused the model: {message.cause}")
        if sender not in p.server_index:
            return []
        if p.holds and message.code == Code.MISSING_SERVER:
            return self._hold(message.code, message.party, message.cause)
        return self._abort(Code(message.code), message.party, message.cause, message.remedy)

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        if self.parameters.holds and message.code == Code.TOO_FEW_CLIENTS and sender in self.parameters.server_index:
            return self._hold(message.code, sender, message.cause) if self._is_open(message.round) else []
        fatal = (Code.BAD_MODEL, Code.TWO_MODELS, Code.WRONG_STUDY, Code.OTHER_VERSION, Code.PAST_ROUND)
        if self._is_open(message.round) and sender in self.parameters.server_index and message.code in fatal:
            return self._abort(Code(message.code), sender, f"the server refused the round: {message.cause}")
        return []

    def _is_open(self, round: int) -> bool:
        return self.state is _S.OPEN and round == self.round

    def _hold(self, code: int, party: str, cause: str) -> list[Instruction]:
        """Nothing is given up, and nobody is told: who runs the study decides what becomes of the round."""
        self._give_up = math.inf
        remedy = "The round is held as it is. Start the party that is missed on the state it had last."
        return [Held(abort_error(self._abort_of(self.round, Code(code), party, cause, remedy)))]

    def _ended(self, sender: str, message: Message) -> list[Instruction]:
        """Someone speaks of a round that has ended: say how."""
        if sender in self.parameters.server_index and message.round == self.round:
            end = self._closed or self._abort_message
            return [Send(sender, end)] if end is not None else []
        return self._refuse(sender, message, Code.PAST_ROUND, "the round is over")

    def _on_inquiry(self, sender: str, message: Inquiry, now: float) -> list[Instruction]:
        p = self.parameters
        if sender not in p.server_index and sender not in p.client_index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        if self.state is _S.OPEN and self._opened is not None:
            left, opened = int(1000 * (self._deadline - now)), self._opened
            told = self._for_servers(opened) if sender in p.server_index else opened
            if left <= 0 and (sender in p.client_index or message.round != self.round):
                return []  # too late to join
            return [Send(sender, replace(told, deadline_ms=max(1, min(left, opened.deadline_ms))))]
        end = self._closed or self._abort_message
        return [Send(sender, end)] if end is not None else []

    def tick(self, now: float) -> list[Instruction]:
        """Ask silent servers again; give up when one stays away."""
        p = self.parameters
        if self.state is not _S.OPEN:
            return []
        silent = [server for i, server in enumerate(p.servers) if i not in self._partials]
        if now >= self._give_up:
            cause = (
                f"no partial sum from {', '.join(silent)} in time" if silent else "no agreement reached the aggregator"
            )
            party = silent[0] if silent else p.servers[0]
            if p.holds:
                return self._hold(Code.MISSING_SERVER, party, cause)
            return self._abort(
                Code.MISSING_SERVER, party, cause, "Nothing was released. Restart that server, then open a new round."
            )
        question = Inquiry(study_hash=p.study_hash, round=self.round)
        ask = silent or list(p.servers)
        return [*(Send(server, question) for server in ask), Wake(min(now + p.retry_seconds, self._give_up))]

    @classmethod
    def restore(
        cls, parameters: SumParameters, records: Mapping[str, bytes], now: float, *, boots: BootBook | None = None
    ) -> tuple[AggregatorMachine, list[Instruction]]:
        """The machine as its records have it: the same round, the same model bytes, or the same end."""
        machine = cls(parameters, boots=boots)
        result = ResultRecord.from_bytes(records["result"]) if "result" in records else None
        aborted = decode(records["aborted"]) if "aborted" in records else None
        opened = decode(records["open"]) if "open" in records else None
        if not isinstance(opened, RoundOpen):
            return machine, []
        machine.state = _S.OPEN
        out = machine._announce(opened, now)
        if result is not None and result.round == opened.round:
            machine._move(_E.FINISH)
            return machine, machine._finish(result)
        if isinstance(aborted, Abort) and aborted.round == opened.round:
            machine._move(_E.ABORT)
            machine._abort_message = aborted
            return machine, [Aborted(abort_error(aborted))]
        return machine, out
