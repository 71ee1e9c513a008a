"""What estimators on the features of a public map share: their keywords in a study, and how the features are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.settings import MAP_KEYS

ABOUT_FEATURES = (
    "The terms are public random features of all columns together: one by one they mean nothing, and no term belongs "
    "to one column. ts.evaluate measures what the model is worth."
)
_UNUSED: dict[str, Any] = {"feature_map": None, "gamma": "auto", "degree": 3, "coef0": "auto", "n_features": "auto"}
_UNUSED |= {"landmarks": None, "feature_seed": 0}


def without_unused_map(keywords: dict[str, Any]) -> dict[str, Any]:
    """A study's [program] without the map's keywords that say nothing: a study without a map keeps its hash."""
    out = dict(keywords)
    if isinstance(out.get("landmarks"), np.ndarray):
        out["landmarks"] = out["landmarks"].tolist()
    for key in ("feature_map", *MAP_KEYS):
        value, unused = out[key], _UNUSED[key]
        if type(value) is type(unused) and value == unused:
            del out[key]
    return out


def feature_rows(intercept: float, weights: NDArray[np.float64]) -> list[dict[str, Any]]:
    """One row per term of one score, the intercept first."""
    return [
        {"term": "(intercept)", "kind": "intercept", "coefficient": float(intercept)},
        *(
            {"term": f"feature {at + 1}", "kind": "feature", "coefficient": float(weight)}
            for at, weight in enumerate(weights)
        ),
    ]
