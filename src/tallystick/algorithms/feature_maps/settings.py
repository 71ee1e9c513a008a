"""From a study's keywords to its feature map: checked one by one, and what is left out follows from public facts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.landmarks import LandmarkFeatures, synthetic_landmarks
from tallystick.algorithms.feature_maps.poly import PolyFeatures
from tallystick.algorithms.feature_maps.public_draws import MOST_SEED
from tallystick.algorithms.feature_maps.rbf import RbfFeatures
from tallystick.algorithms.keywords import one_of, whole
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

KERNELS = ("rbf", "poly", "sigmoid")
MAP_KEYS = ("gamma", "degree", "coef0", "n_features", "landmarks", "feature_seed")
"""Keywords that mean something beside a feature map only."""
MOST_FEATURES = 16_384
MOST_LANDMARKS = 2_000
_MOST_LANDMARK_NUMBERS = 25_000
"""Of landmarks that stand in a study, as of a classifier that does."""
_MOST_NUMBERS = 2**23
"""Of a map's own tables: every party makes them as soon as a study is proposed (64 MB, and seconds)."""
_DEFAULT_LANDMARKS = 200
_LEAST_GAMMA, _MOST_GAMMA = 2.0**-40, 2.0**20


@dataclass(frozen=True, kw_only=True)
class MapSettings:
    """A kernel, its constants, and how it is met; None stands for ``"auto"``."""

    kernel: str
    gamma: float | None = None
    degree: int = 3
    coef0: float | None = None
    n_features: int | None = None
    landmarks: int | tuple[tuple[float, ...], ...] | None = None
    seed: int = 0


def map_settings(keywords: Mapping[str, Any], *, name: str = "feature_map") -> MapSettings | None:
    """What the keywords mean, None where ``name`` names no kernel; refused with what to write."""
    kernel = keywords.get(name)
    if kernel is None or kernel == "none":
        for key in MAP_KEYS:
            if key in keywords and keywords[key] not in (None, "auto", _DEFAULTS.get(key)):
                raise StudyError(
                    f"{key} is for a feature map, and there is none",
                    rule="map-keywords",
                    remedy=f'Add {name} = "rbf", or leave {key} out.',
                )
        return None
    kernel = one_of(name, kernel, KERNELS)
    landmarks = _landmarks(keywords.get("landmarks"))
    size = keywords.get("n_features", "auto")
    size = None if _is_auto(size) else whole("n_features", size, 1, MOST_FEATURES)
    if kernel == "sigmoid" and landmarks is None:
        landmarks = size or _DEFAULT_LANDMARKS
    if landmarks is not None and size is not None:
        count = landmarks if isinstance(landmarks, int) else len(landmarks)
        if count != size:
            raise StudyError(
                f"n_features = {size} with {count} landmarks: each landmark gives one feature",
                rule="map-features",
                remedy="Leave n_features out.",
            )
    return MapSettings(
        kernel=kernel,
        gamma=_gamma(keywords.get("gamma", "auto")),
        degree=whole("degree", keywords.get("degree", _DEFAULTS["degree"]), 1, 8),
        coef0=_coef0(keywords.get("coef0", "auto"), kernel),
        n_features=size,
        landmarks=landmarks,
        seed=whole("feature_seed", keywords.get("feature_seed", _DEFAULTS["feature_seed"]), 0, MOST_SEED - 1),
    )


_DEFAULTS: dict[str, Any] = {"degree": 3, "feature_seed": 0}


def make_map(public: Public, settings: MapSettings, *, n_features: int) -> FeatureMap:
    """The map of these settings on these columns; ``n_features`` where the settings leave it open. Reads no record."""
    columns = len(public.features)
    longest, typical = _lengths(public)
    gamma = default_gamma(public) if settings.gamma is None else settings.gamma
    coef0 = (1.0 if settings.kernel == "poly" else 0.0) if settings.coef0 is None else settings.coef0
    common: dict[str, Any] = {"longest": longest, "gamma": gamma, "seed": settings.seed}
    _check_size(columns, settings, n_features)
    if settings.landmarks is not None:
        made = isinstance(settings.landmarks, int)
        return LandmarkFeatures(
            kernel=settings.kernel,
            landmarks=_points(public, settings.landmarks, settings.seed),
            synthetic=settings.landmarks if made else None,  # type: ignore[arg-type]
            typical_square=typical,
            degree=settings.degree,
            coef0=coef0,
            **common,
        )
    size = settings.n_features or n_features
    if settings.kernel == "poly":
        made_of: dict[str, Any] = {"typical_square": typical, "degree": settings.degree, "coef0": coef0}
        return PolyFeatures(columns=columns, n_features=size, **made_of, **common)
    return RbfFeatures(columns=columns, n_features=size, **common)


def _check_size(columns: int, settings: MapSettings, n_features: int) -> None:
    if settings.landmarks is not None:
        count = settings.landmarks if isinstance(settings.landmarks, int) else len(settings.landmarks)
        needed = count * (columns + count)
    else:
        size = settings.n_features or n_features
        needed = size * (columns + 1) * settings.degree if settings.kernel == "poly" else size // 2 * columns
    if needed > _MOST_NUMBERS:
        raise StudyError(
            f"the feature map of {columns:,} encoded columns would have {needed:,} numbers, and at most "
            f"{_MOST_NUMBERS:,} are made",
            rule="map-features",
            remedy="Use fewer n_features (or landmarks), a lower degree, or fewer columns.",
        )


def map_from_facts(public: Public, facts: Any) -> FeatureMap:
    """The map that a released model's ``feature_map`` describes (:meth:`FeatureMap.facts`), on these columns."""
    known = ("kernel", "seed", *MAP_KEYS[:-1])
    complete = isinstance(facts, Mapping) and {"kernel", "gamma", "seed"} <= set(facts) <= set(known)
    sizes = [facts[key] for key in ("n_features", "landmarks") if key in facts] if complete else []
    if len(sizes) != 1 or _is_auto(sizes[0]):
        raise StudyError(
            "a model's feature_map does not say which map it was",
            rule="map-facts",
            remedy='Write feature_map = { kernel = "rbf", gamma = 0.1, n_features = 400, seed = 0 }, as fitted.',
        )
    renamed = {"feature_map": facts["kernel"], "feature_seed": facts["seed"]}
    settings = map_settings({**{k: v for k, v in facts.items() if k not in ("kernel", "seed")}, **renamed})
    if settings is None:
        raise StudyError("a model's feature_map names no kernel", rule="map-facts", remedy="Name one.")
    return make_map(public, settings, n_features=0)


def default_gamma(public: Public) -> float:
    """1/E‖x − x̄‖² of records spread evenly over what the schema allows: scikit-learn's ``"scale"`` without its data."""
    return 1 / max(_spread(public), 2.0**-10)


def _spread(public: Public) -> float:
    """Σ variances: ⅓ of a number within [−1, 1], 1 − 1/k of a block of k values, r(1 − r/k) of r of k items."""
    total = 0.0
    for _, start, stop, kind, ones in public.columns:
        if kind == "number":
            total += 1 / 3
        else:
            k, ticked = stop - start, max(1, min(ones, stop - start) // 2)
            total += ticked * (1 - ticked / k) if k > 1 else 0.25
    return total


def _lengths(public: Public) -> tuple[float, float]:
    """(the largest ‖x‖ of an encoded record, E‖x‖² of evenly spread ones)."""
    most = typical = 0.0
    for _, start, stop, kind, ones in public.columns:
        if kind == "number":
            most += 1.0 + (stop - start > 1)  # with a missing mark, at most one of the two is not 0; no harm in both
            typical += 1 / 3
        else:
            most += min(ones, stop - start)
            typical += max(1, min(ones, stop - start) // 2)
    return math.sqrt(most), typical


def _points(public: Public, landmarks: int | tuple[tuple[float, ...], ...], seed: int) -> NDArray[np.float64]:
    if isinstance(landmarks, int):
        return synthetic_landmarks(public, landmarks, seed)
    columns = len(public.features)
    if any(len(point) != columns for point in landmarks):
        raise StudyError(
            f"the landmarks have {len(landmarks[0])} numbers each, the study has {columns} encoded columns",
            rule="map-landmarks",
            remedy="Give landmarks in the encoded columns (numbers scaled to [-1, 1] by their bounds), or a number of "
            "them to be made up.",
        )
    return np.array(landmarks, dtype=np.float64)


def _landmarks(value: Any) -> int | tuple[tuple[float, ...], ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) and np.ndim(value) == 0:
        return whole("landmarks", value, 1, MOST_LANDMARKS)
    try:
        points = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.zeros(0)
    if points.ndim != 2 or points.size == 0 or not np.all(np.abs(points) <= 1):
        raise StudyError(
            "landmarks are not rows of numbers within [-1, 1]",
            rule="map-landmarks",
            remedy="Give public points in the encoded columns, one row each, or how many are to be made up within the "
            "declared bounds. Never records: landmarks stand in the study, which everybody reads.",
        )
    if points.size > _MOST_LANDMARK_NUMBERS:
        raise StudyError(
            f"the landmarks have {points.size} numbers; a study carries at most {_MOST_LANDMARK_NUMBERS}",
            rule="map-landmarks",
            remedy="Use fewer, or give a number of landmarks to be made up.",
        )
    return tuple(tuple(point) for point in points.tolist())


def _is_auto(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value == "auto")


def _gamma(value: Any) -> float | None:
    if _is_auto(value):
        return None
    if not _is_number(value) or not _LEAST_GAMMA <= value <= _MOST_GAMMA:
        raise StudyError(
            f"gamma = {value!r} is not a positive number",
            rule="map-gamma",
            remedy='Use gamma = "auto" (one over the spread of the declared columns), or a positive number near it.',
        )
    return float(value)


def _coef0(value: Any, kernel: str) -> float | None:
    if _is_auto(value):
        return None
    if not _is_number(value) or not abs(value) <= _MOST_GAMMA or (kernel == "poly" and value < 0):
        raise StudyError(
            f"coef0 = {value!r} is not a {'number from 0 on' if kernel == 'poly' else 'number'}",
            rule="map-constant",
            remedy="A polynomial kernel with a negative constant is not positive. Use 1, or leave it out."
            if kernel == "poly"
            else "Use 0, or leave it out.",
        )
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))  # NaN is in no range
