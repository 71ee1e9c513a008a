"""What a peer publishes of one record: a class or none, and a few whole numbers. Public from then on.

The bytes are canonical: a shape (from the plan) says how many numbers there are and in which range, and no other bytes
are read. A record of subset selection takes one or two bytes, one of added noise 8 for every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest

_IDENTITY = b"tallystick/local-record/1"
IDENTITY_BYTES = 32


def record_identity(study: bytes, peer: str, number: int = 0) -> bytes:
    """The public id of a peer's record: what seeds its candidates. Nothing of the record is in it."""
    return digest(_IDENTITY, study, peer.encode(), number.to_bytes(8, "little"))


def record_identities(study: bytes, peer: str, count: int) -> list[bytes]:
    """Of a peer's records, in their order."""
    return [record_identity(study, peer, number) for number in range(count)]


@dataclass(frozen=True, kw_only=True)
class RecordShape:
    """How many numbers a published record has, and their range; ``classes`` is 0 where no class is published."""

    classes: int
    values: int
    least: int
    most: int

    @property
    def width(self) -> int:
        """Bytes of one number."""
        if self.least < 0:
            return 8
        return max(1, (self.most.bit_length() + 7) // 8)

    @property
    def label_width(self) -> int:
        """Bytes of the class."""
        return 0 if self.classes == 0 else 1 if self.classes <= 256 else 2

    @property
    def size(self) -> int:
        """Bytes of a record: always so many."""
        return self.label_width + self.values * self.width


@dataclass(frozen=True)
class PerturbedRecord:
    """One record as it was published. ``label`` is 0 where the shape has no class."""

    label: int
    values: tuple[int, ...]

    def to_bytes(self, shape: RecordShape) -> bytes:
        """The canonical bytes."""
        if not self.fits(shape):
            raise LocalProtocolError("a perturbed record is not of its study's shape")
        signed = shape.least < 0
        label = self.label.to_bytes(shape.label_width, "little")
        return label + b"".join(v.to_bytes(shape.width, "little", signed=signed) for v in self.values)

    def fits(self, shape: RecordShape) -> bool:
        """Whether it is a record of this shape."""
        named = 0 <= self.label < max(1, shape.classes)
        ranged = all(shape.least <= v <= shape.most for v in self.values)
        return named and ranged and len(self.values) == shape.values

    @classmethod
    def from_bytes(cls, raw: bytes, shape: RecordShape) -> PerturbedRecord:
        """Inverse of :meth:`to_bytes`, of bytes that anybody may have sent."""
        if len(raw) != shape.size:
            raise RemoteProtocolError(
                f"a perturbed record has {len(raw)} bytes where the study's have {shape.size}",
                rule="perturbed-record",
                remedy="It is not kept; the peer runs another study or version.",
            )
        start, width, signed = shape.label_width, shape.width, shape.least < 0
        found = cls(
            label=int.from_bytes(raw[:start], "little"),
            values=tuple(
                int.from_bytes(raw[at : at + width], "little", signed=signed) for at in range(start, len(raw), width)
            ),
        )
        if not found.fits(shape):
            raise RemoteProtocolError(
                "a perturbed record holds a class or a number that the study does not have",
                rule="perturbed-record",
                remedy="It is not kept: no randomiser of this study published it.",
            )
        return found


@dataclass(frozen=True, eq=False)
class PerturbedBatch:
    """Many published records as arrays, in the order of their identities."""

    labels: NDArray[np.int64]
    values: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def records(self) -> list[PerturbedRecord]:
        """One by one."""
        return [PerturbedRecord(int(y), tuple(row.tolist())) for y, row in zip(self.labels, self.values)]

    @classmethod
    def of(cls, records: Sequence[PerturbedRecord], shape: RecordShape) -> PerturbedBatch:
        """From single records."""
        labels = np.array([r.label for r in records], np.int64)
        values = np.array([r.values for r in records], np.int64).reshape(len(records), shape.values)
        return cls(labels, values)
