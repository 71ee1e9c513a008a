"""The accuracy that a plan expects is that of the problem it is computed for: drawn, learned and tried here."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tallystick as ts
from tallystick.application import planning
from tallystick.application.trust_comparison import compare_trust, comparison_words
from tallystick.core.errors import StudyError
from tallystick.privacy.expected_accuracy import (
    REFERENCE,
    _distance,
    expected_accuracy,
    local_variance,
    sum_variance,
)


def tried(variance: float, *, records: int, features: int, classes: int, seed: int = 3) -> float:
    """Classes around equally distant means, their estimates with noise, the nearest taken; averaged over problems."""
    rng, right = np.random.default_rng(seed), []
    m2 = _distance(classes) ** 2 / 2
    sigma2 = 1 / (features + m2)
    many = 1.0 if classes == 2 else classes**2 / 2
    for _ in range(30):
        axes = np.linalg.qr(rng.normal(size=(features, features)))[0][:classes]
        means = axes * math.sqrt(2 * m2 * sigma2)  # any two are 2m·σ apart
        # Half the difference of two estimates has this variance, so each estimate has twice of it.
        noise = 2 * (classes / 2 * sigma2 / records + many * variance)
        learned = means + rng.normal(size=means.shape) * math.sqrt(noise)
        labels = rng.integers(0, classes, 4000)
        x = means[labels] + rng.normal(size=(4000, features)) * math.sqrt(sigma2)
        scores = x @ learned.T - (means * means).sum(axis=1) / 2
        right.append(float((scores.argmax(axis=1) == labels).mean()))
    return float(np.mean(right))


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_it_is_the_accuracy_of_the_made_up_problem(classes: int, epsilon: float) -> None:
    facts = {"records": 4140, "features": 57, "classes": classes}
    variance = local_variance(epsilon=epsilon, records=4140, features=57)
    assert expected_accuracy(variance, **facts) == pytest.approx(tried(variance, **facts), abs=0.03)
    assert expected_accuracy(0.0, records=10**9, features=57, classes=classes) == pytest.approx(REFERENCE, abs=1e-3)
    drowned = expected_accuracy(1e6, **facts)
    assert drowned == pytest.approx(1 / classes, abs=0.02)  # no better than guessing


def test_noise_is_that_of_the_mechanisms() -> None:
    """Subset selection at ε = 1 has a variance of about 6.33 a coordinate (shared measurements, §8: within 3 %)."""
    assert local_variance(epsilon=1.0, records=1, features=57) == pytest.approx(6.33, rel=0.03)
    assert sum_variance(rho=0.5, records=10, factor=2.0) == pytest.approx(2 * 4 / (2 * 0.5 * 100))


def test_what_having_no_server_costs_is_ordered() -> None:
    found = ts.compare_trust(epsilon=1.0, delta=1e-6, records=4140, features=57)
    rows = {row["trust"]: row for row in found["rows"]}
    assert list(rows) == ["servers", "masks", "masks, every-peer", "gossip"]
    assert rows["gossip"]["expected_accuracy"] < rows["servers"]["expected_accuracy"] < found["without_noise"]
    assert rows["masks"]["noise_on_mean"] < rows["masks, every-peer"]["noise_on_mean"]
    lines = comparison_words(found)
    assert "expected accuracy" in lines[0]
    assert len(lines) == 7


@pytest.mark.parametrize("bad", [{"epsilon": 0.0}, {"epsilon": math.nan}, {"records": 0}, {"features": 0}])
def test_facts_that_cannot_be_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(StudyError):
        compare_trust(**{"epsilon": 1.0, "records": 100, "features": 3, **bad})  # type: ignore[arg-type]


def test_a_trust_model_that_is_not_offered_says_why() -> None:
    found = compare_trust(epsilon=20.0, records=100, features=3, clients=3, neighbours="add-remove", classes=None)
    assert [bool(row["not_offered"]) for row in found["rows"]] == [False, False, True, True]
    assert all(row["expected_accuracy"] is None for row in found["rows"])
    assert "not offered" in "\n".join(comparison_words(found))


STUDY = """
[study]
name = "compared"
program = "{program}"
{target}
[privacy]
epsilon = 1.0
delta = 1e-6
[trust]
model = "masks"
clients = 40
min_clients = 36
colluding = 4
reducer = "every-peer"
[data]
records = 4000
[data.columns]
x = {{ type = "number", lower = -1, upper = 1 }}
z = {{ type = "number", lower = -1, upper = 1 }}
y = {{ type = "category", values = ["a", "b"] }}
"""


@pytest.mark.parametrize(("program", "target"), [("logistic_regression", 'target = "y"'), ("kmeans", "")])
def test_the_plan_shows_it(program: str, target: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "study.toml"
    path.write_text(STUDY.format(program=program, target=target))
    made = planning.plan(path)
    rows = made["without_a_server"]["rows"]
    assert "40 clients and nobody else, 4 colluding" in rows[2]["parties"]
    assert (rows[3]["expected_accuracy"] is None) == (program == "kmeans")
    text = planning.describe(made)
    assert "the same study under other trust models" in text
    assert "each of which adds up itself" in text
