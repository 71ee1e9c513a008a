"""With noise off, every trust model that sums gives the bits of ``servers``, for every program that sums.

Trust models come from the registry and programs from their table, so a new one of either is tried here by itself; a
program without a small study in ``STUDIES`` is named by the first test.
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

import numpy as np
import pytest
from tests.end_to_end.test_unchanged_results import ROOT

import tallystick as ts
from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.evaluation.public_classifiers import linear_table
from tallystick.algorithms.program import pack_state
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study
from tallystick.study.trust import registered

SCHEMA = ts.Schema(
    {
        "age": ts.Integer(0, 100),
        "dose": ts.Number(-5, 5),
        "sex": ts.Category(["f", "m"]),
        "drugs": ts.Items(["a", "b", "c"], max_per_record=2),
        "cost": ts.Number(0, 10),
        "ill": ts.Category(["no", "yes"]),
    }
)
PEOPLE = ["age", "dose", "sex"]
OWN = "mean_and_variance.py"
# program: (keywords, target, columns)
STUDIES: dict[str, tuple[dict[str, Any], str | None, list[str]]] = {
    "logistic_regression": ({"rounds": 3}, "ill", PEOPLE),
    "linear_svc": ({"rounds": 3}, "ill", PEOPLE),
    "ridge": ({}, "cost", PEOPLE),
    "kmeans": ({"n_clusters": 3, "rounds": 2}, None, PEOPLE),
    "frequent_itemsets": ({"min_support": 0.3}, None, ["drugs", "sex"]),
    "gaussian_nb": ({}, "ill", PEOPLE),
    "gaussian_mixture": ({"n_components": 2, "rounds": 2}, None, PEOPLE),
    "pca": ({"columns": "uneven"}, None, [*PEOPLE, "drugs"]),
    "truncated_svd": ({"rows": "unit"}, None, PEOPLE),
    "pipeline": (
        {"steps": [{"program": "pca"}, {"program": "logistic_regression", "rounds": 2}]}, "ill", [*PEOPLE, "drugs"]
    ),
    "consensus_svc": ({"solver": "admm", "max_iter": 4}, "ill", PEOPLE),
    "summary": ({"bins": 4}, None, PEOPLE),
    "quantiles": ({"q": [0.25, 0.5], "column": ["age"]}, None, ["age"]),
    "evaluation": ({"classifier": linear_table(np.zeros(1), np.ones((1, 4)))}, "ill", PEOPLE),
    OWN: ({}, None, ["dose"]),
}  # fmt: skip
CUT_BY_HASH = {"quantiles"}
"""Their cells are cut where the study's hash says, which names the trust model: the answers are compared."""
SELECTED = {"above_threshold", "mode", "risk_minimizer"}
APART = {"vertical_ridge", "vertical_classifier", "vertical_svc"}
"""Of institutions with different columns: tests/engines/test_joint_map.py and its neighbours."""
"""They draw; nothing of them is summed."""
SUMMING = [model.name for model in registered() if "sums" in model.computes and model.name != "servers"]


def frames() -> list[dict[str, Any]]:
    rng = np.random.default_rng(8)
    n = 120
    whole: dict[str, Any] = {
        "age": rng.integers(0, 101, n),
        "dose": rng.normal(0, 2, n),
        "sex": rng.choice(["f", "m"], n),
        "drugs": [list(rng.choice(["a", "b", "c"], rng.integers(0, 3), replace=False)) for _ in range(n)],
        "cost": rng.uniform(0, 10, n),
    }
    whole["ill"] = np.where(whole["age"] + 10 * whole["dose"] > 50, "yes", "no")
    return [{name: column[at:end] for name, column in whole.items()} for at, end in ((0, 30), (30, 80), (80, n))]


def states(program: str, trust: str, fed: ts.Federation | None = None, **settings: Any) -> list[bytes]:
    """The states after every round, exact; with the records of :func:`frames`, or those of another federation."""
    keywords, target, columns = STUDIES[program]
    declared = SCHEMA.to_dict()
    named = [*columns, *([target] if target else [])]
    raw = {
        "study": {"name": program, "program": program, "target": target, "features": columns, "accept_noise": True},
        "program": keywords,
        "privacy": {"mechanism": "none", "epsilon": 1.0},
        "trust": {"model": trust, **settings},
        "data": {"records": 120, "columns": {name: declared[name] for name in named}},
    }
    read = (ROOT / "examples" / "programs" / OWN).read_text if program == OWN else None
    estimator, study = estimator_for(Study.from_dict(raw), None if read is None else lambda _: read(encoding="utf-8"))
    if fed is None:
        fed = ts.Federation.simulate(frames(), schema=SCHEMA, trust=trust, seed=11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit_study(fed, study)
    if program in CUT_BY_HASH:
        return [json.dumps(estimator.model_document(), sort_keys=True).encode()]
    return [pack_state(state) for state in estimator.history_]


@functools.cache
def expected(program: str) -> list[bytes]:
    return states(program, "servers")


def test_every_program_that_sums_is_tried_here_under_every_trust_model() -> None:
    assert set(STUDIES) - {OWN} == set(BUILT_IN) - SELECTED - {"gossip_classifier"} - APART
    assert set(SUMMING) == {"masks", "proxy"}


@pytest.mark.parametrize("trust", SUMMING)
@pytest.mark.parametrize("program", STUDIES)
def test_the_bits_are_those_of_servers(program: str, trust: str) -> None:
    assert states(program, trust) == expected(program)


@pytest.mark.parametrize("program", ["summary", "pca", "logistic_regression", "quantiles", "consensus_svc", OWN])
def test_and_so_are_those_of_peers_that_each_add_up_themselves(program: str) -> None:
    """Every peer runs the program on its own totals, and refuses a model that is not its own: so these are its bits."""
    settings = {"reducer": "every-peer", "clients": 3, "min_clients": 3, "colluding": 0}
    assert states(program, "masks", **settings) == expected(program)


@pytest.mark.parametrize("program", ["summary", "pca"])
def test_and_so_are_those_of_packed_paillier(program: str) -> None:
    assert states(program, "proxy", scheme="paillier") == expected(program)
