"""Functions over whole arrays: sums, products, places. Everything is added up in index order."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence

from tallystick.algorithms.user_programs.map_compiler.builder import (
    Builder,
    Index,
    and_,
    convert,
    integer,
    op_of,
    or_,
    plus,
    refuse,
)
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind, Op, Set
from tallystick.algorithms.user_programs.map_compiler.operators import elementwise, in_words, isnan, select, test
from tallystick.algorithms.user_programs.map_compiler.values import Number, Value, View

_F, _I, _B = Kind.FLOAT, Kind.INT, Kind.BOOL


def _reduced(b: Builder, name: str, shape: tuple[int, ...], kind: Kind, at: Callable[[Index], Expr]) -> Expr:
    """The numbers at all indices of ``shape``, in order, as one: of a whole array, or of one row or column of it."""

    def fold(start: Const, step: Callable[[Expr, Expr], Expr]) -> Expr:
        total = b.copy(start)
        b.each(shape, lambda i: b.add(Set(total, step(total, b.hold(at(i))))))
        return total

    if name in ("sum", "prod"):
        kind, operation = max(kind, _I), "add" if name == "sum" else "mul"
        return fold(Const(kind, int(name == "prod")), lambda t, x: op_of(kind, operation, t, x))
    if name in ("any", "all"):
        return fold(Const(_B, name == "all"), lambda t, x: op_of(_B, "or" if name == "any" else "and", t, x))
    if name in ("max", "min", "argmax", "argmin"):
        best, place = _best(b, "gt" if name.endswith("max") else "lt", shape, kind, at)
        return place if name.startswith("arg") else best
    count = Const(_F, float(math.prod(shape)))
    mean = Op(_F, "div", (fold(Const(_F, 0.0), lambda t, x: op_of(_F, "add", t, x)), count))
    if name == "mean":
        return mean
    middle = b.hold(mean)

    def square(t: Expr, x: Expr) -> Expr:
        away = b.hold(op_of(_F, "sub", x, middle))
        return Op(_F, "add", (t, Op(_F, "mul", (away, away))))

    variance = Op(_F, "div", (fold(Const(_F, 0.0), square), count))
    return variance if name == "var" else Op(_F, "sqrt", (variance,))


def _best(b: Builder, name: str, shape: tuple[int, ...], kind: Kind, at: Callable[[Index], Expr]) -> tuple[Expr, Expr]:
    """The first best element and its place; the first NaN is better than any number."""
    best = b.copy(at(tuple(integer(0) for _ in shape)))
    place, here = b.copy(integer(0)), b.copy(integer(0))

    def step(i: Index) -> None:
        x = b.hold(at(i))
        better = test(name, x, best)
        if kind == _F:
            better = or_(better, and_(isnan(x), Op(_B, "not", (isnan(best),))))
        better = b.hold(better)
        b.add(Set(place, select(better, here, place)))
        b.add(Set(best, select(better, x, best)))
        b.add(Set(here, plus(here, integer(1))))

    b.each(shape, step)
    return best, place


def reduced(b: Builder, node: ast.AST, name: str, value: Value, axis: Value | None) -> Number | View:
    view = array_of(b, node, name, value)
    if 0 in view.shape and name not in ("sum", "prod", "any", "all"):
        refuse(node, "shape", f"np.{name} of an empty array", "Give it at least one number.")
    if axis is None:
        code = b.hold(_reduced(b, name, view.shape, view.kind, lambda i: b.get(view, i)))
        if name in ("argmax", "argmin"):
            return Number(code, 0, view.size - 1)
        return Number(code)
    along = axis_of(node, axis, len(view.shape))
    rest = view.shape[:along] + view.shape[along + 1 :]

    def line(outer: Index) -> Expr:
        length = (view.shape[along],)
        return _reduced(b, name, length, view.kind, lambda i: b.get(view, (*outer[:along], i[0], *outer[along:])))

    if not rest:
        return Number(b.hold(line(())))
    kind = {"mean": _F, "var": _F, "std": _F, "any": _B, "all": _B, "argmax": _I, "argmin": _I}.get(name, view.kind)
    kind = max(kind, _I) if name in ("sum", "prod") else kind
    return b.filled(node, rest, kind, line)


def array_of(b: Builder, node: ast.AST, name: str, value: Value) -> View:
    view = b.as_array(node, value)
    if view is None:
        refuse(node, "types", f"np.{name} of {in_words(value)}", "Give it an array.")
    return view


def axis_of(node: ast.AST, axis: Value, dimensions: int) -> int:
    number = axis.known if isinstance(axis, Number) and axis.kind == _I else None
    if number is None or not -dimensions <= number < dimensions:
        refuse(node, "shape", f"axis is not one of the array's {dimensions}", "Write axis=0 or axis=1.")
    return number % dimensions


def cumsum(b: Builder, node: ast.AST, value: Value) -> View:
    view = array_of(b, node, "cumsum", value)
    if len(view.shape) != 1:
        refuse(node, "shape", f"np.cumsum of {in_words(view)}", "Give it an array of one dimension.")
    kind = max(view.kind, _I)
    total = b.copy(Const(kind, 0))

    def next_sum(at: Index) -> Expr:
        b.add(Set(total, op_of(kind, "add", total, b.get(view, at))))
        return total

    return b.filled(node, view.shape, kind, next_sum)


def dot(b: Builder, node: ast.AST, left: Value, right: Value) -> Number | View:
    """np.dot and @, added up in index order (BLAS rounds differently with shape and machine)."""
    a, c = b.as_array(node, left), b.as_array(node, right)
    if a is None or c is None:
        refuse(node, "types", "np.dot and @ take two arrays of one or two dimensions", "Multiply numbers with *.")
    if not (1 <= len(a.shape) <= 2 and 1 <= len(c.shape) <= 2) or a.shape[-1] != c.shape[0]:
        cause = f"the product of {in_words(a)} and {in_words(c)}: the sizes differ"
        refuse(node, "shape", cause, "Make the inner lengths equal.")
    if a.kind == Kind.BOOL and c.kind == Kind.BOOL:
        refuse(node, "types", "the product of two arrays of True and False", "Multiply one of them by 1.0 first.")
    rows, columns = a.shape[:-1], c.shape[1:]

    def product(at: Index) -> Expr:
        row, column = at[: len(rows)], at[len(rows) :]
        total = b.copy(Const(_F, 0.0))

        def step(i: Index) -> None:
            term = op_of(_F, "mul", b.get(a, (*row, *i)), b.get(c, (*i, *column)))
            b.add(Set(total, Op(_F, "add", (total, term))))

        b.each(c.shape[:1], step)
        return total

    if not rows and not columns:
        return Number(product(()))
    return b.filled(node, rows + columns, _F, product)


def outer(b: Builder, node: ast.AST, left: Value, right: Value) -> View:
    a, c = array_of(b, node, "outer", left), array_of(b, node, "outer", right)
    if len(a.shape) != 1 or len(c.shape) != 1:
        refuse(node, "shape", "np.outer takes two arrays of one dimension", "Give it two vectors.")
    if a.kind == Kind.BOOL and c.kind == Kind.BOOL:
        refuse(node, "types", "np.outer of two arrays of True and False", "Multiply one of them by 1.0 first.")
    kind = max(a.kind, c.kind)
    shape = *a.shape, *c.shape
    return b.filled(node, shape, kind, lambda at: op_of(kind, "mul", b.get(a, at[:1]), b.get(c, at[1:])))


def searchsorted(b: Builder, node: ast.AST, edges: Value, value: Value) -> Number | View:
    view = array_of(b, node, "searchsorted", edges)
    if len(view.shape) != 1:
        refuse(node, "shape", "np.searchsorted takes edges of one dimension", "Give it a vector.")

    def place(x: Sequence[Expr]) -> Expr:
        sought = b.hold(convert(x[0], _F))
        count = b.copy(integer(0))

        def step(i: Index) -> None:
            edge = b.hold(convert(b.get(view, i), _F))
            before = or_(test("lt", edge, sought), and_(isnan(sought), Op(_B, "not", (isnan(edge),))))
            b.add(Set(count, plus(count, convert(before, _I))))

        b.each(view.shape, step)
        return count

    found = elementwise(b, node, (value,), _I, place)
    return Number(found.code, 0, view.size) if isinstance(found, Number) else found
