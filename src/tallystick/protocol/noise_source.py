"""Where a noise maker's noise comes from, whichever protocol it takes part in."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class NoiseSource(Protocol):
    """One noise maker's noise of a round; asked once per round, the draw is persisted."""

    def admit(self, round: int, model: bytes) -> bytes | None:
        """Raise ``PrivacyRefused`` if noise for this round, opened with this model, would exceed what was reserved.

        The record of what was admitted, to be kept before anything is drawn; None where a plan leaves nothing open.
        """
        return None

    def ends_in_a_draw(self, round: int) -> bool:
        """Whether this round's total is drawn from by all who hold shares of it, instead of released with noise."""
        return False

    def answer_digits(self, round: int) -> int:
        """In how many entries each of them says what was drawn."""
        return 1

    @abstractmethod
    def draw(self, round: int) -> NDArray[np.int64]:
        """The noise of a round that was admitted."""
