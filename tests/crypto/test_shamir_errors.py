"""Which shares are wrong, where more have come than are needed: against all subsets, and to the bound."""

from __future__ import annotations

from itertools import combinations

import pytest
from crypto_reference import P
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.crypto import shamir, shamir_errors
from tallystick.crypto.prg import AesStream
from tallystick.crypto.shamir_errors import extended, wrong_points

SECRET = bytes(range(32))


def dealt(threshold: int, shares: int, key: int = 0) -> list[tuple[int, bytes]]:
    (row,) = shamir.split([SECRET], threshold=threshold, shares=shares, source=AesStream(bytes([key]) * 32))
    return list(enumerate(row, 1))


def bent(share: bytes, by: int, limb: int) -> bytes:
    low = 8 * limb
    value = (int.from_bytes(share[low : low + 8], "little") + by) % P
    return share[:low] + value.to_bytes(8, "little") + share[low + 8 :]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_up_to_half_of_the_surplus_is_found_whatever_the_errors_are(data: st.DataObject) -> None:
    threshold = data.draw(st.integers(2, 8))
    shares = data.draw(st.integers(threshold, 16))
    row = data.draw(st.permutations(dealt(threshold, shares, data.draw(st.integers(0, 255)))))
    wrong = data.draw(st.sets(st.integers(0, shares - 1), max_size=(shares - threshold) // 2))
    for at in wrong:
        limbs = data.draw(st.sets(st.integers(0, 4), min_size=1))
        for limb in limbs:
            row[at] = row[at][0], bent(row[at][1], data.draw(st.integers(1, P - 1)), limb)
    assert wrong_points(row, threshold=threshold) == {row[at][0] for at in wrong}


def on_one_polynomial(shares: list[tuple[int, bytes]], threshold: int) -> bool:
    further = extended(shares, [point for point, _ in shares], threshold=threshold)
    return all(share == right for (_, share), right in zip(shares, further))


def by_all_subsets(shares: list[tuple[int, bytes]], threshold: int) -> set[int]:
    """The least number of shares without which the rest are on one polynomial."""
    for errors in range(len(shares) - threshold + 1):
        for out in combinations(shares, errors):
            if on_one_polynomial([one for one in shares if one not in out], threshold):
                return {point for point, _ in out}
    raise AssertionError


@pytest.mark.parametrize("errors", [0, 1, 2, 3])
def test_what_is_found_is_what_trying_every_subset_finds(errors: int) -> None:
    row = dealt(3, 9, errors)
    for at in range(errors):
        row[2 * at] = row[2 * at][0], row[2 * at + 1][1]  # another client's share
    assert wrong_points(row, threshold=3) == by_all_subsets(row, 3) == {1 + 2 * at for at in range(errors)}


def test_without_a_surplus_nothing_is_found() -> None:
    row = dealt(4, 4)
    row[0] = 1, bent(row[0][1], 1, 0)
    assert wrong_points(row, threshold=4) == frozenset()
    row = [*dealt(4, 5)]
    row[0] = 1, bent(row[0][1], 1, 0)
    assert wrong_points(row, threshold=4) is None  # it is seen that one is wrong, not which


def test_other_weights_find_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: syndromes without the code's weights are no sums of powers of the wrong points alone."""
    row = dealt(4, 10)
    monkeypatch.setattr(shamir_errors, "_weights", lambda points: [1] * len(points))
    assert wrong_points(row, threshold=4) != frozenset()


def test_shares_at_further_points_are_those_that_were_dealt() -> None:
    row = dealt(5, 12, 3)
    chosen = [row[at] for at in (11, 2, 7, 0, 5, 9)]
    assert extended(chosen, range(1, 13), threshold=5) == tuple(share for _, share in row)
    assert extended(chosen, [], threshold=5) == ()


def test_one_secret_that_does_not_come_out_does_not_keep_the_others() -> None:
    rows = [dealt(3, 3, key) for key in (1, 2)]
    rows[0][1] = 2, rows[1][1][1]
    assert [s is None or s.reveal() for s in shamir.rebuild_each(rows, threshold=3)] == [True, SECRET]
