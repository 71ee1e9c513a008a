"""Time is an argument: protocol machines are told ``now``, they never look."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic clock; only differences mean anything."""

    def now(self) -> float: ...
