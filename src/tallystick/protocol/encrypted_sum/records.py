"""What the machines persist, as bytes under a checked label. ``NoiseRecord`` is secret, and so is the data user's key.

Statements that were sent (sets, countersignatures, sums' digests, aborts) are persisted as the very messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.boots import Start
from tallystick.protocol.fields import KINDS, Layout, Record, nested


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord(Record):
    """The round a noise maker has opened, and the commitment to its one draw of noise."""

    round: int
    deadline_ms: int
    model_hash: bytes
    start: Start


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseRecord(Record):
    """Secret: one draw of noise for a round; written before any byte of the round leaves."""

    round: int
    noise: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord(Record):
    """The last round in which an owner has encrypted a sum, and at which model."""

    round: int
    model_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultRecord(Record):
    """The data user's one result of a round."""

    round: int
    agreement: bytes
    clients: tuple[int, ...]
    total: NDArray[np.int64] = field(repr=False)


_KINDS = KINDS | {"start": nested(Layout(Start, "u32 16 hash"), many=False)}
_TABLES: dict[bytes, tuple[type[Any], str]] = {
    b"ERND": (RoundRecord, "u32 u32 hash start"),
    b"ENOI": (NoiseRecord, "round:u32 noise:length32 noise:vector"),
    b"EOWN": (OwnerRecord, "u32 hash"),
    b"ERES": (
        ResultRecord,
        "round:u32 agreement:hash clients:length32 total:length32 clients:numbers total:vector",
    ),
}
for _label, (_kind, _table) in _TABLES.items():
    _kind.LABEL, _kind.LAYOUT = _label, Layout(_kind, _table, _KINDS)
