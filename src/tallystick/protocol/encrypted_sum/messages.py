"""What owners, the proxy and the data user say to each other in an encrypted sum.

One frozen type per message; ``codec`` gives each exactly one encoding. Owners travel as their index in the study's own
list. Every message names the study by its session and the round. An upload is bound to the round's model and to the
data user's public key by their hashes: a ciphertext of another study, round, model or key is refused by its head.

The participant set is signed twice before anything is added up: by the proxy, which says whose uploads it holds
(``Participants``), and by the data user, which signs one set per round and no other (``Countersigned``). Both say
under which start they opened the round and commit to their one draw of noise (:mod:`tallystick.protocol.boots`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique
from struct import Struct

from tallystick.core.identifiers import digest
from tallystick.protocol.boots import Start
from tallystick.protocol.sum_messages import Abort as Abort
from tallystick.protocol.sum_messages import Inquiry as Inquiry
from tallystick.protocol.sum_messages import Refused as Refused
from tallystick.protocol.sum_messages import RoundClosed as RoundClosed

UPLOAD_BYTES = 16
_U32 = Struct("<I")


@unique
class Code(IntEnum):
    """Why something was refused or a round given up; the number is what travels."""

    MALFORMED = 1
    OTHER_VERSION = 2
    WRONG_STUDY = 3
    PAST_ROUND = 4
    TOO_EARLY = 5
    LATE = 6
    WRONG_SHAPE = 7
    WRONG_PARTY = 8
    BAD_SIGNATURE = 9
    TWO_MODELS = 10
    BAD_MODEL = 11
    WRONG_PUBLIC_KEY = 12
    CIPHERTEXT_RANGE = 13
    UNKNOWN_UPLOAD = 14
    TOO_FEW_CLIENTS = 15
    SET_DISAGREEMENT = 16
    MISSING_PROXY = 17
    MISSING_DATA_USER = 18
    OUT_OF_RANGE = 19
    NOT_EXPECTED = 20
    REPLACED = 21
    STALE_COPY = 22
    ABSENT = 23


@dataclass(frozen=True, slots=True, kw_only=True)
class HashOpen:
    """Data user to proxy, where models tell of single people: add up over this model, of which you see the hash.

    Uploads under this key are taken for ``deadline_ms``.
    """

    study_hash: bytes
    round: int
    deadline_ms: int
    model_hash: bytes
    key_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOpen(HashOpen):
    """Data user to all: compute on this model, encrypt under this key; uploads are taken for ``deadline_ms``."""

    model: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretOpen(RoundOpen):
    """The same to owners alone, where models tell of single people: ``blind`` hides the model behind its hash."""

    blind: bytes = field(repr=False)

    def hashed(self) -> HashOpen:
        """What the proxy is told of it."""
        return HashOpen(
            study_hash=self.study_hash,
            round=self.round,
            deadline_ms=self.deadline_ms,
            model_hash=self.model_hash,
            key_hash=self.key_hash,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWanted:
    """To the data user: say your public key of this study."""

    study_hash: bytes
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyNotice:
    """Data user, signed: the public key of this study, with what proves it good. There is one, for all rounds."""

    study_hash: bytes
    round: int
    key: bytes = field(repr=False)
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return digest(b"tallystick/encrypted-sum/key", self.study_hash, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Owner to proxy: some ciphertext blocks of its vector. ``upload`` names one encryption of the whole vector."""

    study_hash: bytes
    round: int
    client: int
    index: int
    upload: bytes
    model_hash: bytes
    key_hash: bytes
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Proxy to owner: this chunk is here; ``whole``: an upload of this round is whole and durable."""

    study_hash: bytes
    round: int
    index: int
    whole: int
    upload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Participants:
    """Proxy to data user, signed: the round's sum is over exactly ``clients``, whose uploads I hold."""

    study_hash: bytes
    round: int
    model_hash: bytes
    key_hash: bytes
    start: Start
    clients: tuple[int, ...]
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        n = len(self.clients)
        return digest(
            b"tallystick/encrypted-sum/participants",
            self.study_hash,
            self.model_hash,
            self.key_hash,
            _U32.pack(self.round),
            self.start.packed(),
            Struct(f"<{n}I").pack(*self.clients),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Countersigned:
    """Data user to proxy, signed: this is the one set I decrypt the sum of in this round."""

    study_hash: bytes
    round: int
    participants: bytes
    start: Start
    signature: bytes = b""

    def digest(self) -> bytes:
        """What names the agreement of both: the set, the model, the key, both starts."""
        return digest(
            b"tallystick/encrypted-sum/agreement",
            self.study_hash,
            _U32.pack(self.round),
            self.participants,
            self.start.packed(),
        )

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return digest(b"tallystick/encrypted-sum/countersigned", self.digest())


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """Proxy to data user, signed: the noised sum is here, in chunks with these digests."""

    study_hash: bytes
    round: int
    agreement: bytes
    digests: tuple[bytes, ...]
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        head = digest(b"tallystick/encrypted-sum/summed", self.study_hash, self.agreement, _U32.pack(self.round))
        return digest(head, b"".join(self.digests))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Data user to proxy: send me this chunk of the sum of this agreement."""

    study_hash: bytes
    round: int
    index: int
    agreement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SumChunk:
    """Proxy to data user: a chunk of the noised sum, under the data user's key."""

    study_hash: bytes
    round: int
    index: int
    payload: bytes = field(repr=False)


Message = (
    HashOpen
    | RoundOpen
    | SecretOpen
    | KeyWanted
    | KeyNotice
    | Chunk
    | Stored
    | Refused
    | Participants
    | Countersigned
    | Summed
    | Wanted
    | SumChunk
    | Abort
    | RoundClosed
    | Inquiry
)


def model_digest(study_hash: bytes, round: int, model: bytes, blind: bytes = b"") -> bytes:
    """The hash owners bind into their uploads: model, study and round; of one that tells of people, with a blind."""
    hidden = (b"tallystick/encrypted-sum/secret-model", blind) if blind else (b"tallystick/encrypted-sum/model",)
    return digest(*hidden, study_hash, _U32.pack(round), model)


def chunk_digest(study_hash: bytes, round: int, index: int, payload: bytes) -> bytes:
    """What the proxy signs of each chunk of a sum."""
    return digest(b"tallystick/encrypted-sum/chunk", study_hash, _U32.pack(round), _U32.pack(index), payload)


def noise_commitment(blind: bytes, study_hash: bytes, round: int, value: bytes, noise: bytes) -> bytes:
    """Binds a noise maker to its draw and hides it; the random ``blind`` is used here and never kept."""
    return digest(b"tallystick/encrypted-sum/noise", blind, study_hash, _U32.pack(round), value, noise)
