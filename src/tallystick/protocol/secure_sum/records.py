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
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import VerificationError

__all__ = ["ClientRecord", "EquivocatorsRecord", "NoiseRecord", "ResultRecord", "RoundRecord", "SeedRecord", "damaged"]

_ROUND = Struct("<4sIII16s32s32s")
_NOISE = Struct("<4sII")
_CLIENT = Struct("<4sI32s32s")
_SEED = Struct("<4sI32s")
_LIST = Struct("<4sII")
_RESULT = Struct("<4sI32sII")


def damaged() -> VerificationError:
    """A record is not what was written: this party stops rather than guess."""
    return VerificationError(
        "a stored record of the secure sum is damaged",
        remedy="Restore this party's state from its last good copy; until then it takes part in no round.",
    )


def _check(raw: bytes, label: bytes, least: int) -> None:
    if len(raw) < least or raw[:4] != label:
        raise damaged()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """The round a server has opened, and the commitment to its one draw of noise."""

    round: int
    deadline_ms: int
    boot: int
    boot_value: bytes
    model_hash: bytes
    noise_commitment: bytes

    def to_bytes(self) -> bytes:
        facts = (self.round, self.deadline_ms, self.boot, self.boot_value, self.model_hash, self.noise_commitment)
        return _ROUND.pack(b"SRND", *facts)

    @classmethod
    def from_bytes(cls, raw: bytes) -> RoundRecord:
        _check(raw, b"SRND", _ROUND.size)
        if len(raw) != _ROUND.size:
            raise damaged()
        _, round, deadline_ms, boot, value, model_hash, committed = _ROUND.unpack(raw)
        return cls(
            round=round,
            deadline_ms=deadline_ms,
            boot=boot,
            boot_value=value,
            model_hash=model_hash,
            noise_commitment=committed,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoiseRecord:
    """Secret: a server's one draw of noise for a round; written before any byte of the round leaves."""

    round: int
    noise: NDArray[np.int64] = field(repr=False)

    def to_bytes(self) -> bytes:
        return _NOISE.pack(b"SNOI", self.round, len(self.noise)) + self.noise.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> NoiseRecord:
        _check(raw, b"SNOI", _NOISE.size)
        _, round, size = _NOISE.unpack_from(raw)
        if len(raw) != _NOISE.size + 8 * size:
            raise damaged()
        return cls(round=round, noise=np.frombuffer(raw, dtype="<i8", offset=_NOISE.size).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class EquivocatorsRecord:
    """Clients that sent a server two different shares in this round."""

    round: int
    clients: tuple[int, ...]

    def to_bytes(self) -> bytes:
        n = len(self.clients)
        return _LIST.pack(b"SEQV", self.round, n) + Struct(f"<{n}I").pack(*self.clients)

    @classmethod
    def from_bytes(cls, raw: bytes) -> EquivocatorsRecord:
        _check(raw, b"SEQV", _LIST.size)
        _, round, n = _LIST.unpack_from(raw)
        if len(raw) != _LIST.size + 4 * n:
            raise damaged()
        return cls(round=round, clients=Struct(f"<{n}I").unpack_from(raw, _LIST.size))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecord:
    """The last round in which a client has shared a sum, and a digest of what it sent."""

    round: int
    model_hash: bytes
    commitments: bytes

    def to_bytes(self) -> bytes:
        return _CLIENT.pack(b"CSHR", self.round, self.model_hash, self.commitments)

    @classmethod
    def from_bytes(cls, raw: bytes) -> ClientRecord:
        _check(raw, b"CSHR", _CLIENT.size)
        if len(raw) != _CLIENT.size:
            raise damaged()
        _, round, model_hash, commitments = _CLIENT.unpack(raw)
        return cls(round=round, model_hash=model_hash, commitments=commitments)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRecord:
    """Secret: all randomness of a client's sharing comes from this seed, so the same sum gives the same bytes again."""

    round: int
    seed: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        return _SEED.pack(b"CSED", self.round, self.seed)

    @classmethod
    def from_bytes(cls, raw: bytes) -> SeedRecord:
        _check(raw, b"CSED", _SEED.size)
        if len(raw) != _SEED.size:
            raise damaged()
        _, round, seed = _SEED.unpack(raw)
        return cls(round=round, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResultRecord:
    """The aggregator's one result of a round."""

    round: int
    agreement: bytes
    clients: tuple[int, ...]
    total: NDArray[np.int64] = field(repr=False)

    def to_bytes(self) -> bytes:
        n, d = len(self.clients), len(self.total)
        head = _RESULT.pack(b"ARES", self.round, self.agreement, n, d)
        return head + Struct(f"<{n}I").pack(*self.clients) + self.total.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> ResultRecord:
        _check(raw, b"ARES", _RESULT.size)
        _, round, agreement, n, d = _RESULT.unpack_from(raw)
        lists = Struct(f"<{n}I")
        if len(raw) != _RESULT.size + lists.size + 8 * d:
            raise damaged()
        clients = lists.unpack_from(raw, _RESULT.size)
        total = np.frombuffer(raw, dtype="<i8", offset=_RESULT.size + lists.size).astype(np.int64)
        return cls(round=round, agreement=agreement, clients=clients, total=total)
