"""scikit-learn's own checks of further estimators; see test_scikit_learn_checks for what may fail and why."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import tallystick as ts

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

_NOISE = "two private fits differ by their noise; passes when both draw the same (test_two_fits_*)"
_BOTH = ("check_supervised_y_2d", "check_fit_idempotent")
_TRANSFORMS = ("check_transformer_general", "check_transformer_data_not_an_array", "check_fit_idempotent")
EXPECTED: dict[str, tuple[str, ...]] = {
    "LinearSVC": ("check_classifier_data_not_an_array", *_BOTH),
    "Ridge": ("check_regressor_data_not_an_array", "check_regressors_int", *_BOTH),
    "Summary": (),
    "ConsensusSVC": (),
    "GaussianNB": ("check_classifier_data_not_an_array", *_BOTH),
    "GaussianMixture": ("check_fit_idempotent",),
    "PCA": _TRANSFORMS,
    "TruncatedSVD": _TRANSFORMS,
    "Pipeline": ("check_classifier_data_not_an_array", *_BOTH),
}


def estimators() -> list[Any]:
    return [
        ts.LinearSVC(epsilon=1e4, bounds=(-100, 100), rounds=64),
        ts.ConsensusSVC(C=100.0, bounds=(-100, 100), reveal=True),
        ts.Ridge(epsilon=1e4, bounds=(-10, 10), target_bounds=(-10, 10)),
        ts.Summary(epsilon=1e4, bounds=(-100, 100)),
        ts.GaussianNB(epsilon=1e4, bounds=(-100, 100)),
        ts.GaussianMixture(2, epsilon=1e4, bounds=(-100, 100), rounds=3),
        ts.PCA(1, epsilon=1e4, bounds=(-100, 100)),
        ts.TruncatedSVD(1, epsilon=1e4, bounds=(-100, 100)),
        ts.Pipeline([ts.PCA(1), ts.LinearSVC(rounds=64)], epsilon=1e4, bounds=(-100, 100)),
    ]


def expected(estimator: Any) -> dict[str, str]:
    return dict.fromkeys(EXPECTED[type(estimator).__name__], _NOISE)


@pytest.mark.usefixtures("seeded_noise")
@parametrize_with_checks(estimators(), expected_failed_checks=expected)
def test_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.usefixtures("equal_noise")
@pytest.mark.parametrize(
    ("kind", "name"), [(k, n) for k, names in EXPECTED.items() for n in (*names, "check_pipeline_consistency") if names]
)
def test_two_fits_that_draw_the_same_noise_agree(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = next(e for e in estimators() if type(e).__name__ == kind)
    original = type(estimator).__sklearn_tags__

    def tags(self: Any) -> Any:
        found = original(self)
        found.non_deterministic = False
        return found

    monkeypatch.setattr(type(estimator), "__sklearn_tags__", tags)
    getattr(estimator_checks, name)(kind, estimator)


@pytest.mark.usefixtures("seeded_noise")
@pytest.mark.parametrize("name", ["check_methods_sample_order_invariance", "check_methods_subset_invariance"])
@pytest.mark.parametrize("kind", ["LinearSVC", "Ridge", "PCA", "TruncatedSVD", "GaussianNB", "Pipeline"])
def test_predictions_do_not_depend_on_the_other_rows(kind: str, name: str) -> None:
    """scikit-learn leaves these out for a random estimator, but predicting is not random."""
    getattr(estimator_checks, name)(kind, next(e for e in estimators() if type(e).__name__ == kind))
