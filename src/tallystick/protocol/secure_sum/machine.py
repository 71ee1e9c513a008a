"""What the three machines of the secure sum have in common beside the base of all sums: codes and parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tallystick.core.errors import RoundAborted
from tallystick.protocol.secure_sum.codec import decode
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Code,
    HashOpen,
    Refused,
    RoundOpen,
    SecretOpen,
    model_digest,
)
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.summing import SummingMachine, error_of_abort, opening_problem, set_back


def abort_error(message: Abort) -> RoundAborted:
    """The error a user meets for an aborted round."""
    return error_of_abort(message, Code(message.code))


def check_model(message: HashOpen, parameters: SumParameters, *, told: bool) -> str | None:
    """Why this model must not be used, or None: told to whom it is not for, wrong length, wrong hash, not finite."""
    return opening_problem(message, parameters, model_digest, (HashOpen, RoundOpen, SecretOpen), told=told)


class SumMachine(SummingMachine):
    """Base of client, server and aggregator."""

    CODES, ABORT, REFUSED = Code, Abort, Refused
    DECODE = staticmethod(decode)
    REMEDIES: ClassVar[Mapping[Code, str]] = {
        Code.STALE_SERVER: set_back("server"),
        Code.DRAW_FAILED: (
            "Nothing was released, and what the study costs stays charged. Start the party named on the state it had "
            "last; then propose the study as a new version."
        ),
    }
    parameters: SumParameters
