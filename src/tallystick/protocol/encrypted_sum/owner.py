"""The owner's machine: check model and key, encrypt the sum chunk by chunk, see the proxy keep all of it.

THEORY. What leaves an owner is its sum under the data user's key, sealed to the proxy. The data user never sees an
owner's ciphertext (whoever holds the key would read it), the proxy cannot read one. The key is that of the first round:
its digest is pinned before anything is encrypted, and another one, or one that is not signed by the data user for this
study, or not well-formed, is refused and ends the round.

An upload is one encryption of one vector, under a random name; the proxy takes one whole upload per owner and round,
the first. An owner that restarts computes and encrypts anew, under a new name: what there was of the old one is not
mixed with it. At any time a few chunks are in memory, however long the vector is. Entries are clamped to what the
scheme has room for: clamping moves two neighbouring sums no further apart, and no record decides whether its owner is
there.

One model per round: a second, different one, or one that is not sound, is refused and reported [Pasquini22].
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, RoundAborted
from tallystick.core.randomness import WordSource
from tallystick.crypto.homomorphic.scheme import EncryptingKey
from tallystick.protocol.encrypted_sum.instructions import Instruction
from tallystick.protocol.encrypted_sum.machine import EncryptedSumMachine, abort_error, check_model, rule_of
from tallystick.protocol.encrypted_sum.messages import (
    UPLOAD_BYTES,
    Abort,
    Chunk,
    Code,
    Inquiry,
    KeyNotice,
    KeyWanted,
    Refused,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Stored,
)
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.records import OwnerRecord
from tallystick.protocol.instructions import Aborted, Compute, Persist, Send, Wake
from tallystick.protocol.machine import Transitions

WINDOW = 2  # chunks under way at a time


@unique
class OwnerState(Enum):
    IDLE = "idle"
    COMPUTING = "computing"
    SENDING = "sending"
    WAITING = "waiting"


@unique
class OwnerEvent(Enum):
    OPEN = "model and key checked"
    CONTRIBUTE = "sum computed, first chunks sent"
    STORED = "the proxy holds the whole upload"
    END = "round closed, aborted, late or withdrawn"


_S, _E = OwnerState, OwnerEvent


class OwnerMachine(EncryptedSumMachine):
    """One institution's part in the encrypted sums of a study."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.COMPUTING,
        (_S.COMPUTING, _E.CONTRIBUTE): _S.SENDING,
        (_S.COMPUTING, _E.END): _S.IDLE,
        (_S.SENDING, _E.STORED): _S.WAITING,
        (_S.SENDING, _E.END): _S.IDLE,
        (_S.WAITING, _E.END): _S.IDLE,
    }

    def __init__(self, parameters: EncryptedSumParameters, name: str) -> None:
        super().__init__(parameters, name, _S.IDLE)
        self.index = parameters.client_index[name]
        self._key: EncryptingKey | None = None
        self._pinned: bytes | None = None
        self._opened: RoundOpen | None = None  # the round waits for the key
        self._model_hash = b""
        self._over = 0  # this owner's part in this round is over
        self._vector: NDArray[np.int64] | None = None
        self._source: WordSource | None = None
        self._upload = b""
        self._next = 0
        self._out: dict[int, Chunk] = {}
        self._deadline = 0.0
        self._handlers = {
            RoundOpen: self._on_open,
            SecretOpen: self._on_open,
            KeyNotice: self._on_key,
            Stored: self._on_stored,
            Refused: self._on_refused,
            RoundClosed: self._on_closed,
            Abort: self._on_abort,
        }

    # -- opening -----------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: RoundOpen, now: float) -> list[Instruction]:
        p = self.parameters
        if sender != p.data_user:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the data user opens rounds")
        if message.round < self.round or not 0 < message.round <= p.last_round:
            return self._refuse(sender, message, Code.PAST_ROUND, "this owner has gone on to a later round")
        if message.round == self.round and self._model_hash and message.model_hash != self._model_hash:
            return self._object(message.round, Code.BAD_MODEL, "two different models were sent for one round")
        wrong = check_model(message, p, told=True)
        if wrong is not None:
            return self._object(message.round, Code.BAD_MODEL, wrong)
        if self._pinned is not None and message.key_hash != self._pinned:
            cause = "the round is opened under another public key than the study began with"
            return self._object(message.round, Code.WRONG_PUBLIC_KEY, cause)
        if message.round == self.round and (self.state is not _S.IDLE or self._over == message.round):
            return []  # a repetition
        self._opened, self._deadline = message, now + min(message.deadline_ms / 1000, p.round_seconds)
        if self._key is None:
            return [self._ask_key(message.round), Wake(now + p.retry_seconds)]
        return self._begin(message)

    def _ask_key(self, round: int) -> Send:
        return Send(self.parameters.data_user, KeyWanted(study_hash=self.study_hash, round=round))

    def _on_key(self, sender: str, message: KeyNotice, now: float) -> list[Instruction]:
        opened = self._opened
        if sender != self.parameters.data_user or opened is None or self._key is not None:
            return []
        try:
            key = self._read_key(message, self._pinned if self._pinned is not None else opened.key_hash)
        except RemoteProtocolError as error:
            return self._object(opened.round, Code.WRONG_PUBLIC_KEY, error.cause)
        self._key, fresh = key, self._pinned is None
        self._pinned = key.digest
        kept: list[Instruction] = [Persist("pinned-key", key.digest)] if fresh else []
        return kept + self._begin(opened)

    def _begin(self, opened: RoundOpen) -> list[Instruction]:
        out = self._end() if opened.round > self.round else []
        self.round, self._model_hash, self._opened = opened.round, opened.model_hash, None
        self._move(_E.OPEN)
        return [*out, Compute(opened.round, opened.model)]

    def _object(self, round: int, code: Code, cause: str) -> list[Instruction]:
        """Refuse model or key, and tell both so that the round is not released."""
        out = self._end() if round == self.round else []
        p, self._opened = self.parameters, None
        remedy = "This owner sent nothing for it. Look at the data user before the next round."
        abort = self._abort_of(round, code, p.data_user, cause, remedy)
        return [*out, *(Send(party, abort) for party in (p.proxy, p.data_user)), Aborted(abort_error(abort))]

    # -- sending -----------------------------------------------------------------------------------------------------

    def contribute(self, round: int, vector: NDArray[np.int64], source: WordSource, now: float) -> list[Instruction]:
        """Encrypt this round's sum and send it, a window of chunks at a time."""
        p = self.parameters
        if self.state is not _S.COMPUTING or round != self.round:
            return []  # the round ended while the sum was being computed
        if vector.shape != (p.size,) or vector.dtype != np.int64:
            raise LocalProtocolError(f"the contribution must be {p.size} integers", party=self.name, round=round)
        self._vector = np.clip(vector, -p.result_limit, p.result_limit)
        self._source = source
        self._move(_E.CONTRIBUTE)
        record = OwnerRecord(round=round, model_hash=self._model_hash)
        return [Persist("contribution", record.to_bytes()), *self._begin_upload(), Wake(now + p.retry_seconds)]

    def _begin_upload(self) -> list[Instruction]:
        if self._source is None:
            return []
        self._upload, self._next, self._out = self._source.bytes(UPLOAD_BYTES), 0, {}
        return self._fill()

    def _fill(self) -> list[Instruction]:
        p, key, vector, source = self.parameters, self._key, self._vector, self._source
        out: list[Instruction] = []
        while key is not None and vector is not None and source is not None:
            if self._next >= p.chunks or len(self._out) >= WINDOW:
                break
            blocks = p.blocks_of(self._next)
            chunk = Chunk(
                study_hash=p.study_hash,
                round=self.round,
                client=self.index,
                index=self._next,
                upload=self._upload,
                model_hash=self._model_hash,
                key_hash=key.digest,
                payload=b"".join([key.encrypt(p.scheme.part(vector, block), source) for block in blocks]),
            )
            self._out[self._next] = chunk
            self._next += 1
            out.append(Send(p.proxy, chunk))
        return out

    def _on_stored(self, sender: str, message: Stored, now: float) -> list[Instruction]:
        if sender != self.parameters.proxy or self.state is not _S.SENDING or message.round != self.round:
            return []
        if message.whole:  # this upload, or one of before a restart
            self._move(_E.STORED)
            self._forget()
            return []
        if message.upload == self._upload:
            self._out.pop(message.index, None)
            return self._fill()
        return []

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        mine = sender == self.parameters.proxy and message.round == self.round and self.state is _S.SENDING
        if not mine or message.code == Code.TOO_EARLY:
            return []  # too early: the next retry sends the same bytes
        if message.code == Code.UNKNOWN_UPLOAD:  # the proxy was restarted in between
            return self._begin_upload()
        late = message.code in (Code.LATE, Code.PAST_ROUND)
        error = RoundAborted(
            f"{sender} refused this owner's upload: {message.cause}",
            remedy="The next round is open to this owner."
            if late
            else "Compare this owner's software and study with the proxy's.",
            rule=rule_of(message.code),
            party=self.name,
            round=self.round,
        )
        return [*self._end(), Aborted(error)]

    # -- ending ------------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Nobody can ask for the sum again."""
        self._vector = self._source = None
        self._out = {}

    def _end(self) -> list[Instruction]:
        if self.state is not _S.IDLE:
            self._move(_E.END)
        self._over = self.round
        self._forget()
        return []

    def withdraw(self, round: int) -> list[Instruction]:
        """Sit this round out: nothing more is sent for it. Outside, the reason is only "unavailable"."""
        if round != self.round or self.state is _S.IDLE:
            return []
        p = self.parameters
        absent = Refused(study_hash=p.study_hash, round=round, code=Code.ABSENT, cause="unavailable in this round")
        error = RoundAborted(
            "this client is unavailable in this round",
            remedy="It takes part again in the next round; the reason is in its own log.",
            party=self.name,
            round=round,
        )
        return [*self._end(), Send(p.proxy, absent), Aborted(error)]

    def _on_closed(self, sender: str, message: RoundClosed, now: float) -> list[Instruction]:
        if sender == self.parameters.data_user and message.round >= self.round:
            self._opened = None
            return self._end()
        return []

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        if sender != self.parameters.data_user:
            return []
        if self._opened is not None and self._opened.round == message.round:
            self._opened = None
        if message.round == self.round and self.state is not _S.IDLE:
            return [*self._end(), Aborted(abort_error(message))]
        return []

    def tick(self, now: float) -> list[Instruction]:
        """Send again what the proxy has not answered, until the deadline; ask again for the key."""
        p = self.parameters
        if self._opened is not None:
            if now >= self._deadline:
                self._opened = None
                return []
            return [self._ask_key(self._opened.round), Wake(now + p.retry_seconds)]
        if self.state is not _S.SENDING:
            return []
        if now >= self._deadline + p.agreement_seconds:
            return self.withdraw(self.round)
        out: list[Instruction] = [Send(p.proxy, chunk) for _, chunk in sorted(self._out.items())]
        return [*out, Wake(now + p.retry_seconds)]

    @classmethod
    def restore(
        cls, parameters: EncryptedSumParameters, name: str, records: Mapping[str, bytes]
    ) -> tuple[OwnerMachine, list[Instruction]]:
        """The machine as its records have it; it asks the data user which round is open."""
        machine = cls(parameters, name)
        machine._pinned = records.get("pinned-key")
        if "contribution" in records:
            record = OwnerRecord.from_bytes(records["contribution"])
            machine.round, machine._model_hash = record.round, record.model_hash
        question = Inquiry(study_hash=parameters.study_hash, round=machine.round)
        return machine, [Send(parameters.data_user, question)]
