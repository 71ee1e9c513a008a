"""What goes through the pipes between a role and a locked child: a small JSON header, then packed 64-bit numbers.

    frame  = "TSP1" | length of the header (u32) | length of the body (u64) | header | body

The child may be in the hands of whoever wrote the program, so what it says is read as a stranger's word: lengths are
checked before a byte of room is made for them, every key, type, name and shape is checked before it is used, and the
worst that a reply can do is be refused (:class:`BadReply`). Nothing is unpickled, nothing is evaluated.

A state travels exactly: whether a part was a Python or a NumPy number, whole or real, and its shape, so that a program
computes the same bits here as it would beside its caller.
"""

from __future__ import annotations

import json
import keyword
import math
import re
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from struct import Struct
from typing import Any

import numpy as np

from tallystick.algorithms.program import Public, State
from tallystick.core.errors import StudyError
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.core.readable_text import one_line

FRAME = Struct("<4sIQ")
_MAGIC = b"TSP1"
_HEADER_LIMIT = 1 << 20
_MAX_PARTS = 1000
_MAX_DIMENSIONS = 8
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_RULE = re.compile(r"[a-z][a-z-]{0,39}")

# What a part of a state may be -> how its numbers are packed.
_PART: dict[str, tuple[str, Callable[[Any], Any] | None]] = {
    "float": ("<f8", float),
    "int": ("<i8", int),
    "bool": ("<i8", bool),
    "float64": ("<f8", np.float64),
    "int64": ("<i8", np.int64),
    "bool_": ("<i8", np.bool_),
    "floats": ("<f8", None),
    "ints": ("<i8", None),
    "bools": ("<i8", None),
}


TRY_IT = "Try it with `tallystick check-program FILE --study STUDY` and correct it."
_LONGEST_CAUSE = 300


class BadReply(Exception):  # noqa: N818 - never leaves this package: the caller says whose program it was
    """A child said something that the protocol does not allow."""


def pack(header: Mapping[str, Any], length: int = 0) -> bytes:
    """The frame's beginning, for a body of ``length`` bytes that follows it."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return FRAME.pack(_MAGIC, len(text), length) + text


def lengths(raw: bytes, *, body_limit: int, header_limit: int = _HEADER_LIMIT) -> tuple[int, int]:
    """(header, body) lengths of a frame that begins like this, within the limits."""
    magic, header, body = FRAME.unpack(raw)
    if magic != _MAGIC:
        raise BadReply("not a frame")
    if header > header_limit or body > body_limit:
        raise BadReply("more than was asked for")
    return header, body


def header_of(raw: bytes) -> dict[str, Any]:
    """A header's JSON object."""
    try:
        found = read_json(raw, limit=len(raw), constants=True)  # its length was held to a limit by ``lengths``
    except NotReadable:
        raise BadReply("a header that is not JSON") from None
    if not isinstance(found, dict):
        raise BadReply("a header that is not an object")
    return found


# Values


def decode_public(found: Mapping[str, Any]) -> Public:
    """Public facts from the fields of :class:`Public` as JSON; in the child."""
    return Public(**{name: _tuples(value) for name, value in found.items()})


def _tuples(value: Any) -> Any:
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def encode_state(state: State) -> tuple[dict[str, Any], bytes]:
    """What a state is, and its numbers."""
    parts = list(state) if isinstance(state, tuple) else [state]
    fields = getattr(state, "_fields", None)
    kinds, packed = [], []
    for part in parts:
        kind, array = _part(part)
        kinds.append([kind, list(array.shape)])
        packed.append(array.tobytes())
    told = {"tuple": isinstance(state, tuple), "fields": None if fields is None else list(fields), "parts": kinds}
    return told, b"".join(packed)


def _part(part: Any) -> tuple[str, np.ndarray[Any, Any]]:
    if isinstance(part, np.ndarray) and part.dtype.kind in "fiub":
        kind = {"f": "floats", "b": "bools"}.get(part.dtype.kind, "ints")
    elif isinstance(part, (np.floating, np.integer, np.bool_)):
        kind = {"f": "float64", "b": "bool_"}.get(part.dtype.kind, "int64")
    elif type(part) in (bool, int, float):
        kind = type(part).__name__
    else:
        raise StudyError(
            f"a state holds a {type(part).__name__}",
            remedy="A state is a float64 array, a float, or a (named) tuple of those.",
        )
    try:
        return kind, np.ascontiguousarray(part, dtype=_PART[kind][0]).reshape(np.shape(part))
    except OverflowError:
        raise StudyError("a state holds a whole number of more than 64 bits", remedy="Use a float.") from None


def decode_state(told: Any, body: bytes) -> State:
    """Inverse of :func:`encode_state`, from anybody."""
    if not isinstance(told, dict) or told.keys() != {"tuple", "fields", "parts"}:
        raise BadReply("a state without its description")
    kinds, fields = told["parts"], told["fields"]
    if not isinstance(kinds, list) or len(kinds) > _MAX_PARTS or type(told["tuple"]) is not bool:
        raise BadReply("a state of unknown parts")
    if fields is not None and not (told["tuple"] and _are_names(fields) and len(fields) == len(kinds)):
        raise BadReply("a state with impossible names")
    if not told["tuple"] and len(kinds) != 1:
        raise BadReply("a state of no part or several")
    parts, at = [], 0
    for entry in kinds:
        part, at = _decode_part(entry, body, at)
        parts.append(part)
    if at != len(body):
        raise BadReply("a state with numbers left over")
    if not told["tuple"]:
        return parts[0]
    return tuple(parts) if fields is None else _named_tuple(tuple(fields))(*parts)


def _decode_part(entry: Any, body: bytes, at: int) -> tuple[Any, int]:
    if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and entry[0] in _PART):
        raise BadReply("a part of unknown kind")
    kind, shape = entry
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise BadReply("a part of unknown shape")
    if any(type(n) is not int or not 0 <= n < 2**40 for n in shape):
        raise BadReply("a part of impossible shape")
    if math.prod(max(n, 1) for n in shape) >= 2**40:  # NumPy minds a large side even beside one of 0
        raise BadReply("a part of impossible shape")
    count = math.prod(shape)
    dtype, scalar = _PART[kind]
    if at + 8 * count > len(body) or (scalar is not None and shape):
        raise BadReply("a part without its numbers")
    values = np.frombuffer(body, dtype=dtype, count=count, offset=at)
    if scalar is not None:
        return scalar(values[0].item()), at + 8
    return values.astype(np.bool_ if kind == "bools" else dtype[1:]).reshape(shape), at + 8 * count


def _are_names(fields: Any) -> bool:
    if not isinstance(fields, list) or not all(isinstance(f, str) and _NAME.fullmatch(f) for f in fields):
        return False
    return len(set(fields)) == len(fields) and not any(keyword.iskeyword(f) for f in fields)


@lru_cache(maxsize=256)
def _named_tuple(fields: tuple[str, ...]) -> Any:
    return namedtuple("State", fields)


def same_shape(a: State, b: State) -> bool:
    """Whether two states have the same names and shapes."""
    if isinstance(a, tuple) != isinstance(b, tuple) or getattr(a, "_fields", None) != getattr(b, "_fields", None):
        return False
    left, right = (list(s) if isinstance(s, tuple) else [s] for s in (a, b))
    return [np.shape(p) for p in left] == [np.shape(p) for p in right]


# Errors


def failure_of(function: str, error: Exception) -> str:
    """The cause to show when a function of the author's, which saw nothing but public values, raises this."""
    return f"the program's {function} fails: {type(error).__name__}: {error}"[:_LONGEST_CAUSE]


def error_from(told: Any) -> StudyError:
    """The refusal that a child told, in printable words of bounded length. Only of children that saw no record."""
    if not isinstance(told, dict):
        raise BadReply("a refusal without words")
    cause, rule, remedy = told.get("cause"), told.get("rule"), told.get("remedy")
    return StudyError(
        _words(cause) or "the program fails",
        rule=rule if isinstance(rule, str) and _RULE.fullmatch(rule) else None,
        remedy=_words(remedy) or None,
    )


def _words(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    return one_line(text, 600).strip()
