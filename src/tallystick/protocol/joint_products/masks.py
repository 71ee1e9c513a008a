"""Masks and what is opened of them: field matrices from seeds, and shares of their products.

U_m is a uniform matrix as large as holder m's rows, from its seed. For holders a before b the dealer shares
W_ab = U_aᵀ·U_b: b's share comes from b's own seed, a's is the rest and is sent.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.field import from_bytes
from tallystick.crypto.field_matrix import Matrix
from tallystick.crypto.kernels import subtract_checked
from tallystick.crypto.prg import add_expanded
from tallystick.protocol.joint_products.parameters import JointParameters


def mask(parameters: JointParameters, holder: str, seed: bytes) -> Matrix:
    """U_m."""
    return _expanded(seed, parameters.mask_context(holder), parameters.records, parameters.width(holder))


def later_share(parameters: JointParameters, one: str, other: str, seed: bytes) -> Matrix:
    """The share of W_ab that b has, from b's seed."""
    return _expanded(seed, parameters.share_context(one, other), parameters.width(one), parameters.width(other))


def minus(a: Matrix, b: Matrix) -> Matrix:
    """a − b in the field, as a fresh matrix."""
    out = a.copy()
    subtract_checked(out.reshape(-1), np.ascontiguousarray(b).reshape(-1))
    return out


def matrix_from(raw: bytes, rows: int, columns: int, *, party: str) -> Matrix:
    """A matrix that travelled; a wrong size or an element that is none is refused in the sender's name."""
    vector: NDArray[np.uint64] = from_bytes(raw, rows * columns, party=party)
    return vector.reshape(rows, columns)


def _expanded(seed: bytes, context: bytes, rows: int, columns: int) -> Matrix:
    vector: NDArray[np.uint64] = np.zeros(rows * columns, dtype=np.uint64)
    add_expanded(vector, seed, context)
    return vector.reshape(rows, columns)
