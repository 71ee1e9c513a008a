"""Tables for tests: a small hospital, and everything degenerate at once; records by seed and position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tallystick.data.census_tables import SEX
from tallystick.data.examples import Floats, _check_records, _choice, _frame, _labels, _uniform_table
from tallystick.study.columns import Category, Integer, Number
from tallystick.study.schema import Schema

if TYPE_CHECKING:
    import polars as pl


def clinic(records: int = 600, seed: int = 1) -> pl.DataFrame:
    """An invented hospital table: three hospitals, a few measurements with gaps, and whether the patient came back."""
    u = _uniform_table("clinic", records, seed, 10)
    age = np.floor(18 + 75 * u[0] ** 0.8)
    smoker = (u[1] < 0.3).astype(np.int64)
    bmi = np.round(27 + 5 * _normal(u[2], u[3]), 1)
    pressure = np.round(105 + 0.4 * age + 0.6 * (bmi - 27) + 12 * _normal(u[4], u[5]))
    logit = -0.4 + 0.05 * (age - 55) + 0.9 * smoker + 0.03 * (pressure - 128)
    back = (u[6] < 1.0 / (1.0 + np.exp(-logit))).astype(np.int64)
    return _frame(
        {
            "hospital": _labels(("north", "south", "west"), _choice(u[7], [(50, 30, 20)])),
            "age": age.astype(np.int64),
            "sex": _labels(SEX, (u[8] < 0.5).astype(np.int64)),
            "bmi": np.where(u[9] < 0.05, np.nan, bmi),
            "systolic": pressure,
            "smoker": _labels(("no", "yes"), smoker),
            "readmitted": _labels(("no", "yes"), back),
        }
    )


def clinic_schema() -> Schema:
    """Public bounds for :func:`clinic`; ``bmi`` has gaps, so a study needs a ``missing`` policy."""
    return Schema(
        {
            "age": Number(18, 95),
            "sex": Category(SEX),
            "bmi": Number(12, 50),
            "systolic": Number(80, 200),
            "smoker": Category(["no", "yes"]),
            "readmitted": Category(["no", "yes"]),
        }
    )


def ties(records: int = 60) -> pl.DataFrame:
    """Everything degenerate at once: constant, all-zero, tied and duplicated columns, and one label only."""
    _check_records(records)
    third = np.arange(records) % 3
    return _frame(
        {
            "constant": np.full(records, 5.0),
            "zero": np.zeros(records),
            "tied": third.astype(np.float64),
            "group": _labels(("a", "b", "c"), third),
            "label": _labels(("no", "yes"), np.zeros(records, dtype=np.int64)),
        }
    )


def ties_schema() -> Schema:
    """Public bounds for :func:`ties`."""
    return Schema(
        {
            "constant": Number(0, 10),
            "zero": Number(-1, 1),
            "tied": Integer(0, 2),
            "group": Category(["a", "b", "c"]),
            "label": Category(["no", "yes"]),
        }
    )


def _normal(u: Floats, v: Floats) -> Floats:
    """[BM58] Box and Muller."""
    return np.asarray(np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * v), dtype=np.float64)
