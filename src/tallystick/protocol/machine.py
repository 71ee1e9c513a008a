"""What all machines have in common: table-driven states, dispatch by the kind of message, refusals.

A machine is sans-I/O: ``receive`` and ``tick`` take a message or the time and return instructions
(:mod:`tallystick.protocol.instructions`); it opens nothing, waits for nothing and knows no clock. Its states move only
along its ``TRANSITIONS``; a move that is not in the table is our own bug and raises ``LocalProtocolError``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError

Transitions = Mapping[tuple[Enum, Enum], Enum]


def transition_table(transitions: Transitions) -> str:
    """The table as Markdown; each protocol's README shows it and a test compares."""
    rows = ["| state | event | next state |", "|---|---|---|"]
    rows += [f"| {a.value} | {event.value} | {b.value} |" for (a, event), b in transitions.items()]
    return "\n".join(rows)


class Machine(ABC):
    """One party of one protocol. A protocol's own base says how messages are decoded and refused."""

    TRANSITIONS: ClassVar[Transitions]
    CODES: ClassVar[Any]
    """The protocol's codes of refusals."""
    DECODE: ClassVar[Callable[..., Any]]
    """The protocol's decoder: the message, or ``RemoteProtocolError``; of at most ``limit`` bytes."""
    OTHER_STUDY: ClassVar[str]
    """Why a message of another study is refused, in words."""

    def __init__(self, name: str, study_hash: bytes, state: Enum) -> None:
        self.name = name
        self.study_hash = study_hash
        self.state: Any = state
        self.round = 0
        self.message_limit: int | None = None
        """The longest message its study has, where the protocol bounds it."""
        self._handlers: dict[type[Any], Callable[[str, Any, float], list[Any]]] = {}

    def receive(self, sender: str, message: Any, now: float) -> list[Any]:
        """Take one message from an authenticated sender."""
        if message.study_hash != self.study_hash:
            return self._refuse(sender, message, self.CODES.WRONG_STUDY, self.OTHER_STUDY)
        handler = self._handlers.get(type(message))
        if handler is None:
            cause = f"a {type(message).__name__} is not for this party"
            return self._refuse(sender, message, self.CODES.NOT_EXPECTED, cause)
        return handler(sender, message, now)

    def receive_bytes(self, sender: str, raw: bytes, now: float, *, limit: int | None = None) -> list[Any]:
        """Decode and take one message; one that does not decode is refused, with nothing of it kept."""
        try:
            message = self.DECODE(raw, limit=self.message_limit if limit is None else limit)
        except RemoteProtocolError as error:
            other = error.rule == "other-version"
            return self._refuse(sender, None, self.CODES.OTHER_VERSION if other else self.CODES.MALFORMED, error.cause)
        return self.receive(sender, message, now)

    def tick(self, now: float) -> list[Any]:
        """Take notice of the time; calling it more often than asked does no harm."""
        raise NotImplementedError

    @abstractmethod
    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        """The answer to a message, or to bytes that are none (``None``), which is not taken."""

    def _move(self, event: Enum) -> None:
        try:
            self.state = self.TRANSITIONS[(self.state, event)]
        except KeyError:
            raise LocalProtocolError(
                f"{type(self).__name__} has no transition from {self.state.value} on {event.value}",
                party=self.name,
                round=self.round or None,
            ) from None
