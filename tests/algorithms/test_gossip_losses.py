"""Logistic regression and the hinge on perturbed records: mean losses, and what is known behind the noise."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.algorithms.test_gossip_learners import D, public, records, summed

from tallystick.algorithms.gossip.denoised import KeptRecords, Known, mean_hinge, mean_logistic
from tallystick.algorithms.gossip.design import GossipProgram, design_gossip, public_words
from tallystick.algorithms.gossip.moments import EXACT, RecordLaw
from tallystick.algorithms.gossip.settings import GossipSettings
from tallystick.core.errors import StudyError
from tallystick.crypto.prg import AesStream
from tallystick.estimators.gossip_classifier import GossipClassifier
from tallystick.privacy.local.labels import label_code
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import record_identities
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import SubsetMoments, choose_subset


def randomiser(kind: str, epsilon: int, classes: int) -> Randomiser:
    label = label_code(kind, Fraction(epsilon), classes)  # type: ignore[arg-type]
    rest = Fraction(epsilon) - label.epsilon
    vector = SubsetSelection(epsilon=rest, dimension=D, subset=choose_subset(rest, D), public_words=public_words)
    return Randomiser(label=label, vector=vector)


@pytest.mark.parametrize(("mean_loss", "loss"), [
    (mean_logistic, lambda m: np.logaddexp(0, -m)), (mean_hinge, lambda m: np.maximum(0, 1 - m)),
])  # fmt: skip
@pytest.mark.parametrize("variance", [1e-6, 0.3, 4.0])
def test_mean_losses_are_integrals_and_their_slopes_differences(
    mean_loss: object, loss: object, variance: float
) -> None:
    means, x = np.linspace(-4, 4, 17), np.linspace(-10, 10, 200_001)
    density = np.exp(-x * x / 2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    value, slope, by_variance = mean_loss(means, variance)  # type: ignore[operator]
    truth = [float(density @ loss(m + np.sqrt(variance) * x)) for m in means]  # type: ignore[operator]
    assert np.allclose(value, truth, atol=2e-4)
    h = 1e-5
    assert np.allclose(
        slope, (mean_loss(means + h, variance)[0] - mean_loss(means - h, variance)[0]) / (2 * h), atol=1e-4
    )  # type: ignore[operator]
    h = variance * 1e-4
    if variance > 1e-3:  # below, the hinge's corner is sharper than any difference
        up, down = mean_loss(means, variance + h)[0], mean_loss(means, variance - h)[0]  # type: ignore[operator]
        assert np.allclose(by_variance, (up - down) / (2 * h), atol=2e-3)


def test_without_noise_it_is_the_usual_logistic_regression() -> None:
    vectors, labels = records(2, seed=3)
    vectors, labels = vectors[:1500], labels[:1500]
    program = GossipProgram(public(classes=2), GossipSettings(loss="logistic", lambda_=1e-2, intercept=0.0))
    kept = program.moments()
    kept.add(program.exact(vectors, labels))
    found = kept.learn(None).weights[0]  # type: ignore[attr-defined]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        usual = LogisticRegression(C=1 / (1e-2 * len(unit)), fit_intercept=False, tol=1e-10).fit(unit, labels).coef_[0]
    assert np.allclose(found, usual, rtol=1e-3, atol=1e-3 * np.abs(usual).max())


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize(("kind", "classes"), [("sign", 2), ("randomised", 2), ("randomised", 3)])
def test_from_perturbed_records_it_learns_nearly_what_the_records_teach(loss: str, kind: str, classes: int) -> None:
    vectors, labels = records(classes, seed=4)
    made = randomiser(kind, 9, classes)
    identities = record_identities(bytes(32), "peer", len(vectors))
    decoded = made.decode(identities, made.perturb_all(vectors, labels, identities, AesStream(bytes(32))))
    program = GossipProgram(public(classes=classes), GossipSettings(loss=loss, intercept=0.0))
    noisy, exact = program.moments(), program.moments()
    noisy.add(decoded)
    exact.add(program.exact(vectors, labels))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def accuracy(model: object) -> float:
        scores = unit @ model.weights.T + model.offsets  # type: ignore[attr-defined]
        said = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(said == labels))

    learnt = noisy.learn(made)  # type: ignore[attr-defined]
    assert accuracy(learnt) > accuracy(exact.learn(None)) - 0.05  # type: ignore[attr-defined]
    assert accuracy(learnt) > accuracy(summed(made, vectors, labels).fit(made.moments)) - 0.02


def test_the_law_of_a_record_is_that_of_normal_records_and_noise() -> None:
    """û, P and the chances of classes against Bayes' rule by simulation, with a law that is known."""
    rng, moments = np.random.default_rng(1), SubsetMoments(mean=1.0, a=1.0, b=0.5)
    law = RecordLaw(np.array([0.3, 0.7]), np.array([[1.0, 0.0], [-0.5, 0.5]]), np.array([0.4, 0.1]), np.eye(2))
    kind = (rng.random(400_000) < 0.7).astype(int)
    u = law.centres[kind] + rng.normal(size=(400_000, 2)) * np.sqrt(law.values)
    z = u + rng.normal(size=u.shape) * np.sqrt(moments.b)
    place = np.array([0.4, 0.2])
    near = np.linalg.norm(z - place, axis=1) < 0.12
    known = Known.of(place[None, :], np.log(law.frequency)[None, :].copy(), law, moments)
    assert near.sum() > 2000
    assert np.allclose(known.chance, [np.mean(kind[near] == k) for k in (0, 1)], atol=0.03)
    for k in (0, 1):
        those = u[near & (kind == k)]
        assert np.allclose(known.drawn[0] + known.shifts[k], those.mean(axis=0), atol=0.05)
        assert np.allclose(known.spread, those.var(axis=0), atol=0.03)


def test_no_records_and_records_of_length_zero_give_a_model() -> None:
    assert np.isfinite(KeptRecords(3, D).learn(None).weights).all()
    made = randomiser("sign", 1, 2)
    identities = record_identities(bytes(32), "peer", 50)
    drawn = made.perturb_all(np.zeros((50, D), np.int64), np.zeros(50, np.int64), identities, AesStream(bytes(32)))
    kept = KeptRecords(2, D)
    kept.add(made.decode(identities, drawn))
    assert np.isfinite(kept.learn(made).weights).all()
    one_class = KeptRecords(3, D)
    program = GossipProgram(public(classes=3), GossipSettings(loss="logistic"))
    vectors, _ = records(3)
    one_class.add(program.exact(vectors[:50], np.ones(50, np.int64)))
    assert np.isfinite(one_class.learn(None).weights).all()
    assert EXACT.b == 0.0


@pytest.mark.parametrize("settings", [
    {"loss": "hinge", "learner": "pegasos"}, {"loss": "logistic", "label": "per-class"},
    {"loss": "logistic", "label": "sign"},
])  # fmt: skip
def test_a_loss_that_cannot_be_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(StudyError) as caught:
        design_gossip(public(classes=3), None, GossipSettings(**settings))  # type: ignore[arg-type]
    assert caught.value.rule == "loss-of-moments"


def test_studies_without_the_keyword_keep_their_hash() -> None:
    assert "loss" not in GossipClassifier(epsilon=1)._study_program()
    assert GossipClassifier(epsilon=1, loss="hinge")._study_program()["loss"] == "hinge"
