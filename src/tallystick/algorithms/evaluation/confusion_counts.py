"""Evaluating a released classifier on records that stay where they are: one round of counts.

A record adds 1 to one of (right, wrong) and 1 to one of the K² cells (its class, the predicted class). Both groups are
histograms of one bucket a record: norm 1, no negative coordinate, so that replacing a record moves each by √2
(``privacy/sensitivity``). The classifier is public: it stands in the study, and the clients take it from
there, never from the aggregator.

Estimates. The K cells of the diagonal add up to the same number as "right" counts, the others to "wrong"; the two
noisy answers are averaged by their known variances and the difference is spread over the cells, which is the least
squares fit. Accuracy is right/(right + wrong); its standard error follows by linearisation. Records without a declared
class take no part, and their number is not public: hence a quotient of two noisy counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.budget_split import LEAST_ERROR, group_sensitivity, least_error
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.evaluation.public_classifiers import Predictor, predictor_of
from tallystick.algorithms.linear.descent import noise_of_mean
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group

_DROWNED = 0.25
"""An accuracy known to ±¼ (one standard error) says nothing."""


def design_evaluation(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> SumDesign:
    """One round of two groups, from public facts and the public classifier."""
    classes = len(public.classes)
    if classes < 1:
        raise StudyError(
            "an evaluation counts right and wrong classes, and the target is not a category",
            remedy='Declare the target as a category, e.g. income = { type = "category", values = ["<=50K", ">50K"] }.',
        )
    predictor = predictor_of(keywords.get("classifier"), public)
    program = EvaluationProgram(predictor, classes)
    groups = least_error(
        (
            Group(name="correct", size=2, bound=1.0, nonnegative=True),
            Group(name="confusion", size=classes**2, bound=1.0, nonnegative=True),
        ),
        budget,
    )
    hopeless = None
    if public.records is not None:
        unit = group_sensitivity(groups[0], budget) / (budget.sensitivity_factor * budget.person_factor)
        error = noise_of_mean(budget, groups[0].share, unit, public.records)
        if error > _DROWNED:
            hopeless = f"the accuracy would have a standard error of {error:.2g}, with {public.records} records"
    return SumDesign(program=program, groups=(groups,), hopeless=hopeless, split=LEAST_ERROR)


class EvaluationProgram(BlockProgram):
    """See the module."""

    rounds = 1

    def __init__(self, predictor: Predictor, classes: int) -> None:
        self.predictor = predictor
        self.classes = classes

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.zeros(2 + self.classes**2)

    def query(self, state: Any) -> float:
        return 0.0  # nothing that a client needs: the classifier is in the study

    def prepare(
        self, features: NDArray[np.float64], target: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        if target is None:
            raise StudyError("an evaluation needs a target column", remedy='Name it: target = "…".')
        return features, target.astype(np.int64)

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        features, target = prepared
        predicted = self.predictor.predict(features)
        n = len(target)
        indices = np.empty((n, 2), dtype=np.int64)
        indices[:, 0] = predicted != target
        indices[:, 1] = 2 + target * self.classes + predicted
        return Sparse(
            indptr=np.arange(n + 1, dtype=np.int64) * 2,
            indices=indices.reshape(-1),
            values=np.ones(2 * n),
            size=2 + self.classes**2,
        )

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """What the noisy counts say, with the standard errors of the noise that was added."""

    accuracy: float
    accuracy_std: float
    records: float
    """Estimated number of records with a declared class."""
    records_std: float
    confusion: NDArray[np.float64]
    """Rows: the record's class; columns: the predicted one."""
    confusion_std: NDArray[np.float64]


def estimates(total: NDArray[np.float64], classes: int, *, std_correct: float, std_confusion: float) -> Estimates:
    """From the released counts, whose noise has these standard deviations per coordinate."""
    cells = np.array(total[2:]).reshape(classes, classes)
    own = np.eye(classes, dtype=np.bool_)
    sums, variances = [], []
    error = np.full(cells.shape, std_confusion)
    for counted, mask in zip(total[:2], (own, ~own)):
        m = int(mask.sum())
        if m == 0:  # a single class is never wrong
            sums.append(0.0)
            variances.append(0.0)
            continue
        direct, added = std_correct**2, m * std_confusion**2
        trust = 0.0 if added == 0 else added / (direct + added)  # of the direct count, against the sum of the cells
        best = float(cells[mask].sum() + trust * (counted - cells[mask].sum()))
        cells[mask] += (best - cells[mask].sum()) / m
        # Var(cell + trust/m·(counted − Σ cells)) = σ²(1 − 1/m) + Var(best)/m².
        variance = trust * direct if added else 0.0
        error[mask] = math.sqrt(std_confusion**2 * (1 - 1 / m) + variance / m**2)
        sums.append(best)
        variances.append(variance)
    records = sum(sums)
    records_std = math.sqrt(sum(variances))
    whole = max(records, 1.0)
    accuracy = min(max(sums[0] / whole, 0.0), 1.0)
    # d(r/(r+w)) = ((1−a) dr − a dw)/(r+w)
    std = math.sqrt((1 - accuracy) ** 2 * variances[0] + accuracy**2 * variances[1]) / whole
    return Estimates(
        accuracy=accuracy,
        accuracy_std=std if records > 4 * records_std else max(std, 1.0),
        records=records,
        records_std=records_std,
        confusion=np.maximum(cells, 0.0),
        confusion_std=error,
    )
