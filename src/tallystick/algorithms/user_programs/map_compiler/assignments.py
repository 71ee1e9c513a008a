"""What is stored where: names bound to values, arrays written into, and which names may be one array.

* a variable keeps one kind and one shape (a whole number may become a float);
* two names of one array are fine while nobody writes into it any more (Python would share it, this form copies it).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from tallystick.algorithms.user_programs.map_compiler import indexing, operators
from tallystick.algorithms.user_programs.map_compiler.builder import Refused, convert, integer, plus, refuse, times
from tallystick.algorithms.user_programs.map_compiler.code import Const, Expr, If, Kind, Set, Slot
from tallystick.algorithms.user_programs.map_compiler.expressions import Expressions
from tallystick.algorithms.user_programs.map_compiler.values import Number, Several, Value, View, prototype

_MOST_PAIRS = 100_000
_READ_ONLY = frozenset({"record", "state", "a constant"})


@dataclass(frozen=True)
class Touch:
    """An array was written into, or given a second name: when, within which loops, at which node."""

    when: int
    loops: tuple[int, ...]
    node: ast.AST
    names: frozenset[str]


class Assignments(Expressions):
    """Expressions with variables to store them in; ``changed`` tells that a variable's kind grew."""

    def __init__(
        self, function: ast.FunctionDef, me: str, constants: Mapping[str, Any], types: dict[str, Value]
    ) -> None:
        super().__init__(me, constants, types)
        self.function = function
        self.changed = False
        self.clock = 0
        self.loops: tuple[int, ...] = ()
        self.writes: list[Touch] = []
        self.shared: list[Touch] = []

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.bind(target, target.id, value)
        elif isinstance(target, ast.Tuple):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self.write(target, value, None)
        else:
            refuse(target, "write", "this cannot be assigned to", "Assign to a variable or an element of an array.")

    def _unpack(self, target: ast.Tuple, value: Value) -> None:
        there = len(value.items) if isinstance(value, Several) else 0
        there = value.shape[0] if isinstance(value, View) and value.shape else there
        if there != len(target.elts):
            cause = f"{len(target.elts)} names for {operators.in_words(value)}"
            refuse(target, "shape", cause, "Give as many names as there are values.")
        if isinstance(value, View):
            items: tuple[Value, ...] = tuple(self._row(value, i) for i in range(there))
        else:
            items = value.items if isinstance(value, Several) else ()
        parts = any(isinstance(part, ast.Subscript) for part in target.elts)
        if parts and any(isinstance(item, View) and item.roots for item in items):
            cause = "parts of arrays assigned to each other at once"
            refuse(target, "shared-array", cause, "Write one assignment a line, through a copy: y = 1.0 * x[:2].")
        held = tuple(self.kept(target, item) for item in items)  # a, b = b, a
        for part, item in zip(target.elts, held):
            self.assign(part, item)

    def _row(self, view: View, i: int) -> Value:
        at = plus(view.base, times(integer(i), view.strides[0]))
        row = replace(view, base=at, shape=view.shape[1:], strides=view.strides[1:])
        return row if row.shape else Number(self.b.get(row, ()))

    def kept(self, node: ast.AST, value: Value) -> Value:
        """The value as it is now, whatever is assigned next."""
        if isinstance(value, Number):
            return replace(value, code=value.code if isinstance(value.code, Const) else self.b.copy(value.code))
        if isinstance(value, View):
            return replace(self.b.copy_of(node, value), roots=value.roots)
        return replace(value, items=tuple(self.kept(node, item) for item in value.items))

    def bind(self, node: ast.AST, name: str, value: Value) -> None:
        """``name = value``: into the variable's own slot or region."""
        self._widen(node, name, prototype(value))
        self._store(node, name, name, value, self.types[name])

    def _widen(self, node: ast.AST, name: str, found: Value) -> None:
        before = self.types.get(name)
        joined = found if before is None else _join(node, name, before, found)
        if joined != before:
            self.types[name] = joined
            self.changed |= before is not None
            self.places = {n: v for n, v in self.places.items() if n != name and not n.startswith(f"{name}.")}

    def _store(self, node: ast.AST, name: str, path: str, value: Value, kind: Value) -> None:
        if isinstance(kind, Several) and isinstance(value, Several):
            for i, (item, part) in enumerate(zip(value.items, kind.items)):
                self._store(node, name, f"{path}.{i}", item, part)
            return
        place = self._place(node, path, kind)
        if isinstance(place, Number) and isinstance(value, Number) and isinstance(place.code, Slot):
            self.b.add(Set(place.code, convert(value.code, place.kind)))
            self.intervals[path] = (value.low, value.high, value.affine)
        elif isinstance(place, View) and isinstance(value, View):
            if value.roots - {name}:
                names = value.roots | {name}
                self.shared.append(Touch(self.clock, self.loops, node, names))
            if value.region == place.region:
                value = self.b.copy_of(node, value)  # x = x[::-1]
            self.b.copied_into(place, value)

    def array_of(self, name: str) -> View:
        place = self.places[name]
        if not isinstance(place, View):  # pragma: no cover - the caller knows
            raise AssertionError(name)
        return place

    def write(self, target: ast.Subscript, value: Value, operator: ast.operator | None) -> None:
        base = self.expression(target.value)
        if not isinstance(base, View):
            cause = f"writing into {operators.in_words(base)}"
            refuse(target, "write", cause, "Write into an array made by np.zeros.")
        if not base.roots:
            refuse(target, "write", "writing into a copy", "Write x[i, j] = … with all indices at once.")
        part = indexing.index(self.b, target, base, self.expression)
        if isinstance(part, View) and part.region != base.region:
            refuse(target, "write", "writing through an index array", "Use a loop over range(…).")
        self.write_into(target, part, value, operator)

    def write_into(
        self, node: ast.AST, part: View | indexing.Masked, value: Value, operator: ast.operator | None
    ) -> None:
        """``part = value`` or ``part operator= value``, element by element; shapes are equal or value is a number."""
        view = part.view if isinstance(part, indexing.Masked) else part
        read_only = view.roots & _READ_ONLY
        if read_only:
            _refuse_write(node, read_only)
        if any(isinstance(self.types.get(name), Several) for name in view.roots):
            cause = "writing into an array that a tuple holds"
            refuse(node, "shared-array", cause, "Keep it in a variable of its own: x = 1.0 * t[0].")
        if view.kind != Kind.FLOAT:
            cause = "only float64 arrays can be written into"
            refuse(node, "array-type", cause, "Make the array with np.zeros or np.ones.")
        given = value if isinstance(value, Number) else self.b.as_array(node, value)
        if given is None:
            refuse(node, "types", f"writing {operators.in_words(value)} into an array", "Write numbers or arrays.")
        masked = isinstance(part, indexing.Masked)
        if isinstance(given, View) and (masked or given.shape != view.shape):
            where = "a choice of elements" if masked else operators.in_words(view)
            cause = f"{operators.in_words(given)} does not fit {where}"
            refuse(node, "shape", cause, "Make both as long as each other; nothing is stretched to fit.")
        if isinstance(given, View) and given.region == view.region:
            given = self.b.copy_of(node, given)
        held = self.b.hold(given.code) if isinstance(given, Number) else given
        self.writes.append(Touch(self.clock, self.loops, node, view.roots))

        def element(at: tuple[Expr, ...]) -> None:
            new = Number(self.b.get(held, at)) if isinstance(held, View) else Number(held)
            if operator is not None:
                old = Number(self.b.hold(self.b.get(view, at)))
                made = operators.binary(self.b, node, operator, old, new, elements=bool(view.shape))
                if not isinstance(made, Number):  # pragma: no cover - numbers give numbers
                    raise AssertionError(made)
                new = made
            self.b.put(view, at, new.code)

        def chosen(at: tuple[Expr, ...]) -> None:
            if not isinstance(part, indexing.Masked):
                element(at)
                return
            with self.b.block() as inner:
                element(at)
            self.b.add(If(self.b.get(part.mask, at), tuple(inner)))

        self.b.each(view.shape, chosen)

    def check_sharing(self) -> None:
        """Refuse writing into an array that has another name, unless all writing came before the second name."""
        if len(self.shared) * len(self.writes) > _MOST_PAIRS:
            cause = "too many arrays with several names, and too many places that write into arrays"
            refuse(self.function, "size", cause, "Write a shorter program.")
        for second in self.shared:
            for write in self.writes:
                self._check_pair(second, write)

    def _check_pair(self, second: Touch, write: Touch) -> None:
        later = write.when > second.when or set(write.loops) & set(second.loops)
        if not (write.names & second.names and later):
            return
        read_only = second.names & _READ_ONLY
        if read_only:
            _refuse_write(write.node, read_only)
        names = " and ".join(f"`{name}`" for name in sorted(second.names))
        cause = f"{names} may be one array, and it is written into"
        refuse(write.node, "shared-array", cause, "Make a copy first: y = 1.0 * x.")


def _refuse_write(node: ast.AST, names: frozenset[str]) -> NoReturn:
    cause = f"writing into {min(names)}, which is read-only"
    refuse(node, "read-only", cause, "Write into a new array, e.g. one made by np.zeros.")


def _join(node: ast.AST, name: str, a: Value, c: Value) -> Value:
    """The prototype of a variable that holds both."""
    if isinstance(a, Number) and isinstance(c, Number):
        return max(a, c, key=lambda number: number.kind)
    if isinstance(a, View) and isinstance(c, View) and a.shape == c.shape:
        if (a.kind == Kind.BOOL) != (c.kind == Kind.BOOL):
            cause = f"`{name}` holds True and False here and numbers elsewhere"
            refuse(node, "types", cause, "Use another name.")
        return max(a, c, key=lambda view: view.kind)
    if isinstance(a, Several) and isinstance(c, Several) and len(a.items) == len(c.items):
        fields = a.fields if a.fields == c.fields else ()
        return Several(tuple(_join(node, name, x, y) for x, y in zip(a.items, c.items)), fields)
    rule = "shape" if isinstance(a, View) and isinstance(c, View) else "types"
    cause = f"`{name}` is {operators.in_words(c)} here and {operators.in_words(a)} elsewhere"
    raise Refused(node, rule, cause, "Keep one kind of value and one shape per variable: use another name.")
