"""How much each member may ask of us in a while: a bucket per name, filled at a steady rate.

Pure: the time is an argument. What a member takes is taken from its own bucket, so that no member can use up what is
meant for another. A bucket may go into debt by one request: a large one is let through when something is left, and
then has to be waited for; no request is too large to be ever allowed.
"""

from __future__ import annotations

from collections.abc import Hashable

_TIDY_ABOVE = 4096


class Allowances:
    """``burst`` at once, ``rate`` a second after that, for each name by itself."""

    def __init__(self, *, rate: float, burst: float) -> None:
        self.rate, self.burst, self._least = rate, burst, min(1.0, burst)
        self._left: dict[Hashable, tuple[float, float]] = {}  # name -> what was left, and when

    def left(self, name: Hashable, now: float) -> float:
        """What this name could take now; below zero while it pays off a debt."""
        known = self._left.get(name)
        if known is None:
            return self.burst
        return min(self.burst, known[0] + max(0.0, now - known[1]) * self.rate)

    def take(self, name: Hashable, now: float, cost: float = 1.0) -> bool:
        """Take ``cost`` if one whole unit is left, or all of it; whether it was."""
        left = self.left(name, now)
        if left < min(cost, self._least):
            return False
        if len(self._left) >= _TIDY_ABOVE:
            self._tidy(now)
        self._left[name] = left - cost, now
        return True

    def wait(self, name: Hashable, now: float) -> float:
        """Seconds until this name may take something again; 0 if it may now."""
        return max(0.0, self._least - self.left(name, now)) / self.rate

    def _tidy(self, now: float) -> None:
        """A full bucket is as good as none: names that nobody uses any more are forgotten."""
        self._left = {name: kept for name, kept in self._left.items() if self.left(name, now) < self.burst}
