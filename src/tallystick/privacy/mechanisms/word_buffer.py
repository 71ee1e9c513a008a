"""Words of a source, read one by one by the reference and in blocks by the kernels, always in the source's order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource


class WordBuffer:
    """A read position on a stream: blocks for the kernels, single words for the reference, no word twice or lost."""

    def __init__(self, source: WordSource, *, block: int = 64) -> None:
        self._source = source
        self._block = block
        self._words = np.empty(0, np.uint64)
        self._position = 0

    def unread(self) -> NDArray[np.uint64]:
        """The words fetched and not yet read, without reading them."""
        return self._words[self._position :]

    def fetch(self, count: int) -> None:
        """Append the next ``count`` words of the source to the unread ones."""
        self._words = np.concatenate((self.unread(), self._source.words(count)))
        self._position = 0

    def advance(self, count: int) -> None:
        """Count the next ``count`` unread words as read."""
        self._position += count

    def next(self) -> int:
        """Read one word."""
        if self._position == len(self._words):
            self.fetch(self._block)
        word = int(self._words[self._position])
        self._position += 1
        return word
