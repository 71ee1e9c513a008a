"""From all that a search has released to its answers, each with an interval or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tallystick.algorithms.quantiles.program import QuantileProgram, QuantileState

_SURE = 3.0
"""Standard deviations of its noisy size by which a group must stand above none."""
_FEW = 25.0
"""Records for each unit of a count's noise from which on there are intervals. A rule on facts that are public, or all
but so: if intervals were refused for what came out of the noise, those given would hold less often than promised."""


_BEYOND = 4.0
"""The smallest and the largest value leave a quarter of the records beyond them at most, as ``design._target`` sees to
where their number is public: in a small group the one would come out above the other."""
_LOST = (
    "No interval: clients were missing from some rounds, whose counts are of fewer records. Answers may be off by as "
    "many ranks as records were missing: run it again with everybody."
)
_NO_END = "No smallest or largest value where records are fewer than four times those it leaves beyond it."


@dataclass(frozen=True, kw_only=True)
class QuantileAnswer:
    """One quantile of one series."""

    q: float
    index: int | None
    value: float | int | None
    interval: tuple[float | int, float | int] | None
    reason: str | None
    """Why there is no interval, or no value."""
    records: float | None
    """None where nothing was counted."""


def of_changing_records(answers: Sequence[QuantileAnswer]) -> list[QuantileAnswer]:
    """Of a search some of whose rounds lacked a client: no interval holds for counts of other records each time."""
    return [a if a.index is None else replace(a, interval=None, reason=_LOST) for a in answers]


def quantile_answers(program: QuantileProgram, state: QuantileState, *, level: float) -> list[QuantileAnswer]:
    """Series by series, quantile by quantile; post-processing of the released state."""
    out = []
    for series, zoom in zip(program.series, program.zooms(state)):
        noise = program.schedule.noise.whole
        records = float(zoom.ranks.mean[-1])
        for at, target in enumerate(zoom.targets):
            index: int | None = zoom.answer(at)
            interval, reason = None, None
            if records < max(noise, _SURE * math.sqrt(max(0.0, zoom.ranks.cov[-1, -1]))):
                index, reason = None, "No value where there are fewer records than the noise of a count."
            elif not program.public_count and records < _BEYOND * abs(target.shift):
                index, reason = None, _NO_END
            elif records < _FEW * noise:
                reason = "No interval where records are few for this epsilon: it would span nearly the whole domain."
            else:
                low, high = zoom.held_between(level, at, most=program.rounds)
                interval = series.grid.value(low), series.grid.value(high - 1)
            value = None if index is None else series.grid.value(index)
            out.append(
                QuantileAnswer(
                    q=target.share, index=index, value=value, interval=interval, reason=reason, records=records
                )
            )
    return out
