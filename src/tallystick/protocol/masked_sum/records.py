"""What the machines persist, as bytes under a checked label; noise and secrets where they can be erased.

Statements that were made (dealings, masked vectors, survivor sets, aborts) are persisted as the very messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.fields import KINDS, Layout, Record, Varying, end_of
from tallystick.protocol.instructions import NoisySum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseRecord(Record):
    """Secret: a client's one draw of noise for a round; written before any byte of the round leaves."""

    round: int
    noise: NDArray[np.int64] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsRecord(Record):
    """Secret: a client's self seed of a round, and the share of it that it keeps itself. As long as it is there the
    client is in the round; without it its part is over, whatever it is told."""

    round: int
    seed: bytes = field(repr=False)
    share: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DealersRecord(Record):
    """The reducer's: who has dealt in this round, and every dealing as it was sent. There is one set a round."""

    round: int
    dealings: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRecord(Record):
    """The reducer's: the one survivor set of a round as it was told, and the sum of the survivors' masked vectors."""

    round: int
    survivors: bytes
    total: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultRecord(Record):
    """The one result of a round, at the reducer, or at a peer that adds up itself; over nobody if there is none."""

    round: int
    agreement: bytes
    clients: tuple[int, ...]
    total: NDArray[np.int64] = field(repr=False)

    def summed(self, names: Sequence[str], vouchers: bytes = b"", faults: str = "") -> NoisySum:
        """The same with the clients' names, which are the study's."""
        inside = set(self.clients)
        return NoisySum(
            round=self.round,
            total=self.total,
            participants=tuple([names[client] for client in self.clients]),
            dropped=tuple([name for client, name in enumerate(names) if client not in inside]),
            agreement=self.agreement,
            makers=len(self.clients),
            vouchers=vouchers,
            faults=faults,
        )


def _pack_list(values: tuple[bytes, ...]) -> bytes:
    return b"".join(len(one).to_bytes(8, "little") + one for one in values)


def _take_list(raw: bytes, at: int, count: int) -> tuple[tuple[bytes, ...], int]:
    found = []
    for _ in range(count):
        start = end_of(raw, at, 8)
        at = end_of(raw, start, int.from_bytes(raw[at:start], "little"))
        found.append(raw[start:at])
    return tuple(found), at


BLOBS = Varying(_pack_list, _take_list)
_KINDS = KINDS | {"blobs": BLOBS}
_TABLES: dict[bytes, tuple[type[Any], str]] = {
    b"MNOI": (NoiseRecord, "round:u32 noise:length32 noise:vector"),
    b"MSEC": (SecretsRecord, "round:u32 seed:hash share:blob"),
    b"MDEA": (DealersRecord, "round:u32 dealings:length32 dealings:blobs"),
    b"MSUM": (SumRecord, "round:u32 survivors:blob total:blob"),
    b"MRES": (
        ResultRecord,
        "round:u32 agreement:hash clients:length32 total:length32 clients:numbers total:vector",
    ),
}
for _label, (_kind, _table) in _TABLES.items():
    _kind.LABEL, _kind.LAYOUT = _label, Layout(_kind, _table, _KINDS)
