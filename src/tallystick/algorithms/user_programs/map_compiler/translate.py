"""A checked ``map_in_client`` in its scalar form, for records and states of known sizes.

Read against the allow-list first (:mod:`~.user_programs.allow_list`); what that cannot see is decided here, once the
lengths of record and state are known: the shape of every array, how often every loop can run, what fits what. What
cannot be known is refused with its place in the file. Three rules make that possible:

* a variable keeps one kind and one shape (a whole number may become a float);
* two names of one array are fine while nobody writes into it any more (Python would share it, this form copies it);
* a loop runs a number of times that has an upper bound: ``range(len(x))``, ``range(min(k, 100))``.

Types are found by translating again until no variable's kind grows.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tallystick.algorithms.user_programs.map_compiler import indexing, operators
from tallystick.algorithms.user_programs.map_compiler.builder import Refused, convert, integer, plus, refuse, times
from tallystick.algorithms.user_programs.map_compiler.code import (
    Break,
    Const,
    Continue,
    Expr,
    If,
    Kind,
    Loop,
    Op,
    Return,
    ScalarMap,
    Set,
    Slot,
    steps,
)
from tallystick.algorithms.user_programs.map_compiler.expressions import Expressions
from tallystick.algorithms.user_programs.map_compiler.values import (
    Affine,
    ArrayType,
    Number,
    ScalarType,
    Several,
    SeveralType,
    Type,
    Value,
    View,
    known,
    type_of,
)

__all__ = ["MOST_STEPS", "Refused", "translate"]

MOST_STEPS = 50_000_000
"""Operations that one record may cost at most: a tenth of a second or two."""
_MOST_ATTEMPTS = 20
_MOST_PAIRS = 100_000
_WORD_STEPS = 8
"""Each word of the memory is written and compared, twice, for every record."""


@dataclass(frozen=True)
class _Touch:
    """An array was written into, or given a second name: when, within which loops, at which node."""

    when: int
    loops: tuple[int, ...]
    node: ast.AST
    names: frozenset[str]


def translate(function: ast.FunctionDef, *, constants: Mapping[str, Any], record: int, state: Any) -> ScalarMap:
    """The scalar form of ``map_in_client(self, record, state)`` for records of ``record`` numbers and such a state:

    ``state`` is () for a number, (n, …) for an array, ("tuple", names, parts) for a tuple. Raises :class:`Refused`.
    """
    types: dict[str, Type] = {}
    for _ in range(_MOST_ATTEMPTS):
        attempt = _Translator(function, constants, types)
        found = attempt.run(record, state)
        if not attempt.changed:
            return found
    cause = "the kinds of its variables depend on each other in too long a chain"
    raise Refused(function, "size", cause, "Give each variable a value of its final kind first, e.g. s = 0.0.")


class _Translator(Expressions):
    def __init__(self, function: ast.FunctionDef, constants: Mapping[str, Any], types: dict[str, Type]) -> None:
        me, self.record_name, self.state_name = (a.arg for a in function.args.args)
        super().__init__(me, constants, types)
        self.function = function
        self.changed = False
        self.size: int | None = None
        self.result = -1
        self.clock = 0
        self.loops: tuple[int, ...] = ()
        self.writes: list[_Touch] = []
        self.shared: list[_Touch] = []

    def run(self, record: int, state: Any) -> ScalarMap:
        node = self.function
        at = self.b.region(node, record, Kind.FLOAT, "record")
        self.given[self.record_name] = View(at, integer(0), (record,), (1,), Kind.FLOAT, frozenset({"record"}))
        regions: list[int] = []
        self.given[self.state_name] = self._given_state(state, regions)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        self.block(body)
        if self.size is None:
            refuse(node, "return", "map_in_client returns nothing", "Return one array of one dimension.")
        self._check_sharing()
        written = tuple(self.b.body)
        work = steps(written) + _WORD_STEPS * sum(r.words for r in self.b.regions)
        if work > MOST_STEPS:
            cause = f"a record may cost {work:,} operations, more than {MOST_STEPS:,}"
            refuse(node, "loop-bound", cause, "Shorten its loops or arrays.")
        return ScalarMap(
            regions=tuple(self.b.regions),
            slots=tuple(self.b.slots),
            body=written,
            size=self.size,
            state=tuple(regions),
            steps=work,
        )

    def _given_state(self, shape: Any, regions: list[int]) -> Value:
        if shape and shape[0] == "tuple":
            _, fields, parts = shape
            return Several(tuple(self._given_state(part, regions) for part in parts), fields=fields)
        at = self.b.region(self.function, math.prod(shape), Kind.FLOAT, "state")
        regions.append(at)
        strides = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
        view = View(at, integer(0), tuple(shape), strides, Kind.FLOAT, frozenset({"state"}))
        return view if shape else Number(self.b.get(view, ()))

    def _check_sharing(self) -> None:
        """Refuse writing into an array that has another name, unless all writing came before the second name."""
        if len(self.shared) * len(self.writes) > _MOST_PAIRS:
            cause = "too many arrays with several names, and too many places that write into arrays"
            refuse(self.function, "size", cause, "Write a shorter program.")
        for second in self.shared:
            for write in self.writes:
                self._check_pair(second, write)

    def _check_pair(self, second: _Touch, write: _Touch) -> None:
        later = write.when > second.when or set(write.loops) & set(second.loops)
        if not (write.names & second.names and later):
            return
        read_only = second.names & {"record", "state", "a constant"}
        if read_only:
            cause = f"writing into {min(read_only)}, which is read-only"
            refuse(write.node, "read-only", cause, "Write into a new array, e.g. one made by np.zeros.")
        names = " and ".join(f"`{name}`" for name in sorted(second.names))
        cause = f"{names} may be one array, and it is written into"
        refuse(write.node, "shared-array", cause, "Make a copy first: y = 1.0 * x.")

    # -- statements ---------------------------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> bool:
        """Whether it surely ends in return, break or continue; what stands behind that is never reached."""
        for statement in statements:
            self.clock += 1
            handler = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if handler is None:
                refuse(statement, "construct", "this statement is not allowed", "Use assignments, if, for and return.")
            if handler(statement):
                return True
        return False

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _break(self, node: ast.Break) -> bool:
        self.b.add(Break())
        return True

    def _continue(self, node: ast.Continue) -> bool:
        self.b.add(Continue())
        return True

    def _return(self, node: ast.Return) -> bool:
        value = self.expression(node.value) if node.value is not None else None
        if not isinstance(value, View) or len(value.shape) != 1:
            what = "nothing" if value is None else operators.in_words(value)
            cause = f"map_in_client returns {what}: return one array of one dimension on every path"
            refuse(node, "return", cause, "Return np.array([…]) or an array made by np.zeros.")
        length = value.shape[0]
        if length == 0:
            refuse(node, "return", "map_in_client returns an empty vector", "Return at least one number.")
        if self.size is None:
            self.size = length
            self.result = self.b.region(node, length, Kind.FLOAT, "result")
        elif self.size != length:
            cause = f"map_in_client returns {length} numbers here and {self.size} elsewhere"
            refuse(node, "vector-length", cause, "Return a vector of one length on every path.")
        out = View(self.result, integer(0), value.shape, (1,), Kind.FLOAT)
        self.b.copied_into(out, value)
        self.b.add(Return())
        return True

    def _assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        if isinstance(value, Several) or (len(node.targets) > 1 and not isinstance(value, View)):
            value = self._kept(node, value)  # t = (t[1], t[0]); a = b = a + 1
        for target in node.targets:
            self.assign(target, value)
            if isinstance(target, ast.Name) and isinstance(value, View):
                value = replace(self._array_of(target.id), roots=value.roots | {target.id})

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.bind(target, target.id, value)
        elif isinstance(target, ast.Tuple):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self._write(target, value, None)
        else:
            refuse(target, "write", "this cannot be assigned to", "Assign to a variable or an element of an array.")

    def _unpack(self, target: ast.Tuple, value: Value) -> None:
        there = len(value.items) if isinstance(value, Several) else 0
        there = value.shape[0] if isinstance(value, View) and value.shape else there
        if there != len(target.elts):
            cause = f"{len(target.elts)} names for {operators.in_words(value)} of {there}"
            refuse(target, "shape", cause, "Give as many names as there are values.")
        if isinstance(value, View):
            items: tuple[Value, ...] = tuple(self._row(value, i) for i in range(there))
        else:
            items = value.items if isinstance(value, Several) else ()
        parts = any(isinstance(part, ast.Subscript) for part in target.elts)
        if parts and any(isinstance(item, View) and item.roots for item in items):
            cause = "parts of arrays assigned to each other at once"
            refuse(target, "shared-array", cause, "Write one assignment a line, through a copy: y = 1.0 * x[:2].")
        held = tuple(self._kept(target, item) for item in items)  # a, b = b, a
        for part, item in zip(target.elts, held):
            self.assign(part, item)

    def _row(self, view: View, i: int) -> Value:
        at = plus(view.base, times(integer(i), view.strides[0]))
        row = replace(view, base=at, shape=view.shape[1:], strides=view.strides[1:])
        return row if row.shape else Number(self.b.get(row, ()))

    def _kept(self, node: ast.AST, value: Value) -> Value:
        """The value as it is now, whatever is assigned next."""
        if isinstance(value, Number):
            return replace(value, code=value.code if isinstance(value.code, Const) else self.b.copy(value.code))
        if isinstance(value, View):
            return replace(self.b.copy_of(node, value), roots=value.roots)
        return replace(value, items=tuple(self._kept(node, item) for item in value.items))

    def bind(self, node: ast.AST, name: str, value: Value) -> None:
        """``name = value``: into the variable's own slot or region."""
        self._widen(node, name, type_of(value))
        self._store(node, name, name, value, self.types[name])

    def _widen(self, node: ast.AST, name: str, found: Type) -> None:
        before = self.types.get(name)
        joined = found if before is None else _join(node, name, before, found)
        if joined != before:
            self.types[name] = joined
            self.changed |= before is not None
            self.places = {n: v for n, v in self.places.items() if n != name and not n.startswith(f"{name}.")}

    def _store(self, node: ast.AST, name: str, path: str, value: Value, kind: Type) -> None:
        if isinstance(kind, SeveralType) and isinstance(value, Several):
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
                self.shared.append(_Touch(self.clock, self.loops, node, names))
            if value.region == place.region:
                value = self.b.copy_of(node, value)  # x = x[::-1]
            self.b.copied_into(place, value)

    def _array_of(self, name: str) -> View:
        place = self.places[name]
        if not isinstance(place, View):  # pragma: no cover - the caller knows
            raise AssertionError(name)
        return place

    def _augassign(self, node: ast.AugAssign) -> None:
        value = self.expression(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            before = self._name(node.target)
            if isinstance(before, View):
                self._write_into(node, before, value, node.op)
                return
            self.bind(node, name, operators.binary(self.b, node, node.op, before, value))
        elif isinstance(node.target, ast.Subscript):
            self._write(node.target, value, node.op)
        else:
            refuse(node, "write", "this cannot be assigned to", "Assign to a variable or an element of an array.")

    def _write(self, target: ast.Subscript, value: Value, operator: ast.operator | None) -> None:
        base = self.expression(target.value)
        if not isinstance(base, View):
            cause = f"writing into {operators.in_words(base)}"
            refuse(target, "write", cause, "Write into an array made by np.zeros.")
        if not base.roots:
            refuse(target, "write", "writing into a copy", "Write x[i, j] = … with all indices at once.")
        part = indexing.index(self.b, target, base, self.expression)
        if isinstance(part, View) and part.region != base.region:
            refuse(target, "write", "writing through an index array", "Use a loop over range(…).")
        self._write_into(target, part, value, operator)

    def _write_into(
        self, node: ast.AST, part: View | indexing.Masked, value: Value, operator: ast.operator | None
    ) -> None:
        """``part = value`` or ``part operator= value``, element by element; shapes are equal or value is a number."""
        view = part.view if isinstance(part, indexing.Masked) else part
        read_only = view.roots & {"record", "state", "a constant"}
        if read_only:
            cause = f"writing into {min(read_only)}, which is read-only"
            refuse(node, "read-only", cause, "Write into a new array, e.g. one made by np.zeros.")
        if any(isinstance(self.types.get(name), SeveralType) for name in view.roots):
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
        self.writes.append(_Touch(self.clock, self.loops, node, view.roots))

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

    def _if(self, node: ast.If) -> bool:
        test = self.expression(node.test)
        if isinstance(test, Number) and test.known is not None:
            return self.block(node.body if test.known else node.orelse)
        condition = self.b.hold(operators.truth(node.test, test))
        before = dict(self.intervals)
        with self.b.block() as then:
            then_ends = self.block(node.body)
        after_then, self.intervals = self.intervals, before
        with self.b.block() as other:
            other_ends = self.block(node.orelse)
        self.b.add(If(condition, tuple(then), tuple(other)))
        self.intervals = {
            name: _hull(interval, self.intervals[name])
            for name, interval in after_then.items()
            if name in self.intervals
        }
        return then_ends and other_ends

    def _for(self, node: ast.For) -> None:
        arguments = self._range(node.iter)
        if not isinstance(node.target, ast.Name):
            refuse(node.target, "for", "a loop over several names", "Use one counter.")
        start, stop, step = arguments
        stride = step.known
        if stride is None or stride == 0:
            refuse(node.iter, "loop-bound", "the step of range(…) is not known, or zero", "Use a number.")
        reach = stop.high - start.low if stride > 0 else start.high - stop.low
        most = max(0, -(-reach // abs(stride)))
        if most > MOST_STEPS:
            cause = "how often this loop runs has no upper bound, or a very large one"
            remedy = "Loop over range(len(x)), a constant, or range(min(k, 100))."
            refuse(node.iter, "loop-bound", cause, remedy)
        count = self._count(start, stop, stride)
        name = node.target.id
        assigned = _assigned(node.body)
        self._forget(assigned | {name})
        counter = self.b.slot(Kind.INT)
        self.clock += 1
        around, self.loops = self.loops, (*self.loops, self.clock)
        with self.b.block() as body:
            code = plus(start.code, times(counter, stride))
            low, high = (start.low, stop.high - 1) if stride > 0 else (stop.low + 1, start.high)
            affine = operators.combined(start.affine, (0, ((counter.number, stride),)))
            self.bind(node.target, name, Number(code, low, max(low, high), affine))
            self.block(node.body)
        self.loops = around
        self.b.add(Loop(counter, count, most, tuple(body)))
        self._forget(assigned | {name})

    def _range(self, node: ast.expr) -> tuple[Number, Number, Number]:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"):
            refuse(node, "for", "a loop over something other than range(…)", "Use `for i in range(len(x))`.")
        numbers = []
        for part in node.args:
            value = self.expression(part)
            if not isinstance(value, Number) or value.kind != Kind.INT:
                refuse(part, "types", "range(…) takes whole numbers", "Use int(x), and min(…) for a bound.")
            numbers.append(replace(value, code=value.code if value.known is not None else self.b.copy(value.code)))
        if not 1 <= len(numbers) <= 3:
            refuse(node, "arity", "range(…) takes one to three arguments", "Write range(n).")
        if len(numbers) == 1:
            return known(0), numbers[0], known(1)
        return numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else known(1)

    def _count(self, start: Number, stop: Number, stride: int) -> Expr:
        if start.known is not None and stop.known is not None:
            return integer(len(range(start.known, stop.known, stride)))
        span = Op(Kind.INT, "sub", (stop.code, start.code) if stride > 0 else (start.code, stop.code))
        size = abs(stride)
        return span if size == 1 else Op(Kind.INT, "floordiv", (plus(span, integer(size - 1)), integer(size)))

    def _forget(self, names: set[str]) -> None:
        for path in list(self.intervals):
            if path.split(".")[0] in names:
                del self.intervals[path]


def _join(node: ast.AST, name: str, a: Type, c: Type) -> Type:
    if isinstance(a, ScalarType) and isinstance(c, ScalarType):
        return ScalarType(max(a.kind, c.kind))
    if isinstance(a, ArrayType) and isinstance(c, ArrayType) and a.shape == c.shape:
        if (a.kind == Kind.BOOL) != (c.kind == Kind.BOOL):
            cause = f"`{name}` holds True and False here and numbers elsewhere"
            refuse(node, "types", cause, "Use another name.")
        return ArrayType(max(a.kind, c.kind), a.shape)
    if isinstance(a, SeveralType) and isinstance(c, SeveralType) and len(a.items) == len(c.items):
        fields = a.fields if a.fields == c.fields else ()
        return SeveralType(tuple(_join(node, name, x, y) for x, y in zip(a.items, c.items)), fields)
    rule = "shape" if isinstance(a, ArrayType) and isinstance(c, ArrayType) else "types"
    cause = f"`{name}` is {_type_in_words(c)} here and {_type_in_words(a)} elsewhere"
    raise Refused(node, rule, cause, "Keep one kind of value and one shape per variable: use another name.")


def _type_in_words(kind: Type) -> str:
    if isinstance(kind, ScalarType):
        return "a number"
    if isinstance(kind, ArrayType):
        return f"an array of {' × '.join(str(n) for n in kind.shape)}"
    return f"a tuple of {len(kind.items)}"


def _hull(a: tuple[int, int, Affine | None], c: tuple[int, int, Affine | None]) -> tuple[int, int, Affine | None]:
    return min(a[0], c[0]), max(a[1], c[1]), a[2] if a[2] == c[2] else None


def _assigned(statements: list[ast.stmt]) -> set[str]:
    return {
        n.id
        for statement in statements
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
