"""Arithmetic on numbers and, element by element, on arrays of one shape: kinds, intervals, and when a record fails.

Python's rules for numbers, NumPy's for arrays. Two arrays fit if their shapes are equal, a number fits any array, and
nothing else fits: there is no broadcasting.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from tallystick.algorithms.user_programs.map_compiler.builder import Builder, Refused, convert, op_of, refuse
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, If, Kind, Op, Set
from tallystick.algorithms.user_programs.map_compiler.values import LARGEST, Affine, Number, Value, View

_NAMES: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_LARGEST_POWER = 64


def in_words(value: Value) -> str:
    """What it is, for a message."""
    if isinstance(value, Number):
        return "a number"
    if isinstance(value, View):
        return f"an array of {' × '.join(str(n) for n in value.shape)}"
    return f"a tuple or list of {len(value.items)}"


def elementwise(
    b: Builder,
    node: ast.AST,
    args: Sequence[Value],
    kind: Kind,
    work: Callable[[Sequence[Expr]], Expr],
) -> Number | View:
    """``work`` on numbers, or on each element where there are arrays: all of one shape."""
    shape: tuple[int, ...] | None = None
    for value in args:
        if isinstance(value, View):
            if shape is not None and shape != value.shape:
                first = next(v for v in args if isinstance(v, View))
                cause = f"{in_words(first)} does not fit {in_words(value)}"
                refuse(node, "shape", cause, "Make both as long as each other; nothing is stretched to fit.")
            shape = value.shape
        elif not isinstance(value, Number):
            refuse(node, "types", f"arithmetic on {in_words(value)}", "Make it an array: np.array(…).")
    if shape is None:
        return Number(work([v.code for v in args if isinstance(v, Number)]))
    held = [b.hold(v.code) if isinstance(v, Number) else v for v in args if isinstance(v, (Number, View))]
    return b.filled(node, shape, kind, lambda at: work([b.get(v, at) if isinstance(v, View) else v for v in held]))


def binary(
    b: Builder, node: ast.AST, operator: ast.operator, left: Value, right: Value, *, elements: bool = False
) -> Value:
    """``left operator right``; not ``@``. Two numbers that are ``elements`` of arrays divide as NumPy's do."""
    name = _NAMES[type(operator)]
    left, right = _operands(b, node, left, right, "arithmetic on", "Make it an array: np.array(…).")
    both = isinstance(left, Number) and isinstance(right, Number)
    if name in ("and", "or", "xor"):
        return _bitwise(b, node, name, left, right)
    if name == "pow":
        return _power(b, node, left, right)
    kind = max(left.kind, right.kind)
    if kind == Kind.BOOL and not both:
        return _of_masks(b, node, name, left, right)
    kind = Kind.FLOAT if name == "div" else max(kind, Kind.INT)
    if both and not elements and name in ("div", "floordiv", "mod") and kind == Kind.FLOAT:
        _refuse_zero(b, right)  # Python's ZeroDivisionError; for whole numbers the operation itself checks
    found = elementwise(b, node, (left, right), kind, lambda x: op_of(kind, name, *x))
    if isinstance(found, Number) and isinstance(left, Number) and isinstance(right, Number) and kind == Kind.INT:
        return _bounded(found, name, left, right)
    return found


def _operands(
    b: Builder, node: ast.AST, left: Value, right: Value, doing: str, remedy: str
) -> tuple[Number | View, Number | View]:
    """Two numbers, or arrays; beside an array a tuple of numbers is one, too."""
    if isinstance(left, View) or isinstance(right, View):
        left, right = b.as_array(node, left) or left, b.as_array(node, right) or right
    if isinstance(left, (Number, View)) and isinstance(right, (Number, View)):
        return left, right
    odd = right if isinstance(left, (Number, View)) else left
    raise Refused(node, "types", f"{doing} {in_words(odd)}", remedy)


def _refuse_zero(b: Builder, divisor: Value) -> None:
    if isinstance(divisor, Number) and not (isinstance(divisor.code, Const) and divisor.code.value != 0):
        b.require(Op(Kind.BOOL, "ne", (divisor.code, Const(divisor.kind, 0))))


def _bitwise(b: Builder, node: ast.AST, name: str, left: Number | View, right: Number | View) -> Number | View:
    kind = max(left.kind, right.kind)
    if kind == Kind.FLOAT:
        refuse(node, "types", "&, | and ^ take whole numbers or comparisons", "Write (x > 0.0) & (y > 0.0).")
    return elementwise(b, node, (left, right), kind, lambda x: op_of(kind, name, *x))


def _of_masks(b: Builder, node: ast.AST, name: str, left: Number | View, right: Number | View) -> Number | View:
    """NumPy's rules for two arrays of True and False: + is or, * is and."""
    if name not in ("add", "mul", "div"):
        refuse(node, "types", "this operator on two arrays of True and False", "Multiply one of them by 1.0 first.")
    kind, name = {"add": (Kind.BOOL, "or"), "mul": (Kind.BOOL, "and"), "div": (Kind.FLOAT, "div")}[name]
    return elementwise(b, node, (left, right), kind, lambda x: op_of(kind, name, *x))


def _power(b: Builder, node: ast.AST, left: Number | View, right: Number | View) -> Value:
    exponent = right.known if isinstance(right, Number) else None
    if exponent is None and isinstance(right, Number) and isinstance(right.code, Const):
        whole = float(right.code.value)
        exponent = int(whole) if whole.is_integer() and abs(whole) <= _LARGEST_POWER else None
        to_float = exponent is not None
    else:
        to_float = False
    if exponent is not None and abs(exponent) <= _LARGEST_POWER:
        kind = Kind.FLOAT if exponent < 0 or to_float else max(left.kind, Kind.INT)
        if exponent < 0 and isinstance(left, Number):
            _refuse_zero(b, left)

        def raised(x: Sequence[Expr]) -> Expr:
            return _repeated(b, convert(x[0], kind), abs(exponent), invert=exponent < 0)

        found = elementwise(b, node, (left,), kind, raised)
        if isinstance(found, Number) and isinstance(left, Number) and kind == Kind.INT:
            low, high = _power_bounds(left, exponent)
            return Number(found.code, low, high)
        return found
    return elementwise(b, node, (left, right), Kind.FLOAT, lambda x: op_of(Kind.FLOAT, "call:pow", *x))


def _repeated(b: Builder, base: Expr, exponent: int, *, invert: bool) -> Expr:
    """By squaring; at most 64, so a dozen multiplications."""
    result: Expr | None = None
    square: Expr = b.hold(base)
    while exponent:
        if exponent & 1:
            result = square if result is None else b.hold(Op(square.kind, "mul", (result, square)))
        exponent >>= 1
        if exponent:
            square = b.hold(Op(square.kind, "mul", (square, square)))
    if result is None:
        result = Const(base.kind, 1)
    return Op(Kind.FLOAT, "div", (Const(Kind.FLOAT, 1.0), result)) if invert else result


def _power_bounds(left: Number, exponent: int) -> tuple[int, int]:
    ends = [left.low**exponent, left.high**exponent] + ([0] if left.low < 0 < left.high else [])
    return _fitting(min(ends), max(ends))


def _fitting(low: int, high: int) -> tuple[int, int]:
    """An interval that holds the number even if it has wrapped around."""
    return (low, high) if low >= -LARGEST - 1 and high <= LARGEST else (-LARGEST - 1, LARGEST)


def _bounded(found: Number, name: str, a: Number, c: Number) -> Number:
    """The result of whole-number arithmetic with its interval and affine form."""
    low, high, affine = -LARGEST - 1, LARGEST, None
    if name == "add":
        low, high = _fitting(a.low + c.low, a.high + c.high)
        affine = combined(a.affine, c.affine, 1)
    elif name == "sub":
        low, high = _fitting(a.low - c.high, a.high - c.low)
        affine = combined(a.affine, c.affine, -1)
    elif name == "mul":
        products = [x * y for x in (a.low, a.high) for y in (c.low, c.high)]
        low, high = _fitting(min(products), max(products))
        factor, form = (a.known, c.affine) if a.known is not None else (c.known, a.affine)
        if factor is not None and form is not None:
            affine = form[0] * factor, tuple((s, f * factor) for s, f in form[1])
    elif name == "floordiv" and c.known is not None and c.known > 0:
        low, high = a.low // c.known, a.high // c.known
    elif name == "mod" and c.known is not None and c.known > 0:
        low, high = (a.low, a.high) if a.low >= 0 and a.high < c.known else (0, c.known - 1)
    code = Const(Kind.INT, low) if low == high else found.code
    return Number(code, low, high, affine)


def combined(a: Affine | None, c: Affine | None, sign: int = 1) -> Affine | None:
    """a + sign · c, if both are affine."""
    if a is None or c is None:
        return None
    factors = dict(a[1])
    for slot, factor in c[1]:
        factors[slot] = factors.get(slot, 0) + sign * factor
    return a[0] + sign * c[0], tuple(sorted((s, f) for s, f in factors.items() if f))


def unary(b: Builder, node: ast.AST, operator: ast.unaryop, value: Value) -> Value:
    """``-x``, ``+x``, ``not x``, ``~x``"""
    if not isinstance(value, (Number, View)):
        refuse(node, "types", f"arithmetic on {in_words(value)}", "Make it an array: np.array(…).")
    if isinstance(operator, ast.Not):
        test = truth(node, value)
        if isinstance(value, Number) and value.known is not None:
            return Number(Const(Kind.BOOL, not value.known), int(not value.known), int(not value.known))
        return Number(Op(Kind.BOOL, "not", (test,)), 0, 1)
    if isinstance(operator, ast.Invert):
        if value.kind == Kind.FLOAT or (value.kind == Kind.BOOL and isinstance(value, Number)):
            refuse(node, "types", "~ takes an array of comparisons or whole numbers", "Use `not`, or np.logical_not.")
        return elementwise(b, node, (value,), value.kind, lambda x: Op(value.kind, "not", (x[0],)))
    kind = max(value.kind, Kind.INT)
    if isinstance(operator, ast.UAdd):
        return elementwise(b, node, (value,), kind, lambda x: convert(x[0], kind)) if kind != value.kind else value
    found = elementwise(b, node, (value,), kind, lambda x: op_of(kind, "neg", *x))
    if isinstance(value, Number) and isinstance(found, Number):
        if isinstance(value.code, Const):
            negative = -convert(value.code, kind).value  # type: ignore[union-attr]
            if kind == Kind.FLOAT or negative <= LARGEST:  # what does not fit wraps around when it is computed
                found = Number(Const(kind, negative))
        if kind == Kind.INT:
            low, high = _fitting(-value.high, -value.low)
            affine = None if value.affine is None else (-value.affine[0], tuple((s, -f) for s, f in value.affine[1]))
            return Number(found.code, low, high, affine)
    return found


def truth(node: ast.AST, value: Value) -> Expr:
    """Whether a number is not zero. An array is neither true nor false."""
    if not isinstance(value, Number):
        refuse(node, "types", f"{in_words(value)} is neither true nor false", "Use np.any(…) or np.all(…).")
    return convert(value.code, Kind.BOOL)


def isnan(x: Expr) -> Expr:
    return Op(Kind.BOOL, "ne", (x, x))


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    return Op(a.kind, "select", (condition, a, b))


def test(name: str, a: Expr, b: Expr) -> Expr:
    return Op(Kind.BOOL, name, (a, b))


def compare(b: Builder, node: ast.AST, operator: ast.cmpop, left: Value, right: Value) -> Number | View:
    """One comparison; True or False, or an array of them."""
    name = _COMPARISONS[type(operator)]
    left, right = _operands(b, node, left, right, "comparing", "Compare numbers or arrays.")
    kind = max(left.kind, right.kind)
    found = elementwise(
        b, node, (left, right), Kind.BOOL, lambda x: test(name, convert(x[0], kind), convert(x[1], kind))
    )
    if not isinstance(found, Number) or not isinstance(left, Number) or not isinstance(right, Number):
        return found
    certain = _certain(name, left, right) if kind != Kind.FLOAT else None
    if certain is None:
        return Number(found.code, 0, 1)
    return Number(Const(Kind.BOOL, certain), int(certain), int(certain))


def _certain(name: str, a: Number, c: Number) -> bool | None:
    """What a comparison of whole numbers comes to, if their intervals leave no doubt."""
    if name in ("gt", "ge"):
        return _certain("lt" if name == "gt" else "le", c, a)
    if name in ("lt", "le"):
        strict = name == "lt"
        if a.high < c.low or (not strict and a.high <= c.low):
            return True
        return False if a.low > c.high or (strict and a.low >= c.high) else None
    if a.known is not None and a.known == c.known:
        return name == "eq"
    return name == "ne" if a.high < c.low or c.high < a.low else None


def choose(b: Builder, node: ast.AST, test: Expr, then: Callable[[], Value], other: Callable[[], Value]) -> Value:
    """One of two values, of which only one is computed."""
    with b.block() as first:
        left = then()
    with b.block() as second:
        right = other()
    if isinstance(left, Number) and isinstance(right, Number):
        kind = max(left.kind, right.kind)
        slot = b.slot(kind)
        first.append(Set(slot, convert(left.code, kind)))
        second.append(Set(slot, convert(right.code, kind)))
        b.add(If(test, tuple(first), tuple(second)))
        return Number(slot, min(left.low, right.low), max(left.high, right.high))
    if isinstance(left, View) and isinstance(right, View) and left.shape == right.shape:
        out = b.array(node, left.shape, max(left.kind, right.kind))
        for block, view in ((first, left), (second, right)):
            with b.block() as copying:
                b.copied_into(out, view)
            block.extend(copying)
        b.add(If(test, tuple(first), tuple(second)))
        return View(out.region, out.base, out.shape, out.strides, out.kind, left.roots | right.roots)
    cause = f"either {in_words(left)} or {in_words(right)}"
    raise Refused(node, "shape", cause, "Keep both of one kind and one shape.")
