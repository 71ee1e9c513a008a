"""Writes the scalar form of a map, statement by statement: slots, regions, loops over all elements of a shape."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from tallystick.algorithms.user_programs.map_compiler.code import (
    Const,
    Expr,
    If,
    Jump,
    Kind,
    Load,
    Loop,
    Op,
    Region,
    Role,
    Set,
    Slot,
    Statement,
    Store,
)
from tallystick.algorithms.user_programs.map_compiler.values import Number, Several, Value, View

MOST_WORDS = 2**22
"""Numbers that a map's arrays may hold together: 32 MiB."""
MOST_PARTS = 20_000
"""Statements, numbers and arrays of a translated map: what bounds the time that compiling takes."""

Index = tuple[Expr, ...]


class Refused(Exception):  # noqa: N818 - becomes a finding with a place in the author's file
    """What does not fit, at which node."""

    def __init__(self, node: ast.AST, rule: str, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.node, self.rule, self.cause, self.remedy = node, rule, cause, remedy


class TooLong(Exception):  # noqa: N818 - a refusal, at the function as a whole
    """The map has more parts than are compiled in a reasonable time."""


def refuse(node: ast.AST, rule: str, cause: str, remedy: str) -> NoReturn:
    raise Refused(node, rule, cause, remedy)


def integer(value: int) -> Const:
    return Const(Kind.INT, value)


def plus(a: Expr, b: Expr) -> Expr:
    """a + b of whole numbers (indices), folded where both are known."""
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(int(a.value) + int(b.value))
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    return Op(Kind.INT, "add", (a, b))


def minus(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(int(a.value) - int(b.value))
    return Op(Kind.INT, "sub", (a, b))


def times(a: Expr, factor: int) -> Expr:
    if isinstance(a, Const):
        return integer(int(a.value) * factor)
    return a if factor == 1 else Op(Kind.INT, "mul", (a, integer(factor)))


def and_(a: Expr, b: Expr) -> Expr:
    return Op(Kind.BOOL, "and", (a, b))


def or_(a: Expr, b: Expr) -> Expr:
    return Op(Kind.BOOL, "or", (a, b))


def convert(value: Expr, kind: Kind) -> Expr:
    """The same number as another kind. A float never becomes an int here: that is int(), which checks its range."""
    if value.kind == kind:
        return value
    if kind == Kind.INT and value.kind == Kind.FLOAT:
        raise AssertionError("a float converted without a check")  # pragma: no cover
    if isinstance(value, Const):
        return Const(kind, {Kind.FLOAT: float, Kind.INT: int, Kind.BOOL: bool}[kind](value.value))
    if kind == Kind.BOOL:
        return Op(Kind.BOOL, "ne", (value, Const(value.kind, 0)))
    return Op(kind, "to_float" if kind == Kind.FLOAT else "to_int", (value,))


def op_of(kind: Kind, name: str, *args: Expr) -> Op:
    """An operation whose arguments and result are all of one kind."""
    return Op(kind, name, tuple(convert(a, kind) for a in args))


class Builder:
    """Collects statements; ``add`` appends to the block that is open."""

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.slots: list[Kind] = []
        self._open: list[list[Statement]] = [[]]
        self._constants: dict[tuple[Kind, str], int] = {}
        self._words = self._parts = 0

    @property
    def body(self) -> tuple[Statement, ...]:
        return tuple(self._open[0])

    def add(self, statement: Statement) -> None:
        self._count()
        self._open[-1].append(statement)

    def _count(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise TooLong

    @contextmanager
    def block(self) -> Iterator[list[Statement]]:
        """Statements added inside go into the block that is yielded."""
        inner: list[Statement] = []
        self._open.append(inner)
        try:
            yield inner
        finally:
            self._open.pop()

    def slot(self, kind: Kind) -> Slot:
        self._count()
        self.slots.append(kind)
        return Slot(kind, len(self.slots) - 1)

    def region(self, node: ast.AST, words: int, kind: Kind, role: Role, values: tuple[float, ...] = ()) -> int:
        self._count()
        region = Region(number=len(self.regions), words=words, kind=kind, role=role, values=values)
        self.regions.append(region)
        self._words += words
        if self._words > MOST_WORDS:
            remedy = f"Keep them below {MOST_WORDS:,} numbers together."
            refuse(node, "array-size", "the arrays of map_in_client are too large", remedy)
        return region.number

    def hold(self, code: Expr) -> Const | Slot:
        """The number, computed once: as itself if it is one already, else in a slot."""
        return code if isinstance(code, (Const, Slot)) else self.copy(code)

    def copy(self, code: Expr) -> Slot:
        """A slot of its own that starts with this value."""
        slot = self.slot(code.kind)
        self.add(Set(slot, code))
        return slot

    def require(self, test: Expr) -> None:
        """The record fails unless ``test`` holds."""
        self.add(If(test, (), (Jump.FAIL,)))

    def each(self, shape: Sequence[int], work: Callable[[Index], None]) -> None:
        """``work`` once for every index of ``shape``, in row-major order."""

        def nest(done: Index, left: Sequence[int]) -> None:
            if not left:
                work(done)
                return
            counter = self.slot(Kind.INT)
            with self.block() as inner:
                nest((*done, counter), left[1:])
            self.add(Loop(counter, integer(left[0]), left[0], tuple(inner)))

        if 0 not in shape:
            nest((), shape)

    # -- arrays -------------------------------------------------------------------------------------------------------

    def array(self, node: ast.AST, shape: tuple[int, ...], kind: Kind) -> View:
        """A new array of the map's own; its words are unspecified until they are written."""
        if max(shape, default=0) > MOST_WORDS:  # also of an array without elements: lengths are numbers, too
            refuse(node, "array-size", "an array is too long", f"Keep it below {MOST_WORDS:,} numbers.")
        return View.of_region(self.region(node, math.prod(shape), kind, "own"), shape, kind)

    def filled(self, node: ast.AST, shape: tuple[int, ...], kind: Kind, element: Callable[[Index], Expr]) -> View:
        """A new array whose element at each index is what ``element`` says."""
        out = self.array(node, shape, kind)
        self.each(shape, lambda at: self.put(out, at, element(at)))
        return out

    def copied_into(self, target: View, source: View) -> None:
        """Every element of ``source`` into ``target``, which has its shape."""
        self.each(target.shape, lambda at: self.put(target, at, self.get(source, at)))

    def copy_of(self, node: ast.AST, source: View) -> View:
        """A new array with the same elements."""
        return self.filled(node, source.shape, source.kind, lambda at: self.get(source, at))

    def get(self, view: View, at: Index) -> Expr:
        return Load(view.kind, view.region, _address(view, at))

    def put(self, view: View, at: Index, value: Expr) -> None:
        self.add(Store(view.region, _address(view, at), convert(value, view.kind)))

    def constants(self, node: ast.AST, values: tuple[float, ...], shape: tuple[int, ...], kind: Kind) -> View:
        """A read-only array of known numbers, shared by all who ask for the same."""
        key = kind, repr(values)  # not the numbers themselves: -0.0 == 0.0
        if key not in self._constants:
            self._constants[key] = self.region(node, len(values), kind, "constant", values)
        return View.of_region(self._constants[key], shape, kind, frozenset({"a constant"}))

    def as_array(self, node: ast.AST, value: Value) -> View | None:
        """A tuple of numbers (or of tuples of as many numbers each) as an array; an array as itself; else None."""
        if not isinstance(value, Several):
            return value if isinstance(value, View) else None
        flat, shape = _rectangle(value)
        if shape is None:
            return None
        kind = max((n.kind for n in flat), default=Kind.FLOAT)
        if flat and all(isinstance(n.code, Const) for n in flat):
            numbers = tuple(convert(n.code, kind).value for n in flat)  # type: ignore[union-attr]
            return self.constants(node, numbers, shape, kind)
        out = self.array(node, shape, kind)
        for place, number in enumerate(flat):
            self.add(Store(out.region, integer(place), convert(number.code, kind)))
        return out


def _rectangle(value: Several) -> tuple[list[Number], tuple[int, ...] | None]:
    if all(isinstance(item, Number) for item in value.items):
        return [item for item in value.items if isinstance(item, Number)], (len(value.items),)
    rows = [item for item in value.items if isinstance(item, Several)]
    lengths = {len(row.items) for row in rows}
    flat = [n for row in rows for n in row.items if isinstance(n, Number)]
    if len(rows) != len(value.items) or len(lengths) != 1 or len(flat) != len(rows) * min(lengths):
        return [], None
    return flat, (len(rows), min(lengths))


def _address(view: View, at: Index) -> Expr:
    place = view.base
    for index, stride in zip(at, view.strides, strict=True):
        place = plus(place, times(index, stride))
    return place
