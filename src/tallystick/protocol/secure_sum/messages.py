"""What clients, servers and the aggregator say to each other in a secure sum.

One frozen type per message; ``codec`` gives each exactly one encoding. Parties
travel as their index in the study's own lists (``SumParameters``), so a name
can neither be forged nor carry control characters. Every message names the
study by its hash and the round; the statements of a server are signed over
all of it.

A share is *bound*: its digest covers study, round, client, server, number of
servers, size, model hash, kind, blind and payload. The digests of all m shares
(the commitments) go to every server, so a client can only ever stand by one
set of shares. The digest must hide: with m = 2 the server that knows the seed
knows the other share up to the client's sum, and could test guesses of that
sum against a plain hash of it. Hence the 32-byte ``blind``, fresh for every
share and known to its server alone. The payload enters by its BLAKE3 hash: a
server hashes every byte it takes, and BLAKE3 costs it a third of SHA-256 or less.

What a server says of a round it says under a :class:`Start`: which start of the
server it was, and a commitment to the noise it drew. All servers sign all
starts, so a server that was set back to an old copy of itself, or of which two
copies run, cannot get a second draw of noise into the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum, unique
from struct import Struct

from blake3 import blake3

from tallystick.core.identifiers import digest
from tallystick.protocol.boots import BOOT_VALUE_BYTES as BOOT_VALUE_BYTES
from tallystick.protocol.boots import Start as Start
from tallystick.protocol.sum_messages import Abort as Abort
from tallystick.protocol.sum_messages import Inquiry as Inquiry
from tallystick.protocol.sum_messages import Refused as Refused
from tallystick.protocol.sum_messages import RoundClosed as RoundClosed

MARK_BYTES = 16

_CONTEXT = Struct("<IIHI")
_AGREEMENT = Struct("<IHHI")
_LIST = Struct("<IHII")
_PARTIAL = Struct("<IHI")
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
    EQUIVOCATION = 7
    WRONG_SHAPE = 8
    WRONG_PARTY = 9
    BAD_SIGNATURE = 10
    TWO_MODELS = 11
    BAD_MODEL = 12
    BAD_COMMITMENT = 13
    TOO_FEW_CLIENTS = 14
    SET_DISAGREEMENT = 15
    MISSING_SERVER = 16
    OUT_OF_RANGE = 17
    ALREADY_RELEASED = 18
    NOT_EXPECTED = 19
    REPLACED = 20
    STALE_SERVER = 21
    ABSENT = 22
    DRAW_FAILED = 23


@unique
class ShareKind(IntEnum):
    """A share is a 32-byte seed that the server expands, or the vector itself."""

    SEED = 1
    VECTOR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HashOpen:
    """Aggregator to servers, where models tell of single people: sum over this model, of which you see the hash.

    Shares are accepted for ``deadline_ms``.
    """

    study_hash: bytes
    round: int
    deadline_ms: int
    model_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOpen(HashOpen):
    """Aggregator to all: compute on this model; shares are accepted for ``deadline_ms``."""

    model: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretOpen(RoundOpen):
    """The same to clients alone, where models tell of single people: ``blind`` hides the model behind its hash."""

    blind: bytes = field(repr=False)

    def hashed(self) -> HashOpen:
        """What servers are told of it."""
        return HashOpen(
            study_hash=self.study_hash, round=self.round, deadline_ms=self.deadline_ms, model_hash=self.model_hash
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Client to one server. ``proof`` is reserved for validity proofs and empty in version 1."""

    study_hash: bytes
    round: int
    client: int
    server: int
    size: int
    kind: int
    model_hash: bytes
    commitments: tuple[bytes, ...]
    blind: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    proof: bytes = b""

    @property
    def servers(self) -> int:
        """m, the number of servers the client split for."""
        return len(self.commitments)

    def without_vector(self) -> Share:
        """What of it stays in memory: a seed whole, a vector's fields."""
        return self if self.kind != ShareKind.VECTOR else replace(self, payload=b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Server to client: the share with this digest is durable."""

    study_hash: bytes
    round: int
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedList:
    """Server to servers, signed: whose commitments I hold; who sent me two different shares."""

    study_hash: bytes
    round: int
    server: int
    start: Start
    model_hash: bytes
    clients: tuple[int, ...]
    digests: tuple[bytes, ...]
    equivocators: tuple[int, ...]
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        n, e = len(self.clients), len(self.equivocators)
        return digest(
            b"tallystick/secure-sum/received",
            self.study_hash,
            self.model_hash,
            _LIST.pack(self.round, self.server, n, e),
            self.start.packed(),
            Struct(f"<{n}I").pack(*self.clients),
            b"".join(self.digests),
            Struct(f"<{e}I").pack(*self.equivocators),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Server to servers and aggregator, signed: the round's sum is over exactly ``clients``.

    ``starts`` has one entry per server, as each of them said it in its list.
    """

    study_hash: bytes
    round: int
    server: int
    honest: int
    model_hash: bytes
    starts: tuple[Start, ...]
    clients: tuple[int, ...]
    signature: bytes = b""

    def digest(self) -> bytes:
        """What all m servers must have in common: everything but who signs."""
        n = len(self.clients)
        return digest(
            b"tallystick/secure-sum/agreement",
            self.study_hash,
            self.model_hash,
            _AGREEMENT.pack(self.round, self.honest, len(self.starts), n),
            b"".join(start.packed() for start in self.starts),
            Struct(f"<{n}I").pack(*self.clients),
        )

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return digest(b"tallystick/secure-sum/agree", self.digest(), _U32.pack(self.server))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """Server to aggregator, signed: my shares of the agreed set, summed, with my noise."""

    study_hash: bytes
    round: int
    server: int
    start: Start
    agreement: bytes
    size: int
    vector: bytes = field(repr=False)
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return digest(
            b"tallystick/secure-sum/partial",
            self.study_hash,
            self.agreement,
            _PARTIAL.pack(self.round, self.server, self.size),
            self.start.packed(),
            self.vector,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StillIn:
    """Server to client, of a round that was held: do you still take part?

    The server draws a ``mark`` whenever it takes the round up again, and only an answer with it counts: what a client
    said in an earlier pause of the same round says nothing of this one.
    """

    study_hash: bytes
    round: int
    mark: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """Client to server, of a round that was held: I still take part.

    ``digest`` is over the commitments I have shared, zero if I have shared nothing; ``complete``: every server has said
    that it holds its share, and I cannot send it again. ``mark`` is that of the question.
    """

    study_hash: bytes
    round: int
    digest: bytes
    complete: int
    mark: bytes


Message = (
    HashOpen
    | RoundOpen
    | SecretOpen
    | Share
    | Accepted
    | Refused
    | ReceivedList
    | Agreement
    | Partial
    | Abort
    | RoundClosed
    | Inquiry
    | StillIn
    | Confirmed
)


def model_digest(study_hash: bytes, round: int, model: bytes, blind: bytes = b"") -> bytes:
    """The hash clients bind into their shares [Pasquini22]: model, study and round.

    A model that tells of single people is hashed with 32 random bytes, which clients alone are told: of few people, or
    of all but a few whom one knows, it could be found by trying (the second model of a vertical machine follows from
    the labels, one bit for each of them).
    """
    hidden = (b"tallystick/secure-sum/secret-model", blind) if blind else (b"tallystick/secure-sum/model",)
    return digest(*hidden, study_hash, _U32.pack(round), model)


def share_context(study_hash: bytes, round: int, client: int, servers: int, size: int, model_hash: bytes) -> bytes:
    """What identifies one client's sharing in one round, in a fixed layout; the seeds are expanded under it."""
    return b"".join((b"tallystick/sum/1", study_hash, model_hash, _CONTEXT.pack(round, client, servers, size)))


def share_digest(context: bytes, server: int, kind: int, blind: bytes, payload: bytes) -> bytes:
    """A hiding commitment to one server's share; the payload, the only long part, enters by its BLAKE3 hash."""
    whole = ShareDigest(context, server, kind, blind)
    whole.update(payload)
    return whole.digest()


class ShareDigest:
    """:func:`share_digest` of a payload that comes in by parts."""

    def __init__(self, context: bytes, server: int, kind: int, blind: bytes) -> None:
        tag = bytes((server & 255, server >> 8, kind))
        self._before = (b"tallystick/secure-sum/commit/2", context, tag, blind)
        self._hash = blake3()

    def update(self, part: bytes | memoryview) -> None:
        """The next bytes of the payload."""
        self._hash.update(part)

    def digest(self) -> bytes:
        """The commitment, once all of the payload was given."""
        return digest(*self._before, self._hash.digest())


def noise_commitment(blind: bytes, study_hash: bytes, round: int, value: bytes, noise: bytes) -> bytes:
    """Binds a server to its draw of noise and hides it, from whoever has the server's disk and keys too.

    Noise has few likely values, so what it is hashed with must be unknown for ever: ``blind`` is random, used here
    and never kept. Nobody opens a commitment; it tells two draws for one round apart. A restart reads it from disk.
    """
    return digest(b"tallystick/secure-sum/noise", blind, study_hash, _U32.pack(round), value, noise)


def commitments_digest(context: bytes, commitments: tuple[bytes, ...]) -> bytes:
    """One digest over the digests of all m shares: what servers compare."""
    return digest(b"tallystick/secure-sum/commitments", context, *commitments)
