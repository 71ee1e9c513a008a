"""The constants of a program file, evaluated on the syntax tree: nothing is run to know them."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tallystick.core.errors import BoundsError
from tallystick.privacy.grid import Group

_MATH_FOLD = {name: getattr(math, name) for name in ("sqrt", "log", "exp", "log2", "log10", "pi", "e", "tau")}
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def leaves_of(value: Any) -> int:
    """How many values a constant holds. Each tuple is made of constants that were counted before, so this ends."""
    return sum(leaves_of(part) for part in value) if isinstance(value, tuple) else 1


def numbers_of(constants: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in constants.items() if _is_number_or_tuple(value)}


def _is_number_or_tuple(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and type(value) is tuple and all(_is_number_or_tuple(part) for part in value)
    if type(value) is float:
        return math.isfinite(value)
    return type(value) in (bool, int) and -(2**63) < value < 2**63


class NotConstantError(Exception):
    """(node, cause) of a value that is not a constant."""


class Fold:
    """Evaluates the arithmetic of constants on the syntax tree; numbers stay within 64 bits, so it cannot blow up."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.Tuple):
            return tuple(self.value(part) for part in node.elts)
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("ts.Group", "Group"):
            return self.group(node)
        return self.number(node)

    def number(self, node: ast.expr) -> Any:
        try:
            result = self.arithmetic(node)
        except (ArithmeticError, ValueError, TypeError):
            raise NotConstantError(node, "the arithmetic fails") from None
        if not _is_number_or_tuple(result) or isinstance(result, tuple):
            raise NotConstantError(node, "not a finite number of 64 bits")
        return result

    def arithmetic(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            return node.value
        if isinstance(node, ast.Name) and node.id in self.known:
            return self.known[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            inner = self.number(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            left, right = self.number(node.left), self.number(node.right)
            if isinstance(node.op, ast.Pow):
                # Whole powers of whole numbers below 2^63 fit in 64 squarings of a float first: no huge integer arises.
                return left**right if abs(float(left) ** float(right)) < 2.0**62 else math.inf
            if type(node.op) in _BINARY:
                return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("math.pi", "math.e", "math.tau"):
            return _MATH_FOLD[node.attr]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            function = _MATH_FOLD.get(node.func.attr)
            if callable(function) and ast.unparse(node.func.value) == "math" and not node.keywords:
                return function(self.number(node.args[0]))
        raise NotConstantError(node, f"{type(node).__name__} is not allowed here")

    def group(self, node: ast.Call) -> Group:
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg is not None}
        types: dict[str, tuple[type, ...]] = {
            "name": (str,),
            "size": (int,),
            "bound": (int, float),
            "share": (int, float),
            "nonnegative": (bool,),
        }
        if node.args or len(keywords) != len(node.keywords) or not keywords.keys() <= types.keys():
            raise NotConstantError(node, "a group is ts.Group(name=…, size=…, bound=…, share=…, nonnegative=…)")
        if any(type(value) not in types[key] for key, value in keywords.items()):
            raise NotConstantError(node, "a group has a text name, a whole size, two numbers, and True or False")
        try:
            return Group(**keywords)
        except BoundsError as error:
            raise NotConstantError(node, str(error)) from None
        except TypeError:
            raise NotConstantError(node, "a group needs name, size and bound") from None
