"""The one driver: does what a machine asks, in the order it asks it, whichever protocol it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tallystick.protocol.instructions import Forget, Persist, Send, Wake
from tallystick.roles.processes.session import Session
from tallystick.roles.storage.crash_points import crashpoint


class Driver:
    """``send`` encodes and hands over; what only one role or protocol knows goes to ``other``.

    ``Persist`` and ``Forget`` are durable before the instruction after them is carried out.
    """

    def __init__(
        self, session: Session, layer: str, *, send: Callable[[str, Any], None], other: Callable[[Any], None]
    ) -> None:
        self._session, self._layer, self._send, self._other = session, layer, send, other

    def __call__(self, instructions: Iterable[Any]) -> None:
        session = self._session
        process, study = session.process, session.study_hash
        for step in instructions:
            match step:
                case Persist(key=key, record=record, secret=secret):
                    if session.keeps:
                        process.store.persist(study, key, record, secret=secret)
                        crashpoint(f"{key}-kept")
                case Forget(key=key):
                    process.store.forget(study, key)
                    crashpoint(f"{key}-erased")
                case Send(to=to, message=message):
                    self._send(to, message)
                case Wake(at=at):
                    process.wake(at, session, self._layer)
                case _:
                    self._other(step)
