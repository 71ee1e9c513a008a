"""What the machines of every protocol of sums have in common: checks of a model, refusals, rounds that are given up.

A protocol of sums has rounds, each with one model and one participant set; each of its folders has message types of its
own, of which ``Abort`` and ``Refused`` have the same fields everywhere (:class:`SummingMachine` names them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Any, ClassVar, Protocol

import numpy as np

from tallystick.core.errors import RoundAborted, TooFewParties
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import Machine

GIVEN_UP = "Nothing was released. Open a new round once the party named has been looked at."


def set_back(party: str) -> str:
    """What to do about a party that was set back to an old copy of itself; ``party`` is what it is called."""
    return (
        f"Nothing was released. Let one copy of that {party} run, with the state it had last; if that is lost, enrol "
        f"{'the ' + party if party != 'party' else 'it'} anew with new keys."
    )


def rule_of(code: IntEnum) -> str:
    """A code as a rule's name."""
    return code.name.lower().replace("_", "-")


def error_of_abort(message: Any, code: IntEnum) -> RoundAborted:
    """The error a user meets for an aborted round."""
    kind = TooFewParties if code.name == "TOO_FEW_CLIENTS" else RoundAborted
    party = message.party or None  # nobody can be named
    return kind(message.cause, remedy=message.remedy, rule=rule_of(code), party=party, round=message.round)


def model_problem(message: Any, expected: int | None, digest: Callable[..., bytes]) -> str | None:
    """Why a round's model must not be used, or None: wrong length, wrong hash, not finite."""
    model: bytes = message.model
    if len(model) % 8 or (expected is not None and len(model) != 8 * expected):
        return f"the model has {len(model)} bytes" + ("" if expected is None else f" instead of {8 * expected}")
    if message.model_hash != digest(message.study_hash, message.round, model, getattr(message, "blind", b"")):
        return "the model does not have the hash that was announced with it"
    if not np.isfinite(np.frombuffer(model, dtype="<f8")).all():
        return "the model holds NaN or infinity"
    return None


def opening_problem(
    message: Any,
    parameters: Any,
    digest: Callable[..., bytes],
    kinds: tuple[type[Any], type[Any], type[Any]],
    *,
    told: bool,
) -> str | None:
    """Why a round must not be begun by this opening, or None.

    ``kinds`` are a protocol's (``HashOpen``, ``RoundOpen``, ``SecretOpen``). Where models tell of single people, those
    who compute on them (``told``) get the model with its blind, and everybody else its hash alone; a hash cannot be
    looked into, and is good if all are given the same. Elsewhere all are told the model, and check it.
    """
    hashed, plain, secret = kinds
    kind = plain if not parameters.secret_models else secret if told else hashed
    if type(message) is not kind:
        return f"the round was opened by a {type(message).__name__}; here it takes a {kind.__name__}"
    return None if kind is hashed else model_problem(message, parameters.model_size, digest)


def opening(plain: type[Any], secret: type[Any], blind: bytes, **facts: Any) -> Any:
    """What whoever coordinates opens a round with: with the blind of its model's hash, if it has one."""
    return secret(**facts, blind=blind) if blind else plain(**facts)


def told_model(message: Any) -> bytes:
    """The model of an opening, as far as it is told: nothing where it is a secret."""
    model: bytes = getattr(message, "model", b"")
    return model


class SummingParameters(Protocol):
    """What every protocol of sums agrees on beforehand, as far as this base asks."""

    @property
    def study_hash(self) -> bytes: ...

    @property
    def message_limit(self) -> int: ...


class SummingMachine(Machine):
    """Base of the machines of one protocol of sums; its subclass has ``CODES``, ``DECODE`` and the message types."""

    ABORT: ClassVar[type[Any]]
    REFUSED: ClassVar[type[Any]]
    REMEDIES: ClassVar[Mapping[Any, str]] = {}
    """What to do about a round that was given up, by its code; else :data:`GIVEN_UP`."""
    OTHER_STUDY = "this party takes part in another study"

    def __init__(self, parameters: Any, name: str, state: Enum) -> None:
        facts: SummingParameters = parameters
        super().__init__(name, facts.study_hash, state)
        self.parameters = parameters
        self.message_limit = facts.message_limit

    def _abort_of(self, round: int, code: Any, party: str, cause: str, remedy: str | None = None) -> Any:
        return self.ABORT(
            study_hash=self.study_hash,
            round=round,
            code=code,
            party=party,
            cause=cause,
            remedy=remedy or self.REMEDIES.get(code, GIVEN_UP),
        )

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, (self.REFUSED, self.ABORT)):  # answering a refusal with a refusal would never end
            return []
        round = self.round if message is None else message.round
        return [Send(sender, self.REFUSED(study_hash=self.study_hash, round=round, code=code, cause=cause))]
