"""The inner loops of the field, compiled once and cached: addition, subtraction, keystream absorption.

Every loop is written so that LLVM vectorises it: blocks are taken as slices and indexed from zero (an index
that might be negative costs Python's wrap-around test and the vector unit with it), and the modular step is
one comparison and a select, no branch::

    t = p − b;  s = a − t;  s += p if a < t        for a, b < p:  a + b ≥ p  ⇔  a ≥ p − b

A vector that came from elsewhere is checked for canonical form (< p) in the same visit, and the result of the
check is read afterwards. If it failed, the visit is undone and the accumulator is as it was: the step loses
nothing even for b ≥ p. (Addition: b = p gives t = 0, s = a; b > p gives t ≥ p > a, s = a + b mod 2^64.
Subtraction: b ≥ p > a gives s = a − b + p mod 2^64. For b < p both are the field's own and undo each other.)

Summing many vectors goes two at a time: the accumulator is read and written once per pair, which puts the
checked modular sum ahead of ``np.add`` on the same bytes. (Measured: keeping one block of the accumulator in
cache while visiting k vectors is slower, since every hop restarts the hardware prefetcher; four at a time
gains nothing over two.)

Accumulators are canonical by construction and not tested. Nothing here is meant to be called but by
:mod:`tallystick.crypto.field` and :mod:`tallystick.crypto.prg`, which check shapes and types first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Vector = NDArray[np.uint64]

_F = TypeVar("_F", bound=Callable[..., object])


def _compiled(function: _F) -> _F:
    """Compiled on first call, cached on disk, run without the interpreter's lock; no fastmath."""
    return cast(_F, njit(cache=True, nogil=True)(function))


_P = np.uint64(2**64 - 2**32 + 1)
_ZERO = np.uint64(0)
_BLOCK = 1024  # keystream words taken or compacted together
_PAIR_BLOCK = 128  # of each of two vectors: tested, then added from the first-level cache


@_compiled
def _add(acc: Vector, v: Vector) -> bool:
    bad = _ZERO
    for i in range(v.size):
        a = acc[i]
        b = v[i]
        bad |= np.uint64(b >= _P)
        t = _P - b
        s = a - t
        acc[i] = s + _P if a < t else s
    return bool(bad == _ZERO)


@_compiled
def _subtract(acc: Vector, v: Vector) -> bool:
    bad = _ZERO
    for i in range(v.size):
        a = acc[i]
        b = v[i]
        bad |= np.uint64(b >= _P)
        s = a - b
        acc[i] = s + _P if a < b else s
    return bool(bad == _ZERO)


@_compiled
def _undo_add(acc: Vector, v: Vector) -> None:
    for i in range(v.size):
        b = v[i]
        if b > _P:
            acc[i] = acc[i] - b
        elif b < _P:
            acc[i] = acc[i] - b + (_P if acc[i] < b else _ZERO)


@_compiled
def _undo_subtract(acc: Vector, v: Vector) -> None:
    for i in range(v.size):
        b = v[i]
        t = _P - b
        if b >= _P:
            acc[i] = acc[i] - t
        else:
            acc[i] = acc[i] - t + (_P if acc[i] < t else _ZERO)


@_compiled
def _add_two(acc: Vector, v: Vector, w: Vector) -> None:
    for i in range(v.size):
        a = acc[i]
        t = _P - v[i]
        s = a - t
        a = s + _P if a < t else s
        t = _P - w[i]
        s = a - t
        acc[i] = s + _P if a < t else s


@_compiled
def _both_canonical(v: Vector, w: Vector) -> bool:
    bad = _ZERO
    for i in range(v.size):
        bad |= np.uint64(v[i] >= _P) | np.uint64(w[i] >= _P)
    return bool(bad == _ZERO)


@_compiled
def is_canonical(v: Vector) -> bool:
    """Whether every element is below p."""
    bad = _ZERO
    for i in range(v.size):
        bad |= np.uint64(v[i] >= _P)
    return bool(bad == _ZERO)


@_compiled
def add_checked(acc: Vector, v: Vector) -> bool:
    """acc += v mod p, or False with ``acc`` as it was when some element of ``v`` is not below p."""
    if _add(acc, v):
        return True
    _undo_add(acc, v)
    return False


@_compiled
def subtract_checked(acc: Vector, v: Vector) -> bool:
    """acc −= v mod p, or False with ``acc`` as it was when some element of ``v`` is not below p."""
    if _subtract(acc, v):
        return True
    _undo_subtract(acc, v)
    return False


@_compiled
def add_pair_checked(acc: Vector, v: Vector, w: Vector) -> bool:
    """acc += v + w mod p in one visit, or False with ``acc`` as it was when either is not canonical."""
    for lo in range(0, v.size, _PAIR_BLOCK):
        first = v[lo : lo + _PAIR_BLOCK]
        second = w[lo : lo + _PAIR_BLOCK]
        if not _both_canonical(first, second):
            _undo_add(acc, w[:lo])
            _undo_add(acc, v[:lo])
            return False
        _add_two(acc[lo : lo + _PAIR_BLOCK], first, second)
    return True


@_compiled
def absorb(acc: Vector, filled: int, words: Vector, negate: bool) -> int:
    """Add (or subtract) keystream words to ``acc[filled:]`` in order, skipping words ≥ p; the new ``filled``.

    A word is rejected with probability 2^-32 (2^32 − 1 of 2^64), so a block is nearly always taken whole;
    a block with a rejected word goes element by element. Words beyond the end of ``acc`` are not looked at.
    """
    words = words[: acc.size - filled]
    for lo in range(0, words.size, _BLOCK):
        block = words[lo : lo + _BLOCK]
        target = acc[filled : filled + block.size]
        if negate:
            whole = subtract_checked(target, block)
        else:
            whole = add_checked(target, block)
        if whole:
            filled += block.size
            continue
        for i in range(block.size):
            if block[i] < _P:
                if negate:
                    _subtract(acc[filled : filled + 1], block[i : i + 1])
                else:
                    _add(acc[filled : filled + 1], block[i : i + 1])
                filled += 1
    return filled
