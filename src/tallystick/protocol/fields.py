"""Tables of fields: one table writes a message or a record and reads it back, strictly.

A :class:`Layout` lists the fields of a type in the order in which they stand. Numbers are little-endian and of fixed
width, hashes, keys and signatures have their fixed length; what varies comes after its length, which may stand further
ahead (:func:`length`). Every length is compared with the bytes that are there before anything is made of it, and
since each value has exactly one encoding, writing what was read gives the same bytes. Whatever else is read is a
``RemoteProtocolError``; what does not fit when it is written is a bug of this side, a ``LocalProtocolError``.

Neighbouring fields of fixed width are packed and unpacked in one step, and bytes are handed on as they are: a vector
costs no more than by hand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, VerificationError
from tallystick.core.readable_text import one_line, what_is_unreadable

HEADER_BYTES = 8
TEXT_BYTES = 500  # a cause, rule or remedy; longer ones are cut when written
_HEADER = struct.Struct("<4sHBB")


def refuse(cause: str, rule: str = "malformed") -> NoReturn:
    """These bytes are not what they should be."""
    raise RemoteProtocolError(
        cause, rule=rule, remedy="The message was dropped; let the sender run the same release of tallystick."
    )


def end_of(raw: bytes, at: int, size: int) -> int:
    """Where a part of ``size`` bytes ends, once it is known to be there."""
    if at + size > len(raw):
        refuse("a message claims more than it holds")
    return at + size


# -- kinds of fields ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number or bytes of fixed width, in :mod:`struct`'s letters; or the length of the field it is named after."""

    format: str
    size: int = 0
    allowed: frozenset[int] | None = None
    is_length: bool = False


@dataclass(frozen=True, slots=True)
class Varying:
    """Whatever else: how it is written, and how it is read from ``raw`` at a place, given the number it goes by.

    That number is the length before it, or the value or length of the field ``by``.
    """

    pack: Callable[[Any], bytes]
    take: Callable[[bytes, int, int], tuple[Any, int]]
    by: str = ""


Kind = Fixed | Varying | tuple[Fixed, Varying]
"""A pair is a length and, at once, what it is the length of."""


def _take_bytes(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = end_of(raw, at, size)
    return raw[at:end], end


def text(
    letter: str,
    *,
    most: int | None = None,
    write: Callable[[str], bytes] = str.encode,
    check: Callable[[str], object] = str,
) -> Varying:
    """UTF-8 after its own length; ``check`` refuses what must not be in it."""
    prefix = struct.Struct(f"<{letter}")

    def pack(value: str) -> bytes:
        raw = write(value)
        return prefix.pack(len(raw)) + raw

    def take(raw: bytes, at: int, _: int) -> tuple[str, int]:
        start = end_of(raw, at, prefix.size)
        (size,) = prefix.unpack_from(raw, at)
        if most is not None and size > most:
            refuse(f"a text is longer than {most} bytes")
        end = end_of(raw, start, size)
        try:
            value = str(raw[start:end], "utf-8")  # a view, too
        except UnicodeDecodeError:
            refuse("a text is not UTF-8")
        check(value)
        return value, end

    return Varying(pack, take)


def _write_line(value: str) -> bytes:
    raw = one_line(value, TEXT_BYTES).encode()  # nothing that could forge a log line
    return raw[:TEXT_BYTES].decode(errors="ignore").encode()


def _check_line(value: str) -> None:
    if what_is_unreadable(value):
        refuse("a text holds control characters", "readable-text")


def _take_numbers(raw: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    end = end_of(raw, at, 4 * count)
    return struct.unpack_from(f"<{count}I", raw, at), end


def _take_ascending(raw: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    values, end = _take_numbers(raw, at, count)
    if any(a >= b for a, b in pairwise(values)):
        refuse("a list is not strictly ascending")
    return values, end


def _pack_numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _take_vector(raw: bytes, at: int, count: int) -> tuple[NDArray[np.int64], int]:
    end = end_of(raw, at, 8 * count)
    return np.frombuffer(raw, dtype="<i8", count=count, offset=at).astype(np.int64), end


def nested(layout: Layout, *, many: bool) -> Varying:
    """A value with a layout of its own, or as many of them as the length before them says."""

    def take(raw: bytes, at: int, count: int) -> tuple[Any, int]:
        if not many:
            return layout.take(raw, at)
        end_of(raw, at, count * layout.least)  # before anything is made of it
        found = []
        for _ in range(count):
            value, at = layout.take(raw, at)
            found.append(value)
        return tuple(found), at

    def pack(value: Any) -> bytes:
        return b"".join([part for one in (value if many else (value,)) for part in layout.parts(one)])

    return Varying(pack, take)


KINDS: dict[str, Kind] = {
    "u8": Fixed("B"),
    "u16": Fixed("H"),
    "u32": Fixed("I"),
    "16": Fixed("16s", 16),
    "hash": Fixed("32s", 32),
    "signature": Fixed("64s", 64),
    "length16": Fixed("H", is_length=True),
    "length32": Fixed("I", is_length=True),
    "blob": (Fixed("Q", is_length=True), Varying(lambda value: value, _take_bytes)),
    "text": text("H", most=TEXT_BYTES, write=_write_line, check=_check_line),
    "numbers": Varying(_pack_numbers, _take_numbers),
    "ascending": Varying(_pack_numbers, _take_ascending),
    "vector": Varying(lambda vector: vector.astype("<i8").tobytes(), _take_vector),
}
"""What every table may name; a layer adds its own."""


# -- tables ------------------------------------------------------------------------------------------------------------


class _Run:
    """Neighbouring fields of fixed width."""

    def __init__(self, named: Sequence[tuple[str, Fixed]]) -> None:
        self.struct = struct.Struct("<" + "".join(kind.format for _, kind in named))
        self.names = [name for name, _ in named]
        self._read = attrgetter(*self.names, "__class__")  # with a second name it gives a tuple, always
        self._lengths = [i for i, (_, kind) in enumerate(named) if kind.is_length]
        self._sizes = [(i, name, kind.size) for i, (name, kind) in enumerate(named) if kind.size]
        self._allowed = [(i, name, kind.allowed) for i, (name, kind) in enumerate(named) if kind.allowed is not None]

    def pack(self, message: Any) -> bytes:
        *values, _ = self._read(message)
        for i in self._lengths:
            values[i] = len(values[i])
        for i, name, size in self._sizes:  # a wrong length would shift everything after it
            if len(values[i]) != size:
                raise LocalProtocolError(f"{type(message).__name__}.{name} must be {size} bytes long")
        for i, name, allowed in self._allowed:
            if values[i] not in allowed:
                raise LocalProtocolError(f"{values[i]} is no {name} of a {type(message).__name__}")
        try:
            return self.struct.pack(*values)
        except struct.error as error:
            raise LocalProtocolError(f"a number has no place in a {type(message).__name__}: {error}") from None

    def take(self, raw: bytes, at: int, values: dict[str, Any]) -> int:
        if at + self.struct.size > len(raw):
            refuse("a message is truncated")
        found = self.struct.unpack_from(raw, at)
        for i, name, allowed in self._allowed:
            if found[i] not in allowed:
                refuse(f"{name} {found[i]} is unknown here")
        values.update(zip(self.names, found))
        return at + self.struct.size


class Layout:
    """The fields of one type: kinds in the order of its own fields, or ``name:kind`` where they stand in another.

    A field of varying length may be named twice: its length first, itself further on.
    """

    def __init__(self, kind: type[Any], table: str, kinds: Mapping[str, Kind] = KINDS) -> None:
        self.kind = kind
        if ":" not in table:
            table = " ".join(f"{own.name}:{entry}" for own, entry in zip(fields(kind), table.split(), strict=True))
        named = [(name, kinds[key]) for name, key in (entry.split(":") for entry in table.split())]
        flat = [(name, part) for name, found in named for part in (found if isinstance(found, tuple) else (found,))]
        self._steps: list[tuple[str, _Run | Varying]] = []
        for is_fixed, group in groupby(flat, key=lambda field: isinstance(field[1], Fixed)):
            some: list[Any] = list(group)
            self._steps += [("", _Run(some))] if is_fixed else some
        self.least = sum(step.struct.size for _, step in self._steps if isinstance(step, _Run))

    def parts(self, message: Any) -> list[bytes]:
        """The bytes of a value, not yet joined."""
        return [
            step.pack(message) if isinstance(step, _Run) else step.pack(getattr(message, name))
            for name, step in self._steps
        ]

    def values(self, raw: bytes, at: int, *, before: str | None = None) -> tuple[dict[str, Any], int]:
        """The fields from ``at`` on, up to the one named ``before``, of which only the length is told."""
        values: dict[str, Any] = {}
        for name, step in self._steps:
            if isinstance(step, _Run):
                at = step.take(raw, at, values)
            elif name == before:
                break
            else:
                number = values.get(step.by or name, 0)
                values[name], at = step.take(raw, at, number if isinstance(number, int) else len(number))
        return values, at

    def take(self, raw: bytes, at: int) -> tuple[Any, int]:
        """The value that begins at ``at``, and where it ends."""
        values, end = self.values(raw, at)
        return self.kind(**values), end

    def read(self, raw: bytes, at: int) -> Any:
        """The value from ``at`` to the end."""
        value, end = self.take(raw, at)
        if end != len(raw):
            refuse("a message has the wrong length")
        return value


class Codec:
    """The messages of one layer, by the number of their type, which is never used again for another:

    magic (4) | version u16 | type u8 | zero u8 | fields
    """

    def __init__(self, magic: bytes, version: int, layer: str, layouts: Mapping[int, Layout]) -> None:
        self.magic, self.version, self.layer, self.layouts = magic, version, layer, layouts
        self._headers = {layout.kind: (self.header(number), layout) for number, layout in layouts.items()}

    def header(self, number: int) -> bytes:
        """What a message of this type begins with."""
        return _HEADER.pack(self.magic, self.version, number, 0)

    def parts(self, message: Any) -> list[bytes]:
        """The canonical bytes of a message, not yet joined: a vector is not copied."""
        header, layout = self._headers[type(message)]
        return [header, *layout.parts(message)]

    def number_of(self, raw: bytes, limit: int | None) -> int:
        """The type of a message whose header is right and which is no longer than ``limit``."""
        if limit is not None and len(raw) > limit:
            refuse(f"a message of {len(raw)} bytes is above the limit of {limit}", "too-long")
        if len(raw) < HEADER_BYTES:
            refuse("a message is shorter than its header")
        magic, version, number, zero = _HEADER.unpack_from(raw)
        if magic != self.magic:
            refuse(f"this is not a {self.layer} message")
        if version != self.version:
            refuse(f"the sender speaks {self.layer} version {version}, this is version {self.version}", "other-version")
        if number not in self.layouts or zero:
            refuse(f"message type {number} is unknown", "other-version")
        return int(number)

    def decode(self, raw: bytes, limit: int | None = None) -> Any:
        """The message, or ``RemoteProtocolError``."""
        return self.layouts[self.number_of(raw, limit)].read(raw, HEADER_BYTES)


# -- records -----------------------------------------------------------------------------------------------------------


def damaged() -> VerificationError:
    """A record is not what was written: this party stops rather than guess."""
    return VerificationError(
        "a stored record is damaged",
        remedy="Restore this party's state from its last good copy; until then it takes part in no round.",
    )


class Record:
    """What a party keeps for itself: its type's label, then its fields."""

    __slots__ = ()
    LABEL: ClassVar[bytes]
    LAYOUT: ClassVar[Layout]

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return b"".join([self.LABEL, *self.LAYOUT.parts(self)])

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """As it was kept, or a ``VerificationError``."""
        if raw[:4] != cls.LABEL:
            raise damaged()
        try:
            record: Self = cls.LAYOUT.read(raw, 4)
        except RemoteProtocolError:
            raise damaged() from None
        return record
