"""The keywords of ``VerticalSVC``, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.consensus_svm.settings import ConsensusSettings, consensus_settings
from tallystick.algorithms.feature_maps.settings import MapSettings
from tallystick.core.errors import StudyError


@dataclass(frozen=True, kw_only=True)
class VerticalSvmSettings:
    """What a study says under [program]; its field names are the keywords."""

    C: float = 1.0
    kernel: str = "linear"
    gamma: float | str = "auto"
    degree: int = 3
    coef0: float | str = "auto"
    landmarks: int | None = None
    n_features: int | str = "auto"
    feature_seed: int = 0
    rho: float | str = "auto"
    relaxation: float = 1.6
    max_iter: int | str = "auto"
    tolerance: float | str = "auto"

    @property
    def map(self) -> MapSettings | None:
        """The feature map of each institution's kernel, if it has one."""
        own = {k: getattr(self, k) for k in ("kernel", "gamma", "degree", "coef0", "landmarks", "n_features")}
        return ConsensusSettings(**own, feature_seed=self.feature_seed).map


def vertical_svm_settings(keywords: Mapping[str, Any]) -> VerticalSvmSettings:
    """What the keywords mean; they are those of a consensus, and mean the same."""
    landmarks = keywords.get("landmarks")
    if landmarks is not None and not isinstance(landmarks, int):
        raise StudyError(
            "landmarks are points of all columns, and no institution has all of them",
            rule="map-landmarks",
            remedy="Say how many, to be made up within each institution's bounds.",
        )
    checked = consensus_settings({"solver": "admm", **keywords})
    return VerticalSvmSettings(**{name: getattr(checked, name) for name in VerticalSvmSettings.__dataclass_fields__})
