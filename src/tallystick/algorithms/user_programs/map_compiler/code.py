"""What a map becomes before it is machine code: numbers, loops that end, and places in one memory.

A map in this form has no arrays and no objects. It has *slots* (one number each), *regions* (so many words of one
memory, side by side with guard areas between them), and five statements. Two properties hold whatever a translation
writes here, because the emitter (:mod:`.llvm`) checks them for every statement by itself:

* a :class:`Load` or :class:`Store` outside its region fails the record; it never reads or writes elsewhere;
* a :class:`Loop` that would run more often than ``most`` fails the record; so :func:`steps` bounds the work.

A record that fails adds zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal


def names(words: str) -> frozenset[str]:
    """A set of names, written side by side."""
    return frozenset(words.split())


class Kind(IntEnum):
    """Of a number; a larger one can hold all of a smaller one."""

    BOOL = 0
    INT = 1
    FLOAT = 2


Role = Literal["record", "state", "constant", "own", "result"]


@dataclass(frozen=True, kw_only=True)
class Region:
    """``words`` numbers of one kind, at ``number`` in the order of all regions. Only "own" and "result" are written."""

    number: int
    words: int
    kind: Kind
    role: Role
    values: tuple[float, ...] = ()
    """Of a constant."""


@dataclass(frozen=True)
class Const:
    """A number."""

    kind: Kind
    value: float


@dataclass(frozen=True)
class Slot:
    """A number that changes."""

    kind: Kind
    number: int


@dataclass(frozen=True)
class Load:
    """A word of a region."""

    kind: Kind
    region: int
    index: Expr


@dataclass(frozen=True)
class Op:
    """An operation on numbers; its arguments have the kinds it needs."""

    kind: Kind
    name: str
    args: tuple[Expr, ...]


Expr = Const | Slot | Load | Op


@dataclass(frozen=True)
class Set:
    """``slot = value``"""

    slot: Slot
    value: Expr


@dataclass(frozen=True)
class Store:
    """``region[index] = value``"""

    region: int
    index: Expr
    value: Expr


@dataclass(frozen=True)
class Loop:
    """``slot`` counts from 0 to ``count`` - 1; a count above ``most`` fails the record."""

    slot: Slot
    count: Expr
    most: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    """One of two blocks."""

    test: Expr
    then: tuple[Statement, ...]
    other: tuple[Statement, ...] = ()


class Jump(Enum):
    """What ends a block."""

    FAIL = "this record adds zeros"
    BREAK = "leave the innermost loop"
    CONTINUE = "the innermost loop's next turn"
    RETURN = "the result's region holds the vector"


Statement = Set | Store | Loop | If | Jump


@dataclass(frozen=True, kw_only=True)
class ScalarMap:
    """A whole map: its regions in order, the kinds of its slots, its statements, and how long its vector is."""

    regions: tuple[Region, ...]
    slots: tuple[Kind, ...]
    body: tuple[Statement, ...]
    size: int
    state: tuple[int, ...]
    """The region of each part of the state, in order."""
    steps: int = field(default=0)


_CALL = 40
_COSTS = {"call:tgamma": 300, "call:pow": 100, "call:lgamma": 100, "call:atan2": 100, "call:fmod": 200}
_COSTS |= dict.fromkeys(("call:sin", "call:cos", "call:tan"), 60)
"""In simple operations of some 3 ns, for the slowest arguments that were found (huge, denormal, near a pole)."""
_FLOAT_FLOOR = 200


def steps(body: tuple[Statement, ...]) -> int:
    """The most operations that one record can cost: loops count with their largest number of turns."""
    return sum(_cost(statement) for statement in body)


def _cost(statement: Statement) -> int:
    match statement:
        case Set(value=value):
            return 1 + _work(value)
        case Store(index=index, value=value):
            return 1 + _work(index) + _work(value)
        case Loop(count=count, most=most, body=body):
            return 1 + _work(count) + most * (1 + steps(body))
        case If(test=test, then=then, other=other):
            return 1 + _work(test) + max(steps(then), steps(other))
        case _:
            return 1


def _work(expression: Expr) -> int:
    match expression:
        case Load(index=index):
            return 1 + _work(index)
        case Op(kind=kind, name=name, args=args):
            own = _COSTS.get(name, _CALL) if name.startswith("call:") else 1
            if kind == Kind.FLOAT and name in ("floordiv", "mod"):
                own = _FLOAT_FLOOR
            return own + sum(_work(a) for a in args)
        case _:
            return 0
