"""From a study to the estimator that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.engines.designs import program_of
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.custom import ProgramEstimator
from tallystick.estimators.evaluate import ClassifierEvaluation
from tallystick.estimators.frequent_itemsets import FrequentItemsets
from tallystick.estimators.kmeans import KMeans
from tallystick.estimators.linear_svc import LinearSVC
from tallystick.estimators.logistic_regression import LogisticRegression
from tallystick.estimators.ridge import Ridge
from tallystick.estimators.summary import Summary
from tallystick.study import Study

__all__ = ["ESTIMATORS", "estimator_for"]

ESTIMATORS: dict[str, type[PrivateEstimator]] = {
    ClassifierEvaluation.program_name: ClassifierEvaluation,
    FrequentItemsets.program_name: FrequentItemsets,
    KMeans.program_name: KMeans,
    LinearSVC.program_name: LinearSVC,
    LogisticRegression.program_name: LogisticRegression,
    Ridge.program_name: Ridge,
    Summary.program_name: Summary,
}


def estimator_for(study: Study, read_program: Callable[[str], str] | None = None) -> tuple[PrivateEstimator, Study]:
    """The estimator of a study, and the study with its program file's hash filled in.

    ``read_program`` turns the path in ``program = "….py"`` into text; without it only built-in programs run.
    """
    program, study = program_of(study, read_program)
    common: dict[str, Any] = {
        "epsilon": study.privacy.epsilon,
        "delta": study.privacy.delta,
        "neighbours": study.privacy.neighbours,
        "mechanism": study.privacy.mechanism,
    }
    if program is None:
        return ESTIMATORS[study.study.program](**common, **study.program), study
    estimator = ProgramEstimator(program, **common)
    estimator.program_hash = study.study.program_hash
    return estimator, study
