"""The proxy's machine: keep uploads until the set is signed by both, add them up once, noise inside, release once.

THEORY. The proxy sees ciphertexts under a key it does not have: nothing. What it lets out is read by the data user, who
has the key, so it holds the proxy's FULL noise, inside the ciphertext, and the error of the sum is drowned
(:mod:`tallystick.crypto.homomorphic.flooding`): the data user sees the true sum plus the proxy's noise, and nothing
else. (Everybody else sees the data user's full noise on top.) That stays true only if an owner's upload of a round
enters exactly ONE sum, and the noise is ONE draw:

1. uploads are kept apart, each whole or not there, until the deadline or until every owner has sent or is absent;
2. the proxy signs the set (``Participants``) and keeps it; the data user countersigns that one set; only then are the
   uploads of exactly that set added up;
3. noise was drawn at the opening of the round and kept then; the sum is kept before a byte of it is sent; whoever asks
   again gets those bytes;
4. both signatures bind both starts and both commitments to noise: a copy of either, set back to before, signs something
   else, and what is signed is never replaced; then nothing more is said of the round;
5. once the sum (or the abort) is durable, noise and uploads are erased.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.randomness import WordSource
from tallystick.crypto.homomorphic.scheme import EncryptingKey
from tallystick.protocol.encrypted_sum.codec import decode, encode
from tallystick.protocol.encrypted_sum.instructions import Drop, Instruction, SumUp
from tallystick.protocol.encrypted_sum.machine import abort_error
from tallystick.protocol.encrypted_sum.messages import (
    Abort,
    Chunk,
    Code,
    Countersigned,
    HashOpen,
    Inquiry,
    KeyNotice,
    KeyWanted,
    Message,
    Participants,
    Refused,
    RoundClosed,
    RoundOpen,
    SumChunk,
    Summed,
    Wanted,
    chunk_digest,
)
from tallystick.protocol.encrypted_sum.noise_maker import DATA_USER, MakerParts
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.proxy_collecting import ACTIVE, CollectingProxy, ProxyEvent, ProxyState
from tallystick.protocol.encrypted_sum.uploads import UploadStore
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Aborted, Forget, Persist, Send, Wake
from tallystick.protocol.machine import Transitions

_S, _E = ProxyState, ProxyEvent


@dataclass(frozen=True, slots=True)
class SumJob:
    """The uploads of the agreed set and the round's noise; chunks may be made in any order, by several threads."""

    parameters: EncryptedSumParameters
    round: int
    key: EncryptingKey
    noise: NDArray[np.int64] = field(repr=False)
    clients: tuple[int, ...]
    uploads: UploadStore

    def chunk(self, index: int, source: WordSource) -> bytes:
        """One chunk of the sum, noise inside, error drowned."""
        scheme = self.parameters.scheme
        step, made = scheme.block_bytes, []
        for place, block in enumerate(self.parameters.blocks_of(index)):
            parts = (self.uploads.get(self.round, client, index, place * step, step) for client in self.clients)
            made.append(self.key.total(parts, scheme.part(self.noise, block), source))
        return b"".join(made)

    def digest(self, index: int, payload: bytes) -> bytes:
        """What is signed of a chunk."""
        return chunk_digest(self.parameters.study_hash, self.round, index, payload)


class ProxyMachine(CollectingProxy):
    """The proxy of a study's encrypted sums."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.COLLECTING,
        (_S.COLLECTING, _E.SIGN): _S.SIGNED,
        (_S.COLLECTING, _E.ABORT): _S.ABORTED,
        (_S.SIGNED, _E.AGREE): _S.SUMMING,
        (_S.SIGNED, _E.ABORT): _S.ABORTED,
        (_S.SUMMING, _E.RELEASE): _S.RELEASED,
        (_S.SUMMING, _E.ABORT): _S.ABORTED,
        (_S.RELEASED, _E.OPEN): _S.COLLECTING,
        (_S.ABORTED, _E.OPEN): _S.COLLECTING,
    }

    def __init__(
        self, parameters: EncryptedSumParameters, *, uploads: UploadStore, **parts: Unpack[MakerParts]
    ) -> None:
        super().__init__(parameters, uploads=uploads, **parts)
        self._handlers = {
            HashOpen: self._on_open,
            RoundOpen: self._on_open,
            KeyNotice: self._on_key,
            Chunk: self._on_chunk,
            Countersigned: self._on_countersigned,
            Wanted: self._on_wanted,
            Refused: self._on_refused,
            Abort: self._on_abort,
            Inquiry: self._on_inquiry,
            RoundClosed: self._on_notice,
        }

    # -- adding up ---------------------------------------------------------------------------------------------------

    def _on_countersigned(self, sender: str, message: Countersigned, now: float) -> list[Instruction]:
        p, mine, known = self.parameters, self._set, self._countersigned
        if sender != p.data_user:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the data user countersigns")
        if message == known:
            return self._statements()
        if message.round != self.round or mine is None:
            return self._refuse(sender, message, Code.TOO_EARLY, "there is no such set to countersign")
        try:
            p.data_user_key.verify(message.signed_part(), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the countersignature does not verify")
        stale = self._seen.objection(DATA_USER, message.start)
        if known is not None:
            stale = "it countersigned this round before, under another start or noise: it was set back to a copy"
        if stale is not None:
            told = self._refuse(sender, message, Code.STALE_COPY, stale)
            return told + (self._abort(Code.STALE_COPY, sender, stale) if self.state in ACTIVE else [])
        if self.state is not _S.SIGNED:
            return []
        if message.participants != mine.signed_part():
            return self._abort(Code.SET_DISAGREEMENT, sender, "the data user countersigned another set")
        self._countersigned = message
        self._move(_E.AGREE)
        noted = self._seen.note(DATA_USER, message.start)
        return [*noted, Persist("countersigned", encode(message)), SumUp(self.round)]

    def sum_job(self) -> SumJob:
        """What makes the chunks of the sum over the agreed set."""
        key, noise, mine = self._key, self._noise, self._set
        if self.state is not _S.SUMMING or key is None or noise is None or mine is None:
            raise LocalProtocolError("there is no agreed set to sum", party=self.name, round=self.round)
        return SumJob(self.parameters, self.round, key, noise, mine.clients, self.uploads)

    def summed(self, round: int, digests: tuple[bytes, ...]) -> list[Instruction]:
        """Every chunk of the sum is kept, durably: say so, and erase what it was made of."""
        agreed = self._countersigned
        if round != self.round or self.state is not _S.SUMMING or agreed is None:
            return []
        unsigned = Summed(study_hash=self.study_hash, round=round, agreement=agreed.digest(), digests=digests)
        self._summed = replace(unsigned, signature=self._signing.sign(unsigned.signed_part()))
        self._move(_E.RELEASE)
        return [
            Persist("summed", encode(self._summed)),
            *self._erase(),
            Send(self.parameters.data_user, self._summed),
        ]

    def _erase(self) -> list[Instruction]:
        self._noise = None
        return [Forget("noise"), Drop(self.round, sums=self._summed is None)]

    def _on_wanted(self, sender: str, message: Wanted, now: float) -> list[Instruction]:
        known, p = self._summed, self.parameters
        if sender != p.data_user or known is None or message.round != self.round:
            return self._refuse(sender, message, Code.TOO_EARLY, "there is no such sum")
        if message.agreement != known.agreement:
            return self._refuse(sender, message, Code.STALE_COPY, "the sum belongs to another agreement")
        if message.index >= p.chunks:
            return self._refuse(sender, message, Code.WRONG_SHAPE, "the sum has no such chunk")
        payload = self.uploads.get_sum(self.round, message.index)
        return [Send(sender, SumChunk(study_hash=p.study_hash, round=self.round, index=message.index, payload=payload))]

    # -- ending, repeating, restarting -------------------------------------------------------------------------------

    def _abort(self, code: Code, party: str, cause: str) -> list[Instruction]:
        abort = self._abort_message = self._abort_of(self.round, code, party, cause)
        self._move(_E.ABORT)
        told = Send(self.parameters.data_user, abort)
        return [Persist("aborted", encode(abort)), *self._erase(), told, Aborted(abort_error(abort))]

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        if message.round != self.round or self.state not in ACTIVE:
            return []
        if sender in self.parameters.client_index:
            if message.code not in (Code.BAD_MODEL, Code.WRONG_PUBLIC_KEY):  # all an owner can object to
                return []
            return self._abort(Code(message.code), sender, f"an owner refused the round: {message.cause}")
        if sender != self.parameters.data_user:
            return []
        return self._abort(Code(message.code), message.party, message.cause)

    def _on_notice(self, sender: str, message: Message, now: float) -> list[Instruction]:
        return []

    def _statements(self) -> list[Instruction]:
        """Say again, in the same bytes, what was said of the current round."""
        last = self._abort_message or self._summed or (self._set if self.state is _S.SIGNED else None)
        return [Send(self.parameters.data_user, last)] if last is not None else []

    def _on_inquiry(self, sender: str, message: Inquiry, now: float) -> list[Instruction]:
        if sender != self.parameters.data_user:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the proxy answers the data user")
        if message.round == self.round:
            return self._statements()
        if message.round > self.round:
            return [Send(sender, Inquiry(study_hash=self.study_hash, round=self.round))]
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Close the collection at the deadline; ask the data user again; give up when it stays away."""
        p = self.parameters
        if self._waiting is not None and self._key is None:
            return [
                Send(p.data_user, KeyWanted(study_hash=self.study_hash, round=self._waiting.round)),
                Wake(now + 1.0),
            ]
        if self.state is _S.COLLECTING:
            return self._sign(now) if now >= self._deadline else []
        if self.state is not _S.SIGNED or self._set is None:
            return []
        if now >= self._give_up:
            cause = f"no countersignature within {p.agreement_seconds:g} s"
            return self._abort(Code.MISSING_DATA_USER, p.data_user, cause)
        if now < self._next_retry:
            return [Wake(self._next_retry)]
        self._next_retry = now + p.retry_seconds
        return [Send(p.data_user, self._set), Wake(min(self._next_retry, self._give_up))]

    @classmethod
    def restore(
        cls,
        parameters: EncryptedSumParameters,
        records: Mapping[str, bytes],
        *,
        now: float,
        uploads: UploadStore,
        **parts: Unpack[MakerParts],
    ) -> tuple[ProxyMachine, list[Instruction]]:
        """The machine as its durable records have it, and what to do first."""
        machine = cls(parameters, uploads=uploads, **parts)
        machine._recall(dict(records))
        if "public-key" in records:
            machine._key = parameters.scheme.public_key(records["public-key"], party=parameters.data_user)
        question: list[Instruction] = [
            Send(parameters.data_user, Inquiry(study_hash=parameters.study_hash, round=machine.round))
        ]
        if machine._record is None:
            return machine, question

        def said(key: str) -> Message | None:
            message = decode(records[key]) if key in records else None
            return message if message is not None and message.round == machine.round else None

        kept, agreed, summed, abort = said("participants"), said("countersigned"), said("summed"), said("aborted")
        machine.state = _S.COLLECTING
        machine._deadline = now + machine._record.deadline_ms / 1000
        machine._give_up = machine._deadline + parameters.agreement_seconds
        if isinstance(kept, Participants):
            machine._set, machine.state = kept, _S.SIGNED
            machine._give_up = now + parameters.agreement_seconds
        if isinstance(agreed, Countersigned):
            machine._countersigned, machine.state = agreed, _S.SUMMING
        if isinstance(summed, Summed):
            machine._summed, machine.state = summed, _S.RELEASED
        if isinstance(abort, Abort):
            machine._abort_message, machine.state = abort, _S.ABORTED
        if machine.state in ACTIVE and machine._noise is None:  # it may have been used: it is never drawn again
            raise damaged()
        if machine.state not in ACTIVE:  # perhaps the end was kept, and what is erased at the end was not erased yet
            erase: list[Instruction] = [Drop(machine.round, sums=machine._summed is None)]
            return machine, [
                *(machine._erase() if machine._drawn is None else erase),
                *machine._statements(),
                *question,
            ]
        if machine.state is _S.SUMMING:
            return machine, [SumUp(machine.round), *question]
        again = machine._sign_if_complete(now) if machine.state is _S.COLLECTING else machine._statements()
        return machine, [*again, Wake(now + parameters.retry_seconds), *question]
