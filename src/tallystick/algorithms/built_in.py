"""The built-in programs: one table that names, keywords, designs and estimators are read from.

A study file names a program and gives keywords; ``ts.KMeans(...)`` is the same program with the same keywords. Both
become a design here, so that they cannot differ. An estimator is named, not imported: a role needs no scikit-learn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.clustering.kmeans import design_kmeans
from tallystick.algorithms.clustering.rules import KMeansSettings, kmeans_settings
from tallystick.algorithms.components.design import design_pca as components_of_records
from tallystick.algorithms.components.design import design_truncated_svd
from tallystick.algorithms.components.settings import ComponentSettings, component_settings
from tallystick.algorithms.consensus_svm.design import design_consensus_svc
from tallystick.algorithms.consensus_svm.settings import ConsensusSettings, consensus_settings
from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.evaluation.confusion_counts import design_evaluation
from tallystick.algorithms.feature_maps.settings import MAP_KEYS
from tallystick.algorithms.gaussians.mixture import MixtureSettings, design_mixture, mixture_settings
from tallystick.algorithms.gaussians.naive_bayes import design_naive_bayes
from tallystick.algorithms.gossip.design import design_gossip
from tallystick.algorithms.gossip.settings import GossipSettings, gossip_settings
from tallystick.algorithms.itemsets.design import design_itemsets
from tallystick.algorithms.itemsets.settings import ItemsetSettings, itemset_settings
from tallystick.algorithms.joint_moments.classification import design_vertical_classifier
from tallystick.algorithms.joint_moments.components import design_joint_components
from tallystick.algorithms.joint_moments.regression import design_vertical_ridge
from tallystick.algorithms.linear.descent import DescentSettings, settings_from
from tallystick.algorithms.linear.losses import HingeProgram, LogisticProgram
from tallystick.algorithms.linear.ridge import design_ridge
from tallystick.algorithms.pipelines.design import design_pipeline
from tallystick.algorithms.pipelines.settings import pipeline_settings
from tallystick.algorithms.program import Public
from tallystick.algorithms.quantiles.design import design_quantiles as quantiles_by_counts
from tallystick.algorithms.quantiles.settings import QuantileSettings, quantile_settings
from tallystick.algorithms.selection.above import design_above
from tallystick.algorithms.selection.mode import design_mode
from tallystick.algorithms.selection.quantile_design import design_selected_quantiles
from tallystick.algorithms.selection.risk import design_risk
from tallystick.algorithms.tables.summary import design_summary
from tallystick.algorithms.vertical_svm.program import design_vertical_svc
from tallystick.algorithms.vertical_svm.settings import VerticalSvmSettings, vertical_svm_settings
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import did_you_mean

Keywords = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class BuiltIn:
    """A built-in program: the keywords it takes under [program], how it designs its rounds, and its estimator."""

    keys: frozenset[str]
    design: Callable[[Keywords, Public, PublicBudget], Design]
    estimator: str
    """Its scikit-learn face, as ``module:class``."""

    @property
    def stepwise(self) -> bool:
        """Whether it learns in as many rounds as it is given, and so from a stream."""
        return "rounds" in self.keys


def _face(name: str) -> str:
    return f"tallystick.estimators.{name}"


def _checked(
    settings: type[Any],
    check: Callable[[Keywords], Any],
    design: Callable[[Public, PublicBudget, Any], Design],
    estimator: str,
    *,
    more: tuple[str, ...] = (),
) -> BuiltIn:
    """A program whose keywords are the fields of a settings class, and those that one of the fields is made of."""
    return BuiltIn(
        keys=frozenset(f.name for f in dataclasses.fields(settings)) | frozenset(more),
        design=lambda keywords, public, budget: design(public, budget, check(keywords)),
        estimator=estimator,
    )


def design_quantiles(public: Public, budget: PublicBudget, settings: QuantileSettings) -> Design:
    """Summed or selected, by the method."""
    counts = settings.method == "counts"
    return (quantiles_by_counts if counts else design_selected_quantiles)(public, budget, settings)


def design_pca(public: Public, budget: PublicBudget, settings: ComponentSettings) -> Design:
    """Of whole records, or of records whose columns are at different institutions."""
    return (design_joint_components if public.holders else components_of_records)(public, budget, settings)


BUILT_IN: dict[str, BuiltIn] = {
    "logistic_regression": _checked(
        DescentSettings, settings_from, LogisticProgram.design, _face("linear:LogisticRegression"), more=MAP_KEYS
    ),
    "linear_svc": _checked(
        DescentSettings, settings_from, HingeProgram.design, _face("linear:LinearSVC"), more=MAP_KEYS
    ),
    "consensus_svc": _checked(
        ConsensusSettings, consensus_settings, design_consensus_svc, _face("consensus_svc:ConsensusSVC")
    ),
    "kmeans": _checked(KMeansSettings, kmeans_settings, design_kmeans, _face("kmeans:KMeans")),
    "frequent_itemsets": _checked(
        ItemsetSettings, itemset_settings, design_itemsets, _face("frequent_itemsets:FrequentItemsets")
    ),
    "ridge": BuiltIn(keys=frozenset({"alpha", "fit_intercept"}), design=design_ridge, estimator=_face("linear:Ridge")),
    "vertical_ridge": BuiltIn(
        keys=frozenset({"alpha", "fit_intercept"}),
        design=design_vertical_ridge,
        estimator=_face("vertical:VerticalRidge"),
    ),
    "vertical_classifier": BuiltIn(
        keys=frozenset({"alpha"}), design=design_vertical_classifier, estimator=_face("vertical:VerticalClassifier")
    ),
    "vertical_svc": _checked(
        VerticalSvmSettings, vertical_svm_settings, design_vertical_svc, _face("vertical_svc:VerticalSVC")
    ),
    "pca": _checked(ComponentSettings, component_settings, design_pca, _face("components:PCA")),
    "truncated_svd": _checked(
        ComponentSettings, component_settings, design_truncated_svd, _face("components:TruncatedSVD")
    ),
    "pipeline": BuiltIn(
        keys=frozenset({"steps", "share"}),
        design=lambda keywords, public, budget: design_pipeline(public, budget, pipeline_settings(keywords)),
        estimator=_face("pipeline:Pipeline"),
    ),
    "gaussian_nb": BuiltIn(keys=frozenset(), design=design_naive_bayes, estimator=_face("gaussians:GaussianNB")),
    "gaussian_mixture": _checked(MixtureSettings, mixture_settings, design_mixture, _face("gaussians:GaussianMixture")),
    "gossip_classifier": _checked(
        GossipSettings, gossip_settings, design_gossip, _face("gossip_classifier:GossipClassifier")
    ),
    "summary": BuiltIn(
        keys=frozenset({"columns", "bins", "cuts", "correlations"}),
        design=design_summary,
        estimator=_face("summary:Summary"),
    ),
    "quantiles": _checked(QuantileSettings, quantile_settings, design_quantiles, _face("quantiles:Quantiles")),
    "risk_minimizer": BuiltIn(
        keys=frozenset({"column", "loss"}), design=design_risk, estimator=_face("choice:RiskMinimizer")
    ),
    "mode": BuiltIn(keys=frozenset({"column"}), design=design_mode, estimator=_face("mode:Mode")),
    "above_threshold": BuiltIn(
        keys=frozenset({"column", "threshold", "most"}),
        design=design_above,
        estimator=_face("above_threshold:AboveThreshold"),
    ),
    "evaluation": BuiltIn(
        keys=frozenset({"classifier"}), design=design_evaluation, estimator=_face("evaluate:ClassifierEvaluation")
    ),
}


def stepwise_programs() -> str:
    """The programs that learn from a stream, as a message lists them."""
    return ", ".join(name for name, program in BUILT_IN.items() if program.stepwise)


def check_keywords(name: str, keywords: Keywords) -> None:
    """Refuse a program that is not built in, and a keyword that it does not take."""
    if name not in BUILT_IN:
        raise StudyError(
            f"there is no program {name!r}",
            rule="unknown-program",
            remedy=f"Built in: {', '.join(sorted(BUILT_IN))}; or a file ending in .py.{did_you_mean(name, BUILT_IN)}",
        )
    known = sorted(BUILT_IN[name].keys)
    for key in keywords:
        if key not in known:
            raise StudyError(
                f"unknown key 'program.{key}'",
                rule="unknown-key",
                remedy=did_you_mean(key, known).strip() or f"{name} takes: {', '.join(known)}.",
            )
