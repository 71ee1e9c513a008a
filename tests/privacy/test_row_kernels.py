"""The loops that stand in for matrix products and for rows made beforehand: the same bits, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tallystick.core.errors import DataError
from tallystick.privacy import row_kernels
from tallystick.privacy.contribution import GridRows
from tallystick.privacy.row_kernels import add_weighted_rows, row_products

_SHAPES = st.tuples(st.integers(0, 70), st.integers(1, 13))
_COLUMNS = st.one_of(st.floats(-1, 1), st.floats(-1e6, 1e6), st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324]))


def composed(columns, intercept, shift, spread, unit, bits: int, limit: float) -> GridRows:
    """Rows in memory first, by NumPy."""
    with np.errstate(over="ignore"):
        rows = np.empty((len(columns), columns.shape[1] + 1))
        rows[:, 0] = intercept
        rows[:, 1:] = (columns - shift) / spread
        rows /= unit
    return GridRows.make(rows, bits=bits, limit=limit)


@settings(deadline=None)  # the first call compiles
@given(st.data(), _SHAPES, st.integers(0, 30), st.sampled_from([1e-3, 1.0, 1.5]), st.sampled_from([0.3, 1.0, 40.0]))
def test_standardised_rows_are_the_composed_ones(data, shape, bits: int, limit: float, unit: float) -> None:
    columns = data.draw(arrays.arrays(np.float64, shape, elements=_COLUMNS))
    shift = data.draw(arrays.arrays(np.float64, shape[1], elements=st.floats(-1, 1)))
    spread = data.draw(arrays.arrays(np.float64, shape[1], elements=st.floats(1e-4, 1)))
    facts = {"intercept": data.draw(st.sampled_from([0.0, 0.25, 1.0])), "shift": shift, "spread": spread, "unit": unit}
    try:
        expected = composed(columns, *facts.values(), bits, limit)
    except DataError:
        with pytest.raises(DataError):
            GridRows.standardised(columns, **facts, bits=bits, limit=limit)
        return
    found = GridRows.standardised(columns, **facts, bits=bits, limit=limit)
    for name in ("values", "squares", "sums"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name
    assert found.limit == expected.limit


def test_what_is_no_number_is_refused() -> None:
    facts = {"intercept": 1.0, "shift": np.zeros(2), "spread": np.ones(2), "unit": 1.0, "bits": 10, "limit": 1.0}
    for bad in (np.nan, np.inf, -np.inf):
        columns = np.zeros((300, 2))
        columns[299, 1] = bad
        with pytest.raises(DataError):
            GridRows.standardised(columns, **facts)


def test_planted_squares_that_are_trusted_beyond_what_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row within the bound by float64 and beyond it in whole numbers would pass without the test for exactness."""
    bound = 2**31 - 1
    columns = np.array([[1.0, 2.0**-31, 0.0]]) * bound  # Σ x² = bound² + 1, which float64 takes for bound²
    facts = {
        "intercept": 0.0,
        "shift": np.zeros(3),
        "spread": np.ones(3),
        "unit": 1.0,
        "bits": 0,
        "limit": float(bound),
    }
    columns[0, 1] = 1.0
    rows = GridRows.standardised(columns, **facts)
    assert int(rows.squares[0]) <= bound**2
    assert rows.values.tobytes() == composed(columns, *list(facts.values())[:4], 0, float(bound)).values.tobytes()
    planted = row_kernels.put_standardised.py_func
    kept = [np.empty((1, 4)), np.empty(1, np.int64), np.empty(1, np.int64)]
    monkeypatch.setattr(row_kernels, "_SURELY_EXACT", np.inf)
    assert planted(columns, 0.0, np.zeros(3), np.ones(3), 1.0, 1.0, bound, *kept)
    assert sum(int(x) ** 2 for x in kept[0][0]) > bound**2  # the bug would be seen


@settings(deadline=None)  # the first call compiles
@given(st.data(), st.integers(0, 40), st.integers(1, 9), st.integers(1, 50))
def test_weighted_rows_add_up_to_whole_numbers(data, n: int, d: int, block: int) -> None:
    whole = st.integers(-(2**23), 2**23)
    values = data.draw(arrays.arrays(np.int64, (n, d), elements=whole))
    weights = data.draw(arrays.arrays(np.int64, n, elements=whole))
    expected = [sum(int(w) * int(x) for w, x in zip(weights, column)) for column in values.T]
    acc = np.full(d, 7, np.int64)
    add_weighted_rows(weights.astype(float), values.astype(float), block, acc)
    assert acc.tolist() == [7 + total for total in expected]
    products = row_products(values.astype(float), np.arange(d, dtype=float))
    assert products.tolist() == [sum(j * int(x) for j, x in enumerate(row)) for row in values]
