"""What the three machines of the encrypted sum have in common beside the base of all sums: codes, checks of the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tallystick.core.errors import RemoteProtocolError, RoundAborted, VerificationError
from tallystick.crypto.homomorphic.scheme import EncryptingKey
from tallystick.protocol import summing
from tallystick.protocol.encrypted_sum.codec import decode
from tallystick.protocol.encrypted_sum.messages import (
    Abort,
    Code,
    HashOpen,
    KeyNotice,
    Refused,
    RoundOpen,
    SecretOpen,
    model_digest,
)
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters


def rule_of(code: int) -> str:
    """A code as a rule's name."""
    return summing.rule_of(Code(code))


def abort_error(message: Abort) -> RoundAborted:
    """The error a user meets for an aborted round."""
    return summing.error_of_abort(message, Code(message.code))


def check_model(message: HashOpen, parameters: EncryptedSumParameters, *, told: bool) -> str | None:
    """Why this model must not be used, or None: told to whom it is not for, wrong length, wrong hash, not finite."""
    return summing.opening_problem(message, parameters, model_digest, (HashOpen, RoundOpen, SecretOpen), told=told)


class EncryptedSumMachine(summing.SummingMachine):
    """Base of owner, proxy and data user."""

    CODES, ABORT, REFUSED = Code, Abort, Refused
    DECODE = staticmethod(decode)
    REMEDIES: ClassVar[Mapping[Code, str]] = {Code.STALE_COPY: summing.set_back("party")}
    parameters: EncryptedSumParameters

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
