"""Choices by utilities that add up: a user's own in a session and as a file, a loss in one parameter, subranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyRefused

VALUES = np.random.default_rng(0).normal(52, 6, 300).clip(0, 100)
FILE = '''
import numpy as np
import tallystick as ts


class Half(ts.Program):
    """Which half of the range most records are in."""

    bound = 1

    def init(self, public):
        return np.zeros(1)

    def map_in_client(self, record, state):
        out = np.zeros(2)
        out[0 if record[0] < 0 else 1] = 1
        return out

    def reduce_in_aggregator(self, total, state):
        return total
'''


class Nearest(ts.DecomposableUtility):
    """How near a record's value is to each of five."""

    candidates = (10, 30, 50, 70, 90)
    bound = 10

    def map_in_client(self, record: Any, state: Any) -> Any:
        out = np.zeros(5)
        for c in range(5):
            out[c] = 10 - abs(record[0] - (c - 2) / 2.5) * 10
        return out


class Shouting(Nearest):
    """Returns far more than its bound, for the wrong candidate: cut to the bound, it counts like any other."""

    def map_in_client(self, record: Any, state: Any) -> Any:
        out = np.zeros(5)
        out[0] = 1000000.0
        out[1] = -1000000.0
        out[2] = 10.0
        return out


class Unbounded(Nearest):
    bound = 0.5  # type: ignore[assignment]


def federation(**options: Any) -> ts.Federation:
    frames = [{"x": VALUES[i::3]} for i in range(3)]
    return ts.Federation.simulate(
        frames, schema=ts.Schema({"x": ts.Number(0, 100)}), trust="parties", seed=2, **options
    )


def test_a_utility_of_ones_own() -> None:
    model = ts.Choice(Nearest(), epsilon=1.0).fit(federation())
    assert model.choice_ == 50
    assert model.privacy_.mechanism == "exponential"
    assert model.plan_.draws[0][1].choice.moves == 20  # replaced, a score moves within ±10


def test_the_platform_bounds_what_a_utility_returns() -> None:
    model = ts.Choice(Shouting(), epsilon=1.0).fit(federation())
    assert model.choice_ in (10, 50)  # both have 10 from every record
    with pytest.raises(ts.StudyError, match="whole number"):
        ts.Choice(Unbounded(), epsilon=1.0).fit(federation())


def test_a_program_file_selects_where_the_trust_model_does() -> None:
    model = ts.ProgramEstimator.from_text(FILE, name="half.py", epsilon=1.0, mechanism="exponential").fit(federation())
    assert model.state_.tolist() == [1.0]


@pytest.mark.parametrize(("loss", "off"), [("absolute", 8.0), ("huber", 12.0), ("squared", 25.0)])
def test_the_parameter_of_least_loss(loss: str, off: float) -> None:
    model = ts.RiskMinimizer(column="x", loss=loss, epsilon=2.0).fit(federation())
    assert abs(model.minimizer_ - 52) < off
    assert model.answer().rows[0]["loss"] == loss


@pytest.mark.parametrize("weights", ["epsilon", "ln2", "ln2/2^d"])
def test_subranges_by_the_papers_weights(weights: str) -> None:
    frames = [{"x": VALUES[i::3].round()} for i in range(3)]
    fed = ts.Federation.simulate(frames, schema=ts.Schema({"x": ts.Integer(0, 9999)}), trust="parties", seed=2)
    model = ts.Quantiles(column="x", method="subranges", weights=weights, epsilon=8.0).fit(fed)
    assert len(model.plan_.draws) == 4  # ten subranges a step
    assert 40 <= model.quantiles_[0.5] <= 64
    if weights == "ln2":
        with pytest.raises(PrivacyRefused, match=r"costs 1\.386"):  # 2 ln 2 a step under replace-one, not ln 2
            ts.Quantiles(column="x", method="subranges", weights=weights, epsilon=1.0).fit(fed)
