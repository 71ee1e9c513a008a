"""A user's own functions on public and released values: whatever they raise becomes an error that says whose it is.

Only ``init``, ``query``, ``reduce_in_aggregator`` and ``finished`` pass here: they never see a record, so the program's
own words may be shown. Errors are those of a locked child (:mod:`tallystick.engines.sandbox.program`): before the first
round the study is wrong (exit 2), in a round the round ends without a release (exit 4). What a built-in program raises
is a bug of this project and stays one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.algorithms.program import BuiltInProgram, Program, Public, State, pack_state
from tallystick.core.errors import RoundAborted, StudyError, TallystickError
from tallystick.engines.sandbox.messages import TRY_IT, failure_of

_NO_TARGET = (
    'The study names no target: if the program reads one, say which, with fit(federation, target="…") or '
    "`target = …` under [study]."
)


@contextmanager
def user_code(program: Program, function: str, *, round: int | None, remedy: str = TRY_IT) -> Iterator[None]:
    """Whatever the author's ``function`` raises in here becomes a typed error with the program's own words."""
    try:
        yield
    except TallystickError:
        raise
    except Exception as error:
        if isinstance(program, BuiltInProgram):
            raise
        cause = failure_of(function, error)
        if round is None:
            raise StudyError(cause, rule="run", remedy=remedy) from error
        raise RoundAborted(cause, rule="run", round=round, remedy=f"{remedy} What was spent stays spent.") from error


def start_of(program: Program, public: Public) -> State:
    """``init``, and that it is a state that can be queried."""
    with user_code(program, "init", round=None, remedy=remedy_for(public)):
        state = program.init(public)
    with user_code(program, "query", round=None, remedy=remedy_for(public)):
        pack_state(program.query(state))
    return state


def remedy_for(public: Public) -> str:
    """What to do about a program that failed."""
    return TRY_IT if public.target is not None else f"{_NO_TARGET} {TRY_IT}"
