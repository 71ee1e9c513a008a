"""The example studies of linear models, summary and evaluation: planned, simulated, and what their results say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.application.planning import describe, plan
from tallystick.application.result_document import describe_result
from tallystick.application.simulation import simulate
from tallystick.core.errors import StudyError

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")


def run(name: str, *settings: str, **options: Any) -> dict[str, Any]:
    """On the built-in invented census, which has the columns of the real one."""
    result = simulate(EXAMPLES / name, clients=3, seed=1, settings=settings, **options)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert describe_result(result)
    return result


@pytest.mark.parametrize("name", ["adult_svc", "adult_hours", "adult_summary", "adult_evaluation"])
def test_every_example_has_a_plan(name: str) -> None:
    made = plan(EXAMPLES / f"{name}.toml", records=48842)
    assert made["hopeless"] is None
    assert describe(made)
    if name != "adult_svc":
        assert len(made["rounds"]) > 1  # groups
        assert sum("proposed: the least error" in note for note in made["notes"]) == 1


def test_the_svc_example_is_accurate() -> None:
    evaluation = run("adult_svc.toml", "program.rounds=30", holdout=0.2)["simulation"]["evaluation"]
    assert evaluation["accuracy"] > evaluation["majority_accuracy"] + 0.02
    assert evaluation["accuracy"] > evaluation["baseline_accuracy"] - 0.05


def test_the_ridge_example_learns_something() -> None:
    result = run("adult_hours.toml", "privacy.epsilon=9", holdout=0.2)
    evaluation = result["simulation"]["evaluation"]
    assert set(evaluation) >= {"r2", "rmse", "baseline_r2"}
    assert -0.1 < evaluation["r2"] <= evaluation["baseline_r2"] + 0.05
    assert result["model"]["target"] == "hours_per_week"


def test_the_summary_example_counts() -> None:
    table = run("adult_summary.toml")["model"]["table"]
    counts = {r["of"]: r for r in table if r["column"] == "income" and r["statistic"] == "histogram"}
    assert set(counts) == {"<=50K", ">50K"}
    assert all(r["standard_error"] > 0 for r in counts.values())
    assert {r["statistic"] for r in table} == {"count", "histogram", "mean", "variance", "correlation"}


def test_groups_of_a_study_file_are_taken() -> None:
    groups = 'privacy.groups=[{name="histograms",share=0.8},{name="moments",share=0.1},{name="correlations",share=0.1}]'
    made = plan(EXAMPLES / "adult_summary.toml", records=48842, settings=(groups,))
    assert "histograms 0.8, moments 0.1, correlations 0.1 (as the study gives it)" in made["notes"][-1]
    shares = {r["group"]: r["rho"] for r in made["rounds"]}
    assert shares["histograms"] == pytest.approx(8 * shares["moments"], rel=1e-6)
    with pytest.raises(StudyError, match="the program's groups are"):
        plan(EXAMPLES / "adult_summary.toml", records=48842, settings=('privacy.groups=[{name="counts",share=1.0}]',))


def test_the_evaluation_example_has_intervals() -> None:
    model = run("adult_evaluation.toml")["model"]
    assert model["type"] == "Evaluation"
    low, high = model["accuracy_interval"]
    assert 0 <= low <= model["accuracy"] <= high <= 1
    assert np.shape(model["confusion"]) == (2, 2)


def test_a_wrong_classifier_in_a_study_file_is_explained() -> None:
    for setting, words in (
        ("program.classifier.weights=[[1.0]]", "5 encoded columns"),
        ("program.classifier.kind=forest", "kind 'forest'"),
        ("program.clasifier=1", "classifier"),
    ):
        with pytest.raises(StudyError, match=words):
            run("adult_evaluation.toml", setting)
