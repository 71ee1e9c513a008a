"""The server's machine: keep shares one by one, agree on the set, sum it once, noise it, release once.

THEORY. A coalition of the aggregator, clients and all servers but one sees of the honest one only its partial: uniform
but for the noised sum. That stays true only if its shares of a round enter exactly ONE partial: two partials over sets
that differ by a client would show that client. So:

1. shares are kept apart until the deadline, or until every client has sent;
2. servers exchange signed lists of (client, digest over all m commitments); U is the intersection on identical digests,
   without anyone caught equivocating;
3. each server signs U, the model hash, the round, h and under which start each server opened the round (``boots``);
   only when all m agreements are identical is the sum of exactly U made;
4. noise was drawn and kept when the round opened; the partial is kept before it is sent, and sent again to who asks;
5. nothing else is ever said about that round, by this process or by its restart;
6. once the partial (or the abort) is durable, noise and shares are erased: the partial minus its noise would be a piece
   of the exact sum, and all pieces the sum itself.

No message lets anyone *name* a set. The aggregator can stop a round, not steer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, PrivacyRefused
from tallystick.crypto.prg import SEED_BYTES
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.noise_draws import draw_once
from tallystick.protocol.secure_sum.instructions import Blame, Drop, Instruction, Sync
from tallystick.protocol.secure_sum.machine import check_model
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Agreement,
    Code,
    Confirmed,
    HashOpen,
    Inquiry,
    Message,
    ReceivedList,
    Refused,
    RoundClosed,
    RoundOpen,
    Share,
    Start,
    commitments_digest,
    noise_commitment,
    share_context,
    share_digest,
)
from tallystick.protocol.secure_sum.open_round import ACTIVE, OpenRound, ServerEvent, ServerState
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.records import EquivocatorsRecord, NoiseRecord, RoundRecord
from tallystick.protocol.secure_sum.server_agreeing import ServerParts
from tallystick.protocol.secure_sum.server_drawing import DrawingServer
from tallystick.protocol.summing import told_model

_S, _E = ServerState, ServerEvent
HOLD_SECONDS = 8 * 86400.0  # a round that nobody pauses is held no longer than one in a pause


class ServerMachine(DrawingServer):
    """One of the m servers of a secure sum."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.COLLECTING,
        (_S.COLLECTING, _E.LIST): _S.LISTED,
        (_S.COLLECTING, _E.ABORT): _S.ABORTED,
        (_S.LISTED, _E.AGREE): _S.AGREED,
        (_S.LISTED, _E.ABORT): _S.ABORTED,
        (_S.AGREED, _E.RELEASE): _S.RELEASED,
        (_S.AGREED, _E.ABORT): _S.ABORTED,
        (_S.AGREED, _E.DRAW): _S.DRAWING,
        (_S.DRAWING, _E.RELEASE): _S.RELEASED,
        (_S.DRAWING, _E.ABORT): _S.ABORTED,
        (_S.RELEASED, _E.OPEN): _S.COLLECTING,
        (_S.ABORTED, _E.OPEN): _S.COLLECTING,
    }

    def __init__(self, parameters: SumParameters, name: str, **parts: Unpack[ServerParts]) -> None:
        super().__init__(parameters, name, **parts)
        self._drawn: NoiseRecord | None = None  # kept for a round that this server did not come to open
        self._previous: tuple[int, dict[int, bytes]] = (0, {})  # the last round's digests, for idempotent answers
        self._absences: dict[int, int] = {}  # client -> the last round it said it would sit out
        self._next_retry = 0.0
        self._handlers = {
            HashOpen: self._on_open,
            RoundOpen: self._on_open,
            Share: self._on_share,
            ReceivedList: self._on_list,
            Agreement: self._on_agreement,
            Abort: self._on_abort,
            RoundClosed: self._on_notice,
            Refused: self._on_refused,
            Accepted: self._on_notice,
            Inquiry: self._on_inquiry,
            Confirmed: self._on_confirmed,
        }

    def holds_share_of(self, client: str) -> bool:
        """Whether this client's share of the current round is kept here."""
        return self._now is not None and self.parameters.client_index.get(client) in self._now.received

    # -- opening ---------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: HashOpen, now: float) -> list[Instruction]:
        if sender != self.parameters.aggregator:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the aggregator opens rounds")
        current = self._now
        if message.round < self.round or message.round == 0:
            return self._refuse(sender, message, Code.PAST_ROUND, "the round is over; failed rounds get new numbers")
        if message.round > self.parameters.last_round:
            return self._refuse(sender, message, Code.TOO_EARLY, "the study has no such round")
        if current is not None and message.round == self.round:
            if message.model_hash == current.record.model_hash:
                return self._sooner(current, now + message.deadline_ms / 1000) + self._statements(sender)
            if self.state in ACTIVE:
                return self._abort(Code.TWO_MODELS, sender, "the round was opened with two different models")
            return self._refuse(sender, message, Code.TWO_MODELS, "the round was opened with another model")
        out: list[Instruction] = []
        if self.state in ACTIVE:
            out += self._abort(Code.REPLACED, sender, "a later round was opened before this one ended")
        if not 0 < message.deadline_ms <= 1000 * self.parameters.round_seconds:
            return out + self._refuse(sender, message, Code.WRONG_SHAPE, "the deadline is not the study's")
        wrong = check_model(message, self.parameters, told=False)
        if wrong is not None:
            return out + self._refuse(sender, message, Code.BAD_MODEL, wrong)
        try:
            admitted = self._noise.admit(message.round, told_model(message))
        except PrivacyRefused as error:
            return out + self._refuse(sender, message, Code.BAD_MODEL, error.cause)
        if current is not None:
            self._previous = (self.round, current.received)
        kept, self._drawn = self._drawn, None
        drawn = draw_once(
            self._noise, NoiseRecord, round=message.round, admitted=admitted, kept=kept, size=self.parameters.size,
            party=self.name,
        )  # fmt: skip
        record = RoundRecord(
            round=message.round,
            deadline_ms=message.deadline_ms,
            boot=self._boot,
            boot_value=self._boot_value,
            model_hash=message.model_hash,
            noise_commitment=self._commit(message.round, drawn.raw),
        )
        self._move(_E.OPEN)
        out += [*drawn.keep, Persist("round", record.to_bytes()), Drop(message.round - 1)]
        out += self._enter(record, drawn.noise, now)
        return out + self._leave_out_absent(now)

    def _enter(self, record: RoundRecord, noise: NDArray[np.int64] | None, now: float) -> list[Instruction]:
        deadline = now + record.deadline_ms / 1000
        self.round = record.round
        give_up = deadline + self.parameters.agreement_seconds
        self._now = OpenRound(record, self._start(record), deadline, give_up, noise)
        return [Wake(deadline)]

    def _start(self, record: RoundRecord) -> Start:
        return Start(boot=record.boot, value=record.boot_value, noise=record.noise_commitment)

    def _commit(self, round: int, noise: bytes) -> bytes:
        blind = self._blinds.bytes(SEED_BYTES)
        return noise_commitment(blind, self.parameters.study_hash, round, self._boot_value, noise)

    # -- collecting ------------------------------------------------------------------------------------------------

    def receive_share(self, sender: str, message: Share, commitment: bytes, now: float) -> list[Instruction]:
        """The same as ``receive``, for a share whose commitment (``ShareDigest``) was computed as it streamed in."""
        if message.study_hash != self.parameters.study_hash:
            return self.receive(sender, message, now)
        return self._on_share(sender, message, now, commitment)

    def _on_share(self, sender: str, message: Share, now: float, mine: bytes | None = None) -> list[Instruction]:
        p, client = self.parameters, message.client
        if p.client_index.get(sender) != client:
            return self._refuse(sender, message, Code.WRONG_PARTY, "a share must come from the client it names")
        context = share_context(p.study_hash, message.round, client, len(p.servers), message.size, message.model_hash)
        if mine is None:
            mine = share_digest(context, self.index, message.kind, message.blind, message.payload)
        wrong = self._misfit(message, mine)
        if wrong is not None:
            return self._refuse(sender, message, *wrong)
        bound = commitments_digest(context, message.commitments)
        accepted = Send(sender, Accepted(study_hash=p.study_hash, round=message.round, digest=mine))
        current = self._now
        if current is None or message.round > self.round:
            return self._refuse(sender, message, Code.TOO_EARLY, "this server has not opened that round; send it again")
        if message.round < self.round:
            said = self._previous[1].get(client) if message.round == self._previous[0] else None
            if said == bound:
                return [accepted]
            if said is not None:
                blame = Blame(sender, message.round, "another share than the one accepted was sent after the round")
                return [blame, *self._refuse(sender, message, Code.EQUIVOCATION, "another share was accepted before")]
            return self._refuse(sender, message, Code.PAST_ROUND, "the round is over")
        early = self.tick(now) if now >= current.deadline and self.state is _S.COLLECTING else []
        known = current.received.get(client)
        if known == bound:
            return [*early, accepted]
        if self.state is not _S.COLLECTING:
            if known is not None:  # too late to leave it out, never too late to name it
                early += self._late_equivocation(current, client)
                return early + self._refuse(sender, message, Code.EQUIVOCATION, "another share was accepted before")
            return early + self._refuse(sender, message, Code.LATE, "the round no longer takes shares; join the next")
        if self._other_model(current, message):
            return early + self._abort(Code.TWO_MODELS, sender, "a share was computed on another model than announced")
        if known is not None or client in current.equivocators:  # neither of the two counts
            cause = "two different shares were sent for one round; neither counts"
            return self._equivocation(current, client) + self._refuse(sender, message, Code.EQUIVOCATION, cause)
        self._shares.put(message)
        current.received[client] = bound
        current.absent.discard(client)
        out: list[Instruction] = [Sync(), accepted]
        if current.complete(p):
            out += self._list(current, now)
        return out

    def _equivocation(self, current: OpenRound, client: int) -> list[Instruction]:
        current.received.pop(client, None)
        current.absent.discard(client)
        self._shares.discard(self.round, client)
        return self._blame(current, client, "two different shares were sent for one round; neither counts")

    def _late_equivocation(self, current: OpenRound, client: int) -> list[Instruction]:
        """The set is signed, so the share it stands for stays in the sum: the list has said which one that is."""
        if client in current.equivocators:
            return []
        return self._blame(current, client, "another share than the one that counts was sent after the set was closed")

    def _blame(self, current: OpenRound, client: int, cause: str) -> list[Instruction]:
        current.equivocators.add(client)
        record = EquivocatorsRecord(round=self.round, clients=tuple(sorted(current.equivocators)))
        blame = Blame(self.parameters.clients[client], self.round, cause)
        return [Persist("equivocators", record.to_bytes()), blame]

    # -- ending, repeating, restarting -------------------------------------------------------------------------------

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        p = self.parameters
        if message.round != self.round or self.state not in ACTIVE:
            return []
        if sender in p.client_index:
            if message.code != Code.BAD_MODEL:  # all a client can object to
                return []
            return self._abort(Code.BAD_MODEL, sender, "a client refused the model it was sent")
        if sender not in p.server_index and sender != p.aggregator:
            return []
        return self._abort(Code(message.code), message.party, message.cause, tell=False)

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        """A peer knows this server under another start: then this is the copy, and it stops. A client is absent."""
        client = self.parameters.client_index.get(sender)
        if client is not None and message.code == Code.ABSENT and message.round >= self.round:
            self._absences[client] = message.round  # perhaps before the opening has come here
            return self._leave_out_absent(now)
        mine = message.round == self.round and self.state in ACTIVE and sender in self._peers
        if mine and message.code == Code.STALE_SERVER:
            return self._abort(Code.STALE_SERVER, self.name, message.cause)
        return []

    def _leave_out_absent(self, now: float) -> list[Instruction]:
        current = self._now
        if current is None or self.state is not _S.COLLECTING:
            return []
        here = {client for client, round in self._absences.items() if round == self.round}
        for client in here:
            del self._absences[client]
        current.absent |= here - current.received.keys() - current.equivocators
        return self._list(current, now) if here and current.complete(self.parameters) else []

    def _on_notice(self, sender: str, message: Message, now: float) -> list[Instruction]:
        return []

    def _statements(self, to: str) -> list[Instruction]:
        """Say again, in the same bytes, what was said of the current round."""
        current = self._now
        if current is None:
            return []
        if current.abort is not None:
            return [Send(to, current.abort)]
        out: list[Instruction] = []
        if to in self._peers and self.index in current.lists:
            out.append(Send(to, current.lists[self.index]))
        if self.index in current.agreements:
            out.append(Send(to, current.agreements[self.index]))
        if to == self.parameters.aggregator and current.partial is not None:
            out.append(Send(to, current.partial))
        return out

    def _on_inquiry(self, sender: str, message: Inquiry, now: float) -> list[Instruction]:
        if sender not in self._peers and sender != self.parameters.aggregator:
            return self._refuse(sender, message, Code.WRONG_PARTY, "servers answer servers and the aggregator")
        if message.round == self.round:
            return self._statements(sender)
        if message.round > self.round and sender == self.parameters.aggregator:
            return [Send(sender, Inquiry(study_hash=self.parameters.study_hash, round=self.round))]
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Close the collection at the deadline; ask peers again; give up when a server stays away."""
        current = self._now
        if current is None or self.state not in ACTIVE or self.state is _S.DRAWING:  # a draw keeps its own time
            return []
        p = self.parameters
        if self._unconfirmed:
            if now < self._confirm_by:
                return self._ask_unconfirmed(now)
            client = p.clients[min(self._unconfirmed)]
            return self._abort(Code.ABSENT, client, "it does not say that it still takes part; the round is spent")
        if self.state is _S.COLLECTING:
            if now < current.deadline:
                return []
            if not p.holds or len(current.received) >= p.min_clients or current.complete(p):
                return self._list(current, now)
            return self._hold(current, now)
        heard = current.lists if self.state is _S.LISTED else current.agreements
        silent = [peer for peer in self._peers if p.server_index[peer] not in heard]
        if now >= current.give_up:
            cause = f"no word from {', '.join(silent)} within {p.agreement_seconds:g} s of the deadline"
            if not p.holds or current.waits:
                return self._abort(Code.MISSING_SERVER, silent[0], cause)
            current.waits, current.give_up = True, now + HOLD_SECONDS  # the aggregator is told who is missed
            told = Send(p.aggregator, self._abort_of(self.round, Code.MISSING_SERVER, silent[0], cause))
            return [told, Wake(current.give_up)]
        if now < self._next_retry:
            return [Wake(self._next_retry)]
        self._next_retry = now + p.retry_seconds
        out: list[Instruction] = [Send(peer, Inquiry(study_hash=p.study_hash, round=self.round)) for peer in silent]
        return [*out, Wake(min(self._next_retry, current.give_up))]

    def _hold(self, current: OpenRound, now: float) -> list[Instruction]:
        """Too few are here, and who is missed may come back: the list is not signed yet, and nothing is given up.

        Not for ever: an aggregator that pauses nothing would have the noise of this round stay on this disk.
        """
        p = self.parameters
        cause = f"{len(current.received)} clients reached {self.name}, the study asks for {p.min_clients}"
        if current.waits:
            return self._abort(Code.TOO_FEW_CLIENTS, self.name, cause)
        current.waits, current.deadline = True, now + HOLD_SECONDS
        current.give_up = current.deadline + p.agreement_seconds
        said = Refused(study_hash=p.study_hash, round=self.round, code=Code.TOO_FEW_CLIENTS, cause=cause)
        return [Send(p.aggregator, said), Wake(current.deadline)]

    @classmethod
    def restore(
        cls,
        parameters: SumParameters,
        name: str,
        records: Mapping[str, bytes],
        *,
        now: float,
        **parts: Unpack[ServerParts],
    ) -> tuple[ServerMachine, list[Instruction]]:
        """The machine as its durable records have it, and what to do first. Noise is read, never drawn."""
        if "boot" not in parts:  # one that forgot which start of it this is could pass for an earlier one
            raise LocalProtocolError("a restored server says which start of it this is", party=name)
        machine = cls(parameters, name, **parts)
        drawn = NoiseRecord.from_bytes(records["noise"]) if "noise" in records else None
        if "round" not in records:
            machine._drawn = drawn
            return machine, machine._ask_all()
        record = RoundRecord.from_bytes(records["round"])
        if drawn is not None and drawn.round > record.round:
            machine._drawn, drawn = drawn, None
        machine.state = _S.COLLECTING
        out = machine._enter(record, drawn.noise if drawn is not None and drawn.round == record.round else None, now)
        current = cast(OpenRound, machine._now)
        machine.state = current.recall(machine.index, records, machine._shares)
        if machine.state in ACTIVE and machine._was_drawing(records):
            return machine, [*machine._interrupted(), *machine._ask_all()]
        if machine.state in ACTIVE and parts.get("held", 0) == record.round:
            return machine, [*machine._ask_again(current, now), *machine._ask_all()]
        if machine.state in ACTIVE and current.noise is None:  # it may have been used: it is never drawn again
            if not parameters.holds:
                raise damaged()
            return machine, [*machine._lost(), *machine._ask_all()]
        if machine.state in ACTIVE and machine.state is not _S.COLLECTING:
            current.deadline = now
            current.give_up = now + parameters.agreement_seconds
            out = [Wake(now + parameters.retry_seconds)]
        if machine.state is _S.COLLECTING and current.complete(parameters):
            out += machine._list(current, now)
        if machine.state not in ACTIVE:  # perhaps the end was kept, and what is erased at the end was not erased yet
            out = machine._erase(current) if machine._drawn is None else [Drop(record.round)]
        for to in (*machine._peers, parameters.aggregator):  # perhaps kept, and not yet said
            out += machine._statements(to)
        return machine, [*out, *machine._ask_all()]

    def _ask_all(self) -> list[Instruction]:
        question = Inquiry(study_hash=self.parameters.study_hash, round=self.round)
        return [Send(to, question) for to in (*self._peers, self.parameters.aggregator)]
