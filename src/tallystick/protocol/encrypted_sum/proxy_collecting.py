"""The first half of a proxy's round: it opens, collects uploads and signs the set. The argument is in ``proxy``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from enum import Enum, unique
from typing import Unpack

from tallystick.core.errors import LocalProtocolError, PrivacyRefused, RemoteProtocolError
from tallystick.crypto.homomorphic.scheme import EncryptingKey
from tallystick.protocol.encrypted_sum.codec import encode
from tallystick.protocol.encrypted_sum.instructions import Drop, Instruction
from tallystick.protocol.encrypted_sum.machine import check_model
from tallystick.protocol.encrypted_sum.messages import (
    Abort,
    Chunk,
    Code,
    Countersigned,
    HashOpen,
    KeyNotice,
    KeyWanted,
    Participants,
    Refused,
    Stored,
    Summed,
)
from tallystick.protocol.encrypted_sum.noise_maker import MakerParts, NoiseMaker
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.uploads import UploadStore
from tallystick.protocol.instructions import Persist, Send, Wake


@unique
class ProxyState(Enum):
    IDLE = "idle"
    COLLECTING = "collecting"
    SIGNED = "signed"
    SUMMING = "summing"
    RELEASED = "released"
    ABORTED = "aborted"


@unique
class ProxyEvent(Enum):
    OPEN = "round opened, noise drawn and kept"
    SIGN = "deadline, or all owners sent: set signed"
    AGREE = "the data user countersigned: uploads are added up"
    RELEASE = "sum kept, noise and uploads erased"
    ABORT = "round given up, noise erased"


_S, _E = ProxyState, ProxyEvent
ACTIVE = frozenset((_S.COLLECTING, _S.SIGNED, _S.SUMMING))


class CollectingProxy(NoiseMaker):
    """A proxy that collects uploads."""

    def __init__(
        self, parameters: EncryptedSumParameters, *, uploads: UploadStore, **parts: Unpack[MakerParts]
    ) -> None:
        super().__init__(parameters, parameters.proxy, _S.IDLE, **parts)
        self.uploads = uploads
        self._key: EncryptingKey | None = None
        self._waiting: HashOpen | None = None  # a round that waits for the key
        self._growing: dict[int, tuple[bytes, int]] = {}  # owner -> its upload that is not whole yet, chunks of it
        self._absent: set[int] = set()
        self._set: Participants | None = None
        self._countersigned: Countersigned | None = None
        self._summed: Summed | None = None
        self._abort_message: Abort | None = None
        self._deadline = self._give_up = self._next_retry = 0.0

    def holds_upload_of(self, client: str) -> bool:
        """Whether this owner's upload of the current round is whole here."""
        return self.parameters.client_index.get(client) in set(self.uploads.whole(self.round))

    # -- opening -----------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: HashOpen, now: float) -> list[Instruction]:
        p, record = self.parameters, self._record
        if sender != p.data_user:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the data user opens rounds")
        if message.round < self.round or not 0 < message.round <= p.last_round:
            return self._refuse(sender, message, Code.PAST_ROUND, "the round is over; failed rounds get new numbers")
        if record is not None and message.round == self.round:
            if message.model_hash == record.model_hash:
                return self._statements()
            if self.state in ACTIVE:
                return self._abort(Code.TWO_MODELS, sender, "the round was opened with two different models")
            return self._refuse(sender, message, Code.TWO_MODELS, "the round was opened with another model")
        if self._key is None:
            self._waiting = message
            return [Send(sender, KeyWanted(study_hash=self.study_hash, round=message.round)), Wake(now + 1.0)]
        return self._open(message, now)

    def _on_key(self, sender: str, message: KeyNotice, now: float) -> list[Instruction]:
        if sender != self.parameters.data_user or self._key is not None:
            return []
        try:
            self._key = self._read_key(message, None)
        except RemoteProtocolError as error:
            return self._refuse(sender, message, Code.WRONG_PUBLIC_KEY, error.cause)
        waiting, self._waiting = self._waiting, None
        kept: list[Instruction] = [Persist("public-key", self._key.raw)]
        return kept + (self._open(waiting, now) if waiting is not None else [])

    def _open(self, message: HashOpen, now: float) -> list[Instruction]:
        p, sender, out = self.parameters, self.parameters.data_user, list[Instruction]()
        if self._key is None or message.key_hash != self._key.digest:
            cause = "the round is opened under another public key than the study began with"
            return self._refuse(sender, message, Code.WRONG_PUBLIC_KEY, cause)
        if self.state in ACTIVE:
            out += self._abort(Code.REPLACED, sender, "a later round was opened before this one ended")
        if not 0 < message.deadline_ms <= 1000 * p.round_seconds:
            return out + self._refuse(sender, message, Code.WRONG_SHAPE, "the deadline is not the study's")
        wrong = check_model(message, p, told=False)
        if wrong is not None:
            return out + self._refuse(sender, message, Code.BAD_MODEL, wrong)
        try:
            opened = self._open_with_noise(message)
        except PrivacyRefused as error:
            return out + self._refuse(sender, message, Code.BAD_MODEL, error.cause)
        self._move(_E.OPEN)
        self._set = self._countersigned = self._summed = self._abort_message = None
        self._growing, self._absent = {}, set()
        self._deadline = now + message.deadline_ms / 1000
        self._give_up = self._deadline + p.agreement_seconds
        return [*out, *opened, Drop(message.round - 1, sums=True), Wake(self._deadline)]

    # -- collecting --------------------------------------------------------------------------------------------------

    def _on_chunk(self, sender: str, message: Chunk, now: float) -> list[Instruction]:
        p, client, key = self.parameters, message.client, self._key
        if p.client_index.get(sender) != client:
            return self._refuse(sender, message, Code.WRONG_PARTY, "an upload must come from the owner it names")
        if key is None or self._record is None or message.round > self.round:
            return self._refuse(sender, message, Code.TOO_EARLY, "the proxy has not opened that round; send it again")
        if message.round < self.round:
            return self._refuse(sender, message, Code.PAST_ROUND, "the round is over")
        if client in set(self.uploads.whole(self.round)):
            return [self._stored(sender, message, whole=True)]
        early = self.tick(now) if now >= self._deadline and self.state is _S.COLLECTING else []
        if self.state is not _S.COLLECTING:
            return early + self._refuse(sender, message, Code.LATE, "the round takes no more uploads; join the next")
        if message.key_hash != key.digest:
            return self._refuse(sender, message, Code.WRONG_PUBLIC_KEY, "it is encrypted under another public key")
        if message.model_hash != self._record.model_hash:
            return self._abort(Code.TWO_MODELS, sender, "an upload was computed on another model than announced")
        upload, have = self._growing.get(client, (b"", 0))
        if upload != message.upload:
            if message.index:
                return self._refuse(sender, message, Code.UNKNOWN_UPLOAD, "begin the upload anew")
            upload, have = message.upload, 0
        if message.index < have:
            return [self._stored(sender, message)]
        if message.index > have:
            return []  # one before it is lost: it comes again
        try:
            self._check_blocks(key, message, sender)
        except RemoteProtocolError as error:
            self._growing.pop(client, None)
            return self._refuse(sender, message, Code.CIPHERTEXT_RANGE, error.cause)
        if have == 0:
            self.uploads.begin(self.round, client)
        self.uploads.put(self.round, client, have, message.payload)
        self._growing[client] = upload, have + 1
        if have + 1 < p.chunks:
            return [self._stored(sender, message)]
        del self._growing[client]
        self._absent.discard(client)
        self.uploads.complete(self.round, client)
        return [self._stored(sender, message, whole=True), *self._sign_if_complete(now)]

    def _check_blocks(self, key: EncryptingKey, message: Chunk, sender: str) -> None:
        p = self.parameters
        step = p.scheme.block_bytes
        blocks = p.blocks_of(message.index)
        if message.index >= p.chunks or len(message.payload) != step * len(blocks):
            raise RemoteProtocolError("a chunk does not have the blocks that are its", party=sender)
        for at in range(0, len(message.payload), step):
            key.check(message.payload[at : at + step], party=sender)

    def _stored(self, to: str, message: Chunk, *, whole: bool = False) -> Send:
        said = Stored(
            study_hash=self.study_hash,
            round=message.round,
            index=message.index,
            whole=int(whole),
            upload=message.upload,
        )
        return Send(to, said)

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        p, client = self.parameters, self.parameters.client_index.get(sender)
        if message.round != self.round:
            return []
        if client is not None and message.code == Code.ABSENT and self.state is _S.COLLECTING:
            self._absent.add(client)
            return self._sign_if_complete(now)
        if sender == p.data_user and message.code == Code.STALE_COPY and self.state in ACTIVE:
            return self._abort(Code.STALE_COPY, self.name, message.cause)
        return []

    def _sign_if_complete(self, now: float) -> list[Instruction]:
        there = {*self.uploads.whole(self.round), *self._absent}
        return self._sign(now) if len(there) == len(self.parameters.clients) else []

    def _sign(self, now: float) -> list[Instruction]:
        p, record, key = self.parameters, self._record, self._key
        clients = tuple(self.uploads.whole(self.round))
        if record is None or key is None:
            raise LocalProtocolError("no round is open", party=self.name)
        if len(clients) < p.min_clients:
            cause = f"{len(clients)} clients reached the proxy, the study asks for {p.min_clients}"
            return self._abort(Code.TOO_FEW_CLIENTS, self.name, cause)
        unsigned = Participants(
            study_hash=p.study_hash,
            round=self.round,
            model_hash=record.model_hash,
            key_hash=key.digest,
            start=record.start,
            clients=clients,
        )
        self._set = replace(unsigned, signature=self._signing.sign(unsigned.signed_part()))
        self._growing = {}
        self._give_up = max(self._give_up, now + p.agreement_seconds)
        self._move(_E.SIGN)
        return [
            Persist("participants", encode(self._set)),
            Send(p.data_user, self._set),
            Wake(now + p.retry_seconds),
        ]

    @abstractmethod
    def _abort(self, code: Code, party: str, cause: str) -> list[Instruction]: ...

    @abstractmethod
    def _statements(self) -> list[Instruction]: ...
