"""What the three machines of the secure sum have in common beside the base: parameters, refusals, checks of a model."""

from __future__ import annotations

from enum import Enum

import numpy as np

from tallystick.core.errors import RoundAborted, TooFewParties
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import Machine
from tallystick.protocol.secure_sum.codec import decode
from tallystick.protocol.secure_sum.instructions import Instruction
from tallystick.protocol.secure_sum.messages import Abort, Code, Message, Refused, RoundOpen, model_digest
from tallystick.protocol.secure_sum.parameters import SumParameters


def _remedy_for(code: Code) -> str:
    """What to do about a round that was given up for this reason."""
    if code == Code.STALE_SERVER:
        return (
            "Nothing was released. Let one copy of that server run, with the state it had last; if that is lost, enrol "
            "the server anew with new keys."
        )
    if code == Code.DRAW_FAILED:
        return (
            "Nothing was released, and what the study costs stays charged. Start the party named on the state it had "
            "last; then propose the study as a new version."
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
    """Why this model must not be used, or None: wrong length, wrong hash, not finite."""
    model = message.model
    expected = parameters.model_size
    if len(model) % 8 or (expected is not None and len(model) != 8 * expected):
        return f"the model has {len(model)} bytes" + ("" if expected is None else f" instead of {8 * expected}")
    if message.model_hash != model_digest(message.study_hash, message.round, model):
        return "the model does not have the hash that was announced with it"
    if not np.isfinite(np.frombuffer(model, dtype="<f8")).all():
        return "the model holds NaN or infinity"
    return None


class SumMachine(Machine):
    """Base of client, server and aggregator."""

    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this party takes part in another study"

    def __init__(self, parameters: SumParameters, name: str, state: Enum) -> None:
        super().__init__(name, parameters.study_hash, state)
        self.parameters = parameters
        self.message_limit = parameters.message_limit

    def _abort_of(self, round: int, code: Code, party: str, cause: str, remedy: str | None = None) -> Abort:
        return Abort(
            study_hash=self.study_hash,
            round=round,
            code=code,
            party=party,
            cause=cause,
            remedy=remedy or _remedy_for(code),
        )

    def _refuse(self, sender: str, message: Message | None, code: Code, cause: str) -> list[Instruction]:
        if isinstance(message, (Refused, Abort)):  # answering a refusal with a refusal would never end
            return []
        round = self.round if message is None else message.round
        return [Send(sender, Refused(study_hash=self.study_hash, round=round, code=code, cause=cause))]
