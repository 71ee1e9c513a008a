"""No attribute of a fitted estimator carries unreleased data: an allow-list of names, and a scan of all it holds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from object_graph import numbers_equal_to, per_record, reachable

import tallystick as ts

pytestmark = [
    pytest.mark.usefixtures("seeded_noise"),
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
]

RECORDS, POSITIVE = 997, 613
SCHEMA = ts.Schema({"age": ts.Number(0, 100), "sex": ts.Category(["f", "m"]), "ill": ts.Category(["no", "yes"])})

COMMON = {
    "privacy_",
    "plan_",
    "contributors_",
    "dropped_",
    "history_",
    "n_iter_",
    "n_features_in_",
    "feature_names_in_",
    "cost_",
    "study_",
    "min_clients_",
    # private, public facts or released values
    "_by_name",
    "_layout",
    "_missing",
    "_program",
    "_schema",
}
COMPONENTS = {
    *("components_", "explained_variance_", "explained_variance_ratio_", "explained_variance_ratio_interval_"),
    *("_mean", "_origin", "_ratio_low", "_ratio_high", "_why"),
}
ALLOWED = {
    ts.LogisticRegression: COMMON | {"coef_", "intercept_", "classes_", "_encoded_model", "_residual_clip"},
    ts.LinearSVC: COMMON | {"coef_", "intercept_", "classes_", "_encoded_model"},
    ts.ConsensusSVC: COMMON | {"coef_", "intercept_", "classes_", "solution_", "_encoded_model"},
    ts.GossipClassifier: COMMON | {"coef_", "intercept_", "offset_", "classes_", "_model"},
    ts.Ridge: COMMON | {"coef_", "intercept_", "_encoded_model"},
    ts.GaussianNB: COMMON | {"theta_", "var_", "class_prior_", "class_count_", "classes_"},
    ts.GaussianMixture: COMMON | {"weights_", "means_", "covariances_"},
    ts.PCA: COMMON | COMPONENTS | {"mean_"},
    ts.TruncatedSVD: COMMON | COMPONENTS | {"singular_values_"},
    ts.Pipeline: COMMON
    | {"components_", "explained_variance_ratio_", "coef_", "intercept_", "classes_", "_mean", "_residual_clip"},
    ts.Summary: COMMON | {"table_"},
    ts.KMeans: COMMON | {"cluster_centers_", "counts_", "_encoded_centers"},
    ts.FrequentItemsets: COMMON | {"itemsets_", "min_support_", "_levels", "_counted"},
    ts.Quantiles: COMMON | {"quantiles_", "interval_", "counts_", "_answers"},
    ts.ClassifierEvaluation: COMMON | {"evaluation_"},
    ts.ProgramEstimator: COMMON | {"state_", "program_hash"},
}


class CountAges(ts.Program):
    """A program of one's own."""

    bound = 1.0

    def init(self, public: ts.Public) -> Any:
        return np.zeros(1)

    def map_in_client(self, record, state):  # type: ignore[no-untyped-def]
        out = np.zeros(1)
        out[0] = record[0]
        return out

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def frame() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    ill = np.array(["yes"] * POSITIVE + ["no"] * (RECORDS - POSITIVE))
    rng.shuffle(ill)
    age = np.where(ill == "yes", 60, 40) + rng.integers(-30, 30, RECORDS)
    return {"age": age.astype(float), "sex": rng.choice(["f", "m"], RECORDS), "ill": ill}


def fitted(route: str) -> Any:
    data = frame()
    model = ts.LogisticRegression(rounds=3, schema=SCHEMA if route == "plain-frame" else None)
    if route == "federation":
        thirds = np.array_split(np.arange(RECORDS), 3)
        fed = ts.Federation.simulate([{k: v[i] for k, v in data.items()} for i in thirds], schema=SCHEMA)
        return model.fit(fed, target="ill")
    if route == "dataset":
        return model.fit(ts.Dataset(data, budget=2.0, schema=SCHEMA), target="ill")
    if route == "plain-frame":
        import pandas as pd

        whole = pd.DataFrame(data)
        return model.fit(whole[["age", "sex"]], whole["ill"])
    if route == "plain-matrix":
        return model.set_params(bounds=(0, 100)).fit(data["age"][:, None], data["ill"])
    fed = ts.Federation.simulate([data], schema=SCHEMA)
    if route == "linear_svc":
        return ts.LinearSVC(rounds=3).fit(fed, target="ill")
    if route == "consensus":
        return ts.ConsensusSVC(reveal=True).fit(fed, target="ill")
    if route == "consensus-admm":
        return ts.ConsensusSVC(solver="admm", max_iter=10).fit(fed, target="ill")
    if route == "gossip":
        peers = ts.Federation.simulate([data], schema=SCHEMA, trust="gossip")
        return ts.GossipClassifier(epsilon=5.0).fit(peers, target="ill")
    if route == "ridge":
        return ts.Ridge().fit(fed, target="age")
    if route == "gaussian_nb":
        return ts.GaussianNB().fit(fed, target="ill")
    if route == "gaussian_mixture":
        return ts.GaussianMixture(2, rounds=3).fit(fed)
    if route == "pca":
        return ts.PCA(2).fit(fed)
    if route == "truncated_svd":
        return ts.TruncatedSVD(2).fit(fed)
    if route == "pipeline":
        return ts.Pipeline([ts.PCA(2), ts.LinearSVC(rounds=3)]).fit(fed, target="ill")
    if route == "summary":
        return ts.Summary().fit(fed)
    if route == "kmeans":
        return ts.KMeans(3).fit(fed)
    if route in ("levels", "basis"):
        return ts.FrequentItemsets(0.3, epsilon=5.0, method=route).fit(fed)
    if route == "quantiles":
        return ts.Quantiles(q=(0.25, 0.5), column="age", by="ill").fit(fed)
    if route == "evaluation":
        classifier = ts.LinearSVC(rounds=3).fit(fed, target="ill").public_classifier()
        return ts.ClassifierEvaluation(classifier=classifier).fit(fed, target="ill")
    return ts.ProgramEstimator(CountAges()).fit(fed, target="ill")


ROUTES = (
    "federation",
    "dataset",
    "plain-frame",
    "plain-matrix",
    "linear_svc",
    "consensus",
    "consensus-admm",
    "gossip",
    "ridge",
    "gaussian_nb",
    "gaussian_mixture",
    "pca",
    "truncated_svd",
    "pipeline",
    "summary",
    "kmeans",
    "levels",
    "basis",
    "quantiles",
    "evaluation",
    "program",
)


def not_allowed(model: Any) -> set[str]:
    """Attributes that are neither parameters nor on the allow-list of the estimator's class."""
    kind = next(k for k in ALLOWED if isinstance(model, k))
    state = model.__getstate__()
    held = set(vars(model)) | set(state) | {n for n in dir(model) if n.endswith("_") and not n.startswith("_")}
    return held - set(model.get_params()) - ALLOWED[kind] - {"_sklearn_version"}


@pytest.mark.parametrize("route", ROUTES)
def test_every_attribute_is_on_the_allow_list(route: str) -> None:
    assert not not_allowed(fitted(route))


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_has_one_entry_per_record(route: str) -> None:
    model = fitted(route)
    assert per_record(model, RECORDS) == []
    assert per_record(pickle.loads(pickle.dumps(model.__getstate__())) if route != "program" else model, RECORDS) == []


@pytest.mark.parametrize("route", ROUTES)
def test_no_exact_count_is_kept(route: str) -> None:
    """The number of records is public here (replace-one); how many of them are ill is not."""
    assert numbers_equal_to(fitted(route), {POSITIVE, RECORDS - POSITIVE}) == []


@pytest.mark.parametrize(
    "name", ["labels_", "inertia_", "loss_curve_", "support_vectors_", "dual_coef_", "class_count_", "_records"]
)
def test_a_planted_attribute_is_caught(name: str) -> None:
    class Leaky(ts.LogisticRegression):
        def fit(self, *args: Any, **kw: Any) -> Any:
            model = super().fit(*args, **kw)
            setattr(model, name, 0)
            return model

    data = frame()
    model = Leaky(rounds=1, bounds=(0, 100)).fit(data["age"][:, None], data["ill"])
    assert not_allowed(model) == {name}


def test_planted_records_and_counts_are_caught() -> None:
    model = fitted("plain-matrix")
    model._program.prepared = np.zeros((RECORDS, 2))
    assert per_record(model, RECORDS) == ["model._program.prepared"]
    model = fitted("plain-matrix")
    model.coef_ = np.zeros((RECORDS, 3))[:1, :2]  # a view drags the whole array along
    assert any(path.endswith("coef_.base") for path in per_record(model, RECORDS))
    model = fitted("plain-matrix")
    model.plan_.details["ill"] = POSITIVE
    assert numbers_equal_to(model, {POSITIVE}) == ["model.plan_.details['ill']"]


def test_the_scan_reaches_the_released_states() -> None:
    """The history is scanned too: it is there, and holds one state per round."""
    model = fitted("federation")
    paths = {path for path, _ in reachable(model)}
    assert any(path.startswith("model.history_[3]") for path in paths)
    assert len(model.history_) == 4


def test_the_estimator_forgets_a_federation() -> None:
    model = fitted("federation")
    kinds = {type(item).__name__ for _, item in reachable(model)}
    assert not kinds & {"SimulatedFederation", "Records", "ClientMap", "Ledger", "Tallies", "SimulatedServers"}
