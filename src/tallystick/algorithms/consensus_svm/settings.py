"""The keywords of ``ConsensusSVC``, checked one by one, and what is left open for the design to choose."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.algorithms.feature_maps.settings import KERNELS, MapSettings, map_settings
from tallystick.algorithms.keywords import flag, one_of, whole_or_auto
from tallystick.core.errors import StudyError

SOLVERS = ("interior-point", "admm")
MOST_ROUNDS = 20_000


@dataclass(frozen=True, kw_only=True)
class ConsensusSettings:
    """What a study says under [program]; its field names are the keywords."""

    C: float = 1.0
    solver: str = "interior-point"
    kernel: str = "linear"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float | str = "auto"
    feature_map: str = "auto"
    """How a kernel is met: "features" (random features, or Nyström's of landmarks), or "landmarks": the paper's way."""
    landmarks: Any = None
    n_features: int | str = "auto"
    feature_seed: int = 0
    rho: float | str = "auto"
    relaxation: float = 1.6
    max_iter: int | str = "auto"
    """Rounds of ADMM, or iterations of the interior point, at most."""
    tolerance: float | str = "auto"
    """The relative duality gap at which it ends."""
    reveal: bool = False
    """Whether the interior point may release more than a tenth as many numbers as the institutions hold."""
    privacy: str | None = None

    @property
    def map(self) -> MapSettings | None:
        """The kernel's feature map, if it has one."""
        keywords = {
            "kernel": None if self.kernel == "linear" else self.kernel,
            **{k: getattr(self, k) for k in ("gamma", "degree", "coef0", "n_features", "landmarks", "feature_seed")},
        }
        return map_settings(keywords, name="kernel")


def consensus_settings(keywords: Mapping[str, Any]) -> ConsensusSettings:
    """What the keywords mean; refused with what to write."""
    given = {"feature_map": "auto", **keywords}
    made = ConsensusSettings(
        C=_positive("C", given.get("C", 1.0), 2.0**-20, 2.0**20),
        solver=one_of("solver", given.get("solver", "interior-point"), SOLVERS),
        kernel=one_of("kernel", given.get("kernel", "linear"), ("linear", *KERNELS)),
        gamma=given.get("gamma", "auto"),
        degree=given.get("degree", 3),
        coef0=given.get("coef0", "auto"),
        feature_map=one_of("feature_map", given["feature_map"] or "auto", ("auto", "features", "landmarks")),
        landmarks=given.get("landmarks"),
        n_features=given.get("n_features", "auto"),
        feature_seed=given.get("feature_seed", 0),
        rho=_auto_or_positive("rho", given.get("rho", "auto"), 2.0**-20, 2.0**30),
        relaxation=_positive("relaxation", given.get("relaxation", 1.6), 0.1, 1.95),
        max_iter=whole_or_auto("max_iter", given.get("max_iter", "auto"), MOST_ROUNDS) or "auto",
        tolerance=_auto_or_positive("tolerance", given.get("tolerance", "auto"), 1e-9, 1.0),
        reveal=flag("reveal", given.get("reveal", False)),
        privacy=_privacy(given.get("privacy")),
    )
    _ = made.map  # checks the kernel's own
    if made.feature_map == "landmarks" and made.kernel == "linear":
        raise StudyError(
            'feature_map = "landmarks" is consensus on the values at public landmarks, by ADMM, of a kernel',
            rule="map-landmarks",
            remedy='Add kernel = "rbf" (or poly, sigmoid), or leave feature_map out.',
        )
    return made


PRIVATE_WAYS = ("consensus", "output")
"""What ``privacy`` may be, beside None: ways with a theorem of their own."""


def _privacy(value: Any) -> str | None:
    if value is None or value == "none":
        return None
    if not isinstance(value, str) or value not in PRIVATE_WAYS:
        known = " or ".join(f'"{way}"' for way in PRIVATE_WAYS)
        raise StudyError(
            f"privacy = {value!r} is not known",
            rule="wrong-value",
            remedy=f"Use {known}, or leave it out." if known else "Leave it out: consensus is exact, and not private.",
        )
    return value


def _positive(name: str, value: Any, least: float, most: float) -> float:
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not real or not least <= value <= most:  # nor NaN, nor a whole number that no float holds
        raise StudyError(
            f"{name} = {value!r} is not a positive number from {least:g} to {most:g}",
            rule="wrong-value",
            remedy=f"Use for instance {name} = {min(max(1.0, least), most):g}.",
        )
    return float(value)


def _auto_or_positive(name: str, value: Any, least: float, most: float) -> float | str:
    return (
        "auto" if value is None or (isinstance(value, str) and value == "auto") else _positive(name, value, least, most)
    )
