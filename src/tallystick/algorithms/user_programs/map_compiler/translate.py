"""A checked ``map_in_client`` in its scalar form, for records and states of known sizes.

Read against the allow-list first (:mod:`~.user_programs.allow_list`); what that cannot see is decided here, once the
lengths of record and state are known: the shape of every array, how often every loop can run, what fits what. What
cannot be known is refused with its place in the file. Two rules make that possible:

* a variable keeps one kind and one shape, and an array with two names is not written into (:mod:`.assignments`);
* a loop runs a number of times that has an upper bound: ``range(len(x))``, ``range(min(k, 100))``.

Types are found by translating again until no variable's kind grows.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tallystick.algorithms.user_programs.map_compiler import operators
from tallystick.algorithms.user_programs.map_compiler.assignments import Assignments
from tallystick.algorithms.user_programs.map_compiler.builder import Refused, integer, plus, refuse, times
from tallystick.algorithms.user_programs.map_compiler.code import (
    Expr,
    If,
    Jump,
    Kind,
    Loop,
    Op,
    ScalarMap,
    steps,
)
from tallystick.algorithms.user_programs.map_compiler.values import Affine, Number, Several, Value, View, known

MOST_STEPS = 50_000_000
"""Operations that one record may cost at most: a tenth of a second or two."""
_MOST_ATTEMPTS = 20
_WORD_STEPS = 8
"""Each word of the memory is written and compared, twice, for every record."""


def translate(function: ast.FunctionDef, *, constants: Mapping[str, Any], record: int, state: Any) -> ScalarMap:
    """The scalar form of ``map_in_client(self, record, state)`` for records of ``record`` numbers and such a state:

    ``state`` is () for a number, (n, …) for an array, ("tuple", names, parts) for a tuple. Raises :class:`Refused`.
    """
    types: dict[str, Value] = {}
    for _ in range(_MOST_ATTEMPTS):
        attempt = _Translator(function, constants, types)
        found = attempt.run(record, state)
        if not attempt.changed:
            return found
    cause = "the kinds of its variables depend on each other in too long a chain"
    raise Refused(function, "size", cause, "Give each variable a value of its final kind first, e.g. s = 0.0.")


class _Translator(Assignments):
    def __init__(self, function: ast.FunctionDef, constants: Mapping[str, Any], types: dict[str, Value]) -> None:
        me, self.record_name, self.state_name = (a.arg for a in function.args.args)
        super().__init__(function, me, constants, types)
        self.size: int | None = None
        self.result = -1

    def run(self, record: int, state: Any) -> ScalarMap:
        node = self.function
        at = self.b.region(node, record, Kind.FLOAT, "record")
        self.given[self.record_name] = View.of_region(at, (record,), Kind.FLOAT, frozenset({"record"}))
        regions: list[int] = []
        self.given[self.state_name] = self._given_state(state, regions)
        body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
        self.block(body)
        if self.size is None:
            refuse(node, "return", "map_in_client returns nothing", "Return one array of one dimension.")
        self.check_sharing()
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
        view = View.of_region(at, shape, Kind.FLOAT, frozenset({"state"}))
        return view if shape else Number(self.b.get(view, ()))

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
        self.b.add(Jump.BREAK)
        return True

    def _continue(self, node: ast.Continue) -> bool:
        self.b.add(Jump.CONTINUE)
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
        self.b.copied_into(View.of_region(self.result, value.shape, Kind.FLOAT), value)
        self.b.add(Jump.RETURN)
        return True

    def _assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        if isinstance(value, Several) or (len(node.targets) > 1 and not isinstance(value, View)):
            value = self.kept(node, value)  # t = (t[1], t[0]); a = b = a + 1
        for target in node.targets:
            self.assign(target, value)
            if isinstance(target, ast.Name) and isinstance(value, View):
                value = replace(self.array_of(target.id), roots=value.roots | {target.id})

    def _augassign(self, node: ast.AugAssign) -> None:
        value = self.expression(node.value)
        if isinstance(node.target, ast.Name):
            name = node.target.id
            before = self._name(node.target)
            if isinstance(before, View):
                self.write_into(node, before, value, node.op)
                return
            self.bind(node, name, operators.binary(self.b, node, node.op, before, value))
        elif isinstance(node.target, ast.Subscript):
            self.write(node.target, value, node.op)
        else:
            refuse(node, "write", "this cannot be assigned to", "Assign to a variable or an element of an array.")

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


def _hull(a: tuple[int, int, Affine | None], c: tuple[int, int, Affine | None]) -> tuple[int, int, Affine | None]:
    return min(a[0], c[0]), max(a[1], c[1]), a[2] if a[2] == c[2] else None


def _assigned(statements: list[ast.stmt]) -> set[str]:
    return {
        n.id
        for statement in statements
        for n in ast.walk(statement)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
