"""Every step at which a role may die and must come back as if nothing had happened.

A role calls ``crashpoint`` right after a step, and says what has just happened. Nothing happens there, unless a test
entry point that is not in the wheel (``tests/faults``) has installed a handler, which may then end the process. There
is no environment variable, flag or configuration key for it: in a shipped role the handler is None for ever, and a
test greps the sources for anyone who would install one.

The fault suite has the list of all points, kills every role at each of them, and fails if one was never reached;
another test reads the calls in the sources, so the list and the calls cannot drift apart. Points come in pairs around
durability: after a record is kept (what follows may not have been sent) and after it was sent (what follows may not
have been kept).
"""

from __future__ import annotations

from collections.abc import Callable

_handler: Callable[[str], None] | None = None


def crashpoint(step: str) -> None:
    """This step has just been done by this process; which role it has, it knows."""
    if _handler is not None:
        _handler(step)


def install(handler: Callable[[str], None] | None) -> None:
    """For test entry points outside the wheel, and for nobody else."""
    global _handler  # one process, one role, one handler
    _handler = handler
