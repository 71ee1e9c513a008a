"""What client and reducer of the masked sum have in common beside the base of all sums: codes, instructions, checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tallystick.core.errors import RoundAborted
from tallystick.protocol import summing
from tallystick.protocol.boots import Witness
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, Held, Persist, Send, Wake
from tallystick.protocol.masked_sum.codec import decode
from tallystick.protocol.masked_sum.messages import Abort, Code, Refused, RoundOpen, SecretOpen, model_digest
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters

Instruction = Send | Persist | Forget | Witness | Wake | Compute | Finished | Held | Aborted
"""What the machines ask for: what every protocol has, and ``Witness``: remember under which start a client was met."""


def abort_error(message: Abort) -> RoundAborted:
    """The error a user meets for an aborted round."""
    return summing.error_of_abort(message, Code(message.code))


def check_model(message: RoundOpen, parameters: MaskedSumParameters) -> str | None:
    """Why this model must not be used, or None: wrong length, wrong hash, not finite."""
    return summing.opening_problem(message, parameters, model_digest, (RoundOpen, RoundOpen, SecretOpen), told=True)


class MaskedSumMachine(summing.SummingMachine):
    """Base of client and reducer."""

    CODES, ABORT, REFUSED = Code, Abort, Refused
    DECODE = staticmethod(decode)
    REMEDIES: ClassVar[Mapping[Code, str]] = {
        Code.STALE_COPY: summing.set_back("client"),
        Code.TOO_FEW_CLIENTS: "Nothing was released. Start the clients that are missing; then go on with the study.",
        Code.THRESHOLD: (
            "Nothing was unmasked, and nothing can be: more clients must stay to the end of a round. Start those that "
            "are missing; then go on with the study."
        ),
        Code.BAD_SHARE: (
            "Nothing was released. Look at the clients named; a round without them, or with more survivors, can do "
            "without their shares."
        ),
        Code.SET_DISAGREEMENT: (
            "Nothing was unmasked. A reducer names one survivor set a round: look at the reducer before the next round."
        ),
    }
    parameters: MaskedSumParameters
