"""Mean rank error of a median by draws against one trusted curator's exponential mechanism; a subset that is quick.

The table of docs/protocols/selection.md has more rows. Bounds: 1.3 times central at ε ≤ .25 and 1.4 at ε = 1, or within
half a rank; on top of that three standard errors of these few runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.statistical.selected_quantiles import Rehearsal

CASES = [
    (200, 1_500_000, 0.25, "replace-one", 200),
    (200, 1_500_000, 1.0, "replace-one", 200),
    (200, 1_500_000, 1.0, "add-remove", 200),
    (48_842, 100_000, 0.25, "replace-one", 30),
    (48_842, 4_000, 1.0, "add-remove", 60),
]


def values(records: int, upper: int) -> np.ndarray:
    drawn = np.random.default_rng(5).lognormal(0, 0.6, records) * upper / 8
    return np.clip(np.round(drawn), 0, upper).astype(np.int64)


@pytest.mark.parametrize(("records", "upper", "epsilon", "neighbours", "runs"), CASES)
def test_a_median_by_draws_is_nearly_as_good_as_a_curators(
    records: int, upper: int, epsilon: float, neighbours: str, runs: int
) -> None:
    rehearsal = Rehearsal(values(records, upper), upper, epsilon, neighbours=neighbours)
    rng = np.random.default_rng(11)
    found = np.array([rehearsal.error(rng) for _ in range(runs)])
    central, doubt = rehearsal.central(), 3 * found.std() / runs**0.5
    assert found.mean() <= max((1.3 if epsilon <= 0.25 else 1.4) * central, central + 0.5) + doubt


def test_heavy_ties_are_met_exactly() -> None:
    tied = np.concatenate([np.zeros(30_000), np.full(18_000, 40), np.full(842, 99_999)]).astype(np.int64)
    rehearsal = Rehearsal(tied, 100_000, 1.0)
    assert max(rehearsal.error(np.random.default_rng(s)) for s in range(5)) == 0
