"""Shamir shares over GF(16): known answers, products, openings, and secrecy by enumeration of all randomness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto import gf16
from tallystick.crypto.prg import AesStream
from tallystick.crypto.shamir_bits import combine, deal, open_bits, weights_at_zero


class Given:
    """A source of which the elements are chosen by the test, in order."""

    def __init__(self, elements: np.ndarray) -> None:
        flat = np.zeros(-(-elements.size // 16) * 16, dtype=np.uint8)
        flat[: elements.size] = elements.reshape(-1)
        halves = flat.view(np.uint64)
        self._words = halves[0::2] | halves[1::2] << np.uint64(4)

    def words(self, count: int) -> np.ndarray:
        taken, self._words = self._words[:count], self._words[count:]
        assert taken.size == count
        return taken.copy()

    def bytes(self, count: int) -> bytes:
        raise NotImplementedError


def given(*rows: np.ndarray) -> Given:
    return Given(np.stack(rows))


def plain_share(secret: int, coefficients: list[int], x: int) -> int:
    value, power = secret, 1
    for c in coefficients:
        power = gf16.product(power, x)
        value ^= gf16.product(c, power)
    return value


def test_known_answer() -> None:
    """f(X) = 1 + 2X + 3X² at 1 … 5, by hand: 2·2 = 4, 3·4 = 12, …"""
    random = given(np.full(8, 2, np.uint8), np.full(8, 3, np.uint8))
    shares = deal(np.ones(8, np.uint8), 2, 5, random)
    assert shares[:, 0].tolist() == [0, 1 ^ 4 ^ 12, 1 ^ 6 ^ 15, 1 ^ 8 ^ gf16.product(3, 3), 1 ^ 10 ^ gf16.product(3, 2)]


@pytest.mark.parametrize("parties", range(3, 11))
def test_shares_are_values_of_one_polynomial(parties: int) -> None:
    for degree in range(1, (parties - 1) // 2 + 1):
        coefficients = gf16.from_words(gf16.uniform(degree * 24, AesStream(bytes([degree]) * 32)), (degree, 24))
        secrets = np.arange(24, dtype=np.uint8) % 16
        shares = deal(secrets, degree, parties, Given(coefficients))
        for i in range(24):
            row = [plain_share(int(secrets[i]), coefficients[:, i].tolist(), j + 1) for j in range(parties)]
            assert shares[:, i].tolist() == row
        assert (combine(shares, weights_at_zero(parties)) == secrets).all()


def test_points_run_out_at_fifteen() -> None:
    assert len(weights_at_zero(15)) == 15
    with pytest.raises(LocalProtocolError):
        weights_at_zero(16)


@pytest.mark.parametrize("parties", range(3, 11))
def test_products_are_reduced(parties: int) -> None:
    """Local products, dealt anew and combined, are shares of the product of degree t."""
    t = (parties - 1) // 2
    stream, weights = AesStream(bytes(32)), weights_at_zero(parties)
    a, b = (np.array(v, dtype=np.uint8) for v in ([0, 0, 1, 1] * 5, [0, 1, 0, 1] * 5))
    left, right = deal(a, t, parties, stream), deal(b, t, parties, stream)
    dealt = [deal(gf16.multiply(x, y), t, parties, stream) for x, y in zip(left, right)]
    reduced = np.stack([combine(np.stack([d[j] for d in dealt]), weights) for j in range(parties)])
    opened = open_bits(reduced, t, weights)
    assert opened is not None
    assert (opened == a & b).all()


def test_a_wrong_share_shows_when_opened() -> None:
    weights = weights_at_zero(5)
    shares = deal(np.ones(4, np.uint8), 2, 5, AesStream(bytes(32)))
    for party, change in itertools.product(range(5), range(1, 16)):
        wrong = shares.copy()
        wrong[party, 1] ^= change
        assert open_bits(wrong, 2, weights) is None
    assert open_bits(deal(np.full(4, 2, np.uint8), 2, 5, AesStream(bytes(32))), 2, weights) is None  # no bits


def views(secret: int, degree: int, parties: int, coalition: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What a coalition gets, over all coefficients."""
    grid = np.array(list(itertools.product(range(16), repeat=degree)), dtype=np.uint8).T
    shares = deal(np.full(grid.shape[1], secret, np.uint8), degree, parties, Given(np.ascontiguousarray(grid)))
    return sorted(map(tuple, shares[list(coalition)].T.tolist()))


@pytest.mark.parametrize(("parties", "degree"), [(3, 1), (10, 1), (5, 2), (10, 2)])
def test_a_coalition_of_t_sees_the_same_for_every_secret(parties: int, degree: int) -> None:
    for coalition in itertools.combinations(range(parties), degree):
        assert views(0, degree, parties, coalition) == views(1, degree, parties, coalition)
    one_more = tuple(range(degree + 1))
    assert views(0, degree, parties, one_more) != views(1, degree, parties, one_more)  # the test can fail


def and_gate_views(a: int, b: int, seen_by: int, *, zero_polynomial: bool = False) -> list[int]:
    """One AND of inputs of parties 0 and 1, then opened: all that party ``seen_by`` gets, over all coins of the others.

    m = 3, t = 1. Five deals, one coefficient each: a, b, and the products of the three parties. The observer's own
    coins are fixed (they are its view, too, and the statement must hold for each value of them).
    """
    dealers = [0, 1, 0, 1, 2]
    free = [i for i, dealer in enumerate(dealers) if dealer != seen_by]
    cases = np.array(list(itertools.product(range(16), repeat=len(free))), dtype=np.uint8)
    coins = np.full((5, len(cases)), 9, dtype=np.uint8)
    for column, i in enumerate(free):
        coins[i] = cases[:, column]
    if zero_polynomial:
        coins[2:] = 0
    many, weights = len(cases), weights_at_zero(3)
    of_a = deal(np.full(many, a, np.uint8), 1, 3, Given(coins[0]))
    of_b = deal(np.full(many, b, np.uint8), 1, 3, Given(coins[1]))
    dealt = [deal(gf16.multiply(of_a[i], of_b[i]), 1, 3, Given(coins[2 + i])) for i in range(3)]
    result = np.stack([combine(np.stack([d[j] for d in dealt]), weights) for j in range(3)])
    seen = [of_a[seen_by], of_b[seen_by], *(d[seen_by] for d in dealt), *result]
    packed = sum(row.astype(np.int64) << (4 * i) for i, row in enumerate(seen))
    return np.sort(packed).tolist()


@pytest.mark.parametrize("observer", [0, 1, 2])
def test_the_view_of_a_gate_depends_on_the_result_alone(observer: int) -> None:
    """Exact: all 16^k coins of the honest parties. An observer knows its own input, so that stays the same."""
    alike = {0: [((0, 0), (0, 1))], 1: [((0, 0), (1, 0))], 2: [((0, 0), (0, 1)), ((0, 0), (1, 0))]}
    for first, second in alike[observer]:
        assert and_gate_views(*first, observer) == and_gate_views(*second, observer)
        assert and_gate_views(*first, observer, zero_polynomial=True) != and_gate_views(
            *second, observer, zero_polynomial=True
        )
    assert and_gate_views(1, 1, observer) != and_gate_views(1, 0, observer)  # the results differ
