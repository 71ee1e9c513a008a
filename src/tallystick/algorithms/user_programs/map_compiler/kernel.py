"""A compiled map at work: one record at a time, in a memory of its own, twice.

The memory holds the record, the state, the program's constants and its arrays, each between guard areas:

    guard | record | guard | state … | guard | constants … | guard | arrays … | guard | result | guard

Before each record all of it is written anew from an *image*, so nothing of an earlier record is left. Everything that
is neither record, state nor constant (the guards, and arrays before the program fills them) holds a pattern. Each
record is mapped at two images whose patterns differ in every word. If the two results differ, or if a word changed
that the program may not write, the record adds zeros and is counted: its result would depend on something besides the
record and the state. A correct translation never does that; this stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.user_programs.map_compiler.code import Kind, ScalarMap
from tallystick.algorithms.user_programs.map_compiler.llvm import Native, native

OK, NOT_FINITE, DEPENDS, FAILED = 0, 1, 2, 3
_WIDE_GUARD, _GUARD = 64, 16
_MIX = np.uint64(0x9E3779B97F4A7C15)

Place = Callable[[int], NDArray[np.int64]]
"""Where the memory lies: an array of so many words, wherever the caller wants it."""


def anywhere(words: int) -> NDArray[np.int64]:
    """For a program on its author's own data."""
    return np.zeros(words, dtype=np.int64)


def patterns(first: int, second: int, words: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two sequences that differ in every word: what stands where nothing should be read.

    All are finite numbers. Those of the first are below 2 in size, those of the second are 2 or more, and their last
    bits differ: a comparison or a truth value tells them apart as well.
    """
    steps = np.arange(1, words + 1, dtype=np.uint64) * _MIX
    one = _mixed(steps ^ np.uint64(first)) & ~np.uint64(1 << 62)
    two = _mixed(steps ^ np.uint64(second)) & ~np.uint64(1 << 61) | np.uint64(1 << 62)
    two = (two & ~np.uint64(1)) | (~one & np.uint64(1))
    return one.view(np.int64), two.view(np.int64)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = (words ^ (words >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Machine code for one program, width of records and shape of state; and how its memory is laid out."""

    program: ScalarMap
    offsets: tuple[int, ...]
    words: int
    protected: NDArray[np.bool_]
    code: Native

    def rows(
        self,
        records: NDArray[np.float64],
        state: list[NDArray[np.float64]],
        *,
        seeds: tuple[int, int] = (1, 2),
        place: Place = anywhere,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Each record's vector, and what became of it (:data:`OK`, …); a vector that is not OK is all zeros."""
        size = self.program.size
        vectors = np.zeros((len(records), size))
        codes = np.zeros(len(records), dtype=np.int64)
        one, two = (self._image(pattern, state) for pattern in patterns(*seeds, self.words))
        memory = place(self.words)
        start, result = self.offsets[0], self.offsets[self._result]
        words = np.ascontiguousarray(records, dtype=np.float64).view(np.int64)
        words.setflags(write=False)  # always: the driver is compiled for one type, before a child is locked
        _run(
            self.code.call,
            memory.ctypes.data,
            memory,
            one,
            two,
            self.protected,
            words,
            start,
            result,
            vectors.view(np.int64),
            vectors,
            codes,
        )
        return vectors, codes

    @property
    def _result(self) -> int:
        return next(r.number for r in self.program.regions if r.role == "result")

    def _image(self, pattern: NDArray[np.int64], state: list[NDArray[np.float64]]) -> NDArray[np.int64]:
        image = pattern.copy()
        for number, part in zip(self.program.state, state, strict=True):
            at = self.offsets[number]
            image[at : at + part.size] = np.ascontiguousarray(part, dtype=np.float64).reshape(-1).view(np.int64)
        for region in self.program.regions:
            if region.role == "constant":
                kind = np.float64 if region.kind == Kind.FLOAT else np.int64
                values = np.array(region.values, dtype=kind).view(np.int64)
                image[self.offsets[region.number] : self.offsets[region.number] + region.words] = values
        return image


def make_kernel(program: ScalarMap) -> Kernel:
    """Lay the memory out and compile."""
    offsets, at = [], _WIDE_GUARD
    for region in program.regions:
        offsets.append(at)
        at += region.words + (_WIDE_GUARD if region.role == "record" else _GUARD)
    words = at + _WIDE_GUARD
    protected = np.ones(words, dtype=np.bool_)
    for region, offset in zip(program.regions, offsets):
        if region.role in ("own", "result"):
            protected[offset : offset + region.words] = False
    where = tuple(offsets)
    return Kernel(program=program, offsets=where, words=words, protected=protected, code=native(program, where))


@njit(nogil=True, cache=True)
def _once(call, address, memory, image, protected, records, i, start, result, size, out):  # type: ignore[no-untyped-def]
    """Record i at one image: (failed, whether a protected word changed); the result's words go to ``out``."""
    words = memory.shape[0]
    width = records.shape[1]
    for k in range(words):
        memory[k] = image[k]
    for k in range(width):
        memory[start + k] = records[i, k]
    failed = call(address)
    touched = False
    for k in range(words):
        if protected[k] and memory[k] != image[k] and not (start <= k < start + width):
            touched = True
    for k in range(width):
        if memory[start + k] != records[i, k]:
            touched = True
    for k in range(size):
        out[k] = memory[result + k]
    return failed, touched


@njit(nogil=True, cache=True)
def _run(call, address, memory, one, two, protected, records, start, result, bits, vectors, codes):  # type: ignore[no-untyped-def]
    size = bits.shape[1]
    again = np.zeros(size, np.int64)
    for i in range(records.shape[0]):
        failed, touched = _once(call, address, memory, one, protected, records, i, start, result, size, bits[i])
        other, also = _once(call, address, memory, two, protected, records, i, start, result, size, again)
        code = OK
        if touched or also or failed != other:
            code = DEPENDS
        elif failed != 0:
            code = FAILED
        else:
            for k in range(size):
                if bits[i, k] != again[k]:
                    code = DEPENDS
            for k in range(size):
                if code == OK and not np.isfinite(vectors[i, k]):
                    code = NOT_FINITE
        if code != OK:
            for k in range(size):
                bits[i, k] = 0
        codes[i] = code
    for k in range(memory.shape[0]):
        memory[k] = 0
