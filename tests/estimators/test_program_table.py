"""One table of programs: a study file, ``ts.KMeans(...)`` and every role mean the same by a name and its keywords."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.engines.planning import layout_of
from tallystick.engines.setup import set_up
from tallystick.estimators.from_study import estimator_class, estimator_for
from tallystick.study import Study

SCHEMA = ts.Schema(
    {"age": ts.Number(0, 100), "dose": ts.Number(0, 5), "ill": ts.Category(["no", "yes"]), "cost": ts.Number(0, 10)}
)
NEEDS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "logistic_regression": ("ill", {}),
    "linear_svc": ("ill", {"rounds": 4, "clip": 0.5}),
    "consensus_svc": ("ill", {"C": 2.0, "kernel": "rbf", "n_features": 20}),
    "kmeans": (None, {"n_clusters": 3, "start": "random"}),
    "frequent_itemsets": (None, {}),
    "ridge": ("cost", {"alpha": 2.0}),
    "vertical_ridge": ("cost", {"alpha": 2.0}),
    "vertical_classifier": ("ill", {"alpha": 2.0}),
    "vertical_svc": ("ill", {"C": 2.0, "rho": 3.0}),
    "gaussian_nb": ("ill", {}),
    "gaussian_mixture": (None, {"n_components": 2}),
    "pca": (None, {"n_components": 2}),
    "truncated_svd": (None, {"n_components": 2}),
    "pipeline": ("ill", {"steps": [{"program": "pca"}, {"program": "linear_svc", "rounds": 4}], "share": 0.4}),
    "gossip_classifier": ("ill", {"origin": "centre", "label": "sign"}),
    "summary": (None, {"bins": 4}),
    "quantiles": (None, {"q": [0.25, 0.5], "column": ["age"]}),
    "mode": (None, {"column": "ill"}),
    "above_threshold": (None, {"column": ["ill"], "threshold": 500, "most": 1}),
    "risk_minimizer": (None, {"column": "age", "loss": "huber"}),
    "evaluation": ("ill", {"classifier": linear_table(np.zeros(1), np.zeros((1, 2)))}),
}
SELECTED = {"mode", "risk_minimizer", "above_threshold"}
"""What computing parties select: pure epsilon, no sums."""


TRUST = {"gossip_classifier": "gossip", **dict.fromkeys(SELECTED, "parties")}


APART = {"vertical_ridge", "vertical_classifier", "vertical_svc"}
"""Of institutions that hold different columns of the same people."""


EXACT = {"consensus_svc", "vertical_svc"}
"""Not private, and said to be so: a role has to allow it."""


def plain(value: Any) -> Any:
    """A design's program by its fields, so that two of them can be compared."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    own = type(value).__module__.startswith("tallystick") and hasattr(value, "__dict__")
    return (type(value).__name__, plain(vars(value))) if own else repr(value).split(" at 0x")[0]


def test_every_program_is_tried_here() -> None:
    assert set(NEEDS) == set(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_estimator_takes_the_keywords_of_its_program(name: str) -> None:
    estimator = estimator_class(name)
    assert estimator.program_name == name
    written, taken = set(estimator()._study_program()), set(estimator().get_params(deep=False))
    assert written <= BUILT_IN[name].keys
    unused = BUILT_IN[name].keys - written  # a feature map or loss that is not asked for is left out
    assert unused <= taken
    assert not unused or "feature_map" in unused or unused == {"loss"}
    assert getattr(ts, estimator.__name__) is estimator


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_estimator_a_study_file_and_a_role_make_the_same_design(name: str) -> None:
    target, keywords = NEEDS[name]
    selected = name in SELECTED
    frames = [{"age": np.zeros(4)}] * 3
    if name in APART:
        frames = [
            {"id": np.arange(4), "age": np.zeros(4), target: np.zeros(4)},
            {"id": np.arange(4), "dose": np.zeros(4)},
        ]
    trust = TRUST.get(name, "servers")
    fed = ts.Federation.simulate(frames, schema=SCHEMA, trust=trust, vertical=name in APART)
    model = estimator_class(name)(epsilon=3.0, delta=None if name in TRUST else 1e-6, **keywords)
    features = None if selected else ["age", "dose"]
    written = model.study_for(fed, target=target, features=features).replace("data", records=4000)
    by_estimator = model.design_for(written, layout_of(written))

    raw = written.model_dump()
    raw["program"] = keywords if name != "summary" else raw["program"]  # a study file leaves out what is the default
    other, by_file = estimator_for(Study.from_dict(raw))
    by_study = other.design_for(by_file, layout_of(by_file))
    by_role = set_up(written.canonical(), "", allow_not_private=name in EXACT).design
    assert plain(by_estimator) == plain(by_study) == plain(by_role)


def test_a_study_of_another_program_is_refused_before_anything_is_charged() -> None:
    fed = ts.Federation.simulate([{"age": np.zeros(4)}] * 3, schema=SCHEMA)
    study = ts.Ridge().study_for(fed, target="cost", features=["age"]).replace("data", records=12)
    with pytest.raises(ts.StudyError, match="one of ridge, not of kmeans"):
        ts.KMeans().fit_study(fed, study)
    assert fed.spent.fits == 0


def test_the_table_needs_no_scikit_learn() -> None:
    code = "import sys, tallystick.algorithms.built_in; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_on_streams_names_the_programs_that_learn_from_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "streams.md").read_text(encoding="utf-8")
    (words,) = [part for part in page.split("\n\n") if part.startswith("**Programs.**")]
    named = set(re.findall(r"`(\w+)`", words)) & BUILT_IN.keys()
    refused = set(re.findall(r"`(\w+)`", words.split("Those that need all records")[1]))
    assert named - refused == {name for name, program in BUILT_IN.items() if program.stepwise}
