"""Differentially private k-means across institutions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from tallystick.algorithms.program import State
from tallystick.core.errors import DataError
from tallystick.data.encoding import Records
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.noise_intervals import LEVEL, OF_THE_NOISE, interval, quantile
from tallystick.privacy.sum_plan import rounds_of
from tallystick.study.schema import FeatureLayout

_RUNS_WITHOUT_PRIVACY = 20


@dataclass(kw_only=True, eq=False, repr=False)
class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """k-means clustering with a stated privacy guarantee.

    A tenth of the budget learns the columns' means and variances; k-means on made-up records that have them gives the
    start. Then a few rounds of Lloyd's iteration on noisy counts and sums, calibrated together, the first two of them
    with more and finer clusters where the noise allows it.

    Parameters
    ----------
    epsilon, delta, neighbours, mechanism
        What is promised: see ``docs/privacy.md``. ``delta=None`` means min(1e-6, 1/(10·records)), 0 for ``"laplace"``.
    schema, bounds
        Public facts about the columns, for federations without a schema and for plain ``fit(X)``.
    n_clusters : int
        Number of centres.
    rounds : "auto" or int
        Rounds of Lloyd's iteration; "auto" weighs convergence against noise, by public facts.
    start : "auto", "random" or a table of centres
        "auto" as above; "random" draws public centres in the declared bounds from ``seed``, and a table gives them, in
        the encoded columns (numbers scaled to [-1, 1], one column per category). Both spend nothing.
    method : "auto" or "plain"
        "plain" divides noisy sums of records by noisy counts and does nothing more: Lloyd's iteration as PEM writes it.
    seed : int
        Of the public draws that the start is made from. It is part of the study and hides nothing.

    Attributes
    ----------
    cluster_centers_ : array (n_clusters, columns)
        Noisy means. Numbers are in their declared units, categories are proportions; ``feature_names_in_`` names the
        columns after ``fit(federation)``, after ``fit(X)`` they are those of ``X``.
    counts_ : array (n_clusters,)
        Noisy numbers of records nearest to the centres of the last round.
    privacy_, plan_, contributors_, dropped_, history_
        What was promised, planned, and who took part; released values only.
    """

    program_name: ClassVar[str] = "kmeans"
    evaluates_its_own_records: ClassVar[bool] = True
    ignores_y: ClassVar[bool] = True

    n_clusters: int = field(default=8, kw_only=False)
    rounds: int | str = "auto"
    start: Any = "auto"
    method: str = "auto"
    seed: int = 0

    def _study_program(self) -> dict[str, Any]:
        program = super()._study_program()
        if isinstance(program["start"], np.ndarray):
            program["start"] = program["start"].tolist()
        return program

    def _accept(self, state: State, layout: FeatureLayout) -> None:
        self._encoded_centers, self.counts_ = self._program.model(state)
        self.cluster_centers_ = in_declared_units(self._encoded_centers, layout)

    # -- scikit-learn -----------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The nearest centre of every row, in the encoded columns."""
        return self.predict_encoded(self._encode(X))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The distance of every row to every centre, in the encoded columns."""
        encoded = self._encode(X)
        return np.sqrt(_squared_distances(encoded, self._encoded_centers))

    def predict_encoded(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """The nearest centre for rows that are already encoded by the study's schema."""
        return np.asarray(_squared_distances(features, self._encoded_centers).argmin(axis=1), dtype=np.int64)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def evaluate_records(self, train: Records, test: Records) -> dict[str, float]:
        """The loss φ = Σ min‖x − c‖², and (φ − φ₀)/φ₀ with φ₀ the best of 20 runs of k-means++ without privacy."""
        from sklearn.cluster import KMeans as Baseline

        if len(train) == 0 or len(test) == 0:
            raise DataError("nothing to evaluate: no record was kept back", remedy="Use a larger --holdout.")
        k = min(len(self._encoded_centers), len(np.unique(train.features, axis=0)))
        baseline = Baseline(k, n_init=_RUNS_WITHOUT_PRIVACY, random_state=0).fit(train.features)
        found = _loss(test.features, self._encoded_centers)
        best = _loss(test.features, baseline.cluster_centers_)
        one = _loss(test.features, train.features.mean(axis=0, keepdims=True))
        scores = {"loss": found, "baseline_loss": best, "one_centre_loss": one}
        if best > 0:
            scores |= {"relative_loss": found / best - 1, "one_centre_relative_loss": one / best - 1}
        return scores

    def _answer(self) -> Answer:
        (low, high), why = self._count_intervals()
        rows = []
        for at, (count, centre) in enumerate(zip(self.counts_.tolist(), self.cluster_centers_.tolist())):
            own = {"cluster": at, "count": count, "count_lower": low[at], "count_upper": high[at]}
            columns = [f"{name} (column)" if name in own else str(name) for name in self._layout.names]
            rows.append(own | dict(zip(columns, centre)))
        units = "Centres are in the columns' own units; a column=value is the share of the cluster's records."
        return Answer.of(rows, [units, *why])

    def _count_intervals(self) -> tuple[tuple[list[Any], list[Any]], list[str]]:
        """Of the last round's counts, which are linear in its noise; a centre is not."""
        plan, program = self.plan_, self._program
        k, rounds = len(self.counts_), rounds_of(plan)
        if not plan.differentially_private:
            return ([None] * k, [None] * k), ["No noise was added: these are the centres of these records."]
        centres = "No noise intervals of centres: a round's centres depend on the noise of all rounds before it."
        moved = program.records is not None and not program.counts  # counts were made to add up to the stated number
        known = (not moved or self.study_.counts_are_public) and not any(self.dropped_[-1:])
        whole = self.n_iter_ == len(rounds) and program.parts_at(len(rounds) - 1) == k
        if not (known and whole) or self.study_.privacy.threshold or plan.claim.sampling is not None:
            return ([None] * k, [None] * k), [centres]
        std = rounds[-1].std_of("counts") if program.plain else rounds[-1].std_of("clusters") / program.count
        most = float(program.records) if moved else np.inf
        low, high = interval(self.counts_, std, quantile(LEVEL, plan.claim.mechanism), lower=0.0, upper=most)
        told = (
            "Intervals of counts hold the number of records that were nearest to the centre before its last move with "
            f"probability {LEVEL:.0%}"
            + (f", if all {program.records:,} records were usable: " if moved else ": ")
            + OF_THE_NOISE
        )
        return (low.tolist(), high.tolist()), [told, centres]

    def model_document(self) -> dict[str, Any]:
        """The ``model`` object of a result."""
        return {
            "type": type(self).__name__,
            "cluster_centers": self.cluster_centers_.tolist(),
            "counts": self.counts_.tolist(),
            "features": list(map(str, self._layout.names)),
        }


def in_declared_units(centres: NDArray[np.float64], layout: FeatureLayout) -> NDArray[np.float64]:
    """Encoded columns back in the units they were declared in: the inverse of what the layout says."""
    out = centres * np.array(layout.scale) + np.array(layout.centre)
    for column, (kind, offset) in enumerate(zip(layout.kinds, layout.offset)):
        if kind == "log":
            out[:, column] = np.expm1(np.minimum(out[:, column], 709.0)) + offset
    return np.asarray(out)


def _squared_distances(features: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty((len(features), len(centres)))
    for j, centre in enumerate(centres):  # differences, not a product: no cancellation, and the same for every block
        out[:, j] = ((features - centre) ** 2).sum(axis=1)
    return out


def _loss(features: NDArray[np.float64], centres: NDArray[np.float64]) -> float:
    return float(_squared_distances(features, centres).min(axis=1).sum())
