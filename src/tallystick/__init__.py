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

from tallystick.core.errors import BoundsError as BoundsError
from tallystick.core.errors import BudgetExceeded as BudgetExceeded
from tallystick.core.errors import DataWarning as DataWarning
from tallystick.core.errors import NotApproved as NotApproved
from tallystick.core.errors import PrivacyRefused as PrivacyRefused
from tallystick.core.errors import PrivacyWarning as PrivacyWarning
from tallystick.core.errors import RoundAborted as RoundAborted
from tallystick.core.errors import StudyError as StudyError
from tallystick.core.errors import TallystickError as TallystickError
from tallystick.core.errors import TooFewParties as TooFewParties
from tallystick.core.errors import TrustModelError as TrustModelError
from tallystick.core.errors import VerificationError as VerificationError
from tallystick.core.version import __version__ as __version__

if TYPE_CHECKING:
    from tallystick.algorithms.program import Program as Program
    from tallystick.algorithms.program import Public as Public
    from tallystick.algorithms.selection.utility import DecomposableUtility as DecomposableUtility
    from tallystick.application.loading import load as load
    from tallystick.application.trust_comparison import compare_trust as compare_trust
    from tallystick.data.dataset import Dataset as Dataset
    from tallystick.estimators.above_threshold import AboveThreshold as AboveThreshold
    from tallystick.estimators.choice import Choice as Choice
    from tallystick.estimators.choice import RiskMinimizer as RiskMinimizer
    from tallystick.estimators.components import PCA as PCA
    from tallystick.estimators.components import TruncatedSVD as TruncatedSVD
    from tallystick.estimators.consensus_svc import ConsensusSVC as ConsensusSVC
    from tallystick.estimators.custom import ProgramEstimator as ProgramEstimator
    from tallystick.estimators.evaluate import ClassifierEvaluation as ClassifierEvaluation
    from tallystick.estimators.evaluate import Evaluation as Evaluation
    from tallystick.estimators.evaluate import evaluate as evaluate
    from tallystick.estimators.frequent_itemsets import FrequentItemsets as FrequentItemsets
    from tallystick.estimators.gaussians import GaussianMixture as GaussianMixture
    from tallystick.estimators.gaussians import GaussianNB as GaussianNB
    from tallystick.estimators.gossip_classifier import GossipClassifier as GossipClassifier
    from tallystick.estimators.kmeans import KMeans as KMeans
    from tallystick.estimators.linear import LinearSVC as LinearSVC
    from tallystick.estimators.linear import LogisticRegression as LogisticRegression
    from tallystick.estimators.linear import Ridge as Ridge
    from tallystick.estimators.mode import Mode as Mode
    from tallystick.estimators.pipeline import Pipeline as Pipeline
    from tallystick.estimators.quantiles import Quantiles as Quantiles
    from tallystick.estimators.summary import Summary as Summary
    from tallystick.estimators.vertical import VerticalClassifier as VerticalClassifier
    from tallystick.estimators.vertical import VerticalRidge as VerticalRidge
    from tallystick.estimators.vertical_svc import VerticalSVC as VerticalSVC
    from tallystick.privacy.grid import Group as Group
    from tallystick.privacy.ledger import Budget as Budget
    from tallystick.roles.analyst.federation import Federation as Federation
    from tallystick.study.columns import Category as Category
    from tallystick.study.columns import Integer as Integer
    from tallystick.study.columns import Items as Items
    from tallystick.study.columns import Missing as Missing
    from tallystick.study.columns import Number as Number
    from tallystick.study.schema import Schema as Schema
    from tallystick.study.study import Study as Study

_WHERE = {
    name: module
    for module, names in {
        "algorithms.program": ("Program", "Public"),
        "algorithms.selection.utility": ("DecomposableUtility",),
        "application.loading": ("load",),
        "application.trust_comparison": ("compare_trust",),
        "data.dataset": ("Dataset",),
        "estimators.above_threshold": ("AboveThreshold",),
        "estimators.choice": ("Choice", "RiskMinimizer"),
        "estimators.components": ("PCA", "TruncatedSVD"),
        "estimators.consensus_svc": ("ConsensusSVC",),
        "estimators.custom": ("ProgramEstimator",),
        "estimators.evaluate": ("ClassifierEvaluation", "Evaluation", "evaluate"),
        "estimators.frequent_itemsets": ("FrequentItemsets",),
        "estimators.gaussians": ("GaussianMixture", "GaussianNB"),
        "estimators.gossip_classifier": ("GossipClassifier",),
        "estimators.kmeans": ("KMeans",),
        "estimators.linear": ("LinearSVC", "LogisticRegression", "Ridge"),
        "estimators.mode": ("Mode",),
        "estimators.pipeline": ("Pipeline",),
        "estimators.quantiles": ("Quantiles",),
        "estimators.summary": ("Summary",),
        "estimators.vertical": ("VerticalClassifier", "VerticalRidge"),
        "estimators.vertical_svc": ("VerticalSVC",),
        "privacy.grid": ("Group",),
        "privacy.ledger": ("Budget",),
        "roles.analyst.federation": ("Federation",),
        "study.columns": ("Category", "Integer", "Items", "Missing", "Number"),
        "study.schema": ("Schema",),
        "study.study": ("Study",),
    }.items()
    for name in names
}
_ERRORS = [name for name, value in globals().items() if isinstance(value, type) and issubclass(value, Exception)]
__all__ = sorted([*_ERRORS, *_WHERE, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        import_module("tallystick.application.kernel_cache").keep_kernels()  # before anything compiled is imported
        return getattr(import_module(f"tallystick.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'tallystick' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
