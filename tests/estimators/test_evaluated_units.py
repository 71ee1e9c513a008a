"""``ts.evaluate`` protects what the model's study protects, and says so; so does everything that composes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.estimators.base import PrivateEstimator
from tallystick.privacy.gaussian_curve import gaussian_epsilon
from tallystick.privacy.units import RECORD, Unit
from tallystick.study import Study

SCHEMA = ts.Schema({"x": ts.Number(-3, 3), "y": ts.Category(["0", "1"])})
UNIT = {"unit": "person", "person": "pid", "max_records": 4, "max_institutions": 3}
PID = Unit(kind="person", person="pid", max_records=4, max_institutions=3)
N = 1200


def frames(clients: int = 3) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(clients):
        x = rng.normal(size=N)
        y = (x + rng.normal(size=N) > 0).astype(int).astype(str)
        made.append({"x": x, "y": y, "pid": [f"p{i // 4}" for i in range(N)]})
    return made


def fitted(fed: Any, unit: dict[str, Any]) -> PrivateEstimator:
    estimator = ts.LogisticRegression(epsilon=1.0, delta=1e-6, rounds=2)
    study = estimator.study_for(fed, target="y", features=None)
    raw = study.model_dump()
    raw["privacy"] |= unit
    return estimator.fit_study(fed, Study.from_dict(raw))


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_a_model_for_persons_is_evaluated_for_the_same_persons(neighbours: str) -> None:
    """It was charged for single records, and its ρ added to that of the model's persons."""
    fed = ts.Federation.simulate(frames(), schema=SCHEMA, seed=3)
    model = fitted(fed, UNIT | {"neighbours": neighbours})  # by the study: the estimator's own keyword is another
    found = ts.evaluate(model, fed, target="y", epsilon=1.0, delta=1e-6)
    assert found.privacy.protects == model.privacy_.protects == PID
    claim = found.plan.claim
    assert (claim.neighbours, model.neighbours) == (neighbours, "replace-one")
    assert (claim.unit, claim.person, claim.max_records, claim.max_institutions) == tuple(UNIT.values())
    for noise in found.plan.rounds[0].noise:  # a histogram's √2 (or 1), times the records, times the institutions
        record = 2**0.5 if neighbours == "replace-one" else 1.0
        assert noise.sensitivity / found.plan.rounds[0].grid.scale == pytest.approx(record * 4 * 3, rel=1e-6)
    spent = fed.spent
    assert (spent.fits, spent.unit, len(spent.units)) == (2, PID, 1)
    assert spent.epsilon == pytest.approx(gaussian_epsilon(model.plan_.rho + found.plan.rho, 1e-6))
    assert PID.words in spent.statement
    assert {entry.charge.protects for entry in fed.ledger.entries} == {PID}


def test_each_persons_counts_are_bounded_together() -> None:
    """One person with every record adds to the evaluation what four records may, and no more."""
    whole = frames(1)[0] | {"pid": ["everybody"] * N}
    fed = ts.Federation.simulate([whole], schema=SCHEMA, seed=3)
    model = fitted(fed, UNIT)
    found = ts.evaluate(model, fed, target="y", epsilon=1000.0, delta=1e-6)
    assert found.confusion.sum() == pytest.approx(4.0 * 2**0.5, abs=3.0)  # two cells in four share an L2 norm of 4


def test_a_model_for_records_is_evaluated_for_records() -> None:
    fed = ts.Federation.simulate(frames(), schema=SCHEMA, seed=3)
    found = ts.evaluate(fitted(fed, {}), fed, target="y", epsilon=1.0, delta=1e-6)
    assert found.privacy.protects == fed.spent.unit == RECORD
    assert "person" not in found.privacy.as_dict()


def test_fits_for_records_and_for_persons_are_stated_for_each() -> None:
    fed = ts.Federation.simulate(frames(), schema=SCHEMA, seed=3)
    person, record = fitted(fed, UNIT), fitted(fed, {})
    other = fitted(fed, UNIT | {"max_institutions": 1})
    spent = fed.spent
    assert [one.unit for one in spent.units] == [RECORD, other.privacy_.protects, PID]
    assert [(one.fits, one.left_out) for one in spent.units] == [(3, 0), (2, 1), (2, 1)]
    rho = [float(m.plan_.rho) for m in (person, record, other)]
    assert spent.units[0].rho == pytest.approx(4 * rho[0] + rho[1] + 4 * rho[2])
    assert spent.units[1].rho == pytest.approx(rho[0] + rho[2])
    assert spent.units[2].rho == pytest.approx(rho[0] + 9 * rho[2])
    for unit in (RECORD, PID, other.privacy_.protects):
        assert f"any one {unit.words}" in spent.statement


def test_a_data_set_keeps_the_unit_too() -> None:
    data = ts.Dataset(frames(1)[0], budget=3.0, schema=SCHEMA)
    fed = ts.Federation.simulate([data.frame], schema=SCHEMA, names=["dataset"], seed=3)
    fed.ledger = data.ledger
    model = fitted(fed, UNIT)
    ts.evaluate(model, data, target="y", epsilon=1.0, delta=1e-6)
    assert (data.spent.fits, data.spent.unit) == (2, PID)


def test_an_evaluation_on_records_without_the_persons_column_is_refused() -> None:
    fed = ts.Federation.simulate(frames(), schema=SCHEMA, seed=3)
    model = fitted(fed, UNIT)
    nameless = [{key: frame[key] for key in ("x", "y")} for frame in frames()]
    with pytest.raises(DataError, match="'pid'"):
        ts.evaluate(model, ts.Federation.simulate(nameless, schema=SCHEMA), target="y", epsilon=1.0)
