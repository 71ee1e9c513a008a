"""Time is an argument: protocol machines are told ``now``, they never look."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock", "ManualClock"]


class Clock(Protocol):
    """Seconds on a monotonic clock; only differences mean anything."""

    def now(self) -> float: ...


class ManualClock:
    """A clock that moves when told to, for simulation and tests."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward; a monotonic clock never goes back."""
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back")
        self._now += seconds
