"""The keywords of the component programs, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.algorithms.keywords import one_of, whole
from tallystick.core.errors import StudyError
from tallystick.privacy.ranges import MAX_COLUMNS

NOISES = ("gaussian", "equal")
"""Noise matrices, each with its proof in :func:`tallystick.privacy.round_plan.outer_noise`. No Wishart noise: its
published calibration does not hold under replace-one, and its mean shifts every eigenvalue."""


@dataclass(frozen=True, kw_only=True)
class ComponentSettings:
    """What a study may say under [program]."""

    n_components: int = 2
    basis: str | None = None
    shape: tuple[int, ...] | None = None
    columns: str = "auto"
    rows: str = "given"
    noise: str = "gaussian"
    top: int | None = None

    @property
    def kept(self) -> int:
        """How many components leave."""
        return self.n_components if self.top is None else self.top


def component_settings(keywords: Mapping[str, Any]) -> ComponentSettings:
    """Checked; refused with what to write."""
    count = whole("n_components", keywords.get("n_components", 2), 1, MAX_COLUMNS)
    top = keywords.get("top")
    if top is not None:
        top = whole("top", top, 1, count)
    basis = keywords.get("basis")
    return ComponentSettings(
        n_components=count,
        basis=None if basis in (None, "none") else one_of("basis", basis, ("dct",)),
        shape=_shape(keywords.get("shape")),
        columns=one_of("columns", keywords.get("columns", "auto"), ("auto", "dense", "uneven", "sparse")),
        rows=one_of("rows", keywords.get("rows", "given"), ("given", "unit")),
        noise=one_of("noise", keywords.get("noise", "gaussian"), NOISES),
        top=top,
    )


def _shape(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and 1 <= len(value) <= 4:
        return tuple(whole("shape", side, 1, MAX_COLUMNS) for side in value)
    raise StudyError(f"shape = {value!r} is not the sides of a grid", remedy="Write shape = [28, 28], rows first.")
