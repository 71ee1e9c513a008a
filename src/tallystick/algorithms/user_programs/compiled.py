"""A checked ``map_in_client`` as machine code that sees one record at a time.

The method's syntax tree, already read against the allow-list, is translated for records and states of known lengths
(:mod:`~.map_compiler.translate`): every array gets a shape and every loop a bound, or the program is refused. What
comes out has only numbers, loops that end and checked places in one memory; that is compiled
(:mod:`~.map_compiler.llvm`) and run on each record between guard areas (:mod:`~.map_compiler.kernel`). The vectors are
then put on the grid, clipped and added where all contributions are (:func:`tallystick.privacy.contribution.total`).

Why the sum is row-independent, to the bit: nothing that a record is mapped with comes from another one. Not by a wrong
index, length or mask, because each access is compared with the length of its own array; not by memory left behind,
because all of it is written anew for each record; not by rounding, because sums run in index order, never through BLAS.

A record on which the function fails, whose vector holds NaN or ±inf, or whose vector depends on more than itself adds
zeros, and is counted on this machine. Nobody outside can tell that it failed: a client that refused would be seen to be
missing, and a hostile program could choose for which record that happens.
"""

from __future__ import annotations

import ast
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.user_programs.findings import finding_at
from tallystick.algorithms.user_programs.map_compiler.builder import Refused, TooLong
from tallystick.algorithms.user_programs.map_compiler.kernel import OK, Kernel, Place, anywhere, make_kernel
from tallystick.algorithms.user_programs.map_compiler.translate import translate
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Dense, total
from tallystick.privacy.grid import Grid

Literal = bool | int | float | tuple[Any, ...]
"""What ``self.NAME`` may stand for in map_in_client: a number, or a tuple of numbers."""

_VECTOR_NUMBERS = 2**20
"""Numbers of vectors that are held at once."""


def compile_map(function: ast.FunctionDef, *, constants: Mapping[str, Literal], file: str) -> CompiledMap:
    """The map of a CHECKED map_in_client (:func:`~.user_programs.allow_list_check.check_function`)."""
    text = f"{ast.dump(function, include_attributes=True)} {sorted(constants.items())!r}"
    key = hashlib.sha256(text.encode()).hexdigest()
    return CompiledMap(source_hash=key, file=file, function=function, constants=constants)


class BlockwiseMap(ABC):
    """A map whose vectors come block by block, here or from elsewhere; they are put on the grid and clipped here."""

    @abstractmethod
    def blocks(self, records: NDArray[np.float64], state: Any, size: int) -> Iterator[tuple[NDArray[np.float64], int]]:
        """One real vector per record, unclipped, for some records at a time; and how many of them failed."""

    def total_leaving_out(self, records: NDArray[np.float64], state: Any, grid: Grid) -> tuple[NDArray[np.int64], int]:
        """The exact integer sum over records of their clipped vectors; and how many records added zeros instead."""
        acc, left_out = np.zeros(grid.size, dtype=np.int64), 0
        for vectors, failed in self.blocks(records, state, grid.size):
            acc += total(Dense(values=vectors), grid)
            left_out += failed
        return acc, left_out

    def vectors_leaving_out(
        self, records: NDArray[np.float64], state: Any, size: int
    ) -> tuple[NDArray[np.float64], int]:
        """The vectors themselves, for sums per person; and how many records have zeros instead."""
        parts = [(np.zeros((0, size)), 0), *self.blocks(records, state, size)]
        return np.concatenate([vectors for vectors, _ in parts]), sum(failed for _, failed in parts)


@dataclass(frozen=True, kw_only=True)
class CompiledMap(BlockwiseMap):
    """One program's map, ready to be summed over records of any width that fits it."""

    source_hash: str
    """Covers the text of the function and its constants: maps that agree in it, and in ``file``, are equal."""
    file: str
    """The program's file, for messages."""
    function: ast.FunctionDef = field(compare=False, repr=False)
    constants: Mapping[str, Literal] = field(compare=False, repr=False)
    place: Place = field(default=anywhere, compare=False, repr=False)
    """Where the memory lies in which records are mapped."""
    seeds: tuple[int, int] = field(default=(1, 2), compare=False)
    """Of what stands in the guard areas."""

    def kernel(self, record_size: int, state: Any) -> Kernel:
        """The machine code for records of so many numbers and such a state. StudyError if it does not fit them."""
        return _kernel(self, record_size, frozen_state(state)[0])

    def vector_size(self, record_size: int, state: Any) -> int:
        """How long the vectors are. Nothing is run for that, and no record is needed."""
        return self.kernel(record_size, state).program.size

    def steps(self, record_size: int, state: Any) -> int:
        """The most operations that a record can cost, whatever it holds."""
        return self.kernel(record_size, state).program.steps

    def blocks(self, records: NDArray[np.float64], state: Any, size: int) -> Iterator[tuple[NDArray[np.float64], int]]:
        if records.ndim != 2:
            raise StudyError("records are a matrix, one row per record", remedy="Pass an array of two dimensions.")
        shape, parts = frozen_state(state)
        kernel = _kernel(self, records.shape[1], shape)
        if kernel.program.size != size:
            raise StudyError(
                f"{self.file}: map_in_client returned {kernel.program.size} numbers where {size} are expected",
                rule="vector-length",
                remedy="Return a vector as long as the groups declare, the same for every record.",
            )
        each = max(1, _VECTOR_NUMBERS // size)
        for first in range(0, max(len(records), 1), each):
            vectors, codes = kernel.rows(records[first : first + each], parts, seeds=self.seeds, place=self.place)
            yield vectors, int((codes != OK).sum())


@lru_cache(maxsize=64)
def _kernel(compiled: CompiledMap, width: int, shape: Any) -> Kernel:
    """Compiled once for records of this width and a state of this shape."""
    try:
        program = translate(compiled.function, constants=compiled.constants, record=width, state=shape)
    except Refused as refused:
        cause = f"in map_in_client: {refused.cause}"
        raise finding_at(refused.node, refused.rule, cause, refused.remedy).error(compiled.file) from None
    except (TooLong, RecursionError, MemoryError, OverflowError):
        cause = "in map_in_client: it is too long or too deeply nested to be compiled"
        remedy = "Write a shorter program: loops instead of repeated lines, tables in the state."
        raise finding_at(compiled.function, "size", cause, remedy).error(compiled.file) from None
    try:
        return make_kernel(program)
    except RuntimeError as error:  # LLVM does not take what we wrote
        cause = f"{compiled.file}: map_in_client cannot be compiled: {str(error)[:200]}"
        remedy = "This is a defect of Tallystick. Report the program."
        raise StudyError(cause, rule="compile", remedy=remedy) from None


def frozen_state(state: Any) -> tuple[Any, list[NDArray[np.float64]]]:
    """A state's shape, as :func:`~.map_compiler.translate.translate` takes it, and its numbers, part by part."""
    if not isinstance(state, tuple):
        part = _frozen(state)
        return part.shape, [part]
    if not state:
        return frozen_state(0.0)
    parts = [_frozen(part) for part in state]
    return ("tuple", tuple(getattr(state, "_fields", ())), tuple(part.shape for part in parts)), parts


def _frozen(part: Any) -> NDArray[np.float64]:
    number = isinstance(part, (bool, int, float, np.number))
    if not number and not (isinstance(part, np.ndarray) and part.dtype.kind in "fiub"):
        raise StudyError(
            f"a state holds a {type(part).__name__}",
            remedy="A state is a float64 array, a float, or a (named) tuple of those.",
        )
    return np.array(part, dtype=np.float64, order="C")
