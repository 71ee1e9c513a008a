"""A user's own functions on public and released values: whatever they raise becomes an error that says whose it is.

Only ``init``, ``query``, ``reduce_in_aggregator`` and ``finished`` pass here: they never see a record, so the program's
own words may be shown. Errors are those of a locked child (:mod:`tallystick.engines.sandbox.program`): before the first
round the study is wrong (exit 2), in a round the round ends without a release (exit 4). What a built-in program raises
is a bug of this project and stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import BlockProgram, Program, Public, State, pack_state
from tallystick.core.errors import RoundAborted, StudyError, TallystickError
from tallystick.engines.sandbox.messages import TRY_IT, failure_of, same_shape

_Value = TypeVar("_Value")
_NO_TARGET = (
    'The study names no target: if the program reads one, say which, with fit(federation, target="…") or '
    "`target = …` under [study]."
)


def run_user_code(
    program: Program, function: str, work: Callable[[], _Value], *, round: int | None, remedy: str = TRY_IT
) -> _Value:
    """What ``work`` returns; a typed error with the program's own words if the author's ``function`` raises."""
    try:
        return work()
    except TallystickError:
        raise
    except Exception as error:
        if isinstance(program, BlockProgram):
            raise
        cause = failure_of(function, error)
        if round is None:
            raise StudyError(cause, rule="run", remedy=remedy) from error
        raise RoundAborted(cause, rule="run", round=round, remedy=f"{remedy} What was spent stays spent.") from error


def start_of(program: Program, public: Public) -> State:
    """``init``, and that it is a state that can be queried."""
    state = run_user_code(program, "init", lambda: program.init(public), round=None, remedy=_remedy(public))
    run_user_code(program, "query", lambda: pack_state(program.query(state)), round=None, remedy=_remedy(public))
    return state


def next_state(program: Program, public: Public, total: NDArray[np.float64], state: State, *, round: int) -> State:
    """``reduce_in_aggregator``, and that it is a state of the shape it was given."""
    after = run_user_code(
        program,
        "reduce_in_aggregator",
        lambda: program.reduce_in_aggregator(total, state),
        round=round,
        remedy=_remedy(public),
    )
    pack_state(after)  # refuses what is no state
    if not isinstance(program, BlockProgram) and not same_shape(after, state):
        raise RoundAborted(
            "the program's reduce_in_aggregator returned a state of another shape than it was given",
            rule="state",
            round=round,
            remedy=f"{_remedy(public)} What was spent stays spent.",
        )
    return after


def _remedy(public: Public) -> str:
    return TRY_IT if public.target is not None else f"{_NO_TARGET} {TRY_IT}"
