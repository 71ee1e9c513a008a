"""A client that is its own reducer: it adds up what the reducer has collected, and goes on with nothing but its own.

THEORY. The reducer is left with the order of things: who is waited for, what is passed on when. It decides nothing.

*The total.* For every round each peer is handed the :class:`Evidence`, and computes the total itself (``opening``). One
set a round can have been signed by more than (n + c)/2 clients, the set names the vectors, and they their owners'
seeds: so all peers come to the same total, or to none. A second evidence for a round that gives another total means two
signed sets, whose difference would be somebody's exact sum: whoever is shown it stops, and says so. (That two sets can
be signed at all takes more colluders than the study allows for; each honest client signs one, ``client``.)

*The model.* The program is deterministic, so from its totals a peer knows which model the next round has to be opened
with (:class:`Replica`). A reducer that opens it with any other is refused before anything is computed; to lie to one
peer alone does not help either, for peers compare models in their packets.

*Noise.* Every peer sees totals, and knows its own noise and that of the c clients it colludes with: h is sized for
c + 1 (``trust/masks``). What evidence shows beside the total are seeds of masks, whose vectors are public here, and
shares of them. With the self seeds open, the vectors of the survivors are hidden by their pair masks alone, from peers
as from a reducer: the argument in ``client`` has the reducer see them all.

What is kept: ``total/ROUND``, the total of every round that this peer has seen come out, or that there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, Protocol, Unpack

import numpy as np

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.protocol.instructions import NoisySum, Persist, Send
from tallystick.protocol.masked_sum.client import ClientMachine
from tallystick.protocol.masked_sum.client_masking import MaskerParts
from tallystick.protocol.masked_sum.codec import decode
from tallystick.protocol.masked_sum.machine import Instruction
from tallystick.protocol.masked_sum.messages import (
    Abort,
    Code,
    Evidence,
    Inquiry,
    Missed,
    RoundClosed,
    RoundOpen,
    Signed,
    Survivors,
)
from tallystick.protocol.masked_sum.opening import OUT_OF_RANGE, Open, open_evidence
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters
from tallystick.protocol.masked_sum.records import ResultRecord

TOTAL = "total/"


class Replica(Protocol):
    """This peer's own run of the program."""

    @property
    def round(self) -> int:
        """The round whose total comes next; 0 once the program has ended."""
        ...

    @property
    def model(self) -> bytes:
        """What that round has to be opened with."""
        ...

    def take(self, result: NoisySum) -> None:
        """The total of that round."""
        ...

    def skip(self, round: int) -> None:
        """That round has none, and never will have."""
        ...


class PeerParts(MaskerParts):
    """What a peer's machine is made of, beside the study's parameters and its name."""

    replica: Replica
    open: NotRequired[Open]
    """How evidence is opened: a simulation opens the same bytes once for all peers."""


class PeerMachine(ClientMachine):
    """One institution's part in the masked sums of a study in which everybody adds up."""

    def __init__(self, parameters: MaskedSumParameters, name: str, **parts: Unpack[PeerParts]) -> None:
        replica, opener = parts.pop("replica"), parts.pop("open", open_evidence)  # type: ignore[misc]
        super().__init__(parameters, name, **parts)  # type: ignore[misc]
        if not parameters.every_peer:
            raise LocalProtocolError("this study has a reducer that alone adds up", party=name)
        self._replica, self._open = replica, opener
        self._totals: dict[int, ResultRecord] = {}
        self._agreed: dict[int, bytes] = {}  # the last set that was signed, also when its round is over here
        self._waiting: RoundOpen | None = None  # until what came of the rounds before it is known
        self._stopped = ""  # why this peer takes no further part in the study
        self._handlers[Evidence] = self._on_evidence

    # -- models ------------------------------------------------------------------------------------------------------

    def _on_open(self, sender: str, message: RoundOpen, now: float) -> list[Instruction]:
        """A model is used if it is the one that this peer has come to itself."""
        own, p = self._replica, self.parameters
        if sender != p.reducer or not 0 < message.round <= p.last_round:
            return super()._on_open(sender, message, now)
        if self._stopped:
            return self._object(message.round, Code.SET_DISAGREEMENT, sender, self._stopped)
        if message.round in self._totals:
            # Over, whether this peer was in it or not: what it is opened with is compared with nothing any more. A
            # round that is said to be given up before it is opened must not be had at a model of the relay's choice.
            return []
        if 0 < own.round < message.round:
            self._waiting = message
            return [self._missed()]
        self._waiting = None
        if own.round == 0 or message.model != own.model:
            cause = "the round was opened with another model than follows from the totals that this peer has added up"
            return self._object(message.round, Code.BAD_MODEL, sender, cause)
        return super()._on_open(sender, message, now)

    def _missed(self) -> Send:
        return Send(self.parameters.reducer, Missed(study_hash=self.study_hash, round=self._replica.round))

    # -- totals ------------------------------------------------------------------------------------------------------

    def _on_evidence(self, sender: str, message: Evidence, now: float) -> list[Instruction]:
        p, own = self.parameters, self._replica
        if sender != p.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "evidence is passed on by the reducer")
        if not 0 < message.round <= p.last_round or message.round > own.round > 0:
            return []  # what came before it is asked for first
        try:
            found = self._open(p, message)
        except RemoteProtocolError as error:
            code = Code.OUT_OF_RANGE if error.rule == OUT_OF_RANGE else Code.BAD_SHARE
            return self._object(message.round, code, error.party or sender, error.cause)
        known = self._totals.get(message.round)
        if known is not None:
            if found.agreement == known.agreement and (found.total == known.total).all():
                return []
            return self._stop(message.round, "there is a second survivor set of a round whose total this peer has")
        if message.round != own.round:
            return []  # the program asks no more
        if found.agreement != self._agreed.get(message.round, found.agreement):
            return self._stop(message.round, "others have unmasked another survivor set than this peer has signed")
        self._answer(found)
        return [Persist(f"{TOTAL}{found.round}", found.to_bytes()), *self._go_on(now)]

    def _signature(self) -> Signed:
        signed = super()._signature()
        self._agreed = {signed.round: signed.agreement}
        return signed

    def _stop(self, round: int, cause: str) -> list[Instruction]:
        """Two stories of one round: this peer takes no part in any further one, also after a restart."""
        self._stopped = cause
        return [
            Persist("stopped", cause.encode()),
            *self._end(),  # the round that it is in too, which may be a later one
            *self._object(round, Code.SET_DISAGREEMENT, self.parameters.reducer, cause),
        ]

    def _answer(self, found: ResultRecord) -> None:
        self._totals[found.round] = found
        if found.clients:
            self._replica.take(found.summed(self.parameters.clients))
        else:
            self._replica.skip(found.round)

    def _go_on(self, now: float) -> list[Instruction]:
        """Take up the round that was opened while this peer was behind, or ask for what is still missing."""
        waiting, self._waiting = self._waiting, None
        return [] if waiting is None else self._on_open(self.parameters.reducer, waiting, now)

    def _on_closed(self, sender: str, message: RoundClosed, now: float) -> list[Instruction]:
        out = super()._on_closed(sender, message, now)
        behind = sender == self.parameters.reducer and 0 < self._replica.round <= message.round
        return [*out, self._missed()] if behind else out

    def _on_abort(self, sender: str, message: Abort, now: float) -> list[Instruction]:
        out = super()._on_abort(sender, message, now)
        if sender != self.parameters.reducer or message.round > self._replica.round > 0:
            return out
        if message.round in self._totals and self._totals[message.round].clients:
            return [*out, *self._stop(message.round, "a round is said to be given up whose total this peer has")]
        if message.round != self._replica.round:
            return out
        spent = ResultRecord(round=message.round, agreement=bytes(32), clients=(), total=np.zeros(0, dtype=np.int64))
        self._answer(spent)
        return [*out, Persist(f"{TOTAL}{message.round}", spent.to_bytes()), *self._go_on(now)]

    @classmethod
    def restore(  # type: ignore[override]
        cls, parameters: MaskedSumParameters, name: str, records: Mapping[str, bytes], **parts: Unpack[PeerParts]
    ) -> tuple[PeerMachine, list[Instruction]]:
        """The machine as its records have it; the program is run again on the totals that were kept."""
        machine, first = super().restore(parameters, name, records, **parts)  # type: ignore[misc]
        if not isinstance(machine, PeerMachine):
            raise LocalProtocolError("another machine was restored than a peer's", party=name)
        for found in kept_totals(records):
            machine._answer(found)
        agreed = decode(records["agreed"]) if "agreed" in records else None
        if isinstance(agreed, Survivors):
            machine._agreed = {agreed.round: agreed.digest()}
        machine._stopped = why_stopped(records)
        if machine._stopped:  # nothing is said again
            stays = [s for s in first if not isinstance(s, Send) or isinstance(s.message, Inquiry)]
            return machine, [*machine._end(), *stays]
        return machine, first


def why_stopped(records: Mapping[str, bytes]) -> str:
    """Why a peer takes no further part; empty if it does."""
    return records.get("stopped", b"").decode()


def kept_totals(records: Mapping[str, bytes]) -> list[ResultRecord]:
    """The totals that a peer has kept, in the order of their rounds."""
    kept = [ResultRecord.from_bytes(raw) for key, raw in records.items() if key.startswith(TOTAL)]
    return sorted(kept, key=lambda found: found.round)
