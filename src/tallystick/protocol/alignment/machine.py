"""An institution that finds the people it has in common with the others, by private set intersection.

Lists go round: each institution blinds its identifiers with its own key, in a random order, and hands them to the next
one in the study's order, who blinds them too, and so on. A list that carries all keys is told to everybody. The same
person then has the same value in every list [HFH99], and everybody knows where
its own people stand in its own list, which all have kept in order.

A list is as long as the study says that its owner's data set is at most: whoever has fewer people fills it up with
random names, so its length tells nothing. Key, order and names come from one seed, and that and every list are kept
before they leave: after a crash the same bytes are said again, and nobody's second list is blinded.

Learned by the institutions, and by nobody else: who of one's own people each of the others has, and how many the others
have in common. Not learned: anybody whom oneself has not. A list is bound to its owner's registered data set and to
its length; a longer one, made up to try names, is refused. What travels is fresh for each study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.crypto.blinded_identifiers import POINT_BYTES, BlindingKey, points_of
from tallystick.crypto.prg import SEED_BYTES, AesStream
from tallystick.protocol.alignment.codec import decode, encode
from tallystick.protocol.alignment.messages import BlindedList, Code, Refused, Wanted
from tallystick.protocol.instructions import Aborted, Persist, Send, Wake
from tallystick.protocol.machine import Machine
from tallystick.protocol.patience import Patience
from tallystick.protocol.summing import rule_of

SEED, PEOPLE, POSITIONS = "alignment-seed", "alignment-people", "alignment-positions"
"""Records of what must be the same after a restart: all are secret."""
_LIST = "alignment-list-"


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

    def __init__(self, parameters: AlignmentParameters, name: str, *, seed: bytes) -> None:
        super().__init__(name, parameters.study_hash, AlignmentState.READY)
        self.parameters, self._seed = parameters, seed
        self._key = BlindingKey.generate(AesStream(seed, b"tallystick/alignment/key/1"))
        self._index = parameters.parties.index(name)
        self._order: NDArray[np.int64] | None = None
        self._said: dict[int, BlindedList] = {}
        self._complete: dict[int, list[bytes]] = {}
        self._people: bytes | None = None
        self._positions: NDArray[np.int64] | None = None
        self._patience = Patience()
        self._handlers = {BlindedList: self._take_list, Wanted: self._say_again, Refused: self._was_refused}

    @classmethod
    def restore(
        cls, parameters: AlignmentParameters, name: str, records: Mapping[str, bytes], source: WordSource
    ) -> tuple[AligningMachine, list[Any]]:
        """The machine as its records have it; ``source`` gives the seed if there are none."""
        seed = records[SEED] if SEED in records else source.bytes(SEED_BYTES)
        first: list[Any] = [] if SEED in records else [Persist(SEED, seed, secret=True)]
        machine = cls(parameters, name, seed=seed)
        for owner in range(len(parameters.parties)):
            kept = records.get(_LIST + str(owner))
            said = None if kept is None else decode(kept)
            if isinstance(said, BlindedList):
                machine._said[owner] = said
                if said.hops == len(parameters.parties):
                    machine._complete[owner] = _points(said)
        machine._people = records.get(PEOPLE)
        machine._positions = np.frombuffer(records[POSITIONS], "<i8").astype(np.int64) if POSITIONS in records else None
        return machine, first

    def start(self, identifiers: Sequence[str]) -> list[Any]:
        """Blind this institution's own list, all different; its order is drawn at random and kept here."""
        p, size = self.parameters, self.parameters.sizes[self._index]
        if len(set(identifiers)) != len(identifiers):
            raise LocalProtocolError("an identifier is in this institution's list twice", party=self.name)
        if len(identifiers) > size:
            raise DataError(
                f"{len(identifiers):,} people are named here, and the study binds this institution's list to {size:,}",
                rule="lists-have-lengths",
                party=self.name,
                remedy=f"Have the analyst state people = {len(identifiers)} or more under [data.holders.{self.name}], "
                "in a new version.",
            )
        people = digest(b"tallystick/alignment/people/1", self._seed, *(name.encode() for name in identifiers))
        if self._people is not None and self._people != people:
            raise DataError(
                "the identifiers have changed since this institution's list was shown to the other institutions",
                rule="records-are-those-shown",
                party=self.name,
                remedy="Nothing more was sent. Propose the study as a new version; it is aligned afresh.",
            )
        self._move(AlignmentEvent.START)
        source = AesStream(self._seed, b"tallystick/alignment/order/1")
        # No canonical identifier has a control character in it, so nobody's is one of these.
        filled = [*identifiers, *("\0" + source.bytes(16).hex() for _ in range(size - len(identifiers)))]
        self._order = np.argsort(source.words(size), kind="stable")
        if self._positions is not None:
            self._move(AlignmentEvent.COMPLETE)
            return [Aligned(self._positions)]
        if self._index in self._said:
            return [*self._again(self._said[self._index]), *self._compared()]
        points = points_of([filled[at] for at in self._order], p.context)
        return [Persist(PEOPLE, people, secret=True), *self._pass_on(self._index, 0, points)]

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
        points = _points(message)
        if len(set(points)) != len(points):
            return self._refuse(sender, message, Code.REPEATED, "an identifier is in the list twice")
        if message.hops == m:
            if owner in self._complete or self.state is AlignmentState.DONE:
                return []
            self._complete[owner] = points
            self._patience.heard()
            return self._compared()
        if (owner + message.hops) % m != self._index:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this list is somebody else's to blind")
        if owner in self._said:
            return []  # a second list of the same owner would be blinded for whoever tries names
        try:
            self._patience.heard()
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
        self._said[owner] = message
        if message.hops == len(p.parties):
            self._complete[owner] = blinded
        kept = Persist(_LIST + str(owner), encode(message), secret=True)
        return [kept, *self._again(message), *self._compared()]

    def _again(self, said: BlindedList) -> list[Any]:
        """What was said to those whom it is for: the next to blind it or, once it carries all keys, everybody."""
        parties = self.parameters.parties
        if said.hops < len(parties):
            return [Send(parties[(self._index + 1) % len(parties)], said)]
        return [Send(name, said) for name in parties if name != self.name]

    def _say_again(self, sender: str, message: Wanted, now: float) -> list[Any]:
        said = self._said.get(message.owner)
        if said is None or said.hops != message.hops:
            return []
        return [step for step in self._again(said) if step.to == sender]

    def _compared(self) -> list[Any]:
        if len(self._complete) < len(self.parameters.parties) or self._order is None:
            return []
        self._move(AlignmentEvent.COMPLETE)
        shared = set.intersection(*map(set, self._complete.values()))
        own = {point: int(self._order[at]) for at, point in enumerate(self._complete[self._index])}
        positions = np.array([own[point] for point in sorted(shared)], dtype=np.int64)
        self._complete.clear()
        return [Persist(POSITIONS, positions.astype("<i8").tobytes(), secret=True), Aligned(positions)]

    def tick(self, now: float) -> list[Any]:
        """Ask again for the lists that have not come."""
        if self.state is not AlignmentState.WAITING or not self._patience.over(now):
            return []
        m, own, parties = len(self.parameters.parties), self._index, self.parameters.parties
        # Every list that is to be blinded here comes from the one before; a complete one from who had it last.
        missing = [((own - 1) % m, owner, (own - owner) % m) for owner in range(m) if owner not in self._said]
        missing += [((o - 1) % m, o, m) for o in range(m) if o not in self._complete and (o - 1) % m != own]
        asked = [
            Send(parties[who], Wanted(study_hash=self.study_hash, owner=owner, hops=hops))
            for who, owner, hops in missing
        ]
        return [*asked, Wake(self._patience.until)]

    def _was_refused(self, sender: str, message: Refused, now: float) -> list[Any]:
        return [Aborted(RemoteProtocolError(message.cause, party=sender, rule=rule_of(Code(message.code))))]

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]


def _points(message: BlindedList) -> list[bytes]:
    raw = message.points
    return [raw[at : at + POINT_BYTES] for at in range(0, len(raw), POINT_BYTES)]
