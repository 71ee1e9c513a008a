"""What a fit on a connected federation says while it waits: who has decided, how many rounds are done."""

from __future__ import annotations

from typing import TextIO

from tallystick.protocol.governance.standing import Standing

_LINES = 10
"""Lines for all rounds of a study where one line cannot be written over."""


class ToldProgress:
    """Lines on a stream; None says nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._last: object = None

    def say(self, words: str) -> None:
        """A line."""
        if self._stream is not None:
            print(f"tallystick: {words}", file=self._stream, flush=True)

    def standing(self, standing: Standing) -> None:
        """How a proposal stands, whenever that has changed."""
        found = (standing.state, tuple(standing.approvals), tuple(standing.rejections), tuple(standing.waiting))
        if found != self._last:
            self._last = found
            waiting = f"; waiting for {', '.join(standing.waiting)}" if standing.waiting else ""
            self.say(f"{standing.state}, {len(standing.approvals)} approved{waiting}")

    def step(self, done: int, rounds: int) -> None:
        """So many rounds are done: one line on a terminal, a few elsewhere."""
        if self._stream is None or not rounds:
            return
        if self._stream.isatty():
            end = "\n" if done >= rounds else ""
            print(f"\rtallystick: round {done} of {rounds}", end=end, file=self._stream, flush=True)
        elif done * _LINES // rounds != (done - 1) * _LINES // rounds or done == 1:
            self.say(f"round {done} of {rounds}")
