"""The client's machine: check the model, split the sum, see every server accept its share.

THEORY. What leaves a client is one share per server, bound to study, round and model
hash; all m shares come from one seed that is persisted first, so after a crash the
same sum gives the same bytes and a server sees a repetition, not an equivocation.
If the sum cannot be computed again to the same bytes (a client that samples
its records afresh), the restarted client sits the round out: its commitments would
differ and two sharings must never both be out. The seed is erased as soon as every
server has its share durably, or the client's part in the round is over in another way;
the round's number and digest stay, so that nothing is ever shared a second time.

A client is shown one model per round. A second, different one for the same round, a
model with the wrong hash or length, or with NaN or infinity is refused and reported
to all servers: sums over two models could isolate one
client [Pasquini22]. Retries resend identical bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.crypto.additive import VectorShare, split
from tallystick.crypto.field import to_bytes
from tallystick.crypto.prg import SEED_BYTES, AesStream
from tallystick.protocol.instructions import Aborted, Compute, Forget, Persist, Send, Wake
from tallystick.protocol.machine import Transitions
from tallystick.protocol.secure_sum.instructions import Instruction
from tallystick.protocol.secure_sum.machine import SumMachine, abort_error, check_model
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Accepted,
    Code,
    Confirmed,
    Inquiry,
    Refused,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Share,
    ShareKind,
    StillIn,
    commitments_digest,
    share_context,
    share_digest,
)
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.records import ClientRecord, SeedRecord


@unique
class ClientState(Enum):
    IDLE = "idle"
    COMPUTING = "computing"
    SENDING = "sending"
    WAITING = "waiting"


@unique
class ClientEvent(Enum):
    OPEN = "model checked"
    CONTRIBUTE = "sum computed, seed kept, shares sent"
    ACCEPTED = "every server accepted"
    END = "round closed, aborted, late or withdrawn"


_S, _E = ClientState, ClientEvent


class ClientMachine(SumMachine):
    """One institution's part in the secure sums of a study."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.COMPUTING,
        (_S.COMPUTING, _E.CONTRIBUTE): _S.SENDING,
        (_S.COMPUTING, _E.END): _S.IDLE,
        (_S.SENDING, _E.ACCEPTED): _S.WAITING,
        (_S.SENDING, _E.END): _S.IDLE,
        (_S.WAITING, _E.END): _S.IDLE,
    }

    def __init__(self, parameters: SumParameters, name: str) -> None:
        super().__init__(parameters, name, _S.IDLE)
        self.index = parameters.client_index[name]
        self._model_hash = b""
        self._record: ClientRecord | None = None  # of this round, with its seed: while it may be sent again
        self._seed: bytes | None = None
        self._shares: tuple[Share, ...] = ()
        self._unaccepted: dict[str, Share] = {}
        self._digests: tuple[bytes, ...] = ()
        self._bound = (0, b"")  # the last round that was shared, and the digest over its commitments
        self._deadline = 0.0
        self._handlers = {
            RoundOpen: self._on_open,
            SecretOpen: self._on_open,
            Accepted: self._on_accepted,
            Refused: self._on_refused,
            RoundClosed: self._on_closed,
            Abort: self._on_abort,
            StillIn: self._on_still_in,
        }

    def _end(self) -> list[Instruction]:
        if self.state is not _S.IDLE:
            self._move(_E.END)
        self._unaccepted = {}
        return self._erase()

    def _erase(self) -> list[Instruction]:
        """Nobody can ask for these shares again."""
        kept, self._seed, self._record, self._shares = self._seed, None, None, ()
        return [Forget("seed")] if kept is not None else []

    def _on_open(self, sender: str, message: RoundOpen, now: float) -> list[Instruction]:
        p = self.parameters
        if sender != p.aggregator:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the aggregator opens rounds")
        if message.round < self.round or not 0 < message.round <= p.last_round:
            return self._refuse(sender, message, Code.PAST_ROUND, "this client has gone on to a later round")
        if message.round == self.round and self._model_hash and message.model_hash != self._model_hash:
            return self._object(message, "two different models were sent for one round")
        wrong = check_model(message, p, told=True)
        if wrong is not None:
            return self._object(message, wrong)
        if message.round == self.round and self.state is not _S.IDLE:
            return []  # a repetition; the shares are on their way
        if message.round == self.round and self._record is None:
            return []  # this client's part in the round is over
        out = self._end() if message.round > self.round else []
        self.round, self._model_hash = message.round, message.model_hash
        self._deadline = now + min(message.deadline_ms / 1000, p.round_seconds)
        self._move(_E.OPEN)
        return [*out, Compute(message.round, message.model)]

    def _object(self, message: RoundOpen, cause: str) -> list[Instruction]:
        """Refuse the model, and tell everybody so that no server releases the round."""
        out = self._end() if message.round == self.round else []
        p = self.parameters
        remedy = "This client sent nothing for that model. Look at the aggregator before the next round."
        abort = self._abort_of(message.round, Code.BAD_MODEL, p.aggregator, cause, remedy)
        return [*out, *(Send(party, abort) for party in (*p.servers, p.aggregator)), Aborted(abort_error(abort))]

    def contribute(self, round: int, vector: NDArray[np.uint64], source: WordSource, now: float) -> list[Instruction]:
        """Split this round's sum among the servers; ``vector`` is a field vector, ``source`` gives the seed."""
        p = self.parameters
        if self.state is not _S.COMPUTING or round != self.round:
            return []  # the round ended while the sum was being computed
        if vector.shape != (p.size,) or vector.dtype != np.uint64:
            raise LocalProtocolError(f"the contribution must be {p.size} field elements", party=self.name, round=round)
        kept = self._record
        seed = self._seed if self._seed is not None else source.bytes(SEED_BYTES)
        context = share_context(p.study_hash, round, self.index, len(p.servers), p.size, self._model_hash)
        self._shares = self._split(vector, AesStream(seed, context), context)
        bound = commitments_digest(context, self._shares[0].commitments)
        if kept is not None and kept.commitments != bound:
            return self.withdraw(round)
        out: list[Instruction] = []
        if kept is None:
            self._seed = seed
            self._record = ClientRecord(round=round, model_hash=self._model_hash, commitments=bound)
            out.append(Persist("seed", SeedRecord(round=round, seed=seed).to_bytes(), secret=True))
            out.append(Persist("contribution", self._record.to_bytes()))
        self._unaccepted = dict(zip(p.servers, self._shares))
        self._digests = self._shares[0].commitments
        self._bound = round, bound
        self._move(_E.CONTRIBUTE)
        out += [Send(server, share) for server, share in self._unaccepted.items()]
        return [*out, Wake(now + p.retry_seconds)]

    def _split(self, vector: NDArray[np.uint64], stream: AesStream, context: bytes) -> tuple[Share, ...]:
        p = self.parameters
        m = len(p.servers)
        blinds = stream.bytes(32 * m)
        parts = split(
            vector, servers=m, vector_server=p.vector_server(self.round, self.index), source=stream, context=context
        )
        drafts = []
        for server, part in enumerate(parts):
            if isinstance(part, VectorShare):
                kind, payload = ShareKind.VECTOR, to_bytes(part.vector)
            else:
                kind, payload = ShareKind.SEED, part.seed
            drafts.append((server, int(kind), blinds[32 * server : 32 * server + 32], payload))
        commitments = tuple([share_digest(context, *draft) for draft in drafts])
        return tuple(
            [
                Share(
                    study_hash=p.study_hash,
                    round=self.round,
                    client=self.index,
                    server=server,
                    size=p.size,
                    kind=kind,
                    model_hash=self._model_hash,
                    commitments=commitments,
                    blind=blind,
                    payload=payload,
                )
                for server, kind, blind, payload in drafts
            ]
        )

    def withdraw(self, round: int) -> list[Instruction]:
        """Sit this round out: nothing more is sent for it. Outside, the reason is only "unavailable"."""
        if round != self.round or self.state is _S.IDLE:
            return []
        p, nothing_sent = self.parameters, self.state is _S.COMPUTING
        absent = Refused(study_hash=p.study_hash, round=round, code=Code.ABSENT, cause="unavailable in this round")
        out = self._end()
        error = RoundAborted(
            "this client is unavailable in this round",
            remedy="It takes part again in the next round; the reason is in its own log.",
            party=self.name,
            round=round,
        )
        return [*out, *([Send(server, absent) for server in p.servers] if nothing_sent else ()), Aborted(error)]

    def _on_accepted(self, sender: str, message: Accepted, now: float) -> list[Instruction]:
        share = self._unaccepted.get(sender)
        if share is None or message.round != self.round or message.digest != self._digests[share.server]:
            return []
        del self._unaccepted[sender]
        if not self._unaccepted and self.state is _S.SENDING:
            self._move(_E.ACCEPTED)
            return self._erase()
        return []

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        if message.round != self.round or sender not in self._unaccepted or message.code == Code.TOO_EARLY:
            return []  # too early: the next retry sends the same bytes
        out = self._end()
        late = message.code == Code.LATE
        error = RoundAborted(
            f"{sender} refused this client's share: {message.cause}",
            remedy="The next round is open to this client."
            if late
            else "Compare this client's software and study with the server's.",
            rule=Code(message.code).name.lower().replace("_", "-"),
            party=self.name,
            round=self.round,
        )
        return [*out, Aborted(error)]

    def _on_closed(self, sender: str, message: RoundClosed, now: float) -> list[Instruction]:
        if sender == self.parameters.aggregator and message.round >= self.round:  # rounds only go up
            return self._end()
        return []

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        inside = self.state is not _S.IDLE or self._seed is not None
        if sender == self.parameters.aggregator and message.round == self.round and inside:
            return [*self._end(), Aborted(abort_error(message))]
        return []

    def _on_still_in(self, sender: str, message: StillIn, now: float) -> list[Instruction]:
        """A server asks, before it goes on with a round that was held, whether this client still takes part."""
        if sender not in self.parameters.server_index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "clients answer servers")
        shared = self._bound[0] == message.round
        said = Confirmed(
            study_hash=self.study_hash,
            round=message.round,
            digest=self._bound[1] if shared else bytes(32),
            complete=int(shared and self._seed is None),
            mark=message.mark,
        )
        return [Send(sender, said)]

    def tick(self, now: float) -> list[Instruction]:
        """Send again what no server has answered, until the deadline."""
        if self.state is not _S.SENDING:
            return []
        if now >= self._deadline + self.parameters.agreement_seconds and not self.parameters.holds:
            return self.withdraw(self.round)
        out: list[Instruction] = [Send(server, share) for server, share in self._unaccepted.items()]
        return [*out, Wake(now + self.parameters.retry_seconds)]

    @classmethod
    def restore(
        cls, parameters: SumParameters, name: str, records: Mapping[str, bytes]
    ) -> tuple[ClientMachine, list[Instruction]]:
        """The machine as its records have it; it asks the aggregator which round is open."""
        machine = cls(parameters, name)
        kept = SeedRecord.from_bytes(records["seed"]) if "seed" in records else None
        if "contribution" in records:
            record = ClientRecord.from_bytes(records["contribution"])
            machine.round, machine._model_hash = record.round, record.model_hash
            machine._bound = record.round, record.commitments
            if kept is not None and kept.round == record.round:
                machine._record, machine._seed = record, kept.seed
        stray: list[Instruction] = [Forget("seed")] if kept is not None and machine._seed is None else []
        question = Inquiry(study_hash=parameters.study_hash, round=machine.round)
        return machine, [*stray, Send(parameters.aggregator, question)]
