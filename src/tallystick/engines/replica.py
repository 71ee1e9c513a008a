"""A party's own run of a study's program, on totals that it has itself seen come out.

Programs are deterministic: whoever has the totals comes to the same states, and knows which model the next round must
be opened with, and what the study's result must be, without believing anybody who says so.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.algorithms.program import Program, Public, State
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.engines.engine import Computed
from tallystick.engines.rounds import SPENT, answer_of, program_steps
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.instructions import NoisySum


class Replica:
    """Where the program stands: which round it asks for (0 if it asks no more), and at which model."""

    def __init__(self, program: Program, public: Public, plan: SumPlan) -> None:
        self._released: list[tuple[State, NoisyTotal | None]] = []
        self._steps = program_steps(
            program, public, plan, released=lambda state, total: self._released.append((state, total))
        )
        self._request: SumRequest | None = None
        self.error: TallystickError | None = None
        """Why the program went no further, if it did not; as it ends for everybody who runs it on these totals."""
        self._send(None)

    @property
    def round(self) -> int:
        """The round whose total comes next; 0 once the program has ended."""
        return 0 if self._request is None else self._request.round

    @property
    def model(self) -> bytes:
        """What that round has to be opened with."""
        return b"" if self._request is None else self._request.model

    def take(self, result: NoisySum) -> None:
        """The total of the round that it asks for."""
        if self._request is None or result.round != self._request.round:
            raise ValueError(f"the program asks for round {self.round}, not {result.round}")
        total = NoisyTotal(
            values=result.total, participants=result.participants, dropped=result.dropped, makers=result.makers
        )
        try:
            total = replace(total, values=answer_of(self._request.plan, total.values, result.round))
        except RoundAborted as error:
            self._send(error)
            return
        self._send(total)

    def skip(self, round: int) -> None:
        """The round that it asks for has no total, and never will have."""
        self._send(RoundAborted(f"round {round} is spent", rule=SPENT, round=round))

    @property
    def computed(self) -> Computed:
        """What has come out so far."""
        totals = [total for _, total in self._released]
        return Computed(
            history=tuple(state for state, _ in self._released),
            contributors=tuple(() if total is None else total.participants for total in totals),
            dropped=tuple(() if total is None else total.dropped for total in totals),
        )

    def _send(self, answer: NoisyTotal | RoundAborted | None) -> None:
        self._request = None
        try:
            self._request = self._steps.send(answer)  # type: ignore[arg-type]  # None starts it
        except StopIteration:
            pass
        except TallystickError as error:
            self.error = error
