"""[privacy] groups splits the budget of a program of one's own as it does a built-in one's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tallystick as ts

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")


class SumAndCount(ts.Program):
    rounds = 3
    groups = (
        ts.Group(name="sum", size=1, bound=1.0, share=0.5),
        ts.Group(name="count", size=1, bound=1.0, share=0.5, nonnegative=True),
    )

    def init(self, public: ts.Public) -> Any:
        return np.zeros(2)

    def map_in_client(self, record: Any, state: Any) -> Any:
        return np.array([record[0], 1.0])

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def fitted(groups: dict[str, float] | None, mechanism: str) -> Any:
    data = {"x": np.random.default_rng(0).uniform(0, 1, 900)}
    parts = [{"x": data["x"][i::3]} for i in range(3)]
    fed = ts.Federation.simulate(parts, schema=ts.Schema({"x": ts.Number(0, 1)}), seed=2)
    model = ts.ProgramEstimator(SumAndCount(), epsilon=3.0, mechanism=mechanism)
    study = model.study_for(fed, target=None, features=["x"])
    if groups is not None:
        study = study.replace("privacy", groups=[{"name": n, "share": s} for n, s in groups.items()])
    return model.fit_study(fed, study)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_shares_of_the_study_go_before_the_programs(mechanism: str) -> None:
    """σ ∝ 1/√share under zCDP, ∝ 1/share under pure ε, in every round; the whole claim stays."""
    own, given = fitted(None, mechanism), fitted({"sum": 0.8, "count": 0.2}, mechanism)
    for before, after in zip(own.plan_.rounds, given.plan_.rounds, strict=True):
        for name, share in (("sum", 0.8), ("count", 0.2)):
            factor = 0.5 / share if mechanism == "laplace" else math.sqrt(0.5 / share)
            assert after.std_of(name) == pytest.approx(before.std_of(name) * factor, rel=1e-4)
    assert given.privacy_.epsilon == own.privacy_.epsilon
    assert "as the study gives it" in given.plan_.notes[-1]
    assert "as the program declares it" in own.plan_.notes[-1]


@pytest.mark.parametrize(
    "groups", [{"sum": 1.0}, {"sum": 0.5, "counts": 0.5}, {"sum": 0.9, "count": 0.9}, {"sum": 1.5, "count": -0.5}]
)
def test_what_is_no_split_is_refused(groups: dict[str, float]) -> None:
    with pytest.raises(ts.TallystickError) as refused:
        fitted(groups, "gaussian")
    assert refused.value.exit_code in (2, 3)
