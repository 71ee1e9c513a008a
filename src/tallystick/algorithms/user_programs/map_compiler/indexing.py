"""``x[…]``: which element, row, slice or choice of elements, with every index checked against the array's own length.

An index that is known now must fit now. One that is known only with a record is compared then, and the record fails if
it does not fit. How long a slice is must be known now; where it begins may depend on a loop or a record.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from tallystick.algorithms.user_programs.map_compiler.builder import Builder, and_, integer, minus, plus, refuse, times
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind, Op
from tallystick.algorithms.user_programs.map_compiler.operators import in_words
from tallystick.algorithms.user_programs.map_compiler.values import Number, Several, Value, View

Evaluate = Callable[[ast.expr], Value]


@dataclass(frozen=True)
class Masked:
    """``x[mask]`` as a place to write to: the elements of ``view`` where ``mask`` is True."""

    view: View
    mask: View


def read(b: Builder, node: ast.Subscript, value: Value, evaluate: Evaluate) -> Value:
    """The value of ``value[…]``."""
    if isinstance(value, Several):
        found = _of_several(node, value, evaluate)
        if found is not None:
            return found
        value = _dynamic(b, node, value)
    if not isinstance(value, View):
        refuse(node, "types", f"an index into {in_words(value)}", "Index arrays and tuples only.")
    part = index(b, node, value, evaluate)
    if isinstance(part, Masked):
        cause = "how many elements `x[mask]` has is not known before a record is read"
        refuse(node, "shape-unknown", cause, "Use np.where(mask, x, 0.0), which keeps the length.")
    return part if part.shape else Number(b.hold(b.get(part, ())))


def index(b: Builder, node: ast.Subscript, view: View, evaluate: Evaluate) -> View | Masked:
    """The part of ``view`` that an index names; its shape is () for one element."""
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(parts) > len(view.shape):
        refuse(node, "shape", f"{len(parts)} indices into {in_words(view)}", "Use as many as it has dimensions.")
    base, shape, strides = view.base, [], []
    for axis, part in enumerate(parts):
        length, stride = view.shape[axis], view.strides[axis]
        if isinstance(part, ast.Slice):
            start, count, step = _slice(b, part, length, evaluate)
            base = plus(base, times(start, stride))
            shape.append(count)
            strides.append(stride * step)
            continue
        chosen = evaluate(part)
        if isinstance(chosen, View) and len(parts) == 1:
            return _by_array(b, node, view, chosen)
        base = plus(base, times(_element(b, part, chosen, length), stride))
    rest = len(parts)
    base = base if isinstance(base, Const) else b.hold(base)
    return replace(
        view,
        base=base,
        shape=(*shape, *view.shape[rest:]),
        strides=(*strides, *view.strides[rest:]),
    )


def _element(b: Builder, node: ast.expr, chosen: Value, length: int) -> Expr:
    chosen = _whole(node, chosen)
    if chosen.known is not None:
        if not -length <= chosen.known < length:
            cause = f"index {chosen.known} of an array with {length} elements"
            refuse(node, "index", cause, "Indices go from 0 to the length less one.")
        return integer(chosen.known % length)
    if chosen.low >= 0 and chosen.high < length:
        return chosen.code
    place: Expr = b.hold(chosen.code)
    if chosen.low < 0:  # Python counts a negative index from the end
        below = Op(Kind.BOOL, "lt", (place, integer(0)))
        place = b.hold(Op(Kind.INT, "select", (below, plus(place, integer(length)), place)))
    b.require(_within(place, length))
    return place


def _within(place: Expr, length: int) -> Expr:
    return and_(Op(Kind.BOOL, "ge", (place, integer(0))), Op(Kind.BOOL, "lt", (place, integer(length))))


def _slice(b: Builder, node: ast.Slice, length: int, evaluate: Evaluate) -> tuple[Expr, int, int]:
    """(first element, how many, step)."""
    lower, upper, step = (
        None if part is None else _whole(part, evaluate(part), "a slice whose end") for part in _parts(node)
    )
    stride = 1 if step is None else step.known
    if stride is None or stride == 0:
        refuse(node, "shape-unknown", "a slice whose step is not known", "Use a number that is not zero.")
    if (lower is None or lower.known is not None) and (upper is None or upper.known is not None):
        bounds = slice(None if lower is None else lower.known, None if upper is None else upper.known, stride)
        where = range(length)[bounds]
        return integer(where.start if len(where) else 0), len(where), stride
    width = _width(lower, upper, length)
    if width is None or stride != 1:
        cause = "how long this slice is is not known before a record is read"
        remedy = "Its ends may move with a loop's counter, as in x[i : i + 3]. Where a record moves them, use a loop: "
        remedy += "for j in range(3): x[k + j] = y[j]."
        refuse(node, "shape-unknown", cause, remedy)
    if not 0 <= width <= length:
        refuse(node, "shape", f"a slice of {width} elements of an array of {length}", "Take a shorter one.")
    first = b.hold(lower.code if lower is not None else minus(upper.code, integer(width)))  # type: ignore[union-attr]
    b.require(_within(first, length - width + 1))
    return first, width, 1


def _parts(node: ast.Slice) -> tuple[ast.expr | None, ast.expr | None, ast.expr | None]:
    return node.lower, node.upper, node.step


def _whole(node: ast.expr, value: Value, what: str = "an index that") -> Number:
    if not isinstance(value, Number) or value.kind != Kind.INT:
        refuse(node, "index", f"{what} is not a whole number", "Use int(x), or a loop over range(…).")
    return value


def _width(lower: Number | None, upper: Number | None, length: int) -> int | None:
    """The difference of two ends that both depend on the same loop counters alike."""
    ends = (0, ()) if lower is None else lower.affine, (length, ()) if upper is None else upper.affine
    if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
        return None
    return ends[1][0] - ends[0][0]


def _by_array(b: Builder, node: ast.Subscript, view: View, chosen: View) -> View | Masked:
    if chosen.kind == Kind.BOOL:
        if chosen.shape != view.shape:
            cause = f"{in_words(view)} indexed by a mask of {' × '.join(str(n) for n in chosen.shape)}"
            refuse(node, "shape", cause, "A mask has the shape of its array.")
        return Masked(view, chosen)
    if chosen.kind != Kind.INT or len(chosen.shape) != 1 or len(view.shape) != 1:
        refuse(node, "index", "an index array that is not one row of whole numbers", "Use a loop over range(…).")
    length = view.shape[0]

    def element(at: tuple[Expr, ...]) -> Expr:
        place = _element(b, node, Number(b.hold(b.get(chosen, at))), length)
        return b.get(view, (place,))

    return b.filled(node, chosen.shape, view.kind, element)


def _of_several(node: ast.Subscript, value: Several, evaluate: Evaluate) -> Value | None:
    """An item or slice of a tuple by a number that is known; None if it is known only later."""
    if isinstance(node.slice, ast.Slice):
        ends = [
            None if part is None else _whole(part, evaluate(part), "a slice whose end").known
            for part in _parts(node.slice)
        ]
        given = [part is not None for part in _parts(node.slice)]
        if any(there and end is None for there, end in zip(given, ends)) or ends[2] == 0:
            refuse(node, "shape-unknown", "a slice of a tuple by ends that are not known", "Use numbers.")
        return Several(value.items[slice(*ends)])
    if isinstance(node.slice, ast.Tuple):
        return None
    chosen = _whole(node, evaluate(node.slice))
    if chosen.known is None:
        return None
    if not -len(value.items) <= chosen.known < len(value.items):
        cause = f"item {chosen.known} of a tuple of {len(value.items)}"
        refuse(node, "index", cause, "Indices go from 0 to the length less one.")
    return value.items[chosen.known]


def _dynamic(b: Builder, node: ast.Subscript, value: Several) -> View:
    view = b.as_array(node, value)
    if view is None:
        cause = "an item of a tuple by an index that is not known"
        refuse(node, "index", cause, "Use a tuple of numbers, or an index that is a constant.")
    return view
