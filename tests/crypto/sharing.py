"""What shares and seeds stand for, said the plain way: the product only ever adds them up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto import field, prg
from tallystick.crypto.additive import SeedShare, Share, VectorShare, share_context

Vector = NDArray[np.uint64]


def expand(seed: bytes, size: int, context: bytes) -> Vector:
    """The field vector a seed stands for in a context."""
    vector = np.zeros(size, dtype=np.uint64)
    prg.add_expanded(vector, seed, context)
    return vector


def add_share_into(acc: Vector, share: Share, *, server: int, context: bytes, party: str | None = None) -> None:
    """What a server does with a client's share: acc += the share, expanded in its context if it is a seed."""
    match share:
        case SeedShare(seed=seed):
            prg.add_expanded(acc, seed, share_context(context, server))
        case VectorShare(vector=vector):
            field.add_into(acc, vector, party=party)


def combine(shares: Sequence[Share], size: int, context: bytes) -> Vector:
    """The shared vector, from all shares in the order of the servers."""
    total = np.zeros(size, dtype=np.uint64)
    for server, share in enumerate(shares):
        add_share_into(total, share, server=server, context=context)
    return total


def subtract(a: Vector, b: Vector) -> Vector:
    """a − b, as a fresh vector."""
    negative = np.where(b == 0, b, np.uint64(field.MODULUS) - b)
    return field.sum_vectors((a, negative))
