"""Coefficients in the columns' own units: the public scaling undone.

An encoded number is (x − centre)/scale, so w·encoded + b = (w/scale)·x + (b − (w/scale)·centre); an indicator has
centre 0 and scale 1; a logarithmic column is a number whose x is log1p(value − lower). Values are clamped to their
bounds first, as the study declares, and a missing number counts as its centre.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.study.columns import Column
from tallystick.study.schema import FeatureLayout

UNITS = (
    "Coefficients are per unit of the column as it is declared, values beyond its bounds counting as the bound; "
    "an indicator (column=value) is 1 where it holds and 0 elsewhere."
)
LOGARITHMS = "A term of kind log is per unit of log(1 + value - lower), or of log(1 + s·(value - lower)) if log = s."


def undo_scaling(
    intercept: NDArray[np.float64], weights: NDArray[np.float64], layout: FeatureLayout
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(intercepts, coefficients per class) of the columns in their own units; ``weights`` has a row per class."""
    coefficients = weights / np.array(layout.scale)
    return intercept - coefficients @ np.array(layout.centre), coefficients


def unit_map(layout: FeatureLayout) -> NDArray[np.float64]:
    """The same as a matrix for (intercept, weights): what carries a covariance along."""
    matrix = np.diag([1.0, *(1 / np.array(layout.scale))])
    matrix[0, 1:] = -np.array(layout.centre) / np.array(layout.scale)
    return matrix


def coefficient_rows(
    intercept: NDArray[np.float64], weights: NDArray[np.float64], layout: FeatureLayout
) -> list[dict[str, Any]]:
    """One row per term of one score, the intercept first."""
    kinds = {"number": "number", "log": "log"}
    return [
        {"term": "(intercept)", "kind": "intercept", "coefficient": float(intercept)},
        *(
            {"term": str(name), "kind": kinds.get(kind, "indicator"), "coefficient": float(value)}
            for name, kind, value in zip(layout.names, layout.kinds, weights)
        ),
    ]


def exactly_one(column: Column) -> bool:
    """Whether every record has exactly one of the column's indicators: a value that is not declared has none."""
    return getattr(column, "merge", None) is not None or getattr(column, "bins", None) is not None


def unit_notes(layout: FeatureLayout) -> list[str]:
    """What the rows' units are."""
    return [UNITS, *([LOGARITHMS] if "log" in layout.kinds else [])]
