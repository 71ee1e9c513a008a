"""Functions that make an array. Its size is known before any record is read, or it is refused."""

from __future__ import annotations

import ast

from tallystick.algorithms.user_programs.map_compiler.builder import Builder, integer, plus, refuse
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind
from tallystick.algorithms.user_programs.map_compiler.operators import in_words, select, test
from tallystick.algorithms.user_programs.map_compiler.reductions import axis_of
from tallystick.algorithms.user_programs.map_compiler.values import Number, Several, Value, View

__all__ = ["concatenate", "copied", "eye", "full", "shape_of"]

_F, _I = Kind.FLOAT, Kind.INT


def shape_of(node: ast.AST, value: Value) -> tuple[int, ...]:
    items = value.items if isinstance(value, Several) else (value,)
    lengths = [item.known if isinstance(item, Number) and item.kind == _I else None for item in items]
    if not 1 <= len(lengths) <= 2 or any(n is None for n in lengths):
        cause = "the size of an array is not known before a record is read"
        remedy = "Use numbers, len(…), constants and arithmetic on them; at most two dimensions."
        refuse(node, "shape-unknown", cause, remedy)
    sizes = tuple(n for n in lengths if n is not None)
    if min(sizes) < 0:
        refuse(node, "shape", "an array of negative size", "Check the arithmetic of its size.")
    return sizes


def full(b: Builder, node: ast.AST, shape: tuple[int, ...], value: Value, kind: Kind | None) -> View:
    if not isinstance(value, Number):
        refuse(node, "types", f"an array filled with {in_words(value)}", "Fill it with one number.")
    if kind is not None and value.kind > kind:
        cause = "an array of whole numbers filled with a number that is not whole"
        refuse(node, "types", cause, "Make an array of float64 with np.full(len(x), value).")
    held = b.hold(value.code)
    return b.filled(node, shape, value.kind if kind is None else kind, lambda _: held)


def copied(b: Builder, node: ast.AST, value: Value, kind: Kind | None) -> View:
    view = b.as_array(node, value)
    if view is None:
        cause = f"np.array of {in_words(value)}"
        refuse(node, "shape-unknown", cause, "Give it numbers, or rows of equally many numbers.")
    return b.filled(node, view.shape, view.kind if kind is None else kind, lambda at: b.get(view, at))


def concatenate(b: Builder, node: ast.AST, value: Value, axis: Value | None) -> View:
    items = [b.as_array(node, item) for item in value.items] if isinstance(value, Several) else []
    views = [v for v in items if v is not None]
    if not views or len(views) != len(items) or len({len(v.shape) for v in views}) != 1:
        remedy = "Write np.concatenate((a, b)) with arrays of equally many dimensions."
        refuse(node, "shape", "np.concatenate takes a tuple of arrays", remedy)
    along = 0 if axis is None else axis_of(node, axis, len(views[0].shape))
    rests = {v.shape[:along] + v.shape[along + 1 :] for v in views}
    if len(rests) != 1:
        refuse(node, "shape", "the arrays to concatenate have other lengths besides", "Make them equal.")
    first = views[0].shape
    whole = (*first[:along], sum(v.shape[along] for v in views), *first[along + 1 :])
    out = b.array(node, whole, max(v.kind for v in views))
    start = 0
    for view in views:

        def place(at: tuple[Expr, ...], view: View = view, start: int = start) -> None:
            moved = (*at[:along], plus(at[along], integer(start)), *at[along + 1 :])
            b.put(out, moved, b.get(view, at))

        b.each(view.shape, place)
        start += view.shape[along]
    return out


def eye(b: Builder, node: ast.AST, value: Value) -> View:
    n = shape_of(node, value)
    if len(n) != 1:
        refuse(node, "types", "np.eye takes one number", "Write np.eye(n).")
    one, zero = Const(_F, 1.0), Const(_F, 0.0)
    return b.filled(node, (n[0], n[0]), _F, lambda at: select(test("eq", at[0], at[1]), one, zero))
