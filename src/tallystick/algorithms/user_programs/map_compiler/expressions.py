"""The expressions of a map: what each is (a number, an array, a tuple), and the statements that compute it."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tallystick.algorithms.user_programs.map_compiler import functions, indexing, operators
from tallystick.algorithms.user_programs.map_compiler.builder import Builder, Refused, refuse
from tallystick.algorithms.user_programs.map_compiler.code import Const, Kind
from tallystick.algorithms.user_programs.map_compiler.reductions import dot
from tallystick.algorithms.user_programs.map_compiler.signatures import signature_of
from tallystick.algorithms.user_programs.map_compiler.values import Affine, Number, Several, Value, View, known

_MOST_TERMS, _MOST_ITEMS = 50, 10_000
_MODULE_VALUES = {"pi": math.pi, "e": math.e, "tau": math.tau}


class Expressions:
    """Reads expressions; variables are where :attr:`types` and :attr:`places` say."""

    def __init__(self, me: str, constants: Mapping[str, Any], types: dict[str, Value]) -> None:
        self.me = me
        self.program_constants = constants
        self._known_constants: dict[str, Value] = {}
        self.types = types
        """A prototype of every variable, throughout the function."""
        self.b = Builder()
        self.given: dict[str, Value] = {}
        """Record and state."""
        self.places: dict[str, Value] = {}
        """Each variable's slot or region; of a tuple, each item's."""
        self.intervals: dict[str, tuple[int, int, Affine | None]] = {}
        """What whole-number variables can be at this point of the text."""

    def expression(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return _constant(value)
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return dot(self.b, node, self.expression(left), self.expression(right))
            case ast.BinOp(left=left, op=op, right=right):
                return operators.binary(self.b, node, op, self._held(left), self._held(right))
            case ast.UnaryOp(op=op, operand=operand):
                return operators.unary(self.b, node, op, self.expression(operand))
            case ast.BoolOp(op=op, values=values):
                return self._either(node, isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(node, self._held(left), list(ops), list(comparators))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(node, test, body, orelse)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                return indexing.read(self.b, node, self.expression(node.value), self.expression)
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return _counted(node, Several(tuple(self._held(item) for item in elts)))
        raise Refused(node, "construct", "this is not allowed here", "Write it with plain arithmetic, if and for.")

    def _held(self, node: ast.expr) -> Value:
        value = self.expression(node)
        return replace(value, code=self.b.hold(value.code)) if isinstance(value, Number) else value

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.given:
            return self.given[name]
        if name not in self.types:
            refuse(node, "unassigned", f"`{name}` has no value here", "Give it a value before the `if` or the loop.")
        return self._variable(node, name, self.types[name])

    def _variable(self, node: ast.AST, path: str, kind: Value) -> Value:
        if isinstance(kind, Several):
            items = tuple(self._variable(node, f"{path}.{i}", part) for i, part in enumerate(kind.items))
            return Several(items, fields=kind.fields)
        place = self._place(node, path, kind)
        if isinstance(place, Number) and place.kind != Kind.FLOAT and path in self.intervals:
            low, high, affine = self.intervals[path]
            code = Const(place.kind, low) if low == high else place.code
            return Number(code, low, high, affine)
        return place

    def _attribute(self, node: ast.Attribute) -> Value:
        if isinstance(node.value, ast.Name):
            name = node.value.id
            if name in ("np", "math") and node.attr in _MODULE_VALUES:
                return Number(Const(Kind.FLOAT, _MODULE_VALUES[node.attr]))
            if name == self.me:
                if node.attr not in self._known_constants:
                    self._known_constants[node.attr] = _counted(node, _constant(self.program_constants[node.attr]))
                return self._known_constants[node.attr]
        value = self.expression(node.value)
        if isinstance(value, Several) and node.attr in value.fields:
            return value.items[value.fields.index(node.attr)]
        if isinstance(value, View) and node.attr == "shape":
            return Several(tuple(known(n) for n in value.shape))
        if isinstance(value, View) and node.attr == "size":
            return known(value.size)
        cause = f"{operators.in_words(value)} has no `{node.attr}`"
        raise Refused(node, "types", cause, "Check what the state holds.")

    def _either(self, node: ast.AST, both: bool, values: list[ast.expr]) -> Value:
        """``a and b and …``, ``a or b or …``: what stands behind the one that decides is not computed."""
        _few(node, values)
        first, rest = self._held(values[0]), values[1:]
        if not rest:
            return first
        if isinstance(first, Number) and first.known is not None:
            return self._either(node, both, rest) if bool(first.known) == both else first
        test = operators.truth(values[0], first)
        later, now = (lambda: self._either(node, both, rest)), (lambda: first)
        return operators.choose(self.b, node, test, later if both else now, now if both else later)

    def _compare(self, node: ast.AST, left: Value, ops: list[ast.cmpop], values: list[ast.expr]) -> Value:
        _few(node, values)
        right = self._held(values[0])
        found = operators.compare(self.b, node, ops[0], left, right)
        if len(ops) == 1:
            return found
        test = operators.truth(node, found)
        no = Number(Const(Kind.BOOL, False), 0, 1)
        return operators.choose(self.b, node, test, lambda: self._compare(node, right, ops[1:], values[1:]), lambda: no)

    def _choice(self, node: ast.AST, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Value:
        value = self.expression(test)
        if isinstance(value, Number) and value.known is not None:
            return self.expression(body if value.known else orelse)
        condition = self.b.hold(operators.truth(test, value))
        return operators.choose(self.b, node, condition, lambda: self.expression(body), lambda: self.expression(orelse))

    def _call(self, node: ast.Call) -> Value:
        called = ast.unparse(node.func)
        signature = signature_of(node.func)
        if signature is None or called == "range":
            refuse(node, "call", f"calling `{called[:40]}` is not allowed", "Use np, math and arithmetic.")
        if not signature.takes(len(node.args), {k.arg for k in node.keywords}):
            remedy = "An output array cannot be given; write x = f(…)."
            refuse(node, "arity", f"{called} takes {signature.words()}", remedy)
        module, _, name = called.rpartition(".")
        args = [self._held(argument) for argument in node.args]
        if not module:
            return functions.call_builtin(self.b, node, name, args)
        if module == "math":
            return functions.call_math(self.b, node, name, args)
        axis = next((self.expression(k.value) for k in node.keywords if k.arg == "axis"), None)
        dtype = next((k for k in node.keywords if k.arg == "dtype"), None)
        if dtype is not None and ast.unparse(dtype.value) != "np.float64":
            refuse(node, "keyword", "a dtype other than np.float64", "Leave it out.")
        return functions.call_numpy(self.b, node, name, args, axis, dtype is not None)

    def _place(self, node: ast.AST, path: str, kind: Value) -> Value:
        if path not in self.places:
            if isinstance(kind, Number):
                self.places[path] = Number(self.b.slot(kind.kind))
            elif isinstance(kind, View):
                own = self.b.array(node, kind.shape, kind.kind)
                self.places[path] = replace(own, roots=frozenset({path.split(".")[0]}))
        return self.places[path]


def _few(node: ast.AST, terms: list[ast.expr]) -> None:
    if len(terms) > _MOST_TERMS:
        cause = f"more than {_MOST_TERMS} terms of one comparison, `and` or `or`"
        refuse(node, "size", cause, "Split it over several lines.")


def _counted(node: ast.AST, value: Value) -> Value:
    """A tuple that is not too large, counting what its items hold."""
    if _leaves(value) > _MOST_ITEMS:
        refuse(node, "size", f"a tuple of more than {_MOST_ITEMS:,} values", "Keep tables in the state.")
    return value


def _leaves(value: Value) -> int:
    return sum(_leaves(item) for item in value.items) if isinstance(value, Several) else 1


def _constant(value: Any) -> Value:
    if isinstance(value, tuple):
        return Several(tuple(_constant(part) for part in value))
    if isinstance(value, bool):
        return Number(Const(Kind.BOOL, value), int(value), int(value))
    return known(value) if isinstance(value, int) else Number(Const(Kind.FLOAT, float(value)))
