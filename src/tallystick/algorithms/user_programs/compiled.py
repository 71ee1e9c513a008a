"""A checked ``map_in_client`` as machine code that sees one record at a time.

The method's syntax tree, already read against the allow-list, is translated for records and states of known lengths
(:mod:`~.map_compiler.translate`): every array gets a shape and every loop a bound, or the program is refused. What
comes out has only numbers, loops that end and checked places in one memory; that is compiled
(:mod:`~.map_compiler.llvm`) and run on each record between guard areas (:mod:`~.map_compiler.kernel`). The vectors are
then put on the grid, clipped and added where all contributions are (:func:`tallystick.privacy.contribution.total`).

Why the sum is row-independent, to the bit: nothing that a record is mapped with comes from another one. Not by a wrong
index, length or mask, because each access is compared with the length of its own array; not by memory left behind,
because all of it is written anew for each record; not by rounding, because sums run in index order, never through BLAS.

| a record's vector               | ``total``: refuse         | ``total_leaving_out``       |
|---------------------------------|---------------------------|-----------------------------|
| NaN or ±inf in it               | DataError, nothing summed | adds zeros, counted locally |
| the function fails on it        | DataError, nothing summed | adds zeros, counted locally |
| it depends on more than itself  | DataError, nothing summed | adds zeros, counted locally |
"""

from __future__ import annotations

import ast
import hashlib
from collections import namedtuple
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.user_programs.findings import finding_at
from tallystick.algorithms.user_programs.map_compiler.builder import TooLong
from tallystick.algorithms.user_programs.map_compiler.kernel import (
    DEPENDS,
    FAILED,
    NOT_FINITE,
    OK,
    Kernel,
    Place,
    anywhere,
    make_kernel,
)
from tallystick.algorithms.user_programs.map_compiler.translate import Refused, translate
from tallystick.core.errors import DataError, StudyError
from tallystick.privacy.contribution import Dense, total
from tallystick.privacy.grid import Grid

__all__ = ["CompiledMap", "Literal", "compile_map", "frozen_state"]

Literal = bool | int | float | tuple[Any, ...]
"""What ``self.NAME`` may stand for in map_in_client: a number, or a tuple of numbers."""

_VECTOR_NUMBERS = 2**20
"""Numbers of vectors that are held at once."""


def compile_map(function: ast.FunctionDef, *, constants: Mapping[str, Literal], file: str) -> CompiledMap:
    """The map of a CHECKED map_in_client (:func:`~.user_programs.allow_list_check.check_function`)."""
    text = f"{ast.dump(function, include_attributes=True)} {sorted(constants.items())!r}"
    key = hashlib.sha256(text.encode()).hexdigest()
    return CompiledMap(source=_Source(key=key, file=file, function=function, constants=constants))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """A function and its constants, equal to another when its hash and file name are."""

    key: str
    file: str
    function: ast.FunctionDef
    constants: Mapping[str, Literal]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Source) and (self.key, self.file) == (other.key, other.file)

    def __hash__(self) -> int:
        return hash((self.key, self.file))


@lru_cache(maxsize=64)
def _kernel(source: _Source, width: int, shape: Any) -> Kernel:
    """Compiled once for records of this width and a state of this shape."""
    try:
        program = translate(source.function, constants=source.constants, record=width, state=shape)
    except Refused as refused:
        cause = f"in map_in_client: {refused.cause}"
        raise finding_at(refused.node, refused.rule, cause, refused.remedy).error(source.file) from None
    except (TooLong, RecursionError, MemoryError, OverflowError):
        cause = "in map_in_client: it is too long or too deeply nested to be compiled"
        remedy = "Write a shorter program: loops instead of repeated lines, tables in the state."
        raise finding_at(source.function, "size", cause, remedy).error(source.file) from None
    try:
        return make_kernel(program)
    except RuntimeError as error:  # LLVM does not take what we wrote
        cause = f"{source.file}: map_in_client cannot be compiled: {str(error)[:200]}"
        remedy = "This is a defect of Tallystick. Report the program."
        raise StudyError(cause, rule="compile", remedy=remedy) from None


@dataclass(frozen=True, kw_only=True)
class CompiledMap:
    """One program's map, ready to be summed over records of any width that fits it."""

    source: _Source
    place: Place = field(default=anywhere, repr=False)
    """Where the memory lies in which records are mapped."""
    seeds: tuple[int, int] = (1, 2)
    """Of what stands in the guard areas."""

    @property
    def file(self) -> str:
        """The program's file, for messages."""
        return self.source.file

    @property
    def source_hash(self) -> str:
        """Covers the text of the function and its constants."""
        return self.source.key

    def kernel(self, record_size: int, state: Any) -> Kernel:
        """The machine code for records of so many numbers and such a state. StudyError if it does not fit them."""
        return _kernel(self.source, record_size, _shape_of(frozen_state(state)))

    def vector_size(self, record_size: int, state: Any) -> int:
        """How long the vectors are. Nothing is run for that, and no record is needed."""
        return self.kernel(record_size, state).program.size

    def steps(self, record_size: int, state: Any) -> int:
        """The most operations that a record can cost, whatever it holds."""
        return self.kernel(record_size, state).program.steps

    def total(self, records: NDArray[np.float64], state: Any, grid: Grid) -> NDArray[np.int64]:
        """The exact integer sum over records of their clipped vectors; refuses if any record fails."""
        return self._total(records, state, grid, leave_out=False)[0]

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

    def _total(
        self, records: NDArray[np.float64], state: Any, grid: Grid, *, leave_out: bool
    ) -> tuple[NDArray[np.int64], int]:
        acc, left_out = np.zeros(grid.size, dtype=np.int64), 0
        for vectors, failed in self._blocks(records, state, grid.size, leave_out=leave_out):
            acc += total(Dense(values=vectors), grid)
            left_out += failed
        return acc, left_out

    def _vectors(
        self, records: NDArray[np.float64], state: Any, size: int, *, leave_out: bool
    ) -> tuple[NDArray[np.float64], int]:
        parts = [(np.zeros((0, size)), 0), *self._blocks(records, state, size, leave_out=leave_out)]
        return np.concatenate([vectors for vectors, _ in parts]), sum(failed for _, failed in parts)

    def _blocks(
        self, records: NDArray[np.float64], state: Any, size: int, *, leave_out: bool
    ) -> Iterator[tuple[NDArray[np.float64], int]]:
        if records.ndim != 2:
            raise StudyError("records are a matrix, one row per record", remedy="Pass an array of two dimensions.")
        frozen = frozen_state(state)
        kernel = self.kernel(records.shape[1], state)
        if kernel.program.size != size:
            raise StudyError(
                f"{self.file}: map_in_client returned {kernel.program.size} numbers where {size} are expected",
                rule="vector-length",
                remedy="Return a vector as long as the groups declare, the same for every record.",
            )
        parts = _parts_of(frozen)
        each = max(1, _VECTOR_NUMBERS // size)
        for first in range(0, max(len(records), 1), each):
            block = records[first : first + each]
            vectors, codes = kernel.rows(block, parts, seeds=self.seeds, place=self.place)
            failed = codes != OK
            if failed.any() and not leave_out:
                raise self._refusal(int(codes[failed][0]))
            yield vectors, int(failed.sum())

    def _refusal(self, code: int) -> DataError:
        cause, rule, remedy = {
            NOT_FINITE: (
                "a record's vector holds NaN or infinity",
                "not-finite",
                "Guard the program's logarithms and exponentials, e.g. np.log(max(x, 1e-9)).",
            ),
            FAILED: (
                "map_in_client failed on a record",
                "run",
                "Guard its divisions (by zero), computed indices and int().",
            ),
            DEPENDS: (
                "what a record adds depends on more than the record and the state",
                "guard-area",
                "This is a defect of Tallystick. Report the program, and do not run it.",
            ),
        }[code]
        return DataError(f"{self.file}: {cause}; nothing was shared", rule=rule, remedy=remedy)


def frozen_state(state: Any) -> Any:
    """The state as the kernels take it: C-ordered float64 arrays and floats, in a (named) tuple or alone."""
    if isinstance(state, tuple):
        parts = [frozen_state(part) for part in state]
        if not parts:
            return 0.0
        fields = getattr(state, "_fields", None)
        return tuple(parts) if fields is None else _named_tuple(tuple(fields))(*parts)
    if isinstance(state, (bool, int, float, np.number)) or (isinstance(state, np.ndarray) and state.ndim == 0):
        return float(state)
    if isinstance(state, np.ndarray) and state.dtype.kind in "fiub":
        array = np.array(state, dtype=np.float64, order="C")
        array.setflags(write=False)
        return array
    raise StudyError(
        f"a state holds a {type(state).__name__}",
        remedy="A state is a float64 array, a float, or a (named) tuple of those.",
    )


@lru_cache(maxsize=256)
def _named_tuple(fields: tuple[str, ...]) -> Any:
    return namedtuple("State", fields)


def _shape_of(state: Any) -> Any:
    """As :func:`tallystick.algorithms.user_programs.map_compiler.translate.translate` takes it."""
    if isinstance(state, tuple):
        return "tuple", tuple(getattr(state, "_fields", ())), tuple(_shape_of(part) for part in state)
    return state.shape if isinstance(state, np.ndarray) else ()


def _parts_of(state: Any) -> list[NDArray[np.float64]]:
    if isinstance(state, tuple):
        return [array for part in state for array in _parts_of(part)]
    return [np.asarray(state, dtype=np.float64)]
