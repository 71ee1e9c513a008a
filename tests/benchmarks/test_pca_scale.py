"""The measurement of wide component studies runs, on few columns."""

from __future__ import annotations

import warnings

import pytest
from benchmarks.pca_scale import map_ratio, whole_study


@pytest.fixture(autouse=True)
def quiet() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_the_round_of_products_is_the_one_that_is_measured() -> None:
    found = map_ratio(90, 20)
    assert (found["records"], found["columns"]) == (30, 20)
    assert found["map_cpu_seconds"] >= 0


def test_a_whole_study_sums_the_upper_triangle() -> None:
    found = whole_study(90, 20)
    assert found["coordinates"] >= 20 * 21 // 2
    assert found["rounds"] >= 1
