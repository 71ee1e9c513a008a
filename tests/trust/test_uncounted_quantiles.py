"""Quantiles among parties where nobody may say how many records there are: they are counted, and no number made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.selection import quantile_design
from tallystick.algorithms.selection.quantiles import SelectedQuantiles

N = 40_000
VALUES = np.clip(np.random.default_rng(0).lognormal(10, 1, N), 0, 10**6).astype(int)


def federation(values: Any = VALUES, *, upper: int = 10**6, **options: Any) -> ts.Federation:
    schema = ts.Schema({"x": ts.Integer(0, upper)})
    return ts.Federation.simulate(
        [{"x": values[i::3]} for i in range(3)], schema=schema, trust="parties", **{"seed": 3, **options}
    )


def quantiles(**options: Any) -> ts.Quantiles:
    return ts.Quantiles(**{"column": "x", "q": (0.1, 0.5, 0.9), "method": "exponential", **options})


def rank_errors(found: dict[float, Any], values: Any) -> list[float]:
    """Records between each answer and its quantile."""
    own = np.sort(values)
    ends = {q: (np.searchsorted(own, v), np.searchsorted(own, v, side="right")) for q, v in found.items()}
    return [max(0.0, low - q * len(own), q * len(own) - high) for q, (low, high) in ends.items()]


def taken_for_public(monkeypatch: pytest.MonkeyPatch) -> None:
    class Planted(SelectedQuantiles):
        def __init__(self, **facts: Any) -> None:
            super().__init__(**{**facts, "public_count": True})

    monkeypatch.setattr(quantile_design, "SelectedQuantiles", Planted)


@pytest.mark.parametrize("stated", [None, 5000])
def test_under_add_remove_the_number_is_counted(stated: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where an analyst states another one than there is: nobody can check it."""
    fed, asked = federation(), quantiles(neighbours="add-remove")
    study = asked.study_for(fed).replace("data", records=stated)
    fitted = asked.fit_study(fed, study)
    assert max(rank_errors(fitted.quantiles_, VALUES)) < 100
    assert abs(fitted.counts_ - N) < 1000
    taken_for_public(monkeypatch)
    wrong = quantiles(neighbours="add-remove").fit_study(federation(), study)
    assert max(rank_errors(wrong.quantiles_, VALUES)) > 300


@pytest.mark.filterwarnings("ignore:the planner expects little but noise")  # of five records
@pytest.mark.parametrize("stated", [None, 5])
def test_a_guess_that_is_far_too_small_does_not_outweigh_the_counts(stated: int | None) -> None:
    values = np.clip(np.random.default_rng(0).normal(600, 100, 4000), 0, 1000).astype(int)
    fed = ts.Federation.simulate([{"x": values}], schema=ts.Schema({"x": ts.Integer(0, 1000)}), seed=3)
    asked = ts.Quantiles(column="x", q=0.5, neighbours="add-remove", epsilon=0.1, mechanism="laplace")
    fitted = asked.fit_study(fed, asked.study_for(fed).replace("data", records=stated))
    assert abs(fitted.counts_ - 4000) < 800
    low, high = fitted.interval_[0.5]
    assert low <= np.sort(values)[1999] <= high


def test_records_without_a_value_are_not_counted_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.where(np.random.default_rng(1).random(N) < 0.5, np.nan, VALUES)
    there = values[~np.isnan(values)]
    fitted = quantiles().fit(federation(values, missing=ts.Missing()))
    assert max(rank_errors(fitted.quantiles_, there)) < 100
    assert abs(fitted.counts_ - len(there)) < 1000
    taken_for_public(monkeypatch)
    assert max(rank_errors(quantiles().fit(federation(values, missing=ts.Missing())).quantiles_, there)) > 300


def test_a_number_that_is_public_is_taken_as_it_is() -> None:
    assert quantiles().fit(federation()).counts_ == N


@pytest.mark.parametrize("method", ["exponential", "subranges"])
def test_what_was_not_counted_has_no_number(method: str) -> None:
    values = np.arange(300) % 101
    fed = federation(values, upper=100)
    fitted = quantiles(q=(0, 0.5), method=method, neighbours="add-remove", epsilon=2.0).fit(fed)
    assert fitted.counts_ is None
    assert any("% of the records beyond them" in note for note in fitted.answer().notes)
    assert quantiles(method=method, epsilon=2.0).fit(federation(values, upper=100)).counts_ == 300


@pytest.mark.filterwarnings("ignore:the planner expects little but noise")
@pytest.mark.parametrize("seed", range(4))
def test_draws_that_crossed_are_put_in_order(seed: int) -> None:
    """Of two records nearly every place is as likely: five draws in order would be chance."""
    fitted = quantiles(q=(0, 0.25, 0.5, 0.75, 1)).fit(federation(np.array([40, 41]), upper=100, seed=seed))
    found = list(fitted.quantiles_.values())
    assert found == sorted(found)
    assert sorted(found) == sorted(int(p) for p in fitted.history_[-1].places[:, 0])
