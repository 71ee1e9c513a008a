"""Products of tall matrices over the field: Aᵀ·B mod p, exact, by floating-point BLAS.

An element is four limbs of 16 bits, v = Σ l_k·2^(16k). A view of the words as 16-bit numbers is the matrix of all
limbs, so one product of two such matrices is every product of two limbs at once. It is exact: a sum of r products of
limbs is an integer below r·2^32, and r ≤ 2^20 rows at a time keep every partial sum, in any order, below 2^53. The limb
products are then put together by Horner's rule with x·2^16 mod p, where 2^64 ≡ 2^32 − 1.

``mixed``: the left matrix holds small signed integers instead (records on a grid), |a| ≤ 2^16, and needs no limbs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.field import MODULUS

Matrix = NDArray[np.uint64]
SMALL = 1 << 16
"""Largest modulus of an entry of a small matrix."""
_LIMBS = 4
_ROWS = 1 << 14
"""At a time: their limbs are held as float64, four times the matrix. Far below the 2^20 that exactness allows."""
_P = np.uint64(MODULUS)
_CARRY = np.uint64(2**32 - 1)


def transposed_product(a: Matrix, b: Matrix) -> Matrix:
    """Aᵀ·B of two matrices of field elements with equally many rows."""
    _check(a, b)
    out: Matrix = np.zeros((a.shape[1], b.shape[1]), dtype=np.uint64)
    for first in range(0, len(a), _ROWS):
        left, right = _limbs(a[first : first + _ROWS]), _limbs(b[first : first + _ROWS])
        grouped = (left.T @ right).reshape(a.shape[1], _LIMBS, b.shape[1], _LIMBS)
        _gather(np.ascontiguousarray(grouped), out)
    return out


def mixed_product(a: NDArray[np.float64], b: Matrix) -> Matrix:
    """Aᵀ·B where A holds integers of modulus at most 2^16, as float64."""
    _check(a, b)
    if a.size and float(np.abs(a).max()) > SMALL:
        raise LocalProtocolError("an entry of a small matrix is not small", remedy="Use fewer bits for rows.")
    out: Matrix = np.zeros((a.shape[1], b.shape[1]), dtype=np.uint64)
    for first in range(0, len(a), _ROWS):
        right = _limbs(b[first : first + _ROWS])
        grouped = (a[first : first + _ROWS].T @ right).reshape(a.shape[1], 1, b.shape[1], _LIMBS)
        _gather(np.ascontiguousarray(grouped), out)
    return out


def _check(a: NDArray[Any], b: Matrix) -> None:
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b):
        raise LocalProtocolError("two matrices of different length have no product")


def _limbs(part: Matrix) -> NDArray[np.float64]:
    """Every element as four columns, the lowest limb first."""
    return np.ascontiguousarray(part).astype("<u8", copy=False).view("<u2").astype(np.float64)


@njit(cache=True, nogil=True)
def _gather(products, out):  # type: ignore[no-untyped-def]
    """out += Σ products[i, k, j, l]·2^(16(k + l)) mod p; products are exact integers of either sign."""
    rows, left, columns, right = products.shape
    for i in range(rows):
        for j in range(columns):
            whole = np.uint64(0)
            for power in range(left + right - 2, -1, -1):
                # whole·2^16 = high·2^64 + low, and 2^64 ≡ 2^32 − 1
                high, low = whole >> np.uint64(48), whole << np.uint64(16)
                if low >= _P:
                    low -= _P
                whole = _plus(low, high * _CARRY)
                for k in range(left):
                    other = power - k
                    if 0 <= other < right:
                        value = np.int64(products[i, k, j, other])
                        if value < 0:
                            whole = _plus(whole, _P - np.uint64(-value))
                        else:
                            whole = _plus(whole, np.uint64(value))
            out[i, j] = _plus(out[i, j], whole)


@njit(cache=True, nogil=True)
def _plus(a, b):  # type: ignore[no-untyped-def]
    """a + b mod p, both below p."""
    s = a + b
    if s < a or s >= _P:
        s -= _P
    return s
