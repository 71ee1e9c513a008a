"""Released classifiers as public tables: what a study has to carry so that every institution predicts alike.

A classifier that was released is public, so its parameters may stand in a study, under [program], where every steward
can read them. A *kind* of classifier is one entry of :data:`KINDS`: from the table to a predictor that maps encoded
records to class indices, row by row to the bit. An estimator plugs in by answering ``public_classifier()`` with such a
table; a new kind of model adds its kind here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.elementwise import grid_scores
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.settings import map_from_facts
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import did_you_mean
from tallystick.privacy.contribution import GridRows

MOST_NUMBERS = 25_000
"""In one study: about half a megabyte of text, below what a line carries unasked (1 MiB)."""
_LARGEST = 2.0**100
_FEATURE_BITS = 20


class Predictor(Protocol):
    """A released classifier."""

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The class index of every encoded record; each row by itself."""
        ...


@dataclass(frozen=True, kw_only=True)
class LinearScores:
    """One score per class, the largest wins; or one score alone, the second class where it is positive."""

    weights: NDArray[np.float64]
    intercept: NDArray[np.float64]
    classes: int
    feature_map: FeatureMap | None = None

    @classmethod
    def from_table(cls, table: Mapping[str, Any], public: Public) -> LinearScores:
        """``{ kind = "linear", weights = [[…], …], intercept = […] }``: a row of weights per score.

        With ``feature_map = { kernel = "rbf", gamma = …, n_features = …, seed = … }`` the weights are of its features.
        """
        _only(table, ("kind", "weights", "intercept", "feature_map"))
        columns, classes = len(public.features), len(public.classes)
        feature_map = None
        if "feature_map" in table:
            feature_map = map_from_facts(public, table["feature_map"])
            columns = feature_map.size
        weights, intercept = _numbers(table, "weights", 2), _numbers(table, "intercept", 1)
        scores = 1 if classes <= 2 else classes
        if weights.shape != (scores, columns) or intercept.shape != (scores,):
            raise StudyError(
                f"a linear classifier of {classes} classes on {columns} encoded columns has {scores} rows of "
                f"{columns} weights and {scores} intercepts; this one has {weights.shape} and {intercept.shape}",
                rule="classifier-fits-columns",
                remedy="Declare the columns exactly as they were for the fit.",
            )
        return cls(weights=weights, intercept=intercept, classes=classes, feature_map=feature_map)

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        # Encoded values lie in [−1, 1], so a row is no longer than √columns. Scores are exact on the grid.
        if self.classes == 1:
            return np.zeros(len(features), dtype=np.int64)
        if self.feature_map is None:
            limit = 1.0 + np.sqrt(features.shape[1])
            rows = GridRows.make(np.ascontiguousarray(features), bits=_FEATURE_BITS, limit=float(limit))
            scores = grid_scores(rows, self.weights) + self.intercept
        else:
            scores = np.vstack([self._mapped_scores(part) for part in self.feature_map.parts(features)])
        chosen = scores[:, 0] > 0 if self.classes == 2 else scores.argmax(axis=1)
        return np.asarray(chosen, dtype=np.int64)

    def _mapped_scores(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of features that are no longer than the map's norm: in units of it, no longer than 1."""
        norm = 1.0 if self.feature_map is None else self.feature_map.norm
        return (
            grid_scores(GridRows.make(rows / norm, bits=_FEATURE_BITS, limit=2.0), self.weights * norm) + self.intercept
        )


KINDS: dict[str, Callable[[Mapping[str, Any], Public], Predictor]] = {"linear": LinearScores.from_table}
"""kind → (table, public facts of the columns and the target) → predictor."""


def predictor_of(table: Any, public: Public) -> Predictor:
    """The predictor that a study's table describes."""
    if not isinstance(table, Mapping):
        raise StudyError(
            "an evaluation needs the released classifier",
            rule="classifier-is-a-table",
            remedy='Write [program] classifier = { kind = "linear", weights = [[…]], intercept = […] }; '
            "ts.evaluate does it for you.",
        )
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:  # a list or a table cannot even be looked up
        raise StudyError(
            f"a classifier of kind {kind!r} is not known",
            rule="classifier-kind",
            remedy=f"Known: {', '.join(sorted(KINDS))}.{did_you_mean(str(kind), KINDS)}",
        )
    return KINDS[kind](table, public)


def linear_table(
    intercept: NDArray[np.float64], weights: NDArray[np.float64], *, feature_map: FeatureMap | None = None
) -> dict[str, Any]:
    """The public table of a linear classifier on encoded columns, or on a map's features of them."""
    mapped = {} if feature_map is None else {"feature_map": feature_map.facts()}
    return {"kind": "linear", "weights": weights.tolist(), "intercept": intercept.tolist(), **mapped}


def _only(table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise StudyError(
                f"unknown key 'program.classifier.{key}'",
                rule="unknown-key",
                remedy=f"A classifier of this kind has {', '.join(known)}.",
            )


def _numbers(table: Mapping[str, Any], key: str, dimensions: int) -> NDArray[np.float64]:
    """An array of finite numbers of bounded size: a crafted one must not overflow for some records only."""
    try:
        values = np.asarray(table.get(key), dtype=np.float64)
    except (TypeError, ValueError):
        values = np.asarray(np.nan)
    if values.ndim != dimensions or values.size == 0 or not np.all(np.abs(values) <= _LARGEST):
        raise StudyError(
            f"program.classifier.{key} is not {'a list' if dimensions == 1 else 'rows'} of finite numbers",
            rule="classifier-numbers",
            remedy="Write the released parameters as numbers.",
        )
    if values.size > MOST_NUMBERS:
        raise StudyError(
            f"program.classifier.{key} has {values.size} numbers; a study carries at most {MOST_NUMBERS}",
            rule="classifier-size",
            remedy="Evaluate a smaller model.",
        )
    return values
