"""Functions over whole arrays: sums, products, places. Everything is added up in index order."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tallystick.algorithms.user_programs.map_compiler.builder import Builder, and_, convert, integer, or_, plus, refuse
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind, Op, Set
from tallystick.algorithms.user_programs.map_compiler.operators import elementwise, in_words, isnan, select, test
from tallystick.algorithms.user_programs.map_compiler.values import Number, Value, View

__all__ = ["array_of", "axis_of", "cumsum", "dot", "outer", "reduced", "searchsorted"]

_F, _I, _B = Kind.FLOAT, Kind.INT, Kind.BOOL


@dataclass(frozen=True)
class _Line:
    """Sequence[Expr] that are reduced to one number, in order: a whole array, or one row or column of it."""

    b: Builder
    shape: tuple[int, ...]
    kind: Kind
    at: Callable[[tuple[Expr, ...]], Expr]

    @property
    def size(self) -> int:
        n = 1
        for length in self.shape:
            n *= length
        return n

    def fold(self, start: Const, step: Callable[[Expr, Expr], Expr]) -> Expr:
        total = self.b.copy(start)
        self.b.each(self.shape, lambda i: self.b.add(Set(total, step(total, self.b.hold(self.at(i))))))
        return total

    def sum(self) -> Expr:
        kind = max(self.kind, _I)
        return self.fold(Const(kind, 0), lambda t, x: Op(kind, "add", (t, convert(x, kind))))

    def prod(self) -> Expr:
        kind = max(self.kind, _I)
        return self.fold(Const(kind, 1), lambda t, x: Op(kind, "mul", (t, convert(x, kind))))

    def any(self) -> Expr:
        return self.fold(Const(_B, False), lambda t, x: or_(t, convert(x, _B)))

    def all(self) -> Expr:
        return self.fold(Const(_B, True), lambda t, x: and_(t, convert(x, _B)))

    def mean(self) -> Expr:
        total = self.fold(Const(_F, 0.0), lambda t, x: Op(_F, "add", (t, _to_float(x))))
        return Op(_F, "div", (total, Const(_F, float(self.size))))

    def var(self) -> Expr:
        middle = self.b.hold(self.mean())

        def step(t: Expr, x: Expr) -> Expr:
            away = self.b.hold(Op(_F, "sub", (_to_float(x), middle)))
            return Op(_F, "add", (t, Op(_F, "mul", (away, away))))

        return Op(_F, "div", (self.fold(Const(_F, 0.0), step), Const(_F, float(self.size))))

    def std(self) -> Expr:
        return Op(_F, "sqrt", (self.var(),))

    def max(self) -> Expr:
        return self._best("gt")[0]

    def min(self) -> Expr:
        return self._best("lt")[0]

    def argmax(self) -> Expr:
        return self._best("gt")[1]

    def argmin(self) -> Expr:
        return self._best("lt")[1]

    def _best(self, name: str) -> tuple[Expr, Expr]:
        """The first best element and its place; the first NaN is better than any number."""
        b = self.b
        best = b.copy(self.at(tuple(integer(0) for _ in self.shape)))
        place, here = b.copy(integer(0)), b.copy(integer(0))

        def step(i: tuple[Expr, ...]) -> None:
            x = b.hold(self.at(i))
            better = test(name, x, best)
            if self.kind == _F:
                better = or_(better, and_(isnan(x), Op(_B, "not", (isnan(best),))))
            better = b.hold(better)
            b.add(Set(place, select(better, here, place)))
            b.add(Set(best, select(better, x, best)))
            b.add(Set(here, plus(here, integer(1))))

        b.each(self.shape, step)
        return best, place


def reduced(b: Builder, node: ast.AST, name: str, value: Value, axis: Value | None) -> Number | View:
    view = array_of(b, node, name, value)
    if 0 in view.shape and name not in ("sum", "prod", "any", "all"):
        refuse(node, "shape", f"np.{name} of an empty array", "Give it at least one number.")
    if axis is None:
        whole = _Line(b, view.shape, view.kind, lambda i: b.get(view, i))
        code = b.hold(getattr(whole, name)())
        if name in ("argmax", "argmin"):
            return Number(code, 0, view.size - 1)
        return Number(code)
    along = axis_of(node, axis, len(view.shape))
    rest = view.shape[:along] + view.shape[along + 1 :]

    def line(outer: tuple[Expr, ...]) -> _Line:
        return _Line(b, (view.shape[along],), view.kind, lambda i: b.get(view, (*outer[:along], i[0], *outer[along:])))

    if not rest:
        return Number(b.hold(getattr(line(()), name)()))
    kind = {"mean": _F, "var": _F, "std": _F, "any": _B, "all": _B, "argmax": _I, "argmin": _I}.get(name, view.kind)
    kind = max(kind, _I) if name in ("sum", "prod") else kind
    return b.filled(node, rest, kind, lambda outer: getattr(line(outer), name)())


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

    def next_sum(at: tuple[Expr, ...]) -> Expr:
        b.add(Set(total, Op(kind, "add", (total, convert(b.get(view, at), kind)))))
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

    def product(at: tuple[Expr, ...]) -> Expr:
        row, column = at[: len(rows)], at[len(rows) :]
        total = b.copy(Const(_F, 0.0))

        def step(i: tuple[Expr, ...]) -> None:
            terms = _to_float(b.get(a, (*row, *i))), _to_float(b.get(c, (*i, *column)))
            b.add(Set(total, Op(_F, "add", (total, Op(_F, "mul", terms)))))

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
    return b.filled(
        node,
        (*a.shape, *c.shape),
        kind,
        lambda at: Op(kind, "mul", (convert(b.get(a, at[:1]), kind), convert(b.get(c, at[1:]), kind))),
    )


def searchsorted(b: Builder, node: ast.AST, edges: Value, value: Value) -> Number | View:
    view = array_of(b, node, "searchsorted", edges)
    if len(view.shape) != 1:
        refuse(node, "shape", "np.searchsorted takes edges of one dimension", "Give it a vector.")

    def place(x: Sequence[Expr]) -> Expr:
        sought = b.hold(_to_float(x[0]))
        count = b.copy(integer(0))

        def step(i: tuple[Expr, ...]) -> None:
            edge = b.hold(_to_float(b.get(view, i)))
            before = or_(test("lt", edge, sought), and_(isnan(sought), Op(_B, "not", (isnan(edge),))))
            b.add(Set(count, plus(count, convert(before, _I))))

        b.each(view.shape, step)
        return count

    found = elementwise(b, node, (value,), _I, place)
    return Number(found.code, 0, view.size) if isinstance(found, Number) else found


def _to_float(x: Expr) -> Expr:
    return convert(x, _F)
