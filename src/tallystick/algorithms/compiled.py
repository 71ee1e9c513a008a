"""A checked ``map_in_client`` as machine code that sees one read-only record at a time.

The method's syntax tree, already read against the allow-list, loses ``self`` (each ``self.NAME`` becomes the literal
constant) and is compiled by numba in nopython mode. A kernel then walks the records in order: user function on one
row, vector checked, put on the grid, clipped, added (:func:`tallystick.privacy.clipping.clip_record`).

Why the sum is row-independent, to the bit:

* inputs are read-only array types, so writing to the record or the state, by any alias, is a compile error;
* indexing is bounds-checked (``boundscheck=True``): ``record[len(record)]`` would otherwise be the next record;
* float-to-integer conversion is range-checked (an out-of-range one is undefined in LLVM, and undefined values may
  remove a bounds check), and only float64 arrays can be written to, for the same reason;
* dot products are plain loops in index order, never BLAS, whose rounding depends on shape and machine; no fastmath.

| a record's vector             | ``total``: refuse          | ``total_leaving_out``            |
|-------------------------------|----------------------------|----------------------------------|
| NaN or ±inf in it             | DataError, nothing summed  | adds zeros, counted locally      |
| not as long as the groups say | StudyError, nothing summed | adds zeros, counted locally      |
| the function fails on it      | DataError, nothing summed  | adds zeros, counted locally      |
"""

from __future__ import annotations

import ast
import copy
import hashlib
import math
import re
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, types
from numba.core.errors import NumbaError, TypingError
from numba.extending import overload
from numpy.typing import NDArray

from tallystick.core.errors import DataError, StudyError
from tallystick.privacy.clipping import clip_record
from tallystick.privacy.grid import Grid

__all__ = ["CompiledMap", "Literal", "compile_map", "frozen_state", "ordered_dot"]

Literal = bool | int | float | tuple[Any, ...]
"""What ``self.NAME`` may stand for in map_in_client: a number, or a tuple of numbers."""

_OK, _NOT_FINITE, _WRONG_LENGTH, _FAILED = 0, 1, 2, 3


# What the user's own words are replaced by. Each is a plain Python function (the oracle) with a compiled twin.


def ordered_dot(a: Any, b: Any) -> Any:
    """np.dot for one- and two-dimensional arrays, added up in index order."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape[-1] != b.shape[0]:
        raise ValueError("the sizes of a dot product differ")
    if a.ndim == 2:
        return np.array([ordered_dot(row, b) for row in a])
    if b.ndim == 2:
        return np.array([ordered_dot(a, column) for column in b.T])
    total = 0.0
    for x, y in zip(a, b):
        total += x * y
    return total


def checked_int(x: Any) -> int:
    """int(x), refusing NaN and what does not fit 62 bits."""
    if not -(2.0**62) < x < 2.0**62:
        raise ValueError("a number too large for int()")
    return int(x)


def own_array(array: Any) -> Any:
    """The array itself, provided that it is the function's own and holds float64."""
    return array


def own_value(value: Any) -> Any:
    """The value itself: a number, or an array of the function's own (``x += 1`` changes an array in place)."""
    return value


def _vector(value: Any) -> Any:
    return value


@overload(ordered_dot)
def _compiled_dot(a, b):  # type: ignore[no-untyped-def]
    if not (isinstance(a, types.Array) and isinstance(b, types.Array) and a.ndim in (1, 2) and b.ndim in (1, 2)):
        raise TypingError("np.dot and @ take two arrays of one or two dimensions")
    if a.ndim == 1 and b.ndim == 1:

        def dot(a, b):  # type: ignore[no-untyped-def]
            if a.shape[0] != b.shape[0]:
                raise ValueError("the sizes of a dot product differ")
            total = 0.0
            for i in range(a.shape[0]):
                total += a[i] * b[i]
            return total

    elif a.ndim == 2 and b.ndim == 1:

        def dot(a, b):  # type: ignore[no-untyped-def]
            out = np.zeros(a.shape[0])
            for i in range(a.shape[0]):
                out[i] = ordered_dot(a[i], b)
            return out

    elif a.ndim == 1:

        def dot(a, b):  # type: ignore[no-untyped-def]
            out = np.zeros(b.shape[1])
            for j in range(b.shape[1]):
                out[j] = ordered_dot(a, b[:, j])
            return out

    else:

        def dot(a, b):  # type: ignore[no-untyped-def]
            out = np.zeros((a.shape[0], b.shape[1]))
            for i in range(a.shape[0]):
                for j in range(b.shape[1]):
                    out[i, j] = ordered_dot(a[i], b[:, j])
            return out

    return dot


@overload(checked_int)
def _compiled_int(x):  # type: ignore[no-untyped-def]
    if isinstance(x, (types.Integer, types.Boolean)):
        return lambda x: np.int64(x)
    if not isinstance(x, types.Float):
        raise TypingError("int() takes a number")

    def convert(x):  # type: ignore[no-untyped-def]
        if not (x > -(2.0**62) and x < 2.0**62):
            raise ValueError("a number too large for int()")
        return np.int64(x)

    return convert


@overload(own_array)
def _compiled_own_array(array):  # type: ignore[no-untyped-def]
    if isinstance(array, types.Array) and not array.mutable:
        raise TypingError("record and state are read-only: write into an array of your own, made by np.zeros")
    if not (isinstance(array, types.Array) and array.dtype == types.float64):
        raise TypingError("only float64 arrays can be written into: make it with np.zeros")
    return lambda array: array


@overload(own_value)
def _compiled_own_value(value):  # type: ignore[no-untyped-def]
    if isinstance(value, types.Array):
        return lambda value: own_array(value)
    return lambda value: value


@overload(_vector)
def _compiled_vector(value):  # type: ignore[no-untyped-def]
    numbers = (types.Float, types.Integer, types.Boolean)
    if not (isinstance(value, types.Array) and value.ndim == 1 and isinstance(value.dtype, numbers)):
        raise TypingError(f"map_in_client returns {_in_words(value)}: return one array of one dimension on every path")
    return lambda value: value


def _in_words(value: types.Type) -> str:
    if isinstance(value, types.Array):
        return f"an array of {value.ndim} dimensions"
    return "nothing" if isinstance(value, types.NoneType) else f"a value of type {value}"


class _Rewrite(ast.NodeTransformer):
    """``self.NAME`` → its value; int, dot, @, item and augmented assignment → the checked forms above."""

    def __init__(self, me: str, constants: Mapping[str, Literal]) -> None:
        self.me = me
        self.constants = constants

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self.me:
            value: Any = self.constants[node.attr]
            return ast.copy_location(ast.Constant(value=value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "int":
            node.func.id = "_checked_int"
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "dot":
            node.func = ast.copy_location(ast.Name(id="_ordered_dot", ctx=ast.Load()), node.func)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            dot = ast.Name(id="_ordered_dot", ctx=ast.Load())
            return ast.copy_location(ast.Call(func=dot, args=[node.left, node.right], keywords=[]), node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node
        name = node.target.id
        own = ast.Name(id="_own_value", ctx=ast.Load())
        value = ast.Call(func=own, args=[ast.Name(id=name, ctx=ast.Load())], keywords=[])
        check = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value)
        return [ast.fix_missing_locations(ast.copy_location(check, node)), node]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Store):
            own = ast.Name(id="_own_array", ctx=ast.Load())
            node.value = ast.copy_location(ast.Call(func=own, args=[node.value], keywords=[]), node.value)
        return node


def compile_map(function: ast.FunctionDef, *, constants: Mapping[str, Literal], file: str) -> CompiledMap:
    """The kernel of a CHECKED map_in_client (:func:`tallystick.algorithms.allow_list.check_function`)."""
    plain = copy.deepcopy(function)
    me = plain.args.args.pop(0).arg
    plain.returns = None
    plain.decorator_list = []
    for argument in plain.args.args:
        argument.annotation = None
    if ast.get_docstring(plain, clean=False) is not None:
        plain.body = plain.body[1:]
    plain = _Rewrite(me, constants).visit(plain)
    plain.name = "map_in_client"
    tree = ast.fix_missing_locations(ast.Module(body=[plain], type_ignores=[]))
    text = ast.dump(tree, include_attributes=True)
    key = hashlib.sha256(text.encode()).hexdigest()
    return CompiledMap(file=file, source_hash=key, kernels=_kernels(_Source(key=key, file=file, tree=tree)))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """A rewritten module, equal to another when its hash and file name are."""

    key: str
    file: str
    tree: ast.Module

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and (self.key, self.file) == (other.key, other.file)

    def __hash__(self) -> int:
        return hash((self.key, self.file))


@dataclass(frozen=True, kw_only=True)
class _Kernels:
    total: Callable[..., tuple[int, int, int]]
    rows: Callable[..., tuple[int, int, int]]


@lru_cache(maxsize=64)
def _kernels(source: _Source) -> _Kernels:
    """Numba dispatchers for one source; each compiles once per type of state and keeps the result."""
    builtins = {f.__name__: f for f in (range, len, abs, min, max, float, bool)}
    space: dict[str, Any] = {"__builtins__": builtins, "__name__": "tallystick_program", "np": np, "math": math}
    space |= {
        "_checked_int": checked_int,
        "_ordered_dot": ordered_dot,
        "_own_array": own_array,
        "_own_value": own_value,
    }
    exec(compile(source.tree, _code_name(source.file), "exec"), space)  # a checked def, nothing else
    user = njit(boundscheck=True, nogil=True)(space["map_in_client"])

    @njit(boundscheck=True, nogil=True)
    def one(record, state, out):  # type: ignore[no-untyped-def]
        vector = _vector(user(record, state))
        if vector.shape[0] != out.shape[0]:
            return _WRONG_LENGTH, vector.shape[0]
        for j in range(out.shape[0]):
            out[j] = float(vector[j])
            if not np.isfinite(out[j]):
                return _NOT_FINITE, 0
        return _OK, 0

    @njit(nogil=True)
    def guarded(record, state, out):  # type: ignore[no-untyped-def]
        code, found = _FAILED, 0
        try:
            code, found = one(record, state, out)
        except Exception:  # an index out of range, a division by zero, an impossible size
            code = _FAILED
        return code, found

    @njit(nogil=True)
    def total(records, state, starts, stops, bounds, l1, scale, leave_out, acc):  # type: ignore[no-untyped-def]
        out = np.zeros(acc.shape[0])
        left_out = 0
        for i in range(records.shape[0]):
            code, found = guarded(records[i], state, out)
            if code == _OK:
                clip_record(out, starts, stops, bounds, l1, scale, acc)
            elif leave_out:
                left_out += 1
            else:
                return code, found, left_out
        return _OK, 0, left_out

    @njit(nogil=True)
    def rows(records, state, leave_out, out):  # type: ignore[no-untyped-def]
        left_out = 0
        for i in range(records.shape[0]):
            code, found = guarded(records[i], state, out[i])
            if code != _OK and not leave_out:
                return code, found, left_out
            if code != _OK:
                out[i, :] = 0.0
                left_out += 1
        return _OK, 0, left_out

    return _Kernels(total=total, rows=rows)


@dataclass(frozen=True, kw_only=True)
class CompiledMap:
    """One program's map, ready to be summed over records. ``source_hash`` covers the rewritten text and constants."""

    file: str
    source_hash: str
    kernels: _Kernels

    def vector_size(self, record_size: int, state: Any) -> int:
        """Compile, run on made-up records, and say how long the vector is. No data needed, none read."""
        none, no_rules = np.zeros(0, dtype=np.int64), np.zeros((0, 4), dtype=np.int64)
        for value in (0.0, 1.0, 0.5):
            made_up = _read_only(np.full((1, record_size), value))
            edges = none, none, no_rules
            code, found, _ = self._run("total", made_up, frozen_state(state), *edges, False, 1.0, False, none)
            if code == _WRONG_LENGTH:
                return int(found)
        if code == _OK:
            raise StudyError(
                f"{self.file}: map_in_client returns an empty vector", remedy="Return at least one number."
            )
        raise StudyError(
            f"{self.file}: map_in_client fails on records made of zeros, ones and halves ({record_size} numbers each)",
            rule="run",
            remedy="Check the indices it uses and divisions by zero; the last number of a record is the target.",
        )

    def total(self, records: NDArray[np.float64], state: Any, grid: Grid) -> NDArray[np.int64]:
        """The exact integer sum over records of their clipped vectors; refuses if any record fails."""
        acc, _ = self._total(records, state, grid, leave_out=False)
        return acc

    def total_leaving_out(self, records: NDArray[np.float64], state: Any, grid: Grid) -> tuple[NDArray[np.int64], int]:
        """As :meth:`total`, but a record that fails adds zeros; also how many did, which stays on this machine.

        Row-independent even then, and nobody outside can tell that a record failed: a client that refuses is seen
        to be missing, and a hostile program could choose for which record that happens.
        """
        return self._total(records, state, grid, leave_out=True)

    def vectors(self, records: NDArray[np.float64], state: Any, size: int) -> NDArray[np.float64]:
        """One real vector per record, unclipped: for sums per person, and as an oracle. Never leaves the client."""
        return self._vectors(records, state, size, leave_out=False)[0]

    def vectors_leaving_out(
        self, records: NDArray[np.float64], state: Any, size: int
    ) -> tuple[NDArray[np.float64], int]:
        """As :meth:`vectors`, but a record that fails has a vector of zeros; also how many did."""
        return self._vectors(records, state, size, leave_out=True)

    def _vectors(
        self, records: NDArray[np.float64], state: Any, size: int, *, leave_out: bool
    ) -> tuple[NDArray[np.float64], int]:
        out = np.zeros((len(records), size))
        code, found, left_out = self._run("rows", _matrix(records), frozen_state(state), leave_out, out)
        self._refuse(code, found, size)
        return out, left_out

    def _total(
        self, records: NDArray[np.float64], state: Any, grid: Grid, *, leave_out: bool
    ) -> tuple[NDArray[np.int64], int]:
        acc = np.zeros(grid.size, dtype=np.int64)
        edges = (*grid.edges(), grid.norm == "l1", grid.scale)
        code, found, left_out = self._run("total", _matrix(records), frozen_state(state), *edges, leave_out, acc)
        self._refuse(code, found, grid.size)
        return acc, left_out

    def _run(self, kernel: str, *arguments: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numba's advice on speed is not for the program's author
                return getattr(self.kernels, kernel)(*arguments)
        except NumbaError as error:
            raise _in_plain_words(str(error), self.file) from None
        except Exception as error:
            # The kernels catch what a record causes; what arrives here is the compiler itself giving up, in any way.
            raise _in_plain_words(str(error) or type(error).__name__, self.file) from None

    def _refuse(self, code: int, found: int, expected: int) -> None:
        if code == _WRONG_LENGTH:
            raise StudyError(
                f"{self.file}: map_in_client returned {found} numbers where {expected} are expected",
                rule="vector-length",
                remedy="Return a vector as long as the groups declare, the same for every record.",
            )
        if code == _NOT_FINITE:
            raise DataError(
                f"{self.file}: a record's vector holds NaN or infinity; nothing was shared",
                rule="not-finite",
                remedy="Guard the program's logarithms and exponentials, e.g. np.log(max(x, 1e-9)).",
            )
        if code == _FAILED:
            raise DataError(
                f"{self.file}: map_in_client failed on a record; nothing was shared",
                rule="run",
                remedy="Guard its divisions (by zero), computed indices and array sizes.",
            )


def frozen_state(state: Any) -> Any:
    """The state as the kernels take it: read-only C-ordered float64 arrays and floats, in a (named) tuple or alone."""
    if isinstance(state, tuple):
        parts = [frozen_state(part) for part in state]
        if not parts:
            return 0.0
        fields = getattr(state, "_fields", None)
        return tuple(parts) if fields is None else _named_tuple(tuple(fields))(*parts)
    if isinstance(state, (bool, int, float, np.number)) or (isinstance(state, np.ndarray) and state.ndim == 0):
        return float(state)
    if isinstance(state, np.ndarray) and state.dtype.kind in "fiub":
        return _read_only(np.array(state, dtype=np.float64, order="C"))
    raise StudyError(
        f"a state holds a {type(state).__name__}",
        remedy="A state is a float64 array, a float, or a (named) tuple of those.",
    )


@lru_cache(maxsize=256)
def _named_tuple(fields: tuple[str, ...]) -> Any:
    """One type per list of fields, so that loading a program again does not compile it again."""
    return namedtuple("State", fields)


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    array.setflags(write=False)
    return array


def _matrix(records: NDArray[np.float64]) -> NDArray[np.float64]:
    if records.ndim != 2:
        raise StudyError("records are a matrix, one row per record", remedy="Pass an array of two dimensions.")
    return _read_only(np.ascontiguousarray(records, dtype=np.float64).view())


def _code_name(file: str) -> str:
    """Never an existing path: numba looks up the source line by this name."""
    return f"<program {file}>"


_PHRASES = (
    (r"record and state are read-only[^\n]*", "read-only", "Write into a new array, made by np.zeros."),
    (r"Cannot modify readonly array", "read-only", "Write into a new array, made by np.zeros."),
    (r"only float64 arrays can be written into[^\n]*", "array-type", "Make the array with np.zeros or np.ones."),
    (r"map_in_client returns [^\n]*", "return", "Return np.array([…]) or an array made by np.zeros."),
    (r"np.dot and @ take[^\n]*", "types", "Check the dimensions of both sides."),
    (r"Can't unify return type[^\n]*|Cannot unify [^\n]*", "types", "Keep one kind of value per variable and return."),
    (r"Unknown attribute '\w+' of type[^\n]*", "types", ""),
)


def _in_plain_words(message: str, file: str) -> StudyError:
    """Line of the user's file, what is wrong and what to do, out of numba's long message."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", message)
    lines = re.findall(rf'File "{re.escape(_code_name(file))}", line (\d+)', text)
    line = int(lines[-1]) if lines else None
    where = f"{file}:{line}" if line else file
    call = re.search(r">>> (\w+)\((.*)\)", text)
    unknown = f"`{call[1]}` is not defined for ({call[2]})" if call else None
    fallback = (r"(?m)^(?!Failed in).+", "compile", "")
    pattern, rule, remedy = next((p for p in _PHRASES if re.search(p[0], text)), fallback)
    match = re.search(pattern, text)
    if rule == "compile" and unknown:
        rule, cause = "types", unknown
    else:
        cause = re.sub(r"\s+", " ", match[0] if match else "no reason is given").strip()
    remedy = remedy or "Check the types and dimensions there: numbers are float64, arrays are of float64."
    return StudyError(f"{where}: map_in_client cannot be compiled: {cause[:200]}", rule=rule, remedy=remedy)
