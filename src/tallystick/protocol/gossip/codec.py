"""One message, one encoding: the strict binary codec of gossip.

    magic "TGOS" | version u16 | type u8 | zero u8 | body        all little-endian

Bodies are tables of fields (:mod:`tallystick.protocol.fields`): a decoder never allocates more than the message it was
given, and ``encode(decode(raw)) == raw`` whenever decoding succeeds.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.fields import KINDS, Codec, Fixed, Layout, Varying, end_of, nested
from tallystick.protocol.gossip import messages
from tallystick.protocol.gossip.messages import SHORT_BYTES, Code, Message, Proof, Publication

MAGIC = b"TGOS"
VERSION = 1
PUBLICATION = Layout(Publication, "u32 blob signature")
PROOF = Layout(Proof, "u32 blob signature blob signature")


def _take_digests(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    end = end_of(raw, at, SHORT_BYTES * count)
    return tuple([raw[i : i + SHORT_BYTES] for i in range(at, end, SHORT_BYTES)]), end


def _pack_ages(ages: tuple[int, ...]) -> bytes:
    return struct.pack(f"<{len(ages)}I", *ages)


def _take_ages(raw: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    end = end_of(raw, at, 4 * count)
    return struct.unpack_from(f"<{count}I", raw, at), end


def _take_floats(raw: bytes, at: int, count: int) -> tuple[NDArray[np.float64], int]:
    end = end_of(raw, at, 8 * count)
    return np.frombuffer(raw, dtype="<f8", count=count, offset=at).astype(np.float64), end


_KINDS = KINDS | {
    "flag": Fixed("B", allowed=frozenset((0, 1))),
    "code": Fixed("B", allowed=frozenset(map(int, Code))),
    "ages": Varying(_pack_ages, _take_ages, by="peers"),
    "digests": Varying(b"".join, _take_digests, by="peers"),
    "floats": Varying(lambda vector: vector.astype("<f8").tobytes(), _take_floats),
    "publications": nested(PUBLICATION, many=True),
    "proofs": nested(PROOF, many=True),
}
_TABLES = {
    1: (
        messages.Offer,
        "study_hash:hash answer:flag peers:length32 peers:numbers ages:ages held:blob convicted:blob root:hash",
    ),
    2: (messages.Batch, "study_hash:hash publications:length32 publications:publications"),
    3: (messages.Digests, "study_hash:hash peers:length32 peers:ascending digests:digests"),
    4: (messages.Evidence, "study_hash:hash proofs:length32 proofs:proofs"),
    5: (messages.Walk, "study_hash:hash age:u32 weights:length32 weights:floats"),
    6: (messages.Refused, "hash code text"),
}
_CODEC = Codec(MAGIC, VERSION, "gossip", {n: Layout(kind, table, _KINDS) for n, (kind, table) in _TABLES.items()})


def encode(message: Message) -> bytes:
    """The canonical bytes of a message."""
    return b"".join(_CODEC.parts(message))


def decode(raw: bytes, *, limit: int | None = None) -> Message:
    """The message, or ``RemoteProtocolError``; ``limit`` is the longest the study allows."""
    message: Message = _CODEC.decode(raw, limit)
    return message


def pack_publication(publication: Publication) -> bytes:
    """A publication as it is kept."""
    return b"".join(PUBLICATION.parts(publication))


def unpack_publication(raw: bytes) -> Publication:
    """Inverse of :func:`pack_publication`."""
    found: Publication = PUBLICATION.read(raw, 0)
    return found


def pack_proof(proof: Proof) -> bytes:
    """A proof as it is kept."""
    return b"".join(PROOF.parts(proof))


def unpack_proof(raw: bytes) -> Proof:
    """Inverse of :func:`pack_proof`."""
    found: Proof = PROOF.read(raw, 0)
    return found
