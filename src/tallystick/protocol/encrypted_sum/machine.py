"""What the three machines of the encrypted sum have in common: parameters, refusals, checks of model and key."""

from __future__ import annotations

from enum import Enum

import numpy as np

from tallystick.core.errors import RemoteProtocolError, RoundAborted, TooFewParties, VerificationError
from tallystick.crypto.homomorphic.scheme import EncryptingKey
from tallystick.protocol.encrypted_sum.codec import decode
from tallystick.protocol.encrypted_sum.instructions import Instruction
from tallystick.protocol.encrypted_sum.messages import Abort, Code, KeyNotice, Message, Refused, RoundOpen, model_digest
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import Machine


def rule_of(code: int) -> str:
    """A code as a rule's name."""
    return Code(code).name.lower().replace("_", "-")


def _remedy_for(code: Code) -> str:
    if code == Code.STALE_COPY:
        return (
            "Nothing was released. Let one copy of that party run, with the state it had last; if that is lost, enrol "
            "it anew with new keys."
        )
    return "Nothing was released. Open a new round once the party named has been looked at."


def abort_error(message: Abort) -> RoundAborted:
    """The error a user meets for an aborted round."""
    kind = TooFewParties if message.code == Code.TOO_FEW_CLIENTS else RoundAborted
    return kind(
        message.cause, remedy=message.remedy, rule=rule_of(message.code), party=message.party, round=message.round
    )


def check_model(message: RoundOpen, parameters: EncryptedSumParameters) -> str | None:
    """Why this model must not be used, or None: wrong length, wrong hash, not finite."""
    model, expected = message.model, parameters.model_size
    if len(model) % 8 or (expected is not None and len(model) != 8 * expected):
        return f"the model has {len(model)} bytes" + ("" if expected is None else f" instead of {8 * expected}")
    if message.model_hash != model_digest(message.study_hash, message.round, model):
        return "the model does not have the hash that was announced with it"
    if not np.isfinite(np.frombuffer(model, dtype="<f8")).all():
        return "the model holds NaN or infinity"
    return None


class EncryptedSumMachine(Machine):
    """Base of owner, proxy and data user."""

    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this party takes part in another study"

    def __init__(self, parameters: EncryptedSumParameters, name: str, state: Enum) -> None:
        super().__init__(name, parameters.study_hash, state)
        self.parameters = parameters
        self.message_limit = parameters.message_limit

    def _read_key(self, notice: KeyNotice, pinned: bytes | None) -> EncryptingKey:
        """The data user's key: signed by it for this study, the one that was pinned before, and well-formed."""
        p = self.parameters
        try:
            p.data_user_key.verify(notice.signed_part(), notice.signature)
        except VerificationError:
            raise RemoteProtocolError(
                "its signature does not verify", party=p.data_user, rule="bad-signature"
            ) from None
        key = p.scheme.public_key(notice.key, party=p.data_user)
        if pinned is not None and key.digest != pinned:
            raise RemoteProtocolError(
                "the data user has another public key than this study began with",
                party=p.data_user,
                rule=rule_of(Code.WRONG_PUBLIC_KEY),
            )
        return key

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
