"""The mechanisms there are: a closed set, so that what is not in it is an error and never "no noise"."""

from __future__ import annotations

from enum import StrEnum

EXPONENTIAL = "exponential"
"""What a claim says whose steps are draws of the exponential mechanism, and Laplace noise where they count."""
SUBSET = "subset"
"""What a claim says whose records are published by subset selection, each by the peer that holds it."""
PURE = frozenset({"laplace", EXPONENTIAL, SUBSET})
"""The mechanisms of a claim that promise pure ε."""


class Mechanism(StrEnum):
    """How noise is drawn. ``NONE`` is exact sums: for simulation, or where every client allows it."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"
    NONE = "none"

    @property
    def splits(self) -> bool:
        """Whether several parties can each add a part of the noise."""
        return self is not Mechanism.LAPLACE
