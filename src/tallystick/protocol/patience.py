"""When a machine that waits for something asks for it again."""

from __future__ import annotations

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0


class Patience:
    """Soon at first, later each time that nothing has come: what is asked for may be long, and the line slow."""

    def __init__(self) -> None:
        self.until = 0.0
        self._seconds = FIRST_SECONDS

    def over(self, now: float) -> bool:
        """Whether it is time to ask; the next time is then :attr:`until`."""
        if now < self.until:
            return False
        self.until = now + self._seconds
        self._seconds = min(2 * self._seconds, LONGEST_SECONDS)
        return True

    def heard(self) -> None:
        """Something has come."""
        self._seconds = FIRST_SECONDS
