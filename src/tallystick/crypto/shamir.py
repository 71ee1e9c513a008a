"""Shamir's t-of-n sharing of 32-byte secrets [Sha79]: any t shares give the secret, t − 1 say nothing about it.

A secret is written as five limbs below p = 2^64 − 2^32 + 1: four of seven bytes and one of four, little-endian. Each
limb is the value at 0 of a polynomial of degree t − 1 whose other coefficients are uniform in Z_p; the share at the
point x ∈ {1, …, n} is the five values at x, 8 bytes each, little-endian, canonical: 40 bytes.

Why t − 1 shares say nothing: for any t − 1 distinct non-zero points, the map from the t − 1 random coefficients to the
t − 1 values is affine and invertible (its matrix is Vandermonde's, scaled by the points), so the values are uniform
whatever the secret is.

Five limbs hold 320 bits and a secret 256. Shares that do not belong together, or one that was changed, give limbs
that are not a secret's but for a chance of 2^-64 with random errors: :func:`rebuild` then refuses. That is a guard
against accidents. Someone who knows the points used can change a share so that another *secret* comes out; whoever
uses the secret must not take more from it than its mask being removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.randomness import WordSource
from tallystick.core.redaction import Secret
from tallystick.crypto import field
from tallystick.crypto import shamir_kernels as kernels

SECRET_BYTES = 32
LIMBS = 5
SHARE_BYTES = 8 * LIMBS
MAX_SHARES = 2**16 - 1
_LIMB_BYTES = 7
_LIMB_LIMITS = np.array([2**56, 2**56, 2**56, 2**56, 2**32], dtype=np.uint64)

Share = tuple[int, bytes]
"""The point, from 1, and the 40 bytes at it."""


def split(
    secrets: Sequence[Secret | bytes], *, threshold: int, shares: int, source: WordSource
) -> tuple[tuple[bytes, ...], ...]:
    """For every secret its shares at the points 1 … ``shares``, in order; ``threshold`` of them rebuild it.

    Takes 5·(threshold − 1) uniform elements of the source for each secret, secret by secret.
    """
    if not 2 <= threshold <= shares <= MAX_SHARES:
        raise LocalProtocolError(
            f"a secret cannot be shared so that {threshold} of {shares} shares rebuild it",
            remedy=f"Choose a threshold from 2 to the number of shares, and at most {MAX_SHARES} shares.",
        )
    constants = _limbs(secrets)
    coefficients: NDArray[np.uint64] = np.empty((len(secrets), threshold, LIMBS), dtype=np.uint64)
    coefficients[:, 0] = constants
    random = field.uniform(len(secrets) * (threshold - 1) * LIMBS, source)
    coefficients[:, 1:] = random.reshape(len(secrets), threshold - 1, LIMBS)
    values: NDArray[np.uint64] = np.empty((len(secrets), shares, LIMBS), dtype=np.uint64)
    kernels.evaluate(coefficients, values)
    written = values.astype("<u8", copy=False)
    return tuple(tuple(share.tobytes() for share in row) for row in written)


def rebuild(shares: Sequence[Share], *, threshold: int) -> Secret:
    """The secret behind at least ``threshold`` shares at different points (the first ``threshold`` are used)."""
    return rebuild_all([shares], threshold=threshold)[0]


def rebuild_all(shares_of: Sequence[Sequence[Share]], *, threshold: int) -> tuple[Secret, ...]:
    """The secrets of many owners at once, each behind shares of its own and all of one threshold.

    Refused: a point twice, a point or length that no share has, a value that is not canonical, fewer shares than the
    threshold, and shares that are not of one secret (then no share is singled out: any of them may be the wrong one).
    """
    found = []
    for secret in rebuild_each(shares_of, threshold=threshold):
        if secret is None:
            _refuse("shares do not belong to one secret")
        found.append(secret)
    return tuple(found)


def rebuild_each(shares_of: Sequence[Sequence[Share]], *, threshold: int) -> tuple[Secret | None, ...]:
    """The same, with None for an owner whose shares are not of one secret: for whoever can do with other shares.

    What comes out is not the owner's secret for certain: some shares were changed so that another one does.
    """
    if threshold < 2:
        raise LocalProtocolError("a threshold is at least 2", remedy="Pass the threshold the secrets were shared with.")
    points: NDArray[np.uint64] = np.empty((len(shares_of), threshold), dtype=np.uint64)
    raw: list[bytes] = []
    for row, shares in enumerate(shares_of):
        _check(shares, threshold)
        used = shares[:threshold]
        points[row] = [point for point, _ in used]
        raw.extend(share for _, share in used)
    if not raw:
        return ()
    values = field.from_bytes(b"".join(raw), LIMBS * len(raw)).reshape(len(shares_of), threshold, LIMBS)
    limbs: NDArray[np.uint64] = np.empty((len(shares_of), LIMBS), dtype=np.uint64)
    kernels.values_at_zero(points, values, limbs)
    fits: list[bool] = np.all(limbs < _LIMB_LIMITS, axis=1).tolist()
    written = limbs.astype("<u8", copy=False).tobytes()
    pieces = [written[at : at + SHARE_BYTES] for at in range(0, len(written), SHARE_BYTES)]
    return tuple(Secret(_secret(piece)) if fine else None for piece, fine in zip(pieces, fits))


def _limbs(secrets: Sequence[Secret | bytes]) -> NDArray[np.uint64]:
    padded = bytearray()
    for secret in secrets:
        raw = secret.reveal() if isinstance(secret, Secret) else secret
        if not isinstance(raw, bytes) or len(raw) != SECRET_BYTES:
            raise LocalProtocolError(
                f"a shared secret has {SECRET_BYTES} bytes", remedy="Draw secrets with source.bytes(32)."
            )
        for low in range(0, SECRET_BYTES, _LIMB_BYTES):
            padded += raw[low : low + _LIMB_BYTES].ljust(8, b"\0")
    return np.frombuffer(bytes(padded), dtype="<u8").astype(np.uint64).reshape(len(secrets), LIMBS)


def _secret(limbs: bytes) -> bytes:
    return b"".join(limbs[low : low + _LIMB_BYTES] for low in range(0, SHARE_BYTES, 8))[:SECRET_BYTES]


def _check(shares: Sequence[Share], threshold: int) -> None:
    seen: set[int] = set()
    for point, share in shares:
        if not isinstance(point, int) or not 1 <= point <= MAX_SHARES:
            _refuse("a share is for a point that does not exist")
        if not isinstance(share, bytes) or len(share) != SHARE_BYTES:
            _refuse(f"a share does not have {SHARE_BYTES} bytes")
        if point in seen:
            _refuse(f"two shares are for the same point, {point}")
        seen.add(point)
    if len(shares) < threshold:
        _refuse(f"only {len(shares)} of the {threshold} shares needed have arrived")


def _refuse(cause: str) -> NoReturn:
    raise RemoteProtocolError(
        cause, rule="bad-share", remedy="Nothing was rebuilt; the round cannot be unmasked from these shares."
    )
