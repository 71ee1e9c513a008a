"""Tallystick: mine data together without sharing it.

    import tallystick as ts

    schema = ts.Schema({"age": ts.Number(17, 90), "income": ts.Category(["<=50K", ">50K"])})
    fed = ts.Federation.simulate([hospital_a, hospital_b, hospital_c], schema=schema)
    model = ts.LogisticRegression(epsilon=1.0, delta=1e-6).fit(fed, target="income")

Names are imported when they are first used, so that ``import tallystick`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallystick.core.version import __version__

if TYPE_CHECKING:
    from tallystick.algorithms.program import Program, Public
    from tallystick.core.errors import (
        BoundsError,
        BudgetExceeded,
        NotApproved,
        PrivacyRefused,
        PrivacyWarning,
        RoundAborted,
        StudyError,
        TallystickError,
        TooFewParties,
        TrustModelError,
        VerificationError,
    )
    from tallystick.data.dataset import Dataset
    from tallystick.estimators.custom import ProgramEstimator
    from tallystick.estimators.evaluate import ClassifierEvaluation, Evaluation, evaluate
    from tallystick.estimators.frequent_itemsets import FrequentItemsets
    from tallystick.estimators.kmeans import KMeans
    from tallystick.estimators.linear_svc import LinearSVC
    from tallystick.estimators.logistic_regression import LogisticRegression
    from tallystick.estimators.ridge import Ridge
    from tallystick.estimators.summary import Summary
    from tallystick.privacy.grid import Group
    from tallystick.privacy.ledger import Budget
    from tallystick.roles.analyst.federation import Federation
    from tallystick.study import Study
    from tallystick.study.schema import Category, Integer, Items, Missing, Number, Schema

_HOMES = {
    "algorithms.program": ("Program", "Public"),
    "core.errors": (
        "BoundsError",
        "BudgetExceeded",
        "NotApproved",
        "PrivacyRefused",
        "PrivacyWarning",
        "RoundAborted",
        "StudyError",
        "TallystickError",
        "TooFewParties",
        "TrustModelError",
        "VerificationError",
    ),
    "data.dataset": ("Dataset",),
    "roles.analyst.federation": ("Federation",),
    "study": ("Study",),
    "estimators.custom": ("ProgramEstimator",),
    "estimators.evaluate": ("ClassifierEvaluation", "Evaluation", "evaluate"),
    "estimators.frequent_itemsets": ("FrequentItemsets",),
    "estimators.kmeans": ("KMeans",),
    "estimators.linear_svc": ("LinearSVC",),
    "estimators.logistic_regression": ("LogisticRegression",),
    "estimators.ridge": ("Ridge",),
    "estimators.summary": ("Summary",),
    "privacy.grid": ("Group",),
    "privacy.ledger": ("Budget",),
    "study.schema": ("Category", "Integer", "Items", "Missing", "Number", "Schema"),
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BoundsError",
    "Budget",
    "BudgetExceeded",
    "Category",
    "ClassifierEvaluation",
    "Dataset",
    "Evaluation",
    "Federation",
    "FrequentItemsets",
    "Group",
    "Integer",
    "Items",
    "KMeans",
    "LinearSVC",
    "LogisticRegression",
    "Missing",
    "NotApproved",
    "Number",
    "PrivacyRefused",
    "PrivacyWarning",
    "Program",
    "ProgramEstimator",
    "Public",
    "Ridge",
    "RoundAborted",
    "Schema",
    "Study",
    "StudyError",
    "Summary",
    "TallystickError",
    "TooFewParties",
    "TrustModelError",
    "VerificationError",
    "__version__",
    "evaluate",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"tallystick.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'tallystick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
