"""Example data that need no download: invented records of a public shape.

:func:`census` has the columns and vocabularies of the UCI Adult data [BK96], so that a study written for one runs on
the other, but no record of it: every value is drawn from the rounded, hand-written tables below, and the label from a
logistic model over them. It is honest about being easy: do not report results on it as results on Adult.

A record is a function of the seed and its position, so a smaller set is the beginning of a larger one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest
from tallystick.data.census_tables import (
    AGE_QUANTILES,
    COUNTRY,
    EDUCATION,
    INCOME,
    MARITAL,
    MARITAL_BY_AGE,
    OCCUPATION,
    RACE,
    RELATIONSHIP,
    SEX,
    WORKCLASS,
)
from tallystick.data.partitions import uniforms
from tallystick.study.columns import Category, Integer, Number
from tallystick.study.schema import Schema

if TYPE_CHECKING:
    import polars as pl

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

CENSUS_RECORDS = 48_842


def census(records: int = CENSUS_RECORDS, seed: int = 1) -> pl.DataFrame:
    """An invented census: 12 attributes and ``income``, about a quarter above 50K, ``?`` where unknown."""
    u = _uniform_table("census", records, seed, 16)
    age = np.floor(np.interp(u[0], *AGE_QUANTILES))
    male = (u[1] < 0.67).astype(np.int64)
    education = _choice(u[2], [EDUCATION]) + 1
    college = (education >= 13).astype(np.int64)
    marital = _choice(u[3], MARITAL_BY_AGE, 4 * male + np.searchsorted([25, 35, 55], age, side="right"))
    married = (marital == 0) | (marital == 6)
    relationship = _relationship(u[4], age, male, married)
    weights = np.array(list(OCCUPATION.values()), dtype=np.float64)
    occupation = _choice(u[5], weights[:, :4].T, 2 * college + male)
    workclass = _choice(u[6], [(79, 7, 2, 2.5, 5.5, 4, 0.05, 0.02), (65, 10, 7, 4, 9, 5, 0.02, 0.01)], college)
    unemployed = u[7] < np.where((age < 22) | (age > 62), 0.16, 0.04)
    hours = _hours(u[8], u[9], age, male, workclass, unemployed)
    gain, loss = _capital(u[10], u[11], age, college)
    race = _choice(u[12], [(85.5, 9.6, 3, 1, 0.9)])
    country = _choice(u[13], [tuple(COUNTRY.values())])
    logit = (
        -3.6
        + 2.7 * married
        + 0.42 * (education - 10)
        + 0.045 * (np.minimum(age, 55) - 38)
        - 0.06 * np.maximum(age - 60, 0)
        + 0.035 * (np.clip(hours, 20, 60) - 40)
        + weights[occupation, 4]
        + 0.15 * male
        + np.array([0.0, -0.5, 0.3, 0.5, 0.0, -0.1, -2.0, -2.0])[workclass]
        - 0.6 * unemployed
        + np.where(gain >= 7000, 5.0, np.where(gain > 0, -0.8, 0.0))
        + np.where(loss >= 1800, 1.6, 0.0)
    )
    rich = u[14] < 1.0 / (1.0 + np.exp(-logit))
    never = np.asarray(WORKCLASS)[workclass] == "Never-worked"
    return _frame(
        {
            "age": age.astype(np.int64),
            "workclass": _labels(WORKCLASS, workclass, unknown=unemployed & ~never),
            "education_num": education,
            "marital_status": _labels(MARITAL, marital),
            "occupation": _labels(tuple(OCCUPATION), occupation, unknown=unemployed | never),
            "relationship": _labels(RELATIONSHIP, relationship),
            "race": _labels(RACE, race),
            "sex": _labels(SEX, male),
            "capital_gain": gain,
            "capital_loss": loss,
            "hours_per_week": hours,
            "native_country": _labels(tuple(COUNTRY), country, unknown=u[15] < 0.018),
            "income": _labels(INCOME, rich.astype(np.int64)),
        }
    )


def census_schema() -> Schema:
    """Public bounds for :func:`census` (and for the Adult data): round numbers, chosen knowing Adult."""
    return Schema(
        {
            "age": Number(17, 90, bins=[22, 26, 30, 35, 40, 45, 50, 55, 60, 65]),
            "workclass": Category(WORKCLASS),
            "education_num": Integer(1, 16),
            "marital_status": Category(MARITAL),
            "occupation": Category(tuple(OCCUPATION)),
            "relationship": Category(RELATIONSHIP),
            "race": Category(RACE),
            "sex": Category(SEX),
            "capital_gain": Number(0, 99_999, bins=[1, 3_000, 5_000, 7_000, 10_000]),
            "capital_loss": Number(0, 5_000, bins=[1, 1_500, 1_800, 2_000]),
            "hours_per_week": Number(1, 99, bins=[20, 35, 40, 41, 50, 60]),
            "native_country": Category(["United-States"], merge="other"),
            "income": Category(INCOME),
        }
    )


def discharges(records: int, seed: int = 1) -> pl.DataFrame:
    """Invented hospital stays: age, sex, smoking, BMI, days of stay, and whether the patient came back in 30 days."""
    u = _uniform_table("discharges", records, seed, 7)
    age = np.floor(20 + 75 * np.sqrt(u[0]))
    smokes = u[1] < np.where(age < 60, 0.3, 0.15)
    bmi = np.round(17 + 22 * (u[2] + u[3]) / 2 + 2 * smokes, 1)
    stay = 1 + np.floor(-(2 + 0.05 * (age - 20)) * np.log(1 - u[4]))
    logit = -1.6 + 0.045 * (age - 60) + 0.9 * smokes + 0.06 * (bmi - 28) + 0.12 * (np.minimum(stay, 20) - 5)
    back = u[5] < 1 / (1 + np.exp(-logit))
    return _frame(
        {
            "age": age.astype(np.int64),
            "sex": _labels(("female", "male"), (u[6] < 0.5).astype(np.int64)),
            "smoker": _labels(("no", "yes"), smokes.astype(np.int64)),
            "bmi": bmi,
            "days": np.minimum(stay, 60).astype(np.int64),
            "readmitted": _labels(("no", "yes"), back.astype(np.int64)),
        }
    )


def _relationship(u: Floats, age: Floats, male: Codes, married: NDArray[np.bool_]) -> Codes:
    """Husband and wife are the married ones; the young live with their parents."""
    single = _choice(
        u, [(0, 0, 66, 24, 5, 5), (0, 0, 17, 56, 22, 5), (0, 0, 4, 60, 32, 4)], np.searchsorted([25, 35], age)
    )
    return np.asarray(np.where(married, np.where(u < 0.97, 1 - male, 5), single), dtype=np.int64)


def _hours(u: Floats, v: Floats, age: Floats, male: Codes, workclass: Codes, unemployed: NDArray[np.bool_]) -> Codes:
    """Half of them work 40 hours; others less when young, old or without work, more when on their own account."""
    part_time = (age < 22) | (age > 64) | unemployed
    own = (workclass == 1) | (workclass == 2)
    group = np.where(part_time, 0, np.where(own, 3, 1 + male))
    band = _choice(u, [(30, 28, 28, 10, 4), (11, 19, 52, 13, 5), (3, 7, 51, 25, 14), (6, 12, 28, 26, 28)], group)
    low, high = np.array([5, 20, 40, 41, 51]), np.array([19, 39, 40, 50, 80])
    return np.asarray(low[band] + np.floor(v * (high - low + 1)[band]), dtype=np.int64)


def _capital(u: Floats, v: Floats, age: Floats, college: Codes) -> tuple[Codes, Codes]:
    """A few have gains, fewer losses, nobody both; amounts on a rough logarithmic scale."""
    has_gain = u < 0.03 + 0.0012 * (np.minimum(age, 60) - 17) + 0.05 * college
    has_loss = ~has_gain & (u > 0.955)
    gain = np.where(v > 0.97, 99_999, np.floor(np.exp(6.5 + 3.6 * v)))
    loss = np.floor(1_300 + 1_100 * v)
    return np.where(has_gain, gain, 0).astype(np.int64), np.where(has_loss, loss, 0).astype(np.int64)


def _check_records(records: int) -> None:
    if isinstance(records, bool) or not isinstance(records, int) or records < 0:
        raise StudyError("the number of records is not a whole number", remedy="Use for instance records=1000.")


def _uniform_table(name: str, records: int, seed: int, draws: int) -> Floats:
    """``draws`` uniforms for each record, as rows; the words of a record do not depend on how many follow it."""
    from tallystick.crypto.prg import AesStream  # here, because it loads the compiled kernels

    _check_records(records)
    source = AesStream(digest(b"tallystick/example", name.encode(), str(int(seed)).encode()))
    return np.ascontiguousarray(uniforms(records * draws, source).reshape(records, draws).T)


def _choice(u: Floats, weights: Sequence[Sequence[float]] | Floats, group: Codes | None = None) -> Codes:
    """Index k with probability weights[group][k], by inverting the cumulative sum at u."""
    table = np.asarray(weights, dtype=np.float64)
    steps = np.cumsum(table, axis=1)[:, :-1] / table.sum(axis=1, keepdims=True)
    if group is None:
        return np.searchsorted(steps[0], u, side="right").astype(np.int64)
    return np.asarray(np.count_nonzero(u[:, None] >= steps[group], axis=1), dtype=np.int64)


def _labels(names: Sequence[str], codes: Codes, unknown: NDArray[np.bool_] | None = None) -> NDArray[np.str_]:
    texts = np.asarray([*names, "?"])
    return texts[codes if unknown is None else np.where(unknown, len(names), codes)]


def _frame(columns: Mapping[str, NDArray[np.generic]]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(dict(columns))
