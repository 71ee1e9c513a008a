"""Shamir's shares of 32-byte secrets: any t rebuild, t − 1 fit every secret, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st
from masking_reference import limbs_of, shamir_rebuild
from numpy.typing import NDArray
from scipy import stats

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.redaction import Secret
from tallystick.crypto import shamir
from tallystick.crypto.prg import AesStream
from tallystick.crypto.shamir_kernels import times

ZEROS, ONES = bytes(32), bytes([255]) * 32


class Given:
    """A source of which the words are chosen by the test, in order."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:count], self._words[count:]
        assert taken.size == count
        return taken.copy()

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError


def elements(share: bytes) -> list[int]:
    return [int.from_bytes(share[at : at + 8], "little") for at in range(0, 40, 8)]


def dealt(secret: bytes, threshold: int, shares: int, key: int = 0) -> list[tuple[int, bytes]]:
    row = shamir.split([secret], threshold=threshold, shares=shares, source=AesStream(bytes([key]) * 32))[0]
    return list(enumerate(row, 1))


EDGES = [0, 1, 2, 2**16 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, P - 2**32, P - 2, P - 1]


def test_products_in_the_field() -> None:
    for a, b in itertools.product(EDGES, EDGES):
        assert int(times(np.uint64(a), np.uint64(b))) == a * b % P


@settings(deadline=None, max_examples=200)
@given(a=st.integers(0, P - 1), b=st.integers(0, P - 1))
def test_products_of_any_elements(a: int, b: int) -> None:
    assert int(times(np.uint64(a), np.uint64(b))) == a * b % P


def test_horner_at_the_edges_of_words() -> None:
    """Coefficients and points where a carry may be lost: every share is the polynomial's value in plain integers."""
    secret = bytes([255]) * 32
    rows = [EDGES[i : i + 5] for i in range(0, 10, 5)]
    for row in rows:
        words = [*row, *reversed(row)]
        got = shamir.split([secret], threshold=3, shares=65535, source=Given(words))[0]
        for x in (1, 2, 3, 255, 256, 32768, 65534, 65535):
            want = [(c + a * x + b * x * x) % P for c, a, b in zip(limbs_of(secret), words[:5], words[5:], strict=True)]
            assert elements(got[x - 1]) == want


@settings(deadline=None, max_examples=40)
@given(secret=st.binary(min_size=32, max_size=32), data=st.data())
def test_any_t_shares_rebuild(secret: bytes, data: st.DataObject) -> None:
    shares = data.draw(st.integers(2, 12))
    threshold = data.draw(st.integers(2, shares))
    row = dealt(secret, threshold, shares, key=data.draw(st.integers(0, 255)))
    chosen = data.draw(st.permutations(row))[:threshold]
    assert shamir.rebuild(chosen, threshold=threshold).reveal() == secret == shamir_rebuild(chosen)
    assert shamir.rebuild(row, threshold=threshold).reveal() == secret


def test_many_owners_at_once() -> None:
    source = AesStream(ZEROS)
    secrets = [Secret(source.bytes(32)) for _ in range(20)]
    rows = shamir.split(secrets, threshold=7, shares=12, source=source)
    held = [list(enumerate(row, 1))[i % 5 :] for i, row in enumerate(rows)]
    rebuilt = shamir.rebuild_all(held, threshold=7)
    assert [s.reveal() for s in rebuilt] == [s.reveal() for s in secrets]
    assert shamir.rebuild_all([], threshold=7) == ()
    assert "bytes" in repr(rebuilt[0])


def coefficients_for(secret: bytes, seen: list[tuple[int, bytes]]) -> list[int]:
    """The random elements with which this secret has exactly the shares seen: t − 1 points and the value at zero."""
    points = [0, *(x for x, _ in seen)]
    columns = []
    for limb in range(5):
        values = [limbs_of(secret)[limb], *(elements(share)[limb] for _, share in seen)]
        polynomial = [0] * len(points)
        for j, (xj, yj) in enumerate(zip(points, values)):
            basis, scale = [1], yj
            for i, xi in enumerate(points):
                if i != j:
                    basis = [
                        ((basis[k - 1] if k else 0) - xi * (basis[k] if k < len(basis) else 0)) % P
                        for k in range(len(basis) + 1)
                    ]
                    scale = scale * pow(xj - xi, -1, P) % P
            polynomial = [(a + scale * b) % P for a, b in zip(polynomial, basis)]
        columns.append(polynomial)
    return [column[power] for power in range(1, len(points)) for column in columns]


@pytest.mark.parametrize(("threshold", "shares"), [(2, 3), (3, 5), (5, 6)])
def test_one_share_too_few_fits_every_secret_equally(threshold: int, shares: int) -> None:
    """Exact: for any t − 1 points and any other secret exactly one choice of the coefficients gives the same shares.

    The choices are uniform, so what t − 1 holders see has the same distribution whatever the secret is.
    """
    row = dealt(bytes(range(32)), threshold, shares)
    for seen in itertools.combinations(row, threshold - 1):
        for other in (ZEROS, ONES, bytes(range(1, 33))):
            words = coefficients_for(other, list(seen))
            again = shamir.split([other], threshold=threshold, shares=shares, source=Given(words))[0]
            assert all(again[x - 1] == share for x, share in seen)
            assert any(again[x - 1] != share for x, share in row)  # one more share tells them apart


def p_value(secret: bytes, *, threshold: int, leak: bool = False) -> float:
    """Of the top byte of t − 1 shares' first limbs and their difference, over 4,000 dealings of one secret."""
    rows = shamir.split([secret] * 4000, threshold=threshold, shares=3, source=AesStream(bytes([7]) * 32))
    first = np.array([elements(row[0])[0] for row in rows], dtype=np.uint64)
    second = np.array([elements(row[1])[0] for row in rows], dtype=np.uint64)
    seen = first if not leak else first * np.uint64(2) - second  # with a line through both, twice the first − second
    counts = np.bincount((seen >> np.uint64(56)).astype(np.int64), minlength=256)
    return float(stats.chisquare(counts).pvalue)


def test_a_share_looks_the_same_for_every_secret() -> None:
    assert p_value(ZEROS, threshold=2) > 1e-4
    assert p_value(ONES, threshold=3) > 1e-4
    assert p_value(ZEROS, threshold=3, leak=True) > 1e-4  # two of three are still one too few
    assert p_value(ZEROS, threshold=2, leak=True) < 1e-9  # two of two: the secret shows, so the test can fail


def refused(shares: list[tuple[int, bytes]], threshold: int = 3) -> str:
    with pytest.raises(RemoteProtocolError) as refusal:
        shamir.rebuild(shares, threshold=threshold)
    return str(refusal.value)


def test_bad_shares_are_refused() -> None:
    row = dealt(ONES, 3, 5)
    assert "only 2 of the 3 shares" in refused(row[:2])
    assert "same point, 2" in refused([*row[:3], row[1]])
    assert "same point, 1" in refused([row[0], row[0], row[1]])
    assert "40 bytes" in refused([*row[:2], (3, row[2][1][:-1])])
    assert "40 bytes" in refused([*row[:2], (3, row[2][1] + b"\0")])
    for point in (0, -1, 65536, 2**64):
        assert "point that does not exist" in refused([*row[:2], (point, row[2][1])])
    assert "not below the modulus" in refused([*row[:2], (3, b"\xff" * 40)])


def test_shares_that_do_not_belong_together_are_refused() -> None:
    row, other = dealt(ONES, 3, 5), dealt(ZEROS, 3, 5, key=1)
    assert "one secret" in refused([*row[:2], other[2]])
    assert "one secret" in refused([row[0], row[1], (4, row[2][1])])  # at another point
    changed = bytearray(row[2][1])
    changed[0] ^= 1
    assert "one secret" in refused([*row[:2], (3, bytes(changed))])
    assert "one secret" in refused(row[:2], threshold=2)  # fewer than it was shared with


@pytest.mark.parametrize(("threshold", "shares"), [(1, 3), (0, 3), (4, 3), (2, 65536)])
def test_impossible_thresholds(threshold: int, shares: int) -> None:
    with pytest.raises(LocalProtocolError):
        shamir.split([ZEROS], threshold=threshold, shares=shares, source=AesStream(ZEROS))


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), bytearray(32), "x" * 32])
def test_only_secrets_of_32_bytes(secret: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="32 bytes"):
        shamir.split([secret], threshold=2, shares=3, source=AesStream(ZEROS))


def test_a_threshold_of_one_rebuilds_nothing() -> None:
    with pytest.raises(LocalProtocolError):
        shamir.rebuild(dealt(ZEROS, 2, 2), threshold=1)
