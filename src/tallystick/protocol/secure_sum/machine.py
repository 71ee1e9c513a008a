"""What the three machines have in common: table-driven states, dispatch, refusals.

A machine is sans-I/O: ``receive`` and ``tick`` take a message or the time and
return instructions (``instructions``); it opens nothing, waits for nothing and
knows no clock. Its states move only along its ``TRANSITIONS``; a move that is
not in the table is our own bug and raises ``LocalProtocolError``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, RoundAborted, TooFewParties
from tallystick.protocol.secure_sum.codec import decode
from tallystick.protocol.secure_sum.instructions import Instruction, Send
from tallystick.protocol.secure_sum.messages import Abort, Code, Message, Refused, RoundOpen, model_digest
from tallystick.protocol.secure_sum.parameters import SumParameters

__all__ = ["Machine", "Transitions", "abort_error", "check_model", "remedy_for", "transition_table"]

Transitions = Mapping[tuple[Enum, Enum], Enum]


def transition_table(transitions: Transitions) -> str:
    """The table as Markdown; the README shows it and a test compares."""
    rows = ["| state | event | next state |", "|---|---|---|"]
    rows += [f"| {a.value} | {event.value} | {b.value} |" for (a, event), b in transitions.items()]
    return "\n".join(rows)


def remedy_for(code: Code) -> str:
    """What to do about a round that was given up for this reason."""
    if code == Code.STALE_SERVER:
        return (
            "Nothing was released. Let one copy of that server run, with the state it had last; if that is lost, enrol "
            "the server anew with new keys."
        )
    return "Nothing was released. Open a new round once the party named has been looked at."


def abort_error(message: Abort) -> RoundAborted:
    """The error a user meets for an aborted round."""
    kind = TooFewParties if message.code == Code.TOO_FEW_CLIENTS else RoundAborted
    return kind(
        message.cause,
        remedy=message.remedy,
        rule=Code(message.code).name.lower().replace("_", "-"),
        party=message.party,
        round=message.round,
    )


def check_model(message: RoundOpen, parameters: SumParameters) -> str | None:
    """Why this model must not be used (X27), or None: wrong length, wrong hash, not finite."""
    model = message.model
    expected = parameters.model_size
    if len(model) % 8 or (expected is not None and len(model) != 8 * expected):
        return f"the model has {len(model)} bytes" + ("" if expected is None else f" instead of {8 * expected}")
    if message.model_hash != model_digest(message.study_hash, message.round, model):
        return "the model does not have the hash that was announced with it"
    if not np.isfinite(np.frombuffer(model, dtype="<f8")).all():
        return "the model holds NaN or infinity"
    return None


class Machine:
    """Base of client, server and aggregator."""

    TRANSITIONS: ClassVar[Transitions]

    def __init__(self, parameters: SumParameters, name: str, state: Enum) -> None:
        self.parameters = parameters
        self.name = name
        self.state: Any = state
        self.round = 0
        self._handlers: dict[type[Any], Callable[[str, Any, float], list[Instruction]]] = {}

    def receive(self, sender: str, message: Message, now: float) -> list[Instruction]:
        """Take one message from an authenticated sender."""
        handler = self._handlers.get(type(message))
        if message.study_hash != self.parameters.study_hash:  # X05, X13
            return self._refuse(sender, message, Code.WRONG_STUDY, "this party takes part in another study")
        if handler is None:
            return self._refuse(sender, message, Code.NOT_EXPECTED, f"a {type(message).__name__} is not for this party")
        return handler(sender, message, now)

    def receive_bytes(self, sender: str, raw: bytes, now: float) -> list[Instruction]:
        """Decode and take one message; one that does not decode is refused, with nothing of it kept (X14)."""
        try:
            message = decode(raw, limit=self.parameters.message_limit)
        except RemoteProtocolError as error:
            code = Code.OTHER_VERSION if error.rule == "X13" else Code.MALFORMED
            study = self.parameters.study_hash
            return [Send(sender, Refused(study_hash=study, round=self.round, code=code, cause=error.cause))]
        return self.receive(sender, message, now)

    def tick(self, now: float) -> list[Instruction]:
        """Take notice of the time; calling it more often than asked does no harm."""
        raise NotImplementedError

    def _move(self, event: Enum) -> None:
        try:
            self.state = self.TRANSITIONS[(self.state, event)]
        except KeyError:
            raise LocalProtocolError(
                f"{type(self).__name__} has no transition from {self.state.value} on {event.value}",
                party=self.name,
                round=self.round,
            ) from None

    def _refuse(self, sender: str, message: Message, code: Code, cause: str) -> list[Instruction]:
        if isinstance(message, (Refused, Abort)):  # answering a refusal with a refusal would never end
            return []
        refusal = Refused(study_hash=self.parameters.study_hash, round=message.round, code=code, cause=cause)
        return [Send(sender, refusal)]
