"""What an account has spent, as figures and in words."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.privacy.units import RECORD, Unit


@dataclass(frozen=True, kw_only=True)
class UnitSpent:
    """What an account has spent, for one unit."""

    unit: Unit
    neighbours: str
    rho: float
    epsilon: float | None
    """None if a study without noise is among them."""
    delta: float
    fits: int
    """Fits that this figure bounds."""
    left_out: int
    """Fits for other units that bound nothing for this one."""

    @property
    def whom(self) -> str:
        """For whom, in words."""
        change = "adding or removing" if self.neighbours == "add-remove" else "replacing"
        return f"{change} any one {self.unit.words}"

    @property
    def figure(self) -> str:
        """How much, in words."""
        return (
            f"epsilon = {self.epsilon:.6g}, delta = {self.delta:g}"
            if self.epsilon is not None
            else "NOT differentially private"
        )


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The composition of everything on a ledger.

    ``unit``, ``rho`` and ``epsilon`` are those of the largest figure that bounds every fit; ``units`` has one figure
    for each unit on the account.
    """

    rho: float
    epsilon: float | None
    delta: float
    fits: int
    differentially_private: bool
    statement: str
    unit: Unit = RECORD
    neighbours: str = "replace-one"
    units: tuple[UnitSpent, ...] = ()
