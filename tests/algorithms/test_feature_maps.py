"""Feature maps: they meet their kernels, keep their length, look at one record at a time, refuse nonsense."""

from __future__ import annotations

import hashlib
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.landmarks import synthetic_landmarks
from tallystick.algorithms.feature_maps.public_draws import PublicDraws
from tallystick.algorithms.feature_maps.rbf import RbfFeatures, orthogonal_frequencies
from tallystick.algorithms.feature_maps.settings import default_gamma, make_map, map_from_facts, map_settings
from tallystick.algorithms.feature_maps.waves import sine_cosine
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

COLUMNS = 12
PUBLIC = Public(features=tuple(f"x{i}" for i in range(COLUMNS)))
MIXED = Public(
    features=("age", "sex=f", "sex=m", "ills=a", "ills=b", "ills=c", "bmi", "bmi?"),
    blocks=(
        ("age", 0, 1, "number", 1),
        ("sex", 1, 3, "onehot", 1),
        ("ills", 3, 6, "items", 2),
        ("bmi", 6, 8, "number", 1),
    ),
)
KEYWORDS: dict[str, dict[str, Any]] = {
    "rbf": {"feature_map": "rbf", "gamma": 0.25},
    "poly": {"feature_map": "poly", "gamma": 0.25, "degree": 2},
    "rbf landmarks": {"feature_map": "rbf", "gamma": 0.25, "landmarks": 60},
    "poly landmarks": {"feature_map": "poly", "degree": 2, "landmarks": 60},
    "sigmoid": {"feature_map": "sigmoid", "gamma": 0.1, "coef0": -0.5},
}


def records(n: int = 120, seed: int = 0) -> NDArray[np.float64]:
    out = np.random.default_rng(seed).uniform(-1, 1, (n, COLUMNS))
    out[:3] = [np.zeros(COLUMNS), np.ones(COLUMNS), -np.ones(COLUMNS)]
    return out


def made(keywords: dict[str, Any], *, n_features: int = 200, public: Public = PUBLIC) -> FeatureMap:
    settings = map_settings(keywords)
    assert settings is not None
    return make_map(public, settings, n_features=n_features)


def rows_depend(rows: Any, features: NDArray[np.float64]) -> bool:
    """Whether some block or order of the records gives other bits than all of them at once."""
    whole = rows(features)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(features))
    parts = [np.arange(i, i + 1) for i in range(len(features))] + np.split(order, [5, 6, 40])
    return any(rows(features[part]).tobytes() != whole[part].tobytes() for part in [*parts, order])


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_row_depends_on_its_record_alone_to_the_bit(name: str) -> None:
    assert not rows_depend(made(KEYWORDS[name]).rows, records())


def test_planted_a_matrix_product_and_a_block_mean_are_caught() -> None:
    class ByMatrixProduct(RbfFeatures):
        def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
            angles = features @ self.frequencies
            return np.hstack([np.cos(angles), np.sin(angles)])

    class Centred(RbfFeatures):
        def _rows(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
            rows = super()._rows(features)
            return rows - rows.mean(axis=0)

    for planted in (ByMatrixProduct, Centred):
        bad = planted(columns=COLUMNS, longest=4.0, gamma=0.25, n_features=200, seed=0)
        assert rows_depend(bad.rows, records())


@pytest.mark.parametrize("name", KEYWORDS)
def test_no_row_is_longer_than_the_map_says(name: str) -> None:
    for few in (2, 60):
        kind = KEYWORDS[name] if "landmarks" not in KEYWORDS[name] else {**KEYWORDS[name], "landmarks": few}
        mapped = made(kind, n_features=few)
        corners = np.sign(np.random.default_rng(2).normal(size=(400, COLUMNS)))
        for features in (records(), corners, 0.99 * corners):
            squares = [sum(mpmath.mpf(x) ** 2 for x in row) for row in mapped.rows(features).tolist()[:200]]
            assert max(squares) <= mpmath.mpf(mapped.norm) ** 2


def exact(mapped: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
    dots = x @ x.T
    if mapped.kernel == "rbf":
        squares = np.diag(dots)
        return np.asarray(np.exp(-mapped.gamma * (squares[:, None] + squares[None, :] - 2 * dots)))
    inner = mapped.gamma * dots + mapped.coef0
    return np.asarray(inner**mapped.degree if mapped.kernel == "poly" else np.tanh(inner))


@pytest.mark.parametrize(("name", "error"), [("rbf", 0.006), ("poly", 0.06)])
def test_random_features_meet_their_kernel_without_bias(name: str, error: float) -> None:
    """The mean over 40 seeds: its error is that of 40 times as many features; a wrong scale would stay."""
    x = records(30)[3:]
    found = [np.zeros((len(x), len(x)))] * 2
    for seed in range(40):
        mapped = made({**KEYWORDS[name], "feature_seed": seed}, n_features=400)
        product = mapped.rows(x) @ mapped.rows(x).T
        found = [found[0] + product / 40, found[1] + product**2 / 40]
    deviation = np.sqrt(np.maximum(found[1] - found[0] ** 2, 1e-12) / 40)
    wrong = np.abs(found[0] - exact(mapped, x))
    off = ~np.eye(len(x), dtype=bool)
    assert np.median(wrong[off]) < error
    assert np.mean((wrong / deviation)[off]) < 1.0  # 0.8 if there is no bias at all


def test_orthogonal_frequencies_are_orthogonal_and_normal_and_better() -> None:
    w = orthogonal_frequencies(COLUMNS, 3 * COLUMNS + 5, 7)
    first = w[:, :COLUMNS]
    cosines = (first.T @ first) / np.outer(np.linalg.norm(first, axis=0), np.linalg.norm(first, axis=0))
    assert np.allclose(cosines, np.eye(COLUMNS), atol=1e-13)
    many = np.hstack([orthogonal_frequencies(COLUMNS, COLUMNS, seed) for seed in range(300)])
    assert abs(many.var() - 1) < 0.02
    assert abs((many**4).mean() - 3) < 0.15
    assert abs((np.linalg.norm(many, axis=0) ** 2).var() - 2 * COLUMNS) < 4  # lengths of their own: chi squared
    x = records(20)
    errors = []
    for seed in range(10):
        mapped = made({**KEYWORDS["rbf"], "feature_seed": seed})
        errors.append(np.mean((mapped.rows(x) @ mapped.rows(x).T - exact(mapped, x)) ** 2))
        plain = np.sqrt(0.5) * np.random.default_rng(seed).normal(size=(COLUMNS, 100))
        both = np.hstack([np.cos(x @ plain), np.sin(x @ plain)]) / 10
        errors.append(np.mean((both @ both.T - exact(mapped, x)) ** 2))
    assert sum(errors[0::2]) < 0.9 * sum(errors[1::2])


def test_landmarks_meet_the_kernel_at_the_landmarks() -> None:
    points = records(40)
    for kernel, most in (("rbf", 1e-5), ("poly", 1e-5), ("sigmoid", 0.2)):
        mapped = made({"feature_map": kernel, "gamma": 0.1, "landmarks": points.tolist()})
        assert mapped.size == 40
        product = mapped.rows(points) @ mapped.rows(points).T
        assert np.max(np.abs(product - exact(mapped, points))) < most * mapped.norm**2


def test_made_up_landmarks_are_points_of_the_public_box() -> None:
    points = synthetic_landmarks(MIXED, 500, 3)
    assert np.all(np.abs(points) <= 1)
    assert np.all(points[:, 1:3].sum(axis=1) == 1)
    assert np.all((points[:, 3:6].sum(axis=1) >= 1) & (points[:, 3:6].sum(axis=1) <= 2))
    assert np.all(points[:, 7] == 0)
    assert abs(points[:, 0].mean()) < 0.1
    assert abs(points[:, 1].mean() - 0.5) < 0.1


def test_the_map_is_the_seeds_and_the_same_for_ever() -> None:
    """Released models are read with the map made again: these bits may never change."""
    mapped = made(KEYWORDS["rbf"]).rows(records(5))
    assert made(KEYWORDS["rbf"]).rows(records(5)).tobytes() == mapped.tobytes()
    assert not np.array_equal(made({**KEYWORDS["rbf"], "feature_seed": 1}).rows(records(5)), mapped)
    bits = hashlib.sha256()
    for keywords in KEYWORDS.values():
        bits.update(made(keywords).rows(np.linspace(-1, 1, 5 * COLUMNS).reshape(5, COLUMNS)).tobytes())
    assert bits.hexdigest() == "c7b2929456ac127f76ef063501d9affe56f9c064cb38e4967071dacc60187752"


def test_sines_and_normal_deviates_are_right() -> None:
    with mpmath.workdps(40):
        for x in [0.0, 1e-300, 0.785398, 0.7853982, 1.5707963267948966, 3.1415, 1e3, -1e3, 524287.9, 1e6, -7.5]:
            sine, cosine = sine_cosine(x)
            assert abs(sine - mpmath.sin(x)) < 2e-16
            assert abs(cosine - mpmath.cos(x)) < 2e-16
    normal = PublicDraws(5, "test").normal(200_001)
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    assert abs((normal**4).mean() - 3) < 0.1
    assert abs((np.abs(normal) > 3).mean() - 0.0027) < 0.0005
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.01


def test_gamma_follows_from_the_schema() -> None:
    assert default_gamma(PUBLIC) == pytest.approx(3 / COLUMNS)
    assert default_gamma(MIXED) == pytest.approx(1 / (1 / 3 + 1 / 2 + 2 / 3 + 1 / 3))
    assert made({"feature_map": "rbf"}).facts()["gamma"] == pytest.approx(3 / COLUMNS)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"gamma": 0}, "gamma"),
    ({"gamma": -1.0}, "gamma"),
    ({"gamma": float("nan")}, "gamma"),
    ({"gamma": "wide"}, "gamma"),
    ({"gamma": True}, "gamma"),
    ({"gamma": 1e7}, "gamma"),
    ({"n_features": 0}, "n_features"),
    ({"n_features": 201}, "n_features"),
    ({"n_features": 10**6}, "n_features"),
    ({"degree": 0}, "degree"),
    ({"degree": 2.5}, "degree"),
    ({"feature_seed": -1}, "feature_seed"),
    ({"feature_map": "linear"}, "feature_map"),
    ({"feature_map": "poly", "coef0": -1}, "coef0"),
    ({"landmarks": 0}, "landmarks"),
    ({"landmarks": [[0.0, 2.0]]}, "landmarks"),
    ({"landmarks": [[0.0], [0.0, 0.5]]}, "landmarks"),
    ({"landmarks": [[0.0] * 3]}, "landmarks"),
    ({"landmarks": [[float("nan")] * COLUMNS]}, "landmarks"),
    ({"landmarks": [["a"] * COLUMNS]}, "landmarks"),
    ({"landmarks": np.zeros((3000, COLUMNS)).tolist()}, "landmarks"),
    ({"landmarks": 20, "n_features": 30}, "n_features"),
    ({"feature_map": "poly", "coef0": 0, "landmarks": [[0.0] * COLUMNS]}, "landmarks"),
]


@pytest.mark.parametrize(("keywords", "named"), REFUSED, ids=lambda v: str(v)[:40])
def test_what_is_not_meant_is_refused_by_name(keywords: dict[str, Any], named: str) -> None:
    with pytest.raises(StudyError, match=named):
        made({"feature_map": "rbf", **keywords})


def test_keywords_of_a_map_without_one_are_refused() -> None:
    assert map_settings({"feature_map": None, "gamma": "auto", "degree": 3}) is None
    with pytest.raises(StudyError, match="gamma is for a feature map"):
        map_settings({"gamma": 0.5})


def test_waves_too_fast_for_their_arithmetic_are_refused() -> None:
    with pytest.raises(StudyError, match="gamma"):
        RbfFeatures(columns=COLUMNS, longest=1e4, gamma=1e6, n_features=20, seed=0)


def test_records_of_other_columns_are_refused() -> None:
    with pytest.raises(StudyError, match="reads 12 encoded columns"):
        made(KEYWORDS["rbf"]).rows(np.zeros((2, 5)))


@pytest.mark.parametrize(
    "keywords",
    [
        {"feature_map": "rbf", "n_features": 16_384},
        {"feature_map": "poly", "degree": 8, "n_features": 1_600},
        {"feature_map": "rbf", "landmarks": 2_000},
    ],
    ids=lambda k: str(k)[:40],
)
def test_a_map_that_would_fill_every_partys_memory_is_refused_before_it_is_made(keywords: dict[str, Any]) -> None:
    """Every party makes the map when a study is proposed: a line of a study must not cost it gigabytes or minutes."""
    wide = Public(features=tuple(f"x{i}" for i in range(50_000)))
    with pytest.raises(StudyError, match=r"feature map .* would have .* numbers"):
        make_map(wide, map_settings(keywords), n_features=1_600)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
@pytest.mark.parametrize("size", [{"n_features": "auto"}, {"n_features": None}, {"landmarks": None}], ids=str)
def test_a_models_map_says_how_many_features_it_had(kernel: str, size: dict[str, Any]) -> None:
    """A study's table of a released model comes from whoever proposes it; roles refuse it, and do not fail on it."""
    with pytest.raises(StudyError, match="does not say which map it was"):
        map_from_facts(Public(features=("a", "b")), {"kernel": kernel, "gamma": 0.5, "seed": 0, **size})
