"""What nobody should ask of parties, and what they get: a typed error that says what to do, or a defined answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyRefused


def federation(values: Any, *, column: Any = None, parts: int = 3, **options: Any) -> ts.Federation:
    whole = np.asarray(values)
    frames = [{"x": whole[i::parts]} for i in range(parts)]
    options = {"trust": "parties", "seed": 3, **options}
    return ts.Federation.simulate(frames, schema=ts.Schema({"x": column or ts.Integer(0, 100)}), **options)


def median(**options: Any) -> ts.Quantiles:
    return ts.Quantiles(**{"column": "x", "method": "exponential", "epsilon": 2.0, **options})


@pytest.mark.parametrize(
    "bounds",
    [(3, 3), (5, 4), (0, 10, 0), (0, 10, -1), (0, 10, 0.5), (0, 10, 20), (0.5, 10), (0, float("nan")), ("a", 3)],
)
def test_domains_of_no_value_or_one_and_steps_that_are_no_whole_numbers(bounds: tuple[Any, ...]) -> None:
    with pytest.raises((ts.BoundsError, ts.StudyError)) as refused:
        median().fit(federation(np.arange(9), column=ts.Integer(*bounds)))
    assert refused.value.remedy


@pytest.mark.parametrize("q", [-0.01, 1.01, 2, float("inf"), None, [], "0.5", (0.5, 0.5), True, 10**400])
def test_what_is_no_share_is_no_quantile(q: Any) -> None:
    with pytest.raises(ts.StudyError) as refused:
        median(q=q).fit(federation(np.arange(9)))
    assert refused.value.rule == "quantiles-are-shares"


@pytest.mark.filterwarnings("ignore:the planner expects little but noise")  # of one record, where that is public
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("records", [0, 1, 2])
def test_hardly_any_records_have_a_defined_answer(neighbours: str, records: int) -> None:
    """Somewhere in the domain: which records there are is what is hidden. Nothing is raised, which would tell of it."""
    values = np.full(records, 40)
    for estimator in (median(neighbours=neighbours), ts.Mode(column="x", epsilon=2.0, neighbours=neighbours)):
        if neighbours == "replace-one" and records == 0:
            with pytest.raises(ts.TallystickError):  # the number is public, and there is nothing to replace
                estimator.fit(federation(values))
            continue
        fitted = estimator.fit(federation(values))
        found = fitted.mode_ if isinstance(fitted, ts.Mode) else fitted.quantiles_[0.5]
        assert 0 <= found <= 100


def test_all_values_equal_are_found() -> None:
    assert median(epsilon=5.0).fit(federation(np.full(60, 40))).quantiles_[0.5] == 40
    assert median(epsilon=5.0, q=(0, 0.5, 1)).fit(federation(np.full(400, 40))).quantiles_ == {
        0.0: 40,
        0.5: 40,
        1.0: 40,
    }


def test_values_outside_the_domain_are_moved_to_its_ends() -> None:
    with pytest.warns(ts.DataWarning):
        found = median(epsilon=5.0).fit(federation(np.repeat([4000, 50], [40, 20])))
    assert found.quantiles_[0.5] == 100


@pytest.mark.parametrize(
    ("options", "rule"),
    [({"parties": 2}, "three-parties-at-least"), ({"parties": 1}, "three-parties-at-least"),
     ({"parties": 3, "colluding": 2}, "honest-majority"), ({"parties": 6, "colluding": 3}, "honest-majority"),
     ({"parties": 11}, "three-parties-at-least")],
)  # fmt: skip
@pytest.mark.parametrize("asked", ["median", "above"])
def test_too_few_parties_and_too_many_that_collude(options: dict[str, int], rule: str, asked: str) -> None:
    estimator = median() if asked == "median" else ts.AboveThreshold(column="x", threshold=50)
    with pytest.raises(PrivacyRefused) as refused:
        estimator.fit(federation(np.arange(60), **options))
    assert refused.value.rule == rule


def test_a_number_of_parties_that_is_none() -> None:
    with pytest.raises(ts.TallystickError):
        median().fit(federation(np.arange(60), parties=2.5))


def test_counts_of_nobody_reach_no_threshold() -> None:
    empty = federation(np.array([], dtype=int))
    found = ts.AboveThreshold(column="x", threshold=200, most=3, epsilon=2.0, neighbours="add-remove").fit(empty)
    assert found.above_ == []
