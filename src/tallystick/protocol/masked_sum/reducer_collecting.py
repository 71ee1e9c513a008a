"""The first half of a reducer's round: it opens it, relays dealings, adds up masked vectors, fixes the survivors.

The argument is in ``reducer``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import fields, replace
from enum import Enum, unique
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.crypto.field import add_into, from_bytes, to_bytes
from tallystick.crypto.mask_keys import KEY_BYTES, TAG_BYTES
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.masked_sum.codec import encode
from tallystick.protocol.masked_sum.machine import Instruction, MaskedSumMachine, check_model
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Dealing,
    Masked,
    Message,
    Quorum,
    Relay,
    Revealed,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Signed,
    Stored,
    Survivors,
    TiedSurvivors,
    dealers_digest,
    model_digest,
    sum_digest,
)
from tallystick.protocol.masked_sum.parameters import PACKET_BYTES, MaskedSumParameters
from tallystick.protocol.masked_sum.rebuilding import Rebuilding
from tallystick.protocol.masked_sum.records import DealersRecord, SumRecord
from tallystick.protocol.summing import opening


@unique
class ReducerState(Enum):
    IDLE = "idle"
    DEALING = "dealing"
    MASKING = "masking"
    AGREEING = "agreeing"
    UNMASKING = "unmasking"
    FINISHED = "finished"
    ABORTED = "aborted"


@unique
class ReducerEvent(Enum):
    OPEN = "round opened, model kept"
    RELAY = "all have dealt, or deadline: dealings kept and relayed"
    FIX = "all have sent, or deadline: survivor set and masked sum kept"
    AGREE = "enough survivors have signed the one set"
    FINISH = "enough shares are in: unmasked, result kept"
    ABORT = "round given up, unrevealed"


_S, _E = ReducerState, ReducerEvent
ACTIVE = frozenset((_S.DEALING, _S.MASKING, _S.AGREEING, _S.UNMASKING))


class CollectingReducer(MaskedSumMachine):
    """A reducer up to the survivor set."""

    def __init__(self, parameters: MaskedSumParameters) -> None:
        super().__init__(parameters, parameters.reducer, _S.IDLE)
        self._opened: RoundOpen | None = None
        self._deadline = self._phase_ends = 0.0
        self._clear()
        self._closed: RoundClosed | None = None
        self._abort_message: Abort | None = None

    def _clear(self) -> None:
        self._dealings: dict[int, Dealing] = {}
        self._absent: set[int] = set()
        self._dealers: tuple[int, ...] = ()
        self._sent: dict[int, bytes] = {}  # whose masked vectors are in the total, with their signatures
        self._total: NDArray[np.uint64] | None = None
        self._vectors: dict[int, bytes] = {}  # one by one, where every peer adds them up itself
        self._survivors: Survivors | None = None
        self._signed: dict[int, Signed] = {}
        self._revealed: dict[int, Revealed] = {}
        self._rebuilding: Rebuilding | None = None  # while shares are told

    def open_round(self, round: int, model: bytes, now: float, *, blind: bytes = b"") -> list[Instruction]:
        """Announce a round with its model; ``round`` must be higher than any before.

        ``blind`` is for models that tell of single people: 32 random bytes, drawn for this round.
        """
        p = self.parameters
        if self.state in ACTIVE:
            raise LocalProtocolError("the last round has not ended", party=self.name, round=self.round)
        if not self.round < round <= p.last_round:
            raise LocalProtocolError(
                f"round {round} cannot follow round {self.round}", party=self.name, round=round,
                remedy=f"Number rounds upwards, to {p.last_round} at most; a failed round gets a new number.",
            )  # fmt: skip
        opened: RoundOpen = opening(
            RoundOpen,
            SecretOpen,
            blind,
            study_hash=p.study_hash,
            round=round,
            deadline_ms=int(1000 * p.round_seconds),
            model_hash=model_digest(p.study_hash, round, model, blind),
            model=model,
        )
        wrong = check_model(opened, p)
        if wrong is not None:
            raise LocalProtocolError(wrong, party=self.name, round=round, remedy="Look at the program's update.")
        self._move(_E.OPEN)
        return [Persist("open", encode(opened)), *self._announce(opened, now)]

    def _announce(self, opened: RoundOpen, now: float) -> list[Instruction]:
        self._opened, self.round = opened, opened.round
        self._clear()
        self._closed = self._abort_message = None
        self._deadline = self._phase_ends = now + opened.deadline_ms / 1000
        tell = [Send(to, opened) for to in self.parameters.clients]
        return [*tell, Wake(min(now + self.parameters.retry_seconds, self._phase_ends))]

    def _phase(self, now: float) -> Wake:
        """The next step has a deadline of its own."""
        self._phase_ends = now + self.parameters.agreement_seconds
        return Wake(min(now + self.parameters.retry_seconds, self._phase_ends))

    def _check(self, sender: str, message: Any) -> Code | None:
        """Why this message is of no use in the open round."""
        if self.parameters.client_index.get(sender) != message.client:
            return Code.WRONG_PARTY
        if message.round != self.round or self.state not in ACTIVE:
            return Code.PAST_ROUND if message.round <= self.round else Code.TOO_EARLY
        return None

    # -- dealing -----------------------------------------------------------------------------------------------------

    def _on_dealing(self, sender: str, message: Dealing, now: float) -> list[Instruction]:
        wrong = self._check(sender, message)
        if wrong is not None or self._opened is None:
            return self._ended(sender, message)
        known = self._dealings.get(message.client)
        if known is not None:
            if known == message:
                return []
            cause = "a client dealt twice in one round, differently: two copies of it run, or it was set back"
            return self._abort(Code.STALE_COPY, sender, cause)
        if message.client in self._dealers:
            return []  # it was kept before a restart: those who masked with it have it
        if message.model_hash != self._opened.model_hash:
            return self._abort(Code.BAD_MODEL, sender, "a client dealt at another model than the round was opened with")
        degree = len(self.parameters.near[sender])
        if len(message.packets) != PACKET_BYTES * degree or len(message.wrapped) != KEY_BYTES * degree + TAG_BYTES:
            return self._refuse(sender, message, Code.WRONG_SHAPE, "the dealing is not for this client's neighbours")
        if self.state is not _S.DEALING:
            return self._refuse(sender, message, Code.LATE, "the round goes on without this client")
        try:
            self.parameters.identities[sender].verify(message.signed_part(), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the signature does not verify")
        self._dealings[message.client] = message
        self._absent.discard(message.client)
        return self._try_relay(now)

    def _try_relay(self, now: float, *, over: bool = False) -> list[Instruction]:
        p = self.parameters
        complete = len(self._dealings) + len(self._absent) == len(p.clients)
        if self.state is not _S.DEALING or not (complete or over):
            return []
        if len(self._dealings) < p.least:
            cause = f"{len(self._dealings)} clients are ready for this round, and {p.least} are needed"
            return self._abort(Code.TOO_FEW_CLIENTS, self._missing(self._dealings), cause)
        self._dealers = tuple(sorted(self._dealings))
        self._move(_E.RELAY)
        kept = DealersRecord(round=self.round, dealings=tuple(encode(self._dealings[i]) for i in self._dealers))
        late: list[Instruction] = []
        for client in sorted(set(range(len(p.clients))) - set(self._dealers)):
            if client not in self._absent:
                late += self._refuse_by_index(client, "the round goes on without this client")
        relays = [Send(p.clients[client], self._relay_for(client)) for client in self._dealers]
        return [Persist("dealers", kept.to_bytes()), *relays, *late, self._phase(now)]

    def _refuse_by_index(self, client: int, cause: str) -> list[Instruction]:
        return self._refuse(self.parameters.clients[client], self._opened, Code.LATE, cause)

    def _relay_for(self, client: int) -> Relay:
        """The packets that this client's neighbours have sealed for it, in the order of the neighbours' names."""
        p = self.parameters
        name, packets = p.clients[client], []
        for other in p.graph.neighbours(name):
            dealing = self._dealings.get(p.client_index[other])
            if dealing is not None:
                at = PACKET_BYTES * p.graph.neighbours(other).index(name)
                packets.append(dealing.packets[at : at + PACKET_BYTES])
        return Relay(study_hash=p.study_hash, round=self.round, dealers=self._dealers, packets=b"".join(packets))

    # -- masked vectors ----------------------------------------------------------------------------------------------

    def _on_masked(self, sender: str, message: Masked, now: float) -> list[Instruction]:
        p, wrong = self.parameters, self._check(sender, message)
        if wrong is not None or self._opened is None:
            return self._ended(sender, message)
        if message.client in self._sent:
            return [self._stored(sender)]
        if self.state is not _S.MASKING:
            early = self.state is _S.DEALING  # restarted: who has dealt is collected anew
            code = Code.TOO_EARLY if early else Code.LATE
            return self._refuse(sender, message, code, "masked sums are not taken now")
        fits = message.client in self._dealers and message.size == p.size
        if not fits or message.dealers != dealers_digest(p.study_hash, self.round, self._dealers):
            return self._refuse(
                sender, message, Code.WRONG_SHAPE, "the masked sum is not for the dealers of this round"
            )
        if message.model_hash != self._opened.model_hash:
            return self._abort(
                Code.BAD_MODEL, sender, "a client's sum is at another model than the round was opened with"
            )
        try:
            dealt = self._dealings[message.client]
            tied = sum_digest(dealt.seed_commitment, message.vector) if p.every_peer else b""
            p.identities[sender].verify(message.signed_part(dealt.start, tied), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the signature does not verify")
        if self._total is None:
            self._total = np.zeros(p.size, dtype=np.uint64)
        add_into(self._total, from_bytes(message.vector, p.size, party=sender), party=sender)
        self._sent[message.client] = message.signature
        if p.every_peer:
            self._vectors[message.client] = message.vector
        return [self._stored(sender), *self._try_fix(now)]

    def _stored(self, to: str) -> Send:
        return Send(to, Stored(study_hash=self.study_hash, round=self.round))

    def _try_fix(self, now: float, *, over: bool = False) -> list[Instruction]:
        p, total = self.parameters, self._total
        gone = self._absent & set(self._dealers)
        complete = len(self._sent) + len(gone - self._sent.keys()) == len(self._dealers)
        if self.state is not _S.MASKING or self._opened is None or not (complete or over):
            return []
        clients = tuple(sorted(self._sent))
        refusal = p.graph.refusal([p.clients[client] for client in clients])
        if len(clients) < p.least or refusal is not None or total is None:
            cause = refusal or f"{len(clients)} clients have sent their sums, and {p.least} are needed"
            return self._abort(Code.TOO_FEW_CLIENTS, self._missing(self._sent), cause)
        named = Survivors(
            study_hash=p.study_hash,
            round=self.round,
            model_hash=self._opened.model_hash,
            dealers=self._dealers,
            clients=clients,
            starts=tuple(self._dealings[client].start for client in clients),
            signatures=tuple(self._sent[client] for client in clients),
        )
        raw = to_bytes(total)
        if p.every_peer:
            named, raw = self._tied(named), b"".join(self._vectors[client] for client in clients)
        self._survivors = named
        self._move(_E.FIX)
        kept = SumRecord(round=self.round, survivors=encode(self._survivors), total=raw)
        tell = [Send(p.clients[client], self._survivors) for client in clients]
        return [Persist("masked-sum", kept.to_bytes()), *tell, self._phase(now)]

    def _tied(self, named: Survivors) -> TiedSurvivors:
        """The set with the very vectors that are summed, and the keys of whoever else has dealt."""
        sums = [sum_digest(self._dealings[i].seed_commitment, self._vectors[i]) for i in named.clients]
        facts = {field.name: getattr(named, field.name) for field in fields(named)}
        named = TiedSurvivors(**facts, sums=tuple(sums))
        return replace(named, keys=tuple(self._dealings[i].key_commitment for i in named.gone))

    def _missing(self, there: Iterable[int]) -> str:
        inside = set(there)
        return next((name for i, name in enumerate(self.parameters.clients) if i not in inside), self.name)

    # -- to be written by the second half ----------------------------------------------------------------------------

    @abstractmethod
    def _ended(self, sender: str, message: Message) -> list[Instruction]: ...

    @abstractmethod
    def _abort(self, code: Code, party: str, cause: str, remedy: str | None = None) -> list[Instruction]: ...

    def _quorum(self) -> Quorum | None:
        """What the survivors are told once enough have signed: no more signatures than they need to verify."""
        survivors = self._survivors
        if survivors is None or len(self._signed) < self.parameters.quorum:
            return None
        signers = tuple(sorted(self._signed))[: self.parameters.quorum]
        return Quorum(
            study_hash=self.study_hash,
            round=self.round,
            agreement=survivors.digest(),
            signers=signers,
            signatures=tuple(self._signed[i].signature for i in signers),
        )
