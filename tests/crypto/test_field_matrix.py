"""Products of matrices over the field against Python's integers, at the ends of what limbs can be."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto import field_matrix
from tallystick.crypto.field import MODULUS, uniform
from tallystick.crypto.field_matrix import SMALL, mixed_product, transposed_product
from tallystick.crypto.prg import AesStream


def matrix(rows: int, columns: int, label: bytes) -> np.ndarray:
    return uniform(rows * columns, AesStream(bytes(32), label)).reshape(rows, columns)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(object).T @ b.astype(object)) % MODULUS


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_products_are_those_of_whole_numbers(rows: int) -> None:
    a, b = matrix(rows, 5, b"a"), matrix(rows, 3, b"b")
    assert (transposed_product(a, b) == exact(a, b)).all()


def test_the_largest_elements_there_are() -> None:
    a = np.full((3000, 2), MODULUS - 1, dtype=np.uint64)
    b = np.full((3000, 2), MODULUS - 1, dtype=np.uint64)
    b[:, 1] = 2**64 - 2**32  # p − 1 once more, by its bits
    assert (transposed_product(a, b) == 3000).all()  # (−1)·(−1), 3,000 times


def test_rows_in_several_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = matrix(100, 4, b"a"), matrix(100, 3, b"b")
    whole = transposed_product(a, b)
    monkeypatch.setattr(field_matrix, "_ROWS", 7)
    assert (transposed_product(a, b) == whole).all()


def test_small_numbers_of_both_signs_times_field_elements() -> None:
    a = np.random.default_rng(1).integers(-SMALL, SMALL + 1, size=(500, 4)).astype(float)
    a[0] = SMALL
    a[1] = -SMALL
    b = matrix(500, 3, b"b")
    assert (mixed_product(a, b) == exact(a.astype(np.int64), b)).all()


def test_no_rows_and_no_fit() -> None:
    assert (transposed_product(matrix(0, 2, b""), matrix(0, 3, b"")) == 0).all()
    with pytest.raises(LocalProtocolError):
        transposed_product(matrix(2, 2, b""), matrix(3, 2, b""))
    with pytest.raises(LocalProtocolError, match="not small"):
        mixed_product(np.full((1, 1), SMALL + 1.0), matrix(1, 1, b""))
