"""The first half of a data user's round: it opens it and countersigns one set. The argument is in ``data_user``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from enum import Enum, unique
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.crypto.homomorphic.scheme import DecryptingKey
from tallystick.protocol.encrypted_sum.codec import encode
from tallystick.protocol.encrypted_sum.instructions import Instruction
from tallystick.protocol.encrypted_sum.machine import check_model
from tallystick.protocol.encrypted_sum.messages import (
    Abort,
    Code,
    Countersigned,
    HashOpen,
    KeyNotice,
    KeyWanted,
    Message,
    Participants,
    RoundClosed,
    RoundOpen,
    SecretOpen,
    Summed,
    model_digest,
)
from tallystick.protocol.encrypted_sum.noise_maker import PROXY, MakerParts, NoiseMaker
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.summing import opening


@unique
class DataUserState(Enum):
    IDLE = "idle"
    OPEN = "open"
    AGREED = "agreed"
    FINISHED = "finished"
    ABORTED = "aborted"


@unique
class DataUserEvent(Enum):
    OPEN = "noise drawn, round opened, both kept"
    AGREE = "the proxy's set countersigned and kept"
    FINISH = "sum decrypted, own noise added: result kept"
    ABORT = "round given up, noise erased"


_S, _E = DataUserState, DataUserEvent
ACTIVE = frozenset((_S.OPEN, _S.AGREED))


class AgreeingDataUser(NoiseMaker):
    """A data user that opens rounds and agrees on who is in them."""

    def __init__(
        self, parameters: EncryptedSumParameters, decrypting: DecryptingKey, **parts: Unpack[MakerParts]
    ) -> None:
        super().__init__(parameters, parameters.data_user, _S.IDLE, **parts)
        self._decrypting = decrypting
        unsigned = KeyNotice(study_hash=self.study_hash, round=0, key=decrypting.public.raw)
        self._notice = replace(unsigned, signature=self._signing.sign(unsigned.signed_part()))
        self._opened: RoundOpen | None = None
        self._set: Participants | None = None
        self._countersigned: Countersigned | None = None
        self._summed: Summed | None = None
        self._total: NDArray[np.int64] | None = None
        self._missing: set[int] = set()
        self._asked = 0
        self._closed: RoundClosed | None = None
        self._abort_message: Abort | None = None
        self._deadline = self._give_up = 0.0

    # -- opening -----------------------------------------------------------------------------------------------------

    def _on_key_wanted(self, sender: str, message: KeyWanted, now: float) -> list[Instruction]:
        if sender != self.parameters.proxy and sender not in self.parameters.client_index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        return [Send(sender, self._notice)]

    def open_round(self, round: int, model: bytes, now: float, *, blind: bytes = b"") -> list[Instruction]:
        """Announce a round with its model; ``round`` must be higher than any before.

        ``blind`` is for models that tell of single people: 32 random bytes, drawn for this round.
        """
        p = self.parameters
        if self.state in ACTIVE:
            raise LocalProtocolError("the last round has not ended", party=self.name, round=self.round)
        if not self.round < round <= p.last_round:
            raise LocalProtocolError(
                f"round {round} cannot follow round {self.round}",
                party=self.name,
                round=round,
                remedy=f"Number rounds upwards, to {p.last_round} at most; a failed round gets a new number.",
            )
        opened: RoundOpen = opening(
            RoundOpen,
            SecretOpen,
            blind,
            study_hash=p.study_hash,
            round=round,
            deadline_ms=int(1000 * p.round_seconds),
            model_hash=model_digest(p.study_hash, round, model, blind),
            key_hash=self._decrypting.public.digest,
            model=model,
        )
        wrong = check_model(opened, p, told=True)
        if wrong is not None:
            raise LocalProtocolError(wrong, party=self.name, round=round, remedy="Look at the program's update.")
        kept = self._open_with_noise(opened)
        self._move(_E.OPEN)
        return [*kept, Persist("open", encode(opened)), *self._announce(opened, now)]

    def cancel(self, cause: str) -> list[Instruction]:
        """Give up the open round, for a reason of the one who runs the study."""
        return self._abort(Code.REPLACED, self.name, cause) if self.state in ACTIVE else []

    def _announce(self, opened: RoundOpen, now: float) -> list[Instruction]:
        p = self.parameters
        self._opened = opened
        self._set = self._countersigned = self._summed = self._closed = self._abort_message = None
        self._total, self._missing = None, set()
        self._deadline = now + opened.deadline_ms / 1000
        self._give_up = self._deadline + 2 * p.agreement_seconds
        tell = [Send(p.proxy, self._for_proxy(opened)), *(Send(to, opened) for to in p.clients)]
        return [*tell, Wake(now + p.retry_seconds)]

    def _for_proxy(self, opened: RoundOpen) -> HashOpen:
        """The proxy adds up without computing on a model: it is told one that tells of people by its hash."""
        return opened.hashed() if isinstance(opened, SecretOpen) else opened

    # -- agreeing ----------------------------------------------------------------------------------------------------

    def _on_participants(self, sender: str, message: Participants, now: float) -> list[Instruction]:
        p, opened, record = self.parameters, self._opened, self._record
        if sender != p.proxy:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the proxy says who is in a sum")
        if opened is None or record is None or message.round != self.round or self.state not in ACTIVE:
            return self._ended(sender, message)
        if message == self._set and self._countersigned is not None:
            return [Send(sender, self._countersigned)]
        try:
            p.proxy_key.verify(message.signed_part(), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the set's signature does not verify")
        stale = self._seen.objection(PROXY, message.start)
        if self._set is not None:
            stale = "it signed another set for this round before: it was set back to a copy, or two copies run"
        if stale is not None:
            return self._refuse(sender, message, Code.STALE_COPY, stale) + self._abort(Code.STALE_COPY, sender, stale)
        if message.model_hash != opened.model_hash or message.key_hash != opened.key_hash:
            return self._abort(Code.SET_DISAGREEMENT, sender, "the proxy summed another model or key than was opened")
        if len(message.clients) < p.min_clients or message.clients[-1] >= len(p.clients):
            return self._abort(Code.TOO_FEW_CLIENTS, sender, "the proxy's set is not one of enough owners of the study")
        unsigned = Countersigned(
            study_hash=p.study_hash, round=self.round, participants=message.signed_part(), start=record.start
        )
        self._set = message
        self._countersigned = replace(unsigned, signature=self._signing.sign(unsigned.signed_part()))
        self._move(_E.AGREE)
        self._give_up = max(self._give_up, now + 2 * p.agreement_seconds)
        return [
            *self._seen.note(PROXY, message.start),
            Persist("participants", encode(message)),
            Persist("countersigned", encode(self._countersigned)),
            Send(sender, self._countersigned),
        ]

    @abstractmethod
    def _abort(self, code: Code, party: str, cause: str, remedy: str | None = None) -> list[Instruction]: ...

    @abstractmethod
    def _ended(self, sender: str, message: Message) -> list[Instruction]: ...
