"""The gossip classifier's walks: Golf over published records, and perturbed gradients, planned and charged."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.gossip.golf.learning import examples_of
from tallystick.core.errors import StudyError
from tallystick.privacy.local.gradient_plan import GradientPlan
from tallystick.privacy.local.randomiser import Decoded


def _frame(records: int = 600, classes: int = 2, columns: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    labels = rng.integers(0, classes, records)
    rows = np.clip(rng.normal(0.3, 0.15, size=(records, columns)) + 0.6 * np.eye(classes, columns)[labels], 0, 1)
    return {**{f"x{i}": column for i, column in enumerate(rows.T)}, "y": labels.astype(str)}


def _schema(classes: int = 2, columns: int = 5, missing: str | None = None) -> ts.Schema:
    number = ts.Number(0, 1) if missing is None else ts.Number(0, 1, missing=missing)
    return ts.Schema({**{f"x{i}": number for i in range(columns)}, "y": ts.Category([str(c) for c in range(classes)])})


def _fitted(classes: int = 2, *, frames: int = 1, seed: int = 3, **own: Any) -> tuple[Any, float]:
    frame = _frame(classes=classes)
    split = [{k: v[i::frames] for k, v in frame.items()} for i in range(frames)]
    fed = ts.Federation.simulate(split, schema=_schema(classes), trust="gossip", seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.PrivacyWarning)
        model = ts.GossipClassifier(epsilon=own.pop("epsilon", 8.0), **own).fit(fed, target="y")
    features = {k: v for k, v in frame.items() if k != "y"}
    return model, float(np.mean(model.predict(features).astype(str) == frame["y"]))


@pytest.mark.parametrize("learner", ["pegasos", "logistic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_walks_learn_from_published_records(learner: str, classes: int) -> None:
    model, right = _fitted(classes, learner=learner, cycles=60)
    assert right > (0.85 if classes == 2 else 0.6)
    assert model.privacy_.epsilon == 8.0
    assert model.privacy_.mechanism == "subset"
    assert model.coef_.shape == (1 if classes == 2 else 3, 5)
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("own", [{"randomiser": "laplace"}, {"randomiser": "laplace", "label": "per-class"}], ids=str)
def test_walks_over_every_way_of_publishing(own: dict[str, Any]) -> None:
    _, right = _fitted(3, learner="pegasos", cycles=60, weak_epsilon=True, epsilon=600.0, **own)  # hardly any noise
    assert right > 0.9


def test_walks_without_noise_say_so() -> None:
    for merging in ("update-merge", "merge-update"):
        model, right = _fitted(3, learner="pegasos", perturb="none", merging=merging, cycles=60)
        assert right > 0.9
        assert not model.privacy_.as_dict()["differentially_private"]


def test_the_same_seed_gives_the_same_model() -> None:
    models = [_fitted(3, learner="pegasos", cycles=10, seed=s)[0].coef_.tobytes() for s in (3, 3, 4)]
    assert models[0] == models[1] != models[2]


@pytest.mark.parametrize("own", [{}, {"strategy": "uses", "uses": 3}, {"strategy": "halving"}, {"batch": 20}], ids=str)
def test_perturbed_gradients_are_planned_and_charged(own: dict[str, Any]) -> None:
    model, right = _fitted(learner="logistic", perturb="gradient", epsilon=10.0, **own)
    assert right > 0.6
    plan = model.plan_
    assert isinstance(plan, GradientPlan)
    assert plan.budget.spent(plan.budget.answers) <= 10
    assert plan.pure_epsilon == 10
    assert plan.rho == Fraction(50)
    assert model.privacy_.mechanism == "laplace"
    assert model.privacy_.delta == 0
    assert "gradients with noise" in model.privacy_.statement
    assert "perturbed once" not in model.privacy_.statement


def test_gradients_of_several_classes_share_the_budget() -> None:
    two, three = (_fitted(c, learner="pegasos", perturb="gradient")[0].plan_ for c in (2, 3))
    assert two.budget.problems == 1
    assert three.budget.problems == 3
    assert float(three.budget.scale(1)) == pytest.approx(3 * float(two.budget.scale(1)))


def test_how_records_are_dealt_to_frames_does_not_change_what_each_pays() -> None:
    whole, dealt = (_fitted(learner="pegasos", perturb="gradient", frames=f, batch=7)[0] for f in (1, 4))
    assert whole.privacy_.epsilon == dealt.privacy_.epsilon
    assert whole.plan_.noise_parameters() == dealt.plan_.noise_parameters()


@pytest.mark.parametrize(
    "own, words",
    [
        ({"perturb": "gradient"}, "no gradients"),
        ({"learner": "pegasos", "strategy": "halving"}, "perturbed gradients"),
        ({"learner": "pegasos", "perturb": "gradient", "uses": 3}, "does not go with"),
        ({"learner": "pegasos", "perturb": "gradient", "strategy": "never"}, "strategy"),
        ({"learner": "pegasos", "merging": "never"}, "merging"),
        ({"learner": "pegasos", "cycles": 0}, "cycles"),
        ({"learner": "pegasos", "lambda_": 0.0}, "lambda_"),
        ({"learner": "pegasos", "perturb": "gradient", "batch": 0}, "batch"),
        ({"learner": "pegasos", "perturb": "gradient", "batch": 1000}, "at least two peers"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(own: dict[str, Any], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        _fitted(**own)


def test_a_local_epsilon_above_ten_is_refused_for_gradients_too() -> None:
    with pytest.raises(ts.TallystickError, match="no protection") as refused:
        _fitted(learner="pegasos", perturb="gradient", epsilon=50.0)
    assert refused.value.exit_code == 3
    model, _ = _fitted(learner="pegasos", perturb="gradient", epsilon=50.0, weak_epsilon=True)
    assert "OVERRIDDEN" in model.privacy_.statement


def test_one_record_cannot_be_read_and_adds_nothing_to_gradients() -> None:
    frame = _frame(records=40)
    frame["x0"] = frame["x0"].astype(object)
    frame["x0"][3] = None
    fed = ts.Federation.simulate([frame], schema=_schema(missing="drop"), trust="gossip", seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ts.GossipClassifier(epsilon=8.0, learner="pegasos", perturb="gradient").fit(fed, target="y")
    assert np.isfinite(model.coef_).all()


def test_published_records_as_examples() -> None:
    z = np.arange(12.0).reshape(2, 3, 2)
    targets = np.zeros((2, 3))
    each = examples_of([Decoded(z=z, targets=targets, labels=None)], 3)
    assert each.rows.shape == (3, 2, 2)
    assert np.array_equal(each.rows[1], z[:, 1])
    named = examples_of([Decoded(z=z[:, :1], targets=targets, labels=np.array([2, 0]))], 3)
    assert named.signs.tolist() == [[-1, 1], [-1, -1], [1, -1]]
    code = np.array([[1, -1, 1], [-1, -1, 1]])
    coded = examples_of([Decoded(z=z[:, :1], targets=targets, labels=None, rows=code)], 3)
    assert np.array_equal(coded.signs, code.T)
    for problem in range(3):
        published = Decoded(z=z[:, :1], targets=targets, labels=None, rows=code).against_the_rest(problem)
        assert np.array_equal(coded.signs[problem][:, None] * coded.rows_of(problem), published)
