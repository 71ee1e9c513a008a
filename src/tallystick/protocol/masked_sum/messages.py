"""What clients and the reducer say to each other in a masked sum.

One frozen type per message; ``codec`` gives each exactly one encoding. Clients travel as their index in the study's own
list. Every message names the study by its session (which binds roster and study keys) and the round. Clients only dial
out: what one client says to another is sealed to it and relayed by the reducer, which can neither read nor change it.

A client's :class:`Dealing` is bound to the model it was shown, inside what each neighbour opens, too: neighbours that
were shown different models meet in their first packet and stop [Pasquini22]. The survivor set is signed by the
survivors before anything is unmasked; ``agreement_digest`` is all that they must have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from struct import Struct

from tallystick.core.identifiers import digest
from tallystick.protocol.boots import Start
from tallystick.protocol.sum_messages import Abort as Abort
from tallystick.protocol.sum_messages import Inquiry as Inquiry
from tallystick.protocol.sum_messages import Refused as Refused
from tallystick.protocol.sum_messages import RoundClosed as RoundClosed

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
    BAD_MODEL = 10
    BAD_PACKET = 11
    EQUIVOCATION = 12
    TOO_FEW_CLIENTS = 13
    THRESHOLD = 14
    SET_DISAGREEMENT = 15
    BAD_SHARE = 16
    OUT_OF_RANGE = 17
    NOT_EXPECTED = 18
    REPLACED = 19
    STALE_COPY = 20
    ABSENT = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOpen:
    """Reducer to clients: compute on this model; dealings are taken for ``deadline_ms``."""

    study_hash: bytes
    round: int
    deadline_ms: int
    model_hash: bytes
    model: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretOpen(RoundOpen):
    """The same where models tell of single people: ``blind`` hides the model behind its hash, which is signed."""

    blind: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """Client to reducer: what the others need should I drop out, or survive; nothing of my data.

    ``wrapped`` holds my round keys with all neighbours under this round's wrapping key; ``packets`` one sealed packet
    of equal length for each neighbour, in the order of their names: a share of the wrapping key, one of the self seed.
    ``seed_commitment`` tells the reducer whether the seed that it rebuilds is mine, ``key_commitment`` whether the
    wrapping key and what is wrapped under it are; the latter is signed, for should I drop out I say nothing more.
    """

    study_hash: bytes
    round: int
    client: int
    model_hash: bytes
    start: Start
    seed_commitment: bytes
    key_commitment: bytes
    signature: bytes = b""
    wrapped: bytes = field(repr=False)
    packets: bytes = field(repr=False)

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return dealt_part(self.study_hash, self.round, self.client, self.key_commitment)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay:
    """Reducer to client: these have dealt, mask with those of them that are your neighbours; here are their packets."""

    study_hash: bytes
    round: int
    dealers: tuple[int, ...]
    packets: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked:
    """Client to reducer: my sum, my noise and all my masks, added up; signed is for which dealers I have masked it."""

    study_hash: bytes
    round: int
    client: int
    model_hash: bytes
    dealers: bytes
    size: int
    signature: bytes = b""
    vector: bytes = field(repr=False)

    def signed_part(self, start: Start, tied: bytes = b"") -> bytes:
        """The bytes under the signature; ``start`` is the one it has dealt under, ``tied`` :func:`sum_digest` where
        every peer adds up itself."""
        return masked_part(self.dealers, self.client, start, tied)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Reducer to client: your masked vector is here."""

    study_hash: bytes
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survivors:
    """Reducer to the survivors: the round's sum is over exactly ``clients`` of ``dealers``. Sign it, if it is.

    ``signatures`` are theirs under ``Masked``: each has masked its sum for these very dealers.
    """

    study_hash: bytes
    round: int
    model_hash: bytes
    dealers: tuple[int, ...]
    clients: tuple[int, ...]
    starts: tuple[Start, ...]
    signatures: tuple[bytes, ...] = field(default=(), repr=False)

    def digest(self) -> bytes:
        """What the survivors must have in common."""
        return agreement_digest(self.study_hash, self.round, self.model_hash, self.dealers, self.clients, self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiedSurvivors(Survivors):
    """The same where every peer adds up itself: ``sums`` name the very vectors, and ``keys`` the very keys that take
    the masks with each other dealer off them, so that one set has one total."""

    sums: tuple[bytes, ...] = field(default=(), repr=False)
    keys: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def gone(self) -> tuple[int, ...]:
        """The dealers that are no survivors, whose keys these are."""
        return tuple(sorted(set(self.dealers) - set(self.clients)))

    def digest(self) -> bytes:
        named = (b"".join(self.sums), b"".join(self.keys))
        return digest(b"tallystick/masked-sum/tied", Survivors.digest(self), *named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """Client to reducer, signed: this is the one survivor set that I help to unmask in this round."""

    study_hash: bytes
    round: int
    client: int
    agreement: bytes
    signature: bytes = b""

    def signed_part(self) -> bytes:
        """The bytes under the signature."""
        return signed_part(self.agreement, self.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """Reducer to the survivors: so many have signed it. Reveal your shares of one secret of each dealer."""

    study_hash: bytes
    round: int
    agreement: bytes
    signers: tuple[int, ...]
    signatures: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revealed:
    """Client to reducer: my shares, for myself and my neighbours among the dealers in the order of their indices.

    Of a survivor the share of its self seed, of anybody else the share of its wrapping key.
    """

    study_hash: bytes
    round: int
    client: int
    agreement: bytes
    shares: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Reducer to every peer, where each adds up itself: all that the round's one total follows from.

    ``survivors`` and ``quorum`` are those messages as they were told. Of each survivor in order what it committed its
    seed to and its masked vector; of each other dealer its wrapped round keys, and its signature under ``Dealing``
    (``dealt``); of whoever told shares, what it said.
    """

    study_hash: bytes
    round: int
    survivors: bytes = field(repr=False)
    quorum: bytes = field(repr=False)
    commitments: bytes = field(repr=False)
    vectors: bytes = field(repr=False)
    dealt: bytes = field(repr=False)
    wrapped: tuple[bytes, ...] = field(repr=False)
    reveals: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Peer to reducer: what came of this round? Its evidence, or that it was given up."""

    study_hash: bytes
    round: int


Message = (
    RoundOpen
    | SecretOpen
    | Dealing
    | Relay
    | Masked
    | Stored
    | Survivors
    | Signed
    | Quorum
    | Revealed
    | Refused
    | Abort
    | RoundClosed
    | Inquiry
    | TiedSurvivors
    | Evidence
    | Missed
)


def _numbers(values: Sequence[int]) -> bytes:
    return Struct(f"<{len(values)}I").pack(*values)


def model_digest(study_hash: bytes, round: int, model: bytes, blind: bytes = b"") -> bytes:
    """The hash clients bind into what they send: model, study and round; of one that tells of people, with a blind."""
    hidden = (b"tallystick/masked-sum/secret-model", blind) if blind else (b"tallystick/masked-sum/model",)
    return digest(*hidden, study_hash, _U32.pack(round), model)


def dealers_digest(study_hash: bytes, round: int, dealers: Sequence[int]) -> bytes:
    """Names the set whose masks are in a masked vector."""
    return digest(b"tallystick/masked-sum/dealers", study_hash, _U32.pack(round), _numbers(dealers))


def masked_part(dealers: bytes, client: int, start: Start, tied: bytes = b"") -> bytes:
    """What a client signs with its masked vector; ``dealers`` is :func:`dealers_digest`. With the start, in which its
    noise is committed to: of a client set back it says nothing about what is dealt and masked a second time. ``tied``
    is the vector's :func:`sum_digest`, where others than the reducer add it up."""
    tie = (tied,) if tied else ()
    return digest(b"tallystick/masked-sum/masked-for", dealers, _U32.pack(client), start.packed(), *tie)


def sum_digest(commitment: bytes, vector: bytes) -> bytes:
    """Names one masked vector and the one seed whose mask comes off it."""
    return digest(b"tallystick/masked-sum/vector", commitment, vector)


def agreement_digest(
    study_hash: bytes,
    round: int,
    model_hash: bytes,
    dealers: Sequence[int],
    clients: Sequence[int],
    starts: Sequence[Start],
) -> bytes:
    """Names the one thing that is unmasked in a round: which model, whose masks, whose sums, under which starts."""
    return digest(
        b"tallystick/masked-sum/agreement",
        study_hash,
        model_hash,
        _U32.pack(round),
        _numbers(dealers),
        _numbers(clients),
        b"".join(start.packed() for start in starts),
    )


def signed_part(agreement: bytes, client: int) -> bytes:
    """What a survivor signs."""
    return digest(b"tallystick/masked-sum/agree", agreement, _U32.pack(client))


def seed_commitment(study_hash: bytes, round: int, client: int, seed: bytes) -> bytes:
    """Binds a client to its self seed; a seed has 256 random bits, so its hash says nothing about it."""
    return digest(b"tallystick/masked-sum/seed", study_hash, _U32.pack(round), _U32.pack(client), seed)


def key_commitment(study_hash: bytes, round: int, client: int, key: bytes, wrapped: bytes) -> bytes:
    """Binds a client to its wrapping key, of 256 random bits, and to what is under it: AES-GCM alone would open, made
    for it, under two keys."""
    facts = (study_hash, _U32.pack(round), _U32.pack(client))
    return digest(b"tallystick/masked-sum/wrapping-key", *facts, key, wrapped)


def dealt_part(study_hash: bytes, round: int, client: int, commitment: bytes) -> bytes:
    """What a client signs with its dealing; ``commitment`` is :func:`key_commitment`."""
    return digest(b"tallystick/masked-sum/dealt", study_hash, _U32.pack(round), _U32.pack(client), commitment)


def noise_commitment(blind: bytes, study_hash: bytes, round: int, value: bytes, noise: bytes) -> bytes:
    """Binds a noise maker to its draw and hides it; the random ``blind`` is used here and never kept."""
    return digest(b"tallystick/masked-sum/noise", blind, study_hash, _U32.pack(round), value, noise)
