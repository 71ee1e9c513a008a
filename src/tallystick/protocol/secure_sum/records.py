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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.fields import Layout, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(Record):
    """The round a server has opened, and the commitment to its one draw of noise."""

    round: int
    deadline_ms: int
    boot: int
    boot_value: bytes
    model_hash: bytes
    noise_commitment: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseRecord(Record):
    """Secret: a server's one draw of noise for a round; written before any byte of the round leaves."""

    round: int
    noise: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawRecord(Record):
    """The round whose total is drawn from instead of released, once that has begun: it is never begun again."""

    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocatorsRecord(Record):
    """Clients that sent a server two different shares in this round."""

    round: int
    clients: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord(Record):
    """The last round in which a client has shared a sum, and a digest of what it sent."""

    round: int
    model_hash: bytes
    commitments: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRecord(Record):
    """Secret: all randomness of a client's sharing comes from this seed, so the same sum gives the same bytes again."""

    round: int
    seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultRecord(Record):
    """The aggregator's one result of a round."""

    round: int
    agreement: bytes
    clients: tuple[int, ...]
    total: NDArray[np.int64] = field(repr=False)


_TABLES: dict[bytes, tuple[type[Any], str]] = {
    b"SRND": (RoundRecord, "u32 u32 u32 16 hash hash"),
    b"SNOI": (NoiseRecord, "round:u32 noise:length32 noise:vector"),
    b"SDRW": (DrawRecord, "u32"),
    b"SEQV": (EquivocatorsRecord, "round:u32 clients:length32 clients:numbers"),
    b"CSHR": (ClientRecord, "u32 hash hash"),
    b"CSED": (SeedRecord, "u32 hash"),
    b"ARES": (
        ResultRecord,
        "round:u32 agreement:hash clients:length32 total:length32 clients:numbers total:vector",
    ),
}
for _label, (_kind, _table) in _TABLES.items():
    _kind.LABEL, _kind.LAYOUT = _label, Layout(_kind, _table)
