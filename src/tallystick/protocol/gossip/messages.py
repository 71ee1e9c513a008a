"""What peers say to each other: who was heard of lately, what each holds, perturbed records, and models on a walk.

One frozen type per message; ``codec`` gives each exactly one encoding. Peers travel as their index in the study's
roster. Every message names the study by its session (which binds roster and study keys), so a peer of another study, or
of another roster of this one, is refused at its first word. A :class:`Publication` is signed for the *study*: it stays
the same one, whatever roster an attempt at the study has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tallystick.core.identifiers import digest

SHORT_BYTES = 16
"""Of a digest in a list: whoever wants two records with one digest has 2^64 to try."""
_U32 = Struct("<I")


@unique
class Code(IntEnum):
    """Why something was refused; the number is what travels."""

    MALFORMED = 1
    OTHER_VERSION = 2
    WRONG_STUDY = 3
    WRONG_PARTY = 4
    WRONG_SHAPE = 5
    BAD_SIGNATURE = 6
    BAD_RECORD = 7
    BAD_MODEL = 8
    EQUIVOCATION = 9
    NOT_EXPECTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One half of an exchange: whom I have heard of, and how long ago; whose records I hold; who has published two.

    ``held`` and ``convicted`` are bit maps over the roster; ``root`` names all that is held, so that two peers which
    hold records of the same peers find out whether they are the same records. An ``answer`` is not answered.
    """

    study_hash: bytes
    answer: int
    peers: tuple[int, ...]
    ages: tuple[int, ...]
    held: bytes = field(repr=False)
    convicted: bytes = field(repr=False)
    root: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """All perturbed records of one peer, as one body, signed by it for this study. There is one of each peer."""

    peer: int
    body: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that the other one lacks; each counts by its own signature, whoever passes it on."""

    study_hash: bytes
    publications: tuple[Publication, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """We hold records of the same peers, and they are not the same: these are mine, by the digests of their bodies."""

    study_hash: bytes
    peers: tuple[int, ...]
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Two different bodies that one peer has signed for one study: neither counts, and everybody can see why."""

    peer: int
    first: bytes = field(repr=False)
    first_signature: bytes = field(repr=False)
    second: bytes = field(repr=False)
    second_signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Who has published two."""

    study_hash: bytes
    proofs: tuple[Proof, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """A model that has been at ``age`` peers, on its way to the next one."""

    study_hash: bytes
    age: int
    weights: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a message was not taken. Never answered."""

    study_hash: bytes
    code: Code
    cause: str


Message = Offer | Batch | Digests | Evidence | Walk | Refused


def publication_digest(study: bytes, name: str, body: bytes) -> bytes:
    """What a peer signs when it publishes: its records, bound to itself and to the study."""
    return digest(b"tallystick/gossip/publication", study, name.encode(), body)


def root_of(held: list[tuple[int, bytes]]) -> bytes:
    """Names a set of held records; each is an index and the digest of what was signed."""
    return digest(b"tallystick/gossip/held", *(_U32.pack(peer) + one for peer, one in sorted(held)))


def bit_map(indices: set[int] | frozenset[int], size: int) -> bytes:
    """A set of indices below ``size``, one bit each."""
    bits = np.zeros(size, dtype=np.uint8)
    bits[sorted(indices)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def indices_of(bits: bytes, size: int) -> frozenset[int] | None:
    """Inverse of :func:`bit_map`; None if it is none of this size."""
    if len(bits) != (size + 7) // 8:
        return None
    found = np.unpackbits(np.frombuffer(bits, dtype=np.uint8), bitorder="little")
    if found[size:].any():
        return None
    return frozenset(np.flatnonzero(found[:size]).tolist())
