"""The functions a map may call, by name; those that work element by element or make an array are here."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from tallystick.algorithms.user_programs.map_compiler.builder import (
    Builder,
    and_,
    convert,
    integer,
    op_of,
    or_,
    plus,
    refuse,
)
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, Kind, Op, names
from tallystick.algorithms.user_programs.map_compiler.operators import elementwise, in_words, isnan, select, test
from tallystick.algorithms.user_programs.map_compiler.reductions import (
    array_of,
    axis_of,
    cumsum,
    dot,
    outer,
    reduced,
    searchsorted,
)
from tallystick.algorithms.user_programs.map_compiler.values import Number, Several, Value, View, known

_F, _I, _B = Kind.FLOAT, Kind.INT, Kind.BOOL
_INFINITY = Const(_F, float("inf"))
_INT_LIMIT = 2.0**62

# Name in the program -> name in the C library; what is not here has the same name or is an instruction.
_C_NAMES = {
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "power": "pow",
    "gamma": "tgamma",
}
_INSTRUCTIONS = names("sqrt floor ceil trunc rint")
_BY_CALL = names(
    "exp expm1 log log1p log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh asin acos atan asinh "
    "acosh atanh erf erfc gamma lgamma"
)
_BY_CALL_TWO = names("arctan2 hypot power pow atan2")

Elements = Sequence[Expr]


def _larger(name: str, a: Expr, b: Expr) -> Expr:
    """np.maximum or np.minimum: NaN if either is."""
    better = test(name, a, b)
    return select(or_(better, isnan(a)) if a.kind == _F else better, a, b)


# -- element by element -----------------------------------------------------------------------------------------------


def _one(b: Builder, node: ast.AST, name: str, value: Value) -> Number | View:
    kind = value.kind if isinstance(value, (Number, View)) else _F
    whole = max(kind, _I)

    def run(result: Kind, work: Callable[[Expr], Expr]) -> Number | View:
        return elementwise(b, node, (value,), result, lambda x: work(b.hold(x[0])))

    if name in _BY_CALL:
        return run(_F, lambda x: op_of(_F, f"call:{_C_NAMES.get(name, name)}", x))
    if name in _INSTRUCTIONS:
        return run(_F, lambda x: op_of(_F, name, x))
    if name in ("abs", "absolute", "fabs"):
        if kind == _F or name == "fabs":
            return run(_F, lambda x: op_of(_F, "fabs", x))
        return run(_I, lambda x: _size(convert(x, _I)))
    if name == "square":
        return run(whole, lambda x: op_of(whole, "mul", x, x))
    if name == "sign":
        return run(whole, lambda x: _sign(convert(x, whole)))
    if name == "isnan":
        return run(_B, lambda x: isnan(convert(x, _F)))
    if name == "isinf":
        return run(_B, lambda x: test("eq", op_of(_F, "fabs", x), _INFINITY))
    if name == "isfinite":
        return run(_B, lambda x: test("lt", op_of(_F, "fabs", x), _INFINITY))
    return run(_B, lambda x: op_of(_B, "not", x))  # logical_not


def _size(x: Expr) -> Expr:
    return select(test("lt", x, integer(0)), Op(_I, "neg", (x,)), x)


def _sign(x: Expr) -> Expr:
    zero, one = Const(x.kind, 0), Const(x.kind, 1)
    below = select(test("lt", x, zero), Const(x.kind, -1), select(test("eq", x, zero), zero, x))
    return select(test("gt", x, zero), one, below)  # NaN stays NaN


def _two(b: Builder, node: ast.AST, name: str, args: Sequence[Value]) -> Number | View:
    if name in _BY_CALL_TWO:
        return elementwise(b, node, args, _F, lambda x: op_of(_F, f"call:{_C_NAMES.get(name, name)}", *x))
    if name == "copysign":
        return elementwise(b, node, args, _F, lambda x: op_of(_F, name, *x))
    if name in ("logical_and", "logical_or"):
        return elementwise(b, node, args, _B, lambda x: op_of(_B, name.removeprefix("logical_"), *x))
    kind = _kind(args)
    test = "gt" if name == "maximum" else "lt"
    return elementwise(
        b, node, args, kind, lambda x: _larger(test, b.hold(convert(x[0], kind)), b.hold(convert(x[1], kind)))
    )


def _where(b: Builder, node: ast.AST, args: Sequence[Value]) -> Number | View:
    kind = _kind(args[1:])
    return elementwise(
        b, node, args, kind, lambda x: select(convert(x[0], _B), convert(x[1], kind), convert(x[2], kind))
    )


def _clip(b: Builder, node: ast.AST, args: Sequence[Value]) -> Number | View:
    kind = _kind(args)

    def clipped(x: Elements) -> Expr:
        low = b.hold(_larger("gt", b.hold(convert(x[0], kind)), b.hold(convert(x[1], kind))))
        return _larger("lt", low, b.hold(convert(x[2], kind)))

    return elementwise(b, node, args, kind, clipped)


def _kind(args: Sequence[Value]) -> Kind:
    return max((v.kind for v in args if isinstance(v, (Number, View))), default=_F)


# -- makers: the size of an array is known before any record is read, or it is refused --------------------------------


def _shape_of(node: ast.AST, value: Value) -> tuple[int, ...]:
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


def _full(b: Builder, node: ast.AST, shape: tuple[int, ...], value: Value, kind: Kind | None) -> View:
    if not isinstance(value, Number):
        refuse(node, "types", f"an array filled with {in_words(value)}", "Fill it with one number.")
    if kind is not None and value.kind > kind:
        cause = "an array of whole numbers filled with a number that is not whole"
        refuse(node, "types", cause, "Make an array of float64 with np.full(len(x), value).")
    held = b.hold(value.code)
    return b.filled(node, shape, value.kind if kind is None else kind, lambda _: held)


def _copied(b: Builder, node: ast.AST, value: Value, kind: Kind | None) -> View:
    view = b.as_array(node, value)
    if view is None:
        cause = f"np.array of {in_words(value)}"
        refuse(node, "shape-unknown", cause, "Give it numbers, or rows of equally many numbers.")
    return b.filled(node, view.shape, view.kind if kind is None else kind, lambda at: b.get(view, at))


def _concatenate(b: Builder, node: ast.AST, value: Value, axis: Value | None) -> View:
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


def _eye(b: Builder, node: ast.AST, value: Value) -> View:
    n = _shape_of(node, value)
    if len(n) != 1:
        refuse(node, "types", "np.eye takes one number", "Write np.eye(n).")
    one, zero = Const(_F, 1.0), Const(_F, 0.0)
    return b.filled(node, (n[0], n[0]), _F, lambda at: select(test("eq", at[0], at[1]), one, zero))


# -- by name ----------------------------------------------------------------------------------------------------------


_OF_ARRAYS: dict[str, Callable[..., Value]] = {f.__name__: f for f in (cumsum, dot, outer, searchsorted)}


def call_numpy(b: Builder, node: ast.AST, name: str, args: Sequence[Value], axis: Value | None, dtype: bool) -> Value:
    """A function of ``np`` with as many arguments as its signature says; ``dtype``: dtype=np.float64 was written."""
    made = _F if dtype else None
    if name in ("zeros", "ones"):
        return _full(b, node, _shape_of(node, args[0]), Number(Const(_F, float(name == "ones"))), None)
    if name == "full":
        return _full(b, node, _shape_of(node, args[0]), args[1], made)
    if name in ("zeros_like", "ones_like", "full_like"):
        like = array_of(b, node, name, args[0])
        value = args[1] if name == "full_like" else known(1 if name == "ones_like" else 0)
        if isinstance(value, Number) and like.kind == _B and name != "full_like":
            value = Number(convert(value.code, _B))
        return _full(b, node, like.shape, value, like.kind)
    if name == "array":
        return _copied(b, node, args[0], made)
    if name == "eye":
        return _eye(b, node, args[0])
    if name == "concatenate":
        return _concatenate(b, node, args[0], axis)
    if name in _OF_ARRAYS:
        return _OF_ARRAYS[name](b, node, *args)
    if name in ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin"):
        return reduced(b, node, name, args[0], axis)
    fitting = [b.as_array(node, value) or value for value in args]
    if name == "where":
        return _where(b, node, fitting)
    if name == "clip":
        return _clip(b, node, fitting)
    return _one(b, node, name, fitting[0]) if len(fitting) == 1 else _two(b, node, name, fitting)


def call_math(b: Builder, node: ast.AST, name: str, args: Sequence[Value]) -> Value:
    """A function of ``math``: numbers only."""
    for value in args:
        if not isinstance(value, Number):
            refuse(node, "types", f"math.{name} of {in_words(value)}", f"Use np.{name}, or one element.")
    return _one(b, node, name, args[0]) if len(args) == 1 else _two(b, node, name, args)


def call_builtin(b: Builder, node: ast.AST, name: str, args: Sequence[Value]) -> Value:
    """len, abs, float, int, bool, min, max."""
    value = args[0]
    if name == "len":
        if isinstance(value, Number) or (isinstance(value, View) and not value.shape):
            refuse(node, "types", "len of a number", "Give it an array.")
        return known(value.shape[0] if isinstance(value, View) else len(value.items))
    if name == "abs":
        return _one(b, node, "abs", value)
    for other in args:
        if not isinstance(other, Number):
            refuse(node, "types", f"{name}() of {in_words(other)}", f"Give it numbers; of an array use np.{name}.")
    numbers = [v for v in args if isinstance(v, Number)]
    if name in ("min", "max"):
        return _first_best(b, name, numbers)
    number = numbers[0]
    if name == "float":
        return Number(convert(number.code, _F))
    if name == "bool":
        return Number(convert(number.code, _B), 0, 1)
    if number.kind != _F:
        return Number(convert(number.code, _I), number.low, number.high, number.affine)
    held = b.hold(number.code)
    # An out-of-range conversion is undefined in LLVM; NaN fails both comparisons.
    b.require(and_(test("gt", held, Const(_F, -_INT_LIMIT)), test("lt", held, Const(_F, _INT_LIMIT))))
    return Number(b.hold(Op(_I, "to_int", (held,))), -(2**62), 2**62)


def _first_best(b: Builder, name: str, numbers: Sequence[Number]) -> Number:
    """Python's min and max: the first of the smallest or largest."""
    kind = max(n.kind for n in numbers)
    best: Expr = b.hold(convert(numbers[0].code, kind))
    for number in numbers[1:]:
        other = b.hold(convert(number.code, kind))
        best = b.hold(select(test("gt" if name == "max" else "lt", other, best), other, best))
    pick = max if name == "max" else min
    return Number(best, pick(n.low for n in numbers), pick(n.high for n in numbers))
