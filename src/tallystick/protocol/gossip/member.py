"""What every member of a gossiping study does: exchange with a partner each cycle what the other one lacks.

    each cycle   Offer to a partner from the list of peers (``newscast``)
    on an Offer  Offer as the answer; what the other lacks (Batch, Evidence); if both hold records of the same peers and
                 they differ, Digests, and with these the records that differ: one of two equivocated, and it shows

Everything is said again until both hold the same, so messages may be lost, doubled, late or out of order, and members
may come and go. What is held is signed by its peer; a member believes nobody else. A partner is answered once in a
cycle and given a bounded number of bytes for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tallystick.core.randomness import WordSource
from tallystick.protocol.gossip.codec import decode, pack_proof, pack_publication, unpack_proof, unpack_publication
from tallystick.protocol.gossip.messages import (
    Batch,
    Code,
    Digests,
    Evidence,
    Offer,
    Proof,
    Publication,
    Refused,
    bit_map,
    indices_of,
)
from tallystick.protocol.gossip.newscast import View, uniform
from tallystick.protocol.gossip.parameters import BATCH_BYTES, BATCHES, GossipParameters
from tallystick.protocol.gossip.publications import Publications, Refusal
from tallystick.protocol.instructions import Persist, Send, Wake
from tallystick.protocol.machine import Machine

FROM, PROOF = "gossip/from/", "gossip/proof/"
"""Under which publications and proofs are kept, by the name of the peer."""
ALONE = 20
"""Cycles in which nobody was heard: a member that is cut off says so."""
ANSWERS_A_CYCLE = 2


@dataclass(frozen=True, slots=True)
class Noticed:
    """For the log and the conduct of members: what somebody sent that no honest member sends."""

    party: str
    code: Code
    cause: str


@dataclass(frozen=True, slots=True)
class TurnedDown:
    """For the log: somebody does not take what this member has sent."""

    party: str
    code: Code
    cause: str


@dataclass(frozen=True, slots=True)
class Isolated:
    """Nobody has been heard for so many cycles; the member goes on trying."""

    cycles: int


class GossipMember(Machine):
    """Base of peer and collector."""

    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this member takes part in another study, or with another roster"

    def __init__(
        self, parameters: GossipParameters, name: str, state: Enum, source: WordSource, records: Mapping[str, bytes]
    ) -> None:
        super().__init__(name, parameters.study_hash, state)
        self.parameters, self.message_limit = parameters, parameters.message_limit
        self.round = 1
        self.own = parameters.peers.index(name) if name in parameters.peers else None
        self.publications = Publications(parameters.study, parameters.peers, parameters.identities, parameters.validate)
        self._source = source
        self.view = View(self.own, len(parameters.peers), source)
        self._answered: Counter[tuple[type, str]] = Counter()
        self._next = 0.0
        self._quiet = 0
        self._handlers = {
            Offer: self._offered,
            Batch: self._given,
            Digests: self._compared,
            Evidence: self._shown,
            Refused: self._refused,
        }
        self._restore(records)

    def _restore(self, records: Mapping[str, bytes]) -> None:
        index = {name: i for i, name in enumerate(self.parameters.peers)}
        found: dict[str, list[Any]] = {FROM: [], PROOF: []}
        for key, raw in sorted(records.items()):
            for prefix, unpack in ((FROM, unpack_publication), (PROOF, unpack_proof)):
                if key.startswith(prefix) and key.removeprefix(prefix) in index:
                    kept: Any = unpack(raw)
                    at = index[key.removeprefix(prefix)]  # another attempt may have another roster
                    found[prefix].append(type(kept)(**{**_fields(kept), "peer": at}))
        self.publications.restore(found[FROM], found[PROOF])

    # -- cycles ----------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Any]:
        """Begin a cycle if it is time."""
        if now < self._next:
            return []
        jitter = 0.75 + uniform(self._source, range(501)) / 1000  # members fall out of step
        self._next = now + self.parameters.cycle_seconds * jitter
        self.view.grow_older()
        self._answered.clear()
        self._quiet += 1
        said: list[Any] = [Isolated(self._quiet)] if self._quiet % ALONE == 0 else []
        for partner in self._partners():
            said += self.cycle_with(self.parameters.peers[partner], now)
        return [*said, Wake(self._next)]

    def _partners(self) -> list[int]:
        one = self.view.choose(self.publications.convicted)
        return [] if one is None else [one]

    def cycle_with(self, partner: str, now: float) -> list[Any]:
        """What is said to this cycle's partner first."""
        return [Send(partner, self._offer(answer=False))]

    def _offer(self, *, answer: bool) -> Offer:
        size, books = len(self.parameters.peers), self.publications
        peers, ages = self.view.entries()
        return Offer(
            study_hash=self.study_hash,
            answer=int(answer),
            peers=peers,
            ages=ages,
            held=bit_map(books.held, size),
            convicted=bit_map(books.convicted, size),
            root=books.root,
        )

    # -- what comes in ---------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any, now: float) -> list[Any]:
        """Take one message of a member."""
        if sender not in self.parameters.peers and sender != self.parameters.collector:
            return self._refuse(sender, message, Code.WRONG_PARTY, "this party is not in the study")
        if message.study_hash == self.study_hash and not isinstance(message, Refused):
            self._quiet = 0
        return super().receive(sender, message, now)

    def _index(self, sender: str) -> int | None:
        return self.parameters.peers.index(sender) if sender != self.parameters.collector else None

    def _offered(self, sender: str, message: Offer, now: float) -> list[Any]:
        size = len(self.parameters.peers)
        held, convicted = indices_of(message.held, size), indices_of(message.convicted, size)
        if held is None or convicted is None or len(message.peers) > size:
            return self._refuse(sender, message, Code.WRONG_SHAPE, "an offer of another roster")
        self.view.merge(self._index(sender), message.peers, message.ages)
        if not self._may_answer(sender, message):
            return []
        said: list[Any] = [] if message.answer else [Send(sender, self._offer(answer=True))]
        books = self.publications
        said += self._shows(sender, books.convicted - convicted)
        said += self._gives(sender, books.held - held)
        if held == books.held and message.root != books.root and not message.answer:
            peers = tuple(sorted(held))
            digests = tuple([books.short(peer) for peer in peers])
            said.append(Send(sender, Digests(study_hash=self.study_hash, peers=peers, digests=digests)))
        return said + self.heard_offer(sender, held, message.root, now)

    def _may_answer(self, sender: str, message: Offer | Digests) -> bool:
        """Whether a partner is answered once more in this cycle: what it is given is far longer than what it says."""
        self._answered[type(message), sender] += 1
        return self._answered[type(message), sender] <= ANSWERS_A_CYCLE

    def heard_offer(self, sender: str, held: frozenset[int], root: bytes, now: float) -> list[Any]:
        """Somebody has told what it holds."""
        return []

    def _given(self, sender: str, message: Batch, now: float) -> list[Any]:
        said: list[Any] = []
        for publication in message.publications:
            if len(publication.body) > self.parameters.body_limit:
                return [*said, *self._refuse(sender, message, Code.WRONG_SHAPE, "a record that is too long")]
            found = self.publications.offer(publication)
            if isinstance(found, Refusal):  # whoever passes records on has checked them
                return [*said, *self._refuse(sender, message, found.code, found.cause)]
            said += self._kept(found)
        return said + self.progressed(now)

    def _shown(self, sender: str, message: Evidence, now: float) -> list[Any]:
        said: list[Any] = []
        for proof in message.proofs:
            found = self.publications.take_proof(proof)
            if isinstance(found, Refusal):
                return [*said, *self._refuse(sender, message, found.code, found.cause)]
            said += self._kept(found)
        return said + self.progressed(now)

    def _compared(self, sender: str, message: Digests, now: float) -> list[Any]:
        if not self._may_answer(sender, message):
            return []
        books = self.publications
        differ = {p for p, d in zip(message.peers, message.digests) if p in books.held and books.short(p) != d}
        return self._gives(sender, frozenset(differ))

    def _kept(self, found: Publication | Proof | None) -> list[Any]:
        names = self.parameters.peers
        if isinstance(found, Publication):
            return [Persist(FROM + names[found.peer], pack_publication(found))]
        if isinstance(found, Proof):
            name = names[found.peer]
            cause = "it has published two different records in one study; neither counts"
            return [Persist(PROOF + name, pack_proof(found)), Noticed(name, Code.EQUIVOCATION, cause)]
        return []

    def progressed(self, now: float) -> list[Any]:
        """More may be held than before."""
        return []

    # -- what goes out ---------------------------------------------------------------------------------------------

    def _gives(self, to: str, peers: frozenset[int]) -> list[Any]:
        """Records that the other lacks, beginning anywhere: several partners then give different ones first."""
        if not peers:
            return []
        ordered = sorted(peers)
        at = uniform(self._source, range(len(ordered)))
        found = [one for peer in ordered[at:] + ordered[:at] if (one := self.publications.get(peer)) is not None]
        return [
            Send(to, Batch(study_hash=self.study_hash, publications=tuple(some)))
            for some in _in_batches(found, lambda one: len(one.body) + 80)
        ]

    def _shows(self, to: str, peers: frozenset[int]) -> list[Any]:
        proofs = [self.publications.proof(peer) for peer in sorted(peers)]
        return [
            Send(to, Evidence(study_hash=self.study_hash, proofs=tuple(some)))
            for some in _in_batches(proofs, lambda one: len(one.first) + len(one.second) + 160)
        ]

    def _refused(self, sender: str, message: Refused, now: float) -> list[Any]:
        return [TurnedDown(sender, Code(message.code), message.cause)]

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):  # answering a refusal with a refusal would never end
            return []
        answer = Refused(study_hash=self.study_hash, code=code, cause=cause)
        return [Noticed(sender, Code(code), cause), Send(sender, answer)]


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _in_batches(items: Iterable[Any], size: Any) -> list[list[Any]]:
    """Lists of about :data:`BATCH_BYTES`, at most :data:`BATCHES` of them."""
    found: list[list[Any]] = []
    room = 0
    for item in items:
        if not found or (found[-1] and size(item) > room):
            if len(found) == BATCHES:
                break
            found.append([])
            room = BATCH_BYTES
        found[-1].append(item)
        room -= size(item)
    return found
