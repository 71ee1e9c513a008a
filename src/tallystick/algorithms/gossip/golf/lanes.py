"""A scalar product in one fixed order that processors can do eight at a time.

Compilers may not reorder a sum of floats, and numba joins no neighbouring additions by itself, so the eight running
sums are written as one vector of LLVM's. Multiplications and additions are rounded one by one on every processor, in
whatever pieces its registers hold the vector: the bits are those of :func:`plain_dot`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

LANES = 8
_PAIRS = ((types.float32, types.float32), (types.float64, types.float64), (types.float64, types.int32))


@intrinsic  # type: ignore[untyped-decorator]
def _whole_eights(_: Any, a: Any, b: Any) -> Any:
    """Σ aᵢbᵢ over the whole eights of two contiguous vectors: floats of one type, or doubles and 32-bit integers."""
    if not (
        isinstance(a, types.Array)
        and isinstance(b, types.Array)
        and (a.dtype, b.dtype) in _PAIRS
        and a.layout == b.layout == "C"
        and a.ndim == b.ndim == 1
    ):
        return None

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(a.dtype)
        vector = ir.VectorType(number, LANES)
        arrays = [context.make_array(t)(context, builder, v) for t, v in zip(signature.args, arguments)]
        size = builder.extract_value(arrays[0].shape, 0)
        sums = cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * LANES))
        with cgutils.for_range(builder, builder.udiv(size, ir.Constant(size.type, LANES))) as loop:
            start = builder.mul(loop.index, ir.Constant(size.type, LANES))
            loads = []
            for array, kind in zip(arrays, (a.dtype, b.dtype)):
                eight = ir.VectorType(context.get_value_type(kind), LANES)
                at = builder.bitcast(builder.gep(array.data, [start]), eight.as_pointer())
                loaded = builder.load(at, align=kind.bitwidth // 8)
                loads.append(loaded if eight == vector else builder.sitofp(loaded, vector))
            builder.store(builder.fadd(builder.load(sums), builder.fmul(*loads)), sums)
        last = builder.load(sums)
        s = [builder.extract_element(last, ir.Constant(ir.IntType(32), i)) for i in range(LANES)]
        fours = [builder.fadd(s[i], s[i + 4]) for i in range(4)]
        return builder.fadd(builder.fadd(fours[0], fours[2]), builder.fadd(fours[1], fours[3]))

    return a.dtype(a, b), code


@njit(cache=True, nogil=True)
def dot(a, b):  # type: ignore[no-untyped-def]
    """Σ aᵢbᵢ by eight running sums over whole eights, then the rest one by one."""
    total = _whole_eights(a, b)
    for j in range(a.shape[0] - a.shape[0] % LANES, a.shape[0]):
        total += a[j] * b[j]
    return total


def plain_dot(a: NDArray[Any], b: NDArray[Any]) -> float:
    """The same, in NumPy: what :func:`dot` must equal."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = a * b
        whole = len(products) - len(products) % LANES
        s = np.zeros(LANES, a.dtype)
        for eight in products[:whole].reshape(-1, LANES):
            s = s + eight
        fours = s[:4] + s[4:]
        total = (fours[0] + fours[2]) + (fours[1] + fours[3])
        for product in products[whole:]:
            total = total + product
    return float(total)
