"""The data user's machine: make the key, open rounds, countersign one set, decrypt, add its own noise, say so once.

THEORY. The data user reads the sum with the proxy's noise in it. What leaves it (to the program, which makes the next
public state of it) has its own FULL noise on top, in every round: whoever knows the proxy's noise, the proxy itself
above all, sees the true sum plus the data user's noise. m = 2 noise makers, h = 1 surely honest: each one's noise alone
carries the promise, as long as the two do not collude.

The key pair is made when the study starts here, kept in a file of its own before its public half is told, the same for
all rounds, and erased at the study's end. The data user signs one set per round: what it countersigned is kept before
it is sent, and a second, different set for the round, or one of an old copy of the proxy, ends the round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Unpack

import numpy as np

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, VerificationError
from tallystick.core.redaction import Secret
from tallystick.crypto.homomorphic.scheme import DecryptingKey
from tallystick.protocol.encrypted_sum.codec import decode, encode
from tallystick.protocol.encrypted_sum.data_user_agreeing import ACTIVE, AgreeingDataUser, DataUserEvent, DataUserState
from tallystick.protocol.encrypted_sum.instructions import Instruction
from tallystick.protocol.encrypted_sum.machine import abort_error
from tallystick.protocol.encrypted_sum.messages import (
    Abort,
    Code,
    Countersigned,
    Inquiry,
    KeyWanted,
    Message,
    Participants,
    Refused,
    RoundClosed,
    RoundOpen,
    SumChunk,
    Summed,
    Wanted,
    chunk_digest,
)
from tallystick.protocol.encrypted_sum.noise_maker import MakerParts
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.records import NoiseRecord, ResultRecord
from tallystick.protocol.encrypted_sum.vouchers import pack_vouchers
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Aborted, Finished, Forget, NoisySum, Persist, Send, Wake
from tallystick.protocol.machine import Transitions

WINDOW = 4  # chunks of the sum asked for at a time
_S, _E = DataUserState, DataUserEvent


class DataUserMachine(AgreeingDataUser):
    """Holds the key, starts rounds and learns their noised totals."""

    TRANSITIONS: ClassVar[Transitions] = {
        (_S.IDLE, _E.OPEN): _S.OPEN,
        (_S.OPEN, _E.AGREE): _S.AGREED,
        (_S.OPEN, _E.ABORT): _S.ABORTED,
        (_S.AGREED, _E.FINISH): _S.FINISHED,
        (_S.AGREED, _E.ABORT): _S.ABORTED,
        (_S.FINISHED, _E.OPEN): _S.OPEN,
        (_S.ABORTED, _E.OPEN): _S.OPEN,
    }

    def __init__(
        self, parameters: EncryptedSumParameters, decrypting: DecryptingKey, **parts: Unpack[MakerParts]
    ) -> None:
        super().__init__(parameters, decrypting, **parts)
        self._handlers = {
            KeyWanted: self._on_key_wanted,
            Participants: self._on_participants,
            Summed: self._on_summed,
            SumChunk: self._on_chunk,
            Refused: self._on_refused,
            Abort: self._on_abort,
            Inquiry: self._on_inquiry,
        }

    # -- decrypting --------------------------------------------------------------------------------------------------

    def _on_summed(self, sender: str, message: Summed, now: float) -> list[Instruction]:
        p, agreed = self.parameters, self._countersigned
        if sender != p.proxy or message.round != self.round or self.state is not _S.AGREED or agreed is None:
            return self._ended(sender, message) if sender == p.proxy else []
        if message == self._summed:
            return []
        try:
            p.proxy_key.verify(message.signed_part(), message.signature)
        except VerificationError:
            return self._refuse(sender, message, Code.BAD_SIGNATURE, "the sum's signature does not verify")
        if message.agreement != agreed.digest() or len(message.digests) != p.chunks or self._summed is not None:
            return self._abort(Code.SET_DISAGREEMENT, sender, "the proxy's sum is not the one that was agreed on")
        self._summed = message
        self._total = np.zeros(p.size, dtype=np.int64)
        self._missing, self._asked = set(range(p.chunks)), 0
        self._give_up = now + 2 * p.agreement_seconds
        return [*self._ask_chunks(), Wake(now + p.retry_seconds)]

    def _ask_chunks(self, again: bool = False) -> list[Instruction]:
        p, agreed = self.parameters, self._countersigned
        if agreed is None:
            return []
        under_way = [i for i in self._missing if i < self._asked]
        wanted = sorted(under_way) if again else []
        while len(under_way) < WINDOW and self._asked < p.chunks:
            wanted.append(self._asked)
            under_way.append(self._asked)
            self._asked += 1
        common = agreed.digest()
        return [
            Send(p.proxy, Wanted(study_hash=p.study_hash, round=self.round, index=i, agreement=common)) for i in wanted
        ]

    def _on_chunk(self, sender: str, message: SumChunk, now: float) -> list[Instruction]:
        p, summed, total = self.parameters, self._summed, self._total
        ours = sender == p.proxy and message.round == self.round and message.index in self._missing
        if not ours or summed is None or total is None:
            return []
        step, blocks = p.scheme.block_bytes, p.blocks_of(message.index)
        found = chunk_digest(p.study_hash, self.round, message.index, message.payload)
        if found != summed.digests[message.index] or len(message.payload) != step * len(blocks):
            return self._abort(Code.SET_DISAGREEMENT, sender, "a chunk of the sum is not the one that was signed")
        for place, block in enumerate(blocks):
            part = p.scheme.part(total, block)
            raw = message.payload[place * step : (place + 1) * step]
            try:
                self._decrypting.public.check(raw, party=sender)
                part[:] = self._decrypting.decrypt(raw)[: part.size]
            except RemoteProtocolError as error:
                return self._abort(Code.CIPHERTEXT_RANGE, sender, error.cause)
        self._missing.discard(message.index)
        self._give_up = now + 2 * p.agreement_seconds
        return self._ask_chunks() if self._missing else self._finish()

    def _finish(self) -> list[Instruction]:
        p, noise, total, mine = self.parameters, self._noise, self._total, self._set
        agreed = self._countersigned
        if noise is None or total is None or mine is None or agreed is None:
            raise LocalProtocolError("the noise of this round is gone", party=self.name, round=self.round)
        # Own noise first: nothing is decided by a total that has only the proxy's noise in it.
        noisy = total + noise
        self._total = None
        if ((noisy > p.result_limit) | (noisy < -p.result_limit)).any():
            cause = "the total is outside what honest owners can produce; it is withheld"
            return self._abort(Code.OUT_OF_RANGE, self.name, cause)
        record = ResultRecord(round=self.round, agreement=agreed.digest(), clients=mine.clients, total=noisy)
        self._move(_E.FINISH)
        vouchers = pack_vouchers(mine, agreed, proxy=p.proxy, data_user=p.data_user)
        return [Persist("result", record.to_bytes()), *self._erase(), *self._say_finished(record, vouchers)]

    def _say_finished(self, record: ResultRecord, vouchers: bytes = b"") -> list[Instruction]:
        p, inside = self.parameters, set(record.clients)
        self._closed = RoundClosed(study_hash=p.study_hash, round=record.round, agreement=record.agreement)
        result = NoisySum(
            round=record.round,
            total=record.total,
            participants=tuple([p.clients[client] for client in record.clients]),
            dropped=tuple([name for client, name in enumerate(p.clients) if client not in inside]),
            agreement=record.agreement,
            vouchers=vouchers,
        )
        return [*(Send(to, self._closed) for to in (p.proxy, *p.clients)), Finished(result)]

    # -- ending, repeating, restarting -------------------------------------------------------------------------------

    def _erase(self) -> list[Instruction]:
        self._noise = None
        return [Forget("noise")]

    def _abort(self, code: Code, party: str, cause: str, remedy: str | None = None) -> list[Instruction]:
        p = self.parameters
        abort = self._abort_message = self._abort_of(self.round, code, party, cause, remedy)
        self._total, self._missing = None, set()
        self._move(_E.ABORT)
        tell = [Send(to, abort) for to in (p.proxy, *p.clients)]
        return [Persist("aborted", encode(abort)), *self._erase(), *tell, Aborted(abort_error(abort))]

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        p = self.parameters
        if self.state not in ACTIVE or message.round != self.round:
            return []
        if sender in p.client_index and message.code in (Code.BAD_MODEL, Code.WRONG_PUBLIC_KEY):
            return self._abort(Code(message.code), sender, f"the owner refused the round: {message.cause}")
        if sender != p.proxy:
            return []
        return self._abort(Code(message.code), message.party, message.cause, message.remedy)

    def _on_refused(self, sender: str, message: Refused, now: float) -> list[Instruction]:
        if sender != self.parameters.proxy or message.round != self.round or self.state not in ACTIVE:
            return []
        if message.code in (Code.TOO_EARLY, Code.MALFORMED, Code.NOT_EXPECTED):
            return []
        return self._abort(Code(message.code), sender, f"the proxy refused the round: {message.cause}")

    def _ended(self, sender: str, message: Message) -> list[Instruction]:
        """Someone speaks of a round that has ended: say how."""
        end = self._closed or self._abort_message
        if message.round == self.round and end is not None:
            return [Send(sender, end)]
        return self._refuse(sender, message, Code.PAST_ROUND, "the round is over")

    def _on_inquiry(self, sender: str, message: Inquiry, now: float) -> list[Instruction]:
        p = self.parameters
        if sender != p.proxy and sender not in p.client_index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        if self.state in ACTIVE and self._opened is not None:
            left, opened = int(1000 * (self._deadline - now)), self._opened
            if left <= 0 and sender in p.client_index:
                return []  # too late to join
            told = self._for_proxy(opened) if sender == p.proxy else opened
            return [Send(sender, replace(told, deadline_ms=max(1, min(left, opened.deadline_ms))))]
        end = self._closed or self._abort_message
        return [Send(sender, end)] if end is not None else []

    def tick(self, now: float) -> list[Instruction]:
        """Ask a silent proxy again; give up when it stays away."""
        p = self.parameters
        if self.state not in ACTIVE:
            return []
        if now >= self._give_up:
            remedy = "Nothing was released. Restart the proxy, then go on with the study."
            return self._abort(Code.MISSING_PROXY, p.proxy, "no word from the proxy in time", remedy)
        if self._summed is not None:
            out = self._ask_chunks(again=True)
        elif self._countersigned is not None:
            out = [Send(p.proxy, self._countersigned)]
        else:
            out = [Send(p.proxy, Inquiry(study_hash=p.study_hash, round=self.round))]
        return [*out, Wake(min(now + p.retry_seconds, self._give_up))]

    @classmethod
    def restore(
        cls,
        parameters: EncryptedSumParameters,
        records: Mapping[str, bytes],
        *,
        now: float,
        **parts: Unpack[MakerParts],
    ) -> tuple[DataUserMachine, list[Instruction]]:
        """The machine as its records have it, its key made if there is none: the same round, or the same end."""
        first: list[Instruction] = []
        if "decrypting-key" in records:
            decrypting = parameters.scheme.secret_key(Secret(records["decrypting-key"]))
        elif "open" in records:  # a second key for a study that began is never made
            raise damaged()
        else:
            decrypting = parameters.scheme.generate(parts["source"])
            first.append(Persist("decrypting-key", decrypting.reveal().reveal(), secret=True))
        machine = cls(parameters, decrypting, **parts)
        machine._recall(dict(records))
        opened = decode(records["open"]) if "open" in records else None
        if not isinstance(opened, RoundOpen) or opened.round != machine.round:
            return machine, [*first, *machine._reopen(opened)]

        def said(key: str) -> Message | None:
            message = decode(records[key]) if key in records else None
            return message if message is not None and message.round == machine.round else None

        result = ResultRecord.from_bytes(records["result"]) if "result" in records else None
        abort, kept, agreed = said("aborted"), said("participants"), said("countersigned")
        out = machine._announce(opened, now)
        machine.state = _S.OPEN
        if isinstance(kept, Participants) and isinstance(agreed, Countersigned):
            machine._set, machine._countersigned, machine.state = kept, agreed, _S.AGREED
        if result is not None and result.round == machine.round:
            machine.state = _S.FINISHED
            return machine, [*machine._erase(), *machine._say_finished(result)]
        if isinstance(abort, Abort):
            machine.state, machine._abort_message = _S.ABORTED, abort
            return machine, [*machine._erase(), Aborted(abort_error(abort))]
        if machine._noise is None:  # it may have been used: it is never drawn again
            raise damaged()
        return machine, [*first, *out]

    def _reopen(self, opened: Message | None) -> list[Instruction]:
        """Killed between the record of a round and its opening: nobody has heard of it; the noise is taken again."""
        before = opened.round if isinstance(opened, RoundOpen) else 0
        if self._record is not None and self._noise is not None and before < self.round:
            self._drawn = NoiseRecord(round=self.round, noise=self._noise)
            self._noise, self._record, self.round = None, None, before
        return []

    def erase(self) -> None:
        """The study is over: nothing of it can be decrypted any more."""
        self._decrypting.erase()
