"""Gossip in one process, under faults: loss, doubling, reordering, crashes between any two instructions, bad peers.

Time goes in ticks; everything is a function of the schedule. A crash loses a member's memory and what it was about to
do; it comes back some ticks later with what it had persisted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.core.errors import DataError
from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.gossip import (
    Ball,
    CollectorMachine,
    GossipParameters,
    Isolated,
    ModelWalks,
    Noticed,
    PeerMachine,
    Published,
    decode,
    encode,
)
from tallystick.protocol.gossip.collector import OPENED
from tallystick.protocol.gossip.messages import Batch, Message, Publication, Walk, publication_digest
from tallystick.protocol.instructions import Compute, Finished, Held, Persist, Send

STUDY, SESSION = digest(b"study"), digest(b"session")
BOARD = "board"
BODY = 4


def validate(_name: str, body: bytes) -> None:
    if len(body) != BODY or body[0] > 9:
        raise DataError("not a record of this study")


@dataclass(frozen=True)
class Crash:
    tick: int
    member: int
    after: int
    """Instructions of that tick that are still carried out."""
    back: int = 3


@dataclass(frozen=True)
class Faults:
    seed: int = 0
    peers: int = 6
    loss: float = 0.0
    doubled: float = 0.0
    delay: int = 0
    crashes: tuple[Crash, ...] = ()
    equivocators: frozenset[int] = frozenset()
    poisoners: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    """Peers that nothing reaches, and of which nothing is heard."""


class CrashedError(Exception):
    pass


@dataclass
class Member:
    name: str
    records: dict[str, bytes] = field(default_factory=dict)
    machine: Any = None
    back: int | None = None
    steps: int | None = None
    draws: int = 0
    sent: set[bytes] = field(default_factory=set)
    """Bodies of its own that have left."""


class World:
    def __init__(self, faults: Faults, *, walks: bool = False, deadline: float = 1e9) -> None:
        self.faults, self._walks = faults, walks
        self.now = 0
        self._random = np.random.default_rng(faults.seed)
        self.names = tuple(f"peer-{i}" for i in range(faults.peers))
        self.keys = {name: SigningKey(derive(bytes(32), name.encode())) for name in self.names}
        given: dict[str, Any] = {
            "study_hash": SESSION, "study": STUDY, "peers": self.names, "collector": BOARD,
            "identities": {name: key.public for name, key in self.keys.items()}, "validate": validate,
            "body_limit": 64, "min_peers": 3, "cycle_seconds": 1.0, "round_seconds": deadline,
        }  # fmt: skip
        self.parameters = GossipParameters(**{**given, **self.study_facts()})
        self.members = [Member(name) for name in (*self.names, BOARD)]
        self.waiting: list[tuple[int, str, str, bytes]] = []
        self.finished: list[Any] = []
        self.noticed: list[Noticed] = []
        self.isolated: set[str] = set()
        for member in self.members:
            self._start(member)

    # -- what is gossiped about: a study of its own, in a subclass -----------------------------------------------

    def study_facts(self) -> dict[str, Any]:
        """What of the parameters is the study's."""
        return {"models": Ball(3, 10.0)} if self._walks else {}

    def walks_of(self, name: str) -> ModelWalks | None:
        """A peer's model."""
        return ModelWalks(3, 10.0, lambda m: type(m)(m.age + 1, m.weights * 0.9 + 0.1)) if self._walks else None

    def drawn(self, member: Member) -> bytes:
        """What a peer publishes."""
        return bytes([member.draws % 10]) + int(self._random.integers(1 << 24)).to_bytes(3, "little")

    def lies(self) -> Walk:
        """What a peer that poisons says its model is."""
        huge = [np.full(3, 1e300), np.full(3, np.nan), np.full(2, 1.0), np.full(3, 9e3)]
        return Walk(study_hash=SESSION, age=(1 << 32) - 1, weights=huge[self.now % 4])

    # -- members ---------------------------------------------------------------------------------------------------

    def _start(self, member: Member) -> None:
        source = AesStream(derive(bytes(32), member.name.encode(), member.draws.to_bytes(4, "little")))
        records = dict(member.records)
        if member.name == BOARD:
            machine: Any = CollectorMachine(self.parameters, BOARD, records, source=source)
            member.machine = machine
            self._do(member, machine.open(self.now) if not self.finished else [])
            return
        walks, key = self.walks_of(member.name), self.keys[member.name]
        member.machine = PeerMachine(self.parameters, member.name, records, key=key, source=source, walks=walks)
        self._do(member, member.machine.begin(self.now))

    def member(self, name: str) -> Member:
        return next(m for m in self.members if m.name == name)

    def _do(self, member: Member, instructions: list[Any]) -> None:
        try:
            for step in instructions:
                self._one(member, step)
        except CrashedError:
            member.machine, member.steps = None, None

    def _one(self, member: Member, step: Any) -> None:
        if member.steps is not None:
            if member.steps == 0:
                raise CrashedError
            member.steps -= 1
        match step:
            case Persist(key=key, record=record):
                member.records[key] = record
            case Send(to=to, message=message):
                self._send(member, to, message)
            case Compute():
                member.draws += 1
                for more in member.machine.publish(self.drawn(member)):
                    self._one(member, more)
            case Finished(result=result):
                self.finished.append(result)
            case Held(error=error):
                self.finished.append(error)
            case Noticed():
                self.noticed.append(step)
            case Isolated():
                self.isolated.add(member.name)
            case Published():
                if member.name in self.names:
                    self.member(BOARD).records.setdefault("vouched", b"")
                    self.member(BOARD).records["vouched"] += member.name.encode() + b" "
            case _:
                pass

    # -- the network -----------------------------------------------------------------------------------------------

    def _send(self, member: Member, to: str, message: Message) -> None:
        index = self.names.index(member.name) if member.name in self.names else -1
        message = self._dishonest(member, index, to, message)
        if isinstance(message, Batch):
            member.sent |= {p.body for p in message.publications if p.peer == index}
        target = self.names.index(to) if to in self.names else -1
        if {index, target} & self.faults.cut or self._random.random() < self.faults.loss:
            return
        for _ in range(2 if self._random.random() < self.faults.doubled else 1):
            late = int(self._random.integers(self.faults.delay + 1))
            self.waiting.append((self.now + 1 + late, member.name, to, encode(message)))

    def _dishonest(self, member: Member, index: int, to: str, message: Message) -> Message:
        if index in self.faults.equivocators and isinstance(message, Batch) and to in self.names[::2]:
            return Batch(study_hash=SESSION, publications=tuple(map(self._another, message.publications)))
        if index in self.faults.poisoners:
            if to in self.names:  # a forged record with everything it says
                other = Publication(peer=(index + 1) % len(self.names), body=b"\x01bad", signature=b"s" * 64)
                junk = encode(Batch(study_hash=SESSION, publications=(other,)))
                self.waiting.append((self.now + 1, member.name, to, junk))
            if isinstance(message, Walk):
                return self.lies()
            if isinstance(message, Batch):
                others = [p for p in message.publications if p.peer != index]
                forged = [Publication(peer=p.peer, body=b"\x01bad", signature=p.signature) for p in others]
                own = [p for p in message.publications if p.peer == index]
                return Batch(study_hash=SESSION, publications=(*own, *forged))
        return message

    def _another(self, publication: Publication) -> Publication:
        name = self.names[publication.peer]
        if publication.peer not in self.faults.equivocators:
            return publication
        body = b"\x02two"
        signature = self.keys[name].sign(publication_digest(STUDY, name, body))
        return Publication(peer=publication.peer, body=body, signature=signature)

    def step(self) -> None:
        self.now += 1
        for crash in self.faults.crashes:
            if crash.tick == self.now:
                member = self.members[crash.member % len(self.members)]
                member.steps, member.back = crash.after, self.now + crash.back
        due = [m for m in self.waiting if m[0] <= self.now]
        self.waiting = [m for m in self.waiting if m[0] > self.now]
        for i in self._random.permutation(len(due)) if self.faults.delay else range(len(due)):
            _, sender, to, raw = due[i]
            member = self.member(to)
            if member.machine is not None:
                self._do(member, member.machine.receive(sender, decode(raw), self.now))
        for member in self.members:
            if member.back is not None and self.now >= member.back:
                member.machine, member.steps, member.back = None, None, None
                self._start(member)
            elif member.machine is not None:
                if member.name == BOARD:
                    member.machine.vouch(set(member.records.get("vouched", b"").decode().split()))
                self._do(member, member.machine.tick(self.now))

    def run(self, ticks: int = 400) -> World:
        """Until the collector has ended it, or the time is over."""
        for _ in range(ticks):
            self.step()
            if self.finished:
                break
        return self

    # -- what must hold --------------------------------------------------------------------------------------------

    @property
    def honest(self) -> list[Member]:
        bad = self.faults.equivocators | self.faults.poisoners | self.faults.cut
        return [m for i, m in enumerate(self.members[:-1]) if i not in bad]


__all__ = ["BOARD", "OPENED", "Crash", "Faults", "World"]
