"""An institution that finds the people it has in common with the others, by private set intersection.

Lists go round: each institution blinds its identifiers with its own key, in a random order, and hands them to the next
one in the study's order, who blinds them too, and so on. A list that carries all keys is told to everybody. The same
person then has the same value in every list [HFH99], and everybody knows where
its own people stand in its own list, which all have kept in order.

Learned by the institutions, and by nobody else: who of one's own people each of the others has, and how many the others
have in common. Not learned: anybody whom oneself has not. A list is bound to its owner's registered data set and to how
many people that names; a longer one, made up to try names, is refused. What travels is fresh for each study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.crypto.blinded_identifiers import POINT_BYTES, BlindingKey, points_of
from tallystick.protocol.alignment.codec import decode
from tallystick.protocol.alignment.messages import BlindedList, Code, Refused
from tallystick.protocol.instructions import Send
from tallystick.protocol.machine import Machine


@dataclass(frozen=True, kw_only=True)
class AlignmentParameters:
    """The same at every party: who takes part, and to which data set of how many people each list is bound."""

    study_hash: bytes
    parties: tuple[str, ...]
    sizes: tuple[int, ...]
    data_sets: tuple[bytes, ...]
    """A hash for each: of its registered data set, as the study names it."""

    def __post_init__(self) -> None:
        if not 2 <= len(self.parties) == len(self.sizes) == len(self.data_sets) == len(set(self.parties)):
            raise LocalProtocolError("an alignment is of two or more institutions, each with a size and a data set")
        if min(self.sizes) < 1:
            raise LocalProtocolError("an institution without people has nobody in common with others")

    @property
    def context(self) -> bytes:
        """What identifiers are hashed within: lists of two studies, or of other data, do not match."""
        facts = [name.encode() for name in self.parties] + list(self.data_sets)
        sizes = [size.to_bytes(8, "little") for size in self.sizes]
        return digest(b"tallystick/alignment/1", self.study_hash, *facts, *sizes)


class AlignmentState(Enum):
    READY = "ready"
    WAITING = "waiting for lists"
    DONE = "aligned"


class AlignmentEvent(Enum):
    START = "start"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Aligned:
    """The end: this institution's positions of the people whom all have, in the same order at all of them."""

    positions: NDArray[np.int64] = field(repr=False)


class AligningMachine(Machine):
    """See the module."""

    TRANSITIONS: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        (AlignmentState.READY, AlignmentEvent.START): AlignmentState.WAITING,
        (AlignmentState.WAITING, AlignmentEvent.COMPLETE): AlignmentState.DONE,
    }
    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this institution aligns for another study"

    def __init__(self, parameters: AlignmentParameters, name: str, *, key: BlindingKey) -> None:
        super().__init__(name, parameters.study_hash, AlignmentState.READY)
        self.parameters, self._key = parameters, key
        self._index = parameters.parties.index(name)
        self._order: NDArray[np.int64] | None = None
        self._blinded: set[int] = set()
        self._complete: dict[int, list[bytes]] = {}
        self._handlers = {BlindedList: self._take_list, Refused: lambda *_: []}

    def start(self, identifiers: Sequence[str], source: WordSource) -> list[Any]:
        """Blind this institution's own list, all different; its order is drawn at random and kept here."""
        p = self.parameters
        if len(identifiers) != p.sizes[self._index] or len(set(identifiers)) != len(identifiers):
            raise LocalProtocolError(
                f"{len(identifiers)} identifiers, or one of them twice, where the study is bound to "
                f"{p.sizes[self._index]} people",
                party=self.name,
            )
        self._move(AlignmentEvent.START)
        self._order = np.argsort(source.words(len(identifiers)), kind="stable")
        points = points_of([identifiers[at] for at in self._order], p.context)
        return self._pass_on(self._index, 0, points)

    def _take_list(self, sender: str, message: BlindedList, now: float) -> list[Any]:
        p = self.parameters
        if self.state is AlignmentState.READY:
            raise LocalProtocolError("a list came before this institution has started", party=self.name)
        m, owner = len(p.parties), message.owner
        if owner >= m or not 1 <= message.hops <= m:
            return self._refuse(sender, message, Code.MALFORMED, "a list of nobody")
        # After h keys a list of o's is at o + h − 1, who hands it to the next, or to everybody if it was the last.
        if sender != p.parties[(owner + message.hops - 1) % m]:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this list is somebody else's to pass on")
        if message.data_set != p.data_sets[owner]:
            return self._refuse(sender, message, Code.WRONG_DATA_SET, "the list is of another data set")
        if len(message.points) != POINT_BYTES * p.sizes[owner]:
            return self._refuse(sender, message, Code.WRONG_SIZE, "the list has not the size it is bound to")
        points = [message.points[at : at + POINT_BYTES] for at in range(0, len(message.points), POINT_BYTES)]
        if len(set(points)) != len(points):
            return self._refuse(sender, message, Code.REPEATED, "an identifier is in the list twice")
        if message.hops == m:
            if owner in self._complete:
                return []
            return self._completed(owner, points)
        if (owner + message.hops) % m != self._index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this list is somebody else's to blind")
        if owner in self._blinded:
            return []  # a second list of the same owner would be blinded for whoever tries names
        self._blinded.add(owner)
        try:
            return self._pass_on(owner, message.hops, points)
        except RemoteProtocolError as error:
            return self._refuse(sender, message, Code.MALFORMED, error.cause)

    def _pass_on(self, owner: int, hops: int, points: list[bytes]) -> list[Any]:
        p = self.parameters
        blinded = self._key.blind(points)
        message = BlindedList(
            study_hash=p.study_hash,
            owner=owner,
            hops=hops + 1,
            data_set=p.data_sets[owner],
            points=b"".join(blinded),
        )
        if hops + 1 < len(p.parties):
            return [Send(p.parties[(self._index + 1) % len(p.parties)], message)]
        others: list[Any] = [Send(name, message) for name in p.parties if name != self.name]
        return others + self._completed(owner, blinded)

    def _completed(self, owner: int, points: list[bytes]) -> list[Any]:
        self._complete[owner] = points
        if len(self._complete) < len(self.parameters.parties) or self._order is None:
            return []
        self._move(AlignmentEvent.COMPLETE)
        shared = set.intersection(*map(set, self._complete.values()))
        own = {point: int(self._order[at]) for at, point in enumerate(self._complete[self._index])}
        return [Aligned(np.array([own[point] for point in sorted(shared)], dtype=np.int64))]

    def tick(self, now: float) -> list[Any]:
        return []

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]
