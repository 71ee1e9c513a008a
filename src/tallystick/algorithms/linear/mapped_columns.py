"""The descent on the features of a map: which facts of the columns are replaced, and how many features are worth it.

The features stand where the encoded columns stood, as one block of which a record has a length of at most 1 (a map's
rows are in units of its norm). Nothing is standardised: the length of a row is known, so clipping and steps need no
moments and no part of the budget. Measured on optdigits, centring the features by a noisy mean gains where γ is far
too small, and loses a little where it is right (docs/results/kernel.md).

*The intercept* is a feature too, and as long as all others together: it would take half of a row's square, and so √2
of the noise, where a kernel's features can make a constant nearly by themselves. Its column is ¼. *How far*: the
scores that are aimed at are half as wide as those of a linear model, since many more directions carry them. Both were
chosen on optdigits even/odd, seeds 0-5: ¼ against 1 gains half a point to a point; ½ against 1 half a point (hinge)
or nothing (logistic).

*How many.* The descent keeps directions whose curvature h is above ν/τ (:mod:`…descent`), which in the units there
means h·S > 1 for a descent time S. Curvatures sum to at most L, so there are at most S·L such directions: what lies
below them is noise, however well the features meet the kernel. Four times as many features as that are taken, since
random ones do not point exactly there; 256 at least, and 1,600 at most, where optdigits has little more to gain
without noise.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.feature_maps.settings import MapSettings, make_map
from tallystick.algorithms.linear.descent import Loss, noise_of_mean
from tallystick.algorithms.program import Public

_INTERCEPT, _SPREAD = 0.25, 0.5
_LEAST_FEATURES, _MOST_FEATURES = 256, 1_600


def mapped_intercept(intercept: float) -> float:
    """The constant column beside features, where there was one of 1 beside columns."""
    return _INTERCEPT * intercept


def mapped_loss(loss: Loss) -> Loss:
    """The loss with the scores that are aimed at on features."""
    return replace(loss, spread=_SPREAD * loss.spread)


def map_of(public: Public, budget: PublicBudget, loss: Loss, settings: MapSettings, intercept: float) -> FeatureMap:
    """The study's map, with as many features as its budget can tell apart unless it says how many."""
    return make_map(public, settings, n_features=_features(public, budget, loss, intercept))


def mapped_public(public: Public, feature_map: FeatureMap) -> Public:
    """The public facts of the features, in units of the map's norm."""
    size = feature_map.size
    return replace(
        public,
        features=feature_map.names,
        blocks=(("feature map", 0, size, "mapped", 1),),
        units=(("mapped", 0.0, 1.0, 0.0),) * size,
        integers=(),
        max_l2_squared=min(1.0, feature_map.typical_square / feature_map.norm**2),
        max_l1=math.sqrt(size),
    )


def _features(public: Public, budget: PublicBudget, loss: Loss, intercept: float) -> int:
    if public.records is None or budget.mechanism == "none":
        return _MOST_FEATURES
    low, _, curvature = loss.residual_bounds(len(public.classes), l1=budget.mechanism == "laplace")
    trace = intercept**2 + 1.0
    noise = noise_of_mean(budget, 1.0, low * math.sqrt(trace), public.records)
    directions = loss.spread / (noise * math.sqrt(trace)) * curvature * trace
    return 2 * math.ceil(min(max(4 * directions, _LEAST_FEATURES), _MOST_FEATURES) / 2)
