"""What the machines persist, as bytes: fixed little-endian layouts under a checked label.

``NoiseRecord`` and ``SeedRecord`` are secret: kept apart for as long as the round may need them, then erased.
The others say which round it is and what was said in it; they stay, so that a restarted party repeats itself exactly.

A record is written by a party for itself. A damaged one is a
``VerificationError`` at start-up: the party stops rather than guess, and above
all never draws noise anew for a round it may have released.
Statements that were sent (lists, agreements, partials, aborts) are persisted
as the very messages, by the wire codec.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import RemoteProtocolError, VerificationError
from tallystick.protocol.fields import KINDS, Layout, Varying, end_of


def damaged() -> VerificationError:
    """A record is not what was written: this party stops rather than guess."""
    return VerificationError(
        "a stored record of the secure sum is damaged",
        remedy="Restore this party's state from its last good copy; until then it takes part in no round.",
    )


class _Record:
    __slots__ = ()

    def to_bytes(self) -> bytes:
        label, layout = _LAYOUTS[type(self)]
        return b"".join([label, *layout.parts(self)])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        label, layout = _LAYOUTS[cls]
        if raw[:4] != label:
            raise damaged()
        try:
            record: Self = layout.read(raw, 4)
        except RemoteProtocolError:
            raise damaged() from None
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(_Record):
    """The round a server has opened, and the commitment to its one draw of noise."""

    round: int
    deadline_ms: int
    boot: int
    boot_value: bytes
    model_hash: bytes
    noise_commitment: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseRecord(_Record):
    """Secret: a server's one draw of noise for a round; written before any byte of the round leaves."""

    round: int
    noise: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocatorsRecord(_Record):
    """Clients that sent a server two different shares in this round."""

    round: int
    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(_Record):
    """The last round in which a client has shared a sum, and a digest of what it sent."""

    round: int
    model_hash: bytes
    commitments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRecord(_Record):
    """Secret: all randomness of a client's sharing comes from this seed, so the same sum gives the same bytes again."""

    round: int
    seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultRecord(_Record):
    """The aggregator's one result of a round."""

    round: int
    agreement: bytes
    clients: tuple[int, ...]
    total: NDArray[np.int64] = field(repr=False)


def _take_vector(raw: bytes, at: int, count: int) -> tuple[NDArray[np.int64], int]:
    end = end_of(raw, at, 8 * count)
    return np.frombuffer(raw, dtype="<i8", count=count, offset=at).astype(np.int64), end


_KINDS = KINDS | {"vector": Varying(lambda vector: vector.astype("<i8").tobytes(), _take_vector)}
_TABLES: dict[bytes, tuple[type[Any], str]] = {
    b"SRND": (RoundRecord, "u32 u32 u32 16 hash hash"),
    b"SNOI": (NoiseRecord, "round:u32 noise:length32 noise:vector"),
    b"SEQV": (EquivocatorsRecord, "round:u32 clients:length32 clients:numbers"),
    b"CSHR": (ClientRecord, "u32 hash hash"),
    b"CSED": (SeedRecord, "u32 hash"),
    b"ARES": (
        ResultRecord,
        "round:u32 agreement:hash clients:length32 total:length32 clients:numbers total:vector",
    ),
}
_LAYOUTS = {kind: (label, Layout(kind, table, _KINDS)) for label, (kind, table) in _TABLES.items()}
