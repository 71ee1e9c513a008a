"""How whoever reduces learns the labels of the aligned people: it asks the one institution that has them, and is told.

    reducer: wanted, with a signed key of its own for the study   ->   holder
    reducer   <-   holder: labels, sealed to that key, signed

Once means: one vector. Both keep it, as a secret that is erased with the study's others, the holder before it leaves
and the reducer before it goes on from it; what is said again is the same bytes, and a second, different vector is
refused. Whoever reduces asks when its first sum is there: then the holder's charge is countersigned and its rows are
aligned. A holder that is asked earlier tells when it can.

A vector from the holder that is none (another length, other values, a signature that is not its own) ends the study:
the holder would say it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, LocalProtocolError, RoundAborted, TallystickError
from tallystick.core.identifiers import digest
from tallystick.crypto.key_agreement import StudyKey
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.protocol.instructions import Aborted, Persist, Send, Wake
from tallystick.protocol.labels.codec import decode, encode
from tallystick.protocol.labels.messages import Code, Labels, LabelsWanted, Refused
from tallystick.protocol.machine import Machine
from tallystick.protocol.patience import Patience
from tallystick.protocol.summing import rule_of

LABELS = "labels"
"""The record of the vector, at both: it is secret."""
_SIGNS = np.array([0.0, 1.0, -1.0])


@dataclass(frozen=True, kw_only=True)
class LabelsParameters:
    """The same at every party: who tells whom, and how many."""

    study_hash: bytes
    """The rounds' own: of this study with these parties."""
    study: bytes
    """The study's, under which keys are signed."""
    holder: str
    reducer: str
    reducer_role: str
    records: int
    identities: Mapping[str, VerifyKey] = field(repr=False)

    def signed(self, signs: bytes) -> bytes:
        """What the holder signs."""
        return digest(b"tallystick/labels/1", self.study_hash, self.holder.encode(), self.reducer.encode(), signs)


class TakingState(Enum):
    WAITING = "waiting for the labels"
    TOLD = "has been told"


class TakingEvent(Enum):
    TAKE = "labels kept"


class TellingState(Enum):
    ALIGNING = "has no rows yet"
    HELD = "has the labels"


class TellingEvent(Enum):
    ALIGNED = "labels of the rows kept"


@dataclass(frozen=True, slots=True)
class Told:
    """The end at the reducer: ±1 for each person, 0 for no label."""

    labels: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Held:
    """The labels are to be sealed to this key, which has been verified; comes before they are sent."""

    key: StudyKey


class _LabelsMachine(Machine):
    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "these are the labels of another study"

    def __init__(self, parameters: LabelsParameters, name: str, state: Enum) -> None:
        super().__init__(name, parameters.study_hash, state)
        self.parameters = parameters

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]

    def tick(self, now: float) -> list[Any]:
        return []


class TakingMachine(_LabelsMachine):
    """At whoever reduces."""

    TRANSITIONS: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        (TakingState.WAITING, TakingEvent.TAKE): TakingState.TOLD,
    }

    def __init__(self, parameters: LabelsParameters, key: StudyKey, records: Mapping[str, bytes]) -> None:
        super().__init__(parameters, parameters.reducer, TakingState.WAITING)
        self._key, self._patience = key, Patience()
        self._handlers = {Labels: self._take, Refused: self._was_refused}
        self._signs: bytes | None = None
        kept = decode(records[LABELS]) if LABELS in records else None
        if isinstance(kept, Labels):
            self._signs = kept.signs
            self._move(TakingEvent.TAKE)

    def begin(self, now: float) -> list[Any]:
        """Ask; or, after a restart, go on with what was told."""
        if self._signs is not None:
            return [Told(_values(self._signs))]
        return self.tick(now)

    def tick(self, now: float) -> list[Any]:
        """Ask again for what has not come."""
        if self._signs is not None or not self._patience.over(now):
            return []
        wanted = LabelsWanted(study_hash=self.study_hash, public=self._key.public, signature=self._key.signature)
        return [Send(self.parameters.holder, wanted), Wake(self._patience.until)]

    def _take(self, sender: str, message: Labels, now: float) -> list[Any]:
        p = self.parameters
        if sender != p.holder:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the labels are another institution's to tell")
        if self._signs is not None:
            if message.signs == self._signs:
                return []
            return self._refuse(sender, message, Code.OTHER_LABELS, "labels are told once, and other ones are kept")
        if len(message.signs) != p.records:
            return self._end(sender, message, Code.WRONG_SIZE, f"{len(message.signs):,} labels of {p.records:,} people")
        if max(message.signs, default=0) >= len(_SIGNS):
            return self._end(sender, message, Code.NO_LABELS, "a label is that of no class")
        try:
            p.identities[sender].verify(p.signed(message.signs), message.signature)
        except TallystickError:
            return self._end(sender, message, Code.LABELS_SIGNATURE, "the labels are not signed by who tells them")
        self._signs = message.signs
        self._move(TakingEvent.TAKE)
        return [Persist(LABELS, encode(message), secret=True), Told(_values(self._signs))]

    def _end(self, sender: str, message: Labels, code: Code, cause: str) -> list[Any]:
        return [*self._refuse(sender, message, code, cause), Aborted(_error(sender, code, cause))]

    def _was_refused(self, sender: str, message: Refused, now: float) -> list[Any]:
        if sender != self.parameters.holder:
            return []
        return [Aborted(_error(sender, Code(message.code), message.cause))]


class TellingMachine(_LabelsMachine):
    """At the institution that has the labels."""

    TRANSITIONS: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        (TellingState.ALIGNING, TellingEvent.ALIGNED): TellingState.HELD,
    }

    def __init__(self, parameters: LabelsParameters, records: Mapping[str, bytes]) -> None:
        super().__init__(parameters, parameters.holder, TellingState.ALIGNING)
        self._said: Labels | None = None
        self._key: StudyKey | None = None
        kept = decode(records[LABELS]) if LABELS in records else None
        self._kept = kept if isinstance(kept, Labels) else None
        self._handlers = {LabelsWanted: self._asked, Refused: self._was_refused}

    def have(self, labels: NDArray[np.float64], signing: SigningKey) -> list[Any]:
        """The rows are aligned: these are their labels."""
        p = self.parameters
        signs = np.where(labels > 0, 1, np.where(labels < 0, 2, 0)).astype(np.uint8).tobytes()
        if len(signs) != p.records:
            raise LocalProtocolError(f"{len(signs)} labels of {p.records} people", party=self.name)
        if self._kept is not None and self._kept.signs != signs:
            raise DataError(
                "the labels have changed since they were told to whoever reduces",
                rule="records-are-those-shown",
                party=self.name,
                remedy="Nothing more was sent. Propose the study as a new version; it is aligned afresh.",
            )
        self._move(TellingEvent.ALIGNED)
        kept, self._said = (
            self._kept is not None,
            self._kept or Labels(study_hash=self.study_hash, signature=signing.sign(p.signed(signs)), signs=signs),
        )
        return [*([] if kept else [Persist(LABELS, encode(self._said), secret=True)]), *self._tell()]

    def _asked(self, sender: str, message: LabelsWanted, now: float) -> list[Any]:
        p = self.parameters
        if sender != p.reducer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "the labels are told to whoever reduces")
        key = StudyKey(
            study_hash=p.study,
            party=p.reducer,
            role=p.reducer_role,
            public=message.public,
            signature=message.signature,
        )
        try:
            key.verify(p.identities[sender])
        except TallystickError:
            return self._refuse(sender, message, Code.BAD_STUDY_KEY, "this key is not signed for the study")
        if self._key is not None and self._key.public != key.public:
            return self._refuse(sender, message, Code.BAD_STUDY_KEY, "labels are told to one key, and it was another")
        self._key = key
        return self._tell()

    def _tell(self) -> list[Any]:
        if self._said is None or self._key is None:
            return []
        return [Held(self._key), Send(self.parameters.reducer, self._said)]

    def _was_refused(self, sender: str, message: Refused, now: float) -> list[Any]:
        if sender != self.parameters.reducer:
            return []
        return [Aborted(_error(sender, Code(message.code), message.cause))]


def _values(signs: bytes) -> NDArray[np.float64]:
    return _SIGNS[np.frombuffer(signs, dtype=np.uint8)]


def _error(party: str, code: Code, cause: str) -> RoundAborted:
    return RoundAborted(
        f"the labels were not taken: {cause}",
        party=party,
        rule=rule_of(code),
        remedy="Nothing was released, and what the study costs stays charged. Compare versions with that party; then "
        "propose the study as a new version.",
    )
