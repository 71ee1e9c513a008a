"""Learners that know the noise: unbiased moments, the classifier that follows, public transforms row by row."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tallystick.algorithms.gossip.design import GossipProgram, design_gossip, public_words
from tallystick.algorithms.gossip.moments import EXACT, RecordMoments
from tallystick.algorithms.gossip.record_space import COLUMN_BITS, RecordSpace, first_cosines
from tallystick.algorithms.gossip.settings import GossipSettings, gossip_settings
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.crypto.prg import AesStream
from tallystick.privacy.local.labels import label_code
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import record_identities
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import choose_subset

RECORDS, D = 6000, 5


def public(features: int = D, classes: int = 3, kinds: tuple[str, ...] = ()) -> Public:
    units = tuple((kind, 0.0, 1.0, 0.0) for kind in kinds or ("number",) * features)
    return Public(
        features=tuple(f"x{i}" for i in range(features)),
        records=RECORDS,
        target="y",
        classes=tuple(f"c{i}" for i in range(classes)),
        units=units,
    )


def records(classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes that lie in different directions."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(classes, D))
    labels = rng.integers(0, classes, RECORDS)
    return np.rint(1000 * (centres[labels] + 0.4 * rng.normal(size=(RECORDS, D)))).astype(np.int64), labels


def randomiser(kind: str, epsilon: int, classes: int) -> Randomiser:
    label = label_code(kind, Fraction(epsilon), classes)  # type: ignore[arg-type]
    rest = Fraction(epsilon) - label.epsilon
    vector = SubsetSelection(epsilon=rest, dimension=D, subset=choose_subset(rest, D), public_words=public_words)
    return Randomiser(label=label, vector=vector)


def summed(made: Randomiser, vectors: np.ndarray, labels: np.ndarray) -> RecordMoments:
    identities = record_identities(bytes(32), "peer", len(vectors))
    batch = made.perturb_all(vectors, labels, identities, AesStream(bytes(32)))
    moments = RecordMoments(made.classes, D)
    moments.add(made.decode(identities, batch))
    return moments


@pytest.mark.parametrize("kind, classes", [("sign", 2), ("sign", 3), ("randomised", 3)])
def test_moments_are_those_of_the_records(kind: str, classes: int) -> None:
    """G and B against exact ones, within five standard errors; without the correction G is far off."""
    vectors, labels = records(classes)
    made = randomiser(kind, 9, classes)
    found = summed(made, vectors, labels)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b = made.moments.a, made.moments.b
    gram = (found.gram / RECORDS - b * np.eye(D)) / a
    error = 5 * math.sqrt(2) * (1 + b) / math.sqrt(RECORDS) + 0.01
    assert np.abs(gram - unit.T @ unit / RECORDS).max() < error
    assert np.abs(found.gram / RECORDS - unit.T @ unit / RECORDS).max() > error
    shared = unit.mean(axis=0) / made.label.length if kind == "sign" else 0.0  # type: ignore[union-attr]
    for k in range(classes):
        truth = (unit * (labels == k)[:, None]).mean(axis=0) - shared
        assert np.abs(found.sums[k] / RECORDS - truth).max() < 5 * math.sqrt((1 + b) / RECORDS)
    if kind == "randomised":
        assert np.allclose(found.labels / RECORDS, np.bincount(labels) / RECORDS, atol=0.05)


@pytest.mark.parametrize("kind, classes", [("sign", 2), ("sign", 4), ("randomised", 4)])
def test_what_is_learned_from_perturbed_records_is_nearly_what_the_records_teach(kind: str, classes: int) -> None:
    vectors, labels = records(classes, seed=4)
    made = randomiser(kind, 9, classes)
    noisy = summed(made, vectors, labels).fit(made.moments)
    program = GossipProgram(public(classes=classes), GossipSettings(intercept=0.0))
    exact = program.moments()
    exact.add(program.exact(vectors, labels))
    true = exact.fit(EXACT)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def accuracy(model: object) -> float:
        scores = unit @ model.weights.T + model.offsets  # type: ignore[attr-defined]
        classes_ = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return float(np.mean(classes_ == labels))

    assert accuracy(true) > 0.75
    assert accuracy(noisy) > accuracy(true) - 0.06


def test_records_may_arrive_in_any_order_and_in_parts() -> None:
    vectors, labels = records(3)
    made = randomiser("sign", 5, 3)
    identities = record_identities(bytes(32), "peer", 200)
    batch = made.perturb_all(vectors[:200], labels[:200], identities, AesStream(bytes(32)))
    decoded = made.decode(identities, batch)
    whole, parts = RecordMoments(3, D), RecordMoments(3, D)
    whole.add(decoded)
    for rows in (np.arange(100, 200), np.arange(100)):
        part = type(decoded)(z=decoded.z[rows], targets=decoded.targets[rows], labels=None)
        parts.add(part)
    assert np.allclose(whole.gram, parts.gram)
    assert np.allclose(whole.sums, parts.sums)
    assert whole.count == parts.count == 200


def test_no_records_and_records_of_length_zero_give_a_model() -> None:
    empty = RecordMoments(3, D).fit(EXACT)
    assert np.isfinite(empty.weights).all()
    made = randomiser("sign", 1, 2)
    nothing = summed(made, np.zeros((50, D), np.int64), np.zeros(50, np.int64)).fit(made.moments)
    assert np.isfinite(nothing.weights).all()


# -- the space of records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"origin": "centre"}, {"basis": "dct", "shape": (2, 3), "kept": (2, 2)}])
def test_integers_are_the_coordinates_row_by_row(options: dict[str, object]) -> None:
    space = RecordSpace.of(public(6, 2), GossipSettings(**options))  # type: ignore[arg-type]
    features = np.random.default_rng(1).uniform(-1, 1, (40, 6))
    whole = space.integers(features)
    assert np.array_equal(whole, np.vstack([space.integers(row[None, :]) for row in features]))
    order = np.random.default_rng(2).permutation(40)
    assert np.array_equal(whole[order], space.integers(features[order]))
    moved = features / 2 + 0.5 if space.shift.any() else features
    if options.get("basis"):
        moved = moved @ first_cosines((2, 3), (2, 2)).T
    assert np.allclose(whole[:, :-1] / 2**COLUMN_BITS, moved, atol=3 / 2**COLUMN_BITS)
    assert (whole[:, -1] == round(0.3 * 2**COLUMN_BITS)).all()
    weights = np.random.default_rng(3).normal(size=(1, space.dimension))
    intercept, columns = space.columns(weights)
    assert np.allclose(features @ columns.T + intercept, space.coordinates(features) @ weights.T, atol=0.02)


def test_categories_keep_their_origin() -> None:
    space = RecordSpace.of(public(3, 3, kinds=("number", "category", "category")), GossipSettings())
    assert space.integers(np.array([[-1.0, 0.0, 1.0]])).tolist() == [[0, 0, 4096]]


def test_cosines_are_orthonormal() -> None:
    rows = first_cosines((4, 5), (3, 2))
    assert rows.shape == (6, 20)
    assert np.allclose(rows @ rows.T, np.eye(6))


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keywords",
    [
        {"learner": "forest"},
        {"randomiser": "none"},
        {"lambda_": 0},
        {"lambda_": float("nan")},
        {"cycles": 0},
        {"kept": "all"},
        {"weak_epsilon": "yes"},
        {"intercept": -1},
        {"label": "plain"},
    ],
)
def test_wrong_keywords_are_refused(keywords: dict[str, object]) -> None:
    with pytest.raises(StudyError):
        gossip_settings(keywords)


@pytest.mark.parametrize("options", [{"shape": (2, 2)}, {"shape": (2, 3), "kept": (2, 4)}, {"kept": (7,)}])
def test_a_grid_that_does_not_fit_the_columns_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(StudyError):
        RecordSpace.of(public(6), GossipSettings(basis="dct", **options))  # type: ignore[arg-type]


def test_one_class_is_refused() -> None:
    with pytest.raises(StudyError, match="one class"):
        design_gossip(public(classes=1), None, GossipSettings())  # type: ignore[arg-type]
    with pytest.raises(StudyError, match="category"):
        design_gossip(public(classes=0), None, GossipSettings())  # type: ignore[arg-type]
