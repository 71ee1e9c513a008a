"""The prime field of all sums: integers mod p = 2^64 − 2^32 + 1 in 64-bit words.

A field vector is a one-dimensional, C-contiguous ``np.uint64`` array of canonical elements (< p). The prime
leaves the door open to validity proofs (it is NTT-friendly; Z_2^64 would shut it) and costs nothing over plain
64-bit addition. Signed integers live in −(p−1)/2 … (p−1)/2, the upper half of the field being the negatives.

On the wire an element is 8 bytes, little-endian, canonical; anything else is refused, so that a vector has one
encoding. (A vector written in the other byte order is refused when it shows, that is, when an element comes
out ≥ p; what cannot show is caught by the format version in the message that carries it.)

Totals are integers on a public grid of 2^-f; sums of them are exact as long as they do not wrap. A wrap is
post-processing and never harms privacy, only the result, so room is checked once, when a study is admitted, from public
facts alone: n·B + 40·s < (p−1)/2, with B the bound of one record on the grid and s the standard deviation of all noise
together. Forty deviations are beyond reach for Gaussian and Laplace noise alike (e^-56 for the latter).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, StudyError
from tallystick.core.randomness import WordSource
from tallystick.crypto import kernels

MODULUS = 2**64 - 2**32 + 1
HALF = (MODULUS - 1) // 2
ELEMENT_BYTES = 8
NOISE_DEVIATIONS = 40
_MAX_FRACTION_BITS = 1000  # 2^-1000 · 2^63 is still a normal float64, so the scaling is exact

Vector = NDArray[np.uint64]


def check_vector(v: Vector) -> Vector:
    """The vector itself, if its type and layout are a field vector's (its elements are not looked at)."""
    if not isinstance(v, np.ndarray) or v.dtype != np.uint64 or not v.dtype.isnative:
        raise LocalProtocolError(
            "a field vector is an array of native 64-bit unsigned integers",
            remedy="Convert integers with crypto.field.encode_signed and bytes with crypto.field.from_bytes.",
        )
    if v.ndim != 1 or not v.flags.c_contiguous or not v.flags.aligned:
        raise LocalProtocolError(
            "a field vector is one-dimensional, contiguous and aligned", remedy="Pass np.ascontiguousarray(v).ravel()."
        )
    return v


def _check_pair(acc: Vector, v: Vector, party: str | None) -> None:
    check_vector(acc)
    check_vector(v)
    if not acc.flags.writeable:
        raise LocalProtocolError("the accumulator is read-only", remedy="Accumulate into a vector of your own.")
    if v.size != acc.size:
        raise RemoteProtocolError(
            f"a vector of {v.size} elements arrived where {acc.size} were agreed",
            remedy="Compare the studies of both sides; the share was not used.",
            party=party,
        )


def _refuse(party: str | None) -> RemoteProtocolError:
    return RemoteProtocolError(
        "a vector has an element that is not below the modulus 2^64 - 2^32 + 1",
        remedy="The sender must encode canonically (8 bytes, little-endian); the vector was not used.",
        party=party,
    )


def is_canonical(v: Vector) -> bool:
    """Whether every element is below p."""
    return bool(kernels.is_canonical(check_vector(v)))


def add_into(acc: Vector, v: Vector, *, party: str | None = None) -> None:
    """acc += v. A ``v`` that is not canonical is refused, in the sender's name, and ``acc`` is as it was."""
    _check_pair(acc, v, party)
    if not kernels.add_checked(acc, v):
        raise _refuse(party)


def add_all_into(acc: Vector, vectors: Sequence[Vector]) -> None:
    """acc += every vector, two per visit of ``acc``. If one is refused, ``acc`` is as it was."""
    for v in vectors:
        _check_pair(acc, v, None)
    for added in range(0, len(vectors), 2):
        pair = vectors[added : added + 2]
        if len(pair) == 2:
            accepted = kernels.add_pair_checked(acc, pair[0], pair[1])
        else:
            accepted = kernels.add_checked(acc, pair[0])
        if not accepted:
            for v in vectors[:added]:
                kernels.subtract_checked(acc, v)
            raise _refuse(None)


def sum_vectors(vectors: Sequence[Vector]) -> Vector:
    """The sum of one or more vectors of equal size, as a fresh vector."""
    if not vectors:
        raise LocalProtocolError("a sum of no vectors has no size", remedy="Sum at least one vector.")
    total: Vector = np.zeros(check_vector(vectors[0]).size, dtype=np.uint64)
    add_all_into(total, vectors)
    return total


def encode_signed(values: NDArray[np.int64]) -> Vector:
    """Signed integers as field elements; beyond ±(p−1)/2 (64-bit integers reach 2^31 further) is an error."""
    if not isinstance(values, np.ndarray) or values.dtype != np.int64 or values.ndim != 1:
        raise LocalProtocolError(
            "integer totals are a one-dimensional array of 64-bit signed integers",
            remedy="Round to the grid first (np.int64).",
        )
    if values.size and (int(values.max()) > HALF or int(values.min()) < -HALF):
        raise LocalProtocolError(
            "an integer lies outside the signed range of the field",
            remedy="Admit only studies that pass crypto.field.check_headroom.",
        )
    unsigned = np.ascontiguousarray(values).view(np.uint64)
    return np.where(values < 0, unsigned + np.uint64(MODULUS), unsigned)  # both wrap mod 2^64: v + p for v < 0


def decode_signed(vector: Vector) -> NDArray[np.int64]:
    """Inverse of :func:`encode_signed`; every canonical element has exactly one signed integer."""
    if not is_canonical(vector):
        raise LocalProtocolError("only canonical vectors are decoded", remedy="Add vectors with crypto.field only.")
    return np.where(vector > np.uint64(HALF), vector - np.uint64(MODULUS), vector).view(np.int64)


def to_bytes(vector: Vector) -> bytes:
    """8 bytes an element, little-endian; only canonical vectors are written."""
    if not is_canonical(vector):
        raise LocalProtocolError("only canonical vectors are written", remedy="Add vectors with crypto.field only.")
    return vector.astype("<u8", copy=False).tobytes()


def from_bytes(raw: bytes | bytearray | memoryview, size: int, *, party: str | None = None) -> Vector:
    """The vector in ``raw``: a read-only view if the bytes are immutable and aligned, else a copy.

    A wrong length or an element ≥ p is the sender's fault and refused in its name.
    """
    length = memoryview(raw).nbytes
    if size < 1 or length != ELEMENT_BYTES * size:
        raise RemoteProtocolError(
            f"a vector of {length} bytes arrived where {size} elements of {ELEMENT_BYTES} bytes were agreed",
            remedy="Compare the studies of both sides; the share was not used.",
            party=party,
        )
    view = np.frombuffer(raw, dtype="<u8")
    if view.flags.writeable or not view.flags.aligned or not view.dtype.isnative:
        view = view.astype(np.uint64)
    vector: Vector = view.view(np.uint64)
    vector.flags.writeable = False
    if not kernels.is_canonical(vector):
        raise _refuse(party)
    return vector


def uniform(size: int, source: WordSource) -> Vector:
    """Independent uniform elements: the words of the stream in order, those ≥ p rejected (probability 2^-32 each)."""
    vector = source.words(size)
    vector = vector[vector < np.uint64(MODULUS)]
    while vector.size < size:
        more = source.words(size - vector.size)
        vector = np.concatenate([vector, more[more < np.uint64(MODULUS)]])
    return vector


def check_headroom(
    *, records: int, bound: float | Fraction, noise_std_total: float | Fraction, party: str | None = None
) -> None:
    """Raise unless the records, each at most ``bound`` on the grid, and the noise fit the field; reckoned exactly."""
    for name, value in (("records", records), ("bound", bound), ("noise_std_total", noise_std_total)):
        if not math.isfinite(value) or value < 0:
            raise StudyError(
                f"{name} is not a finite number of zero or more", remedy="Declare finite public bounds.", party=party
            )
    needed = Fraction(records) * Fraction(bound) + NOISE_DEVIATIONS * Fraction(noise_std_total)
    if needed >= HALF:
        raise StudyError(
            f"the sum needs {math.ceil(math.log2(needed)) + 1} bits and may wrap around in the 64-bit field",
            remedy="Use fewer fraction bits, a smaller bound, or less noise (a larger epsilon).",
            rule="headroom",
            party=party,
        )


def to_real(totals: NDArray[np.int64], fraction_bits: int) -> NDArray[np.float64]:
    """totals · 2^-fraction_bits: totals beyond 2^53 round once to float64, the scaling itself is exact."""
    if totals.dtype != np.int64:
        raise LocalProtocolError("integer totals are 64-bit signed integers", remedy="Decode them first.")
    if abs(fraction_bits) > _MAX_FRACTION_BITS - 64:
        raise StudyError(f"{fraction_bits} fraction bits are beyond float64", remedy="Use at most 60 or so.")
    return np.ldexp(totals.astype(np.float64), -fraction_bits)
