"""A peer: it publishes its perturbed records once, keeps everybody else's, and lets models walk, if the study has any.

    begin      nothing published yet: Compute (the driver charges, has it countersigned, draws)
    publish    Persist own publication → Published → it travels with the next exchanges
    restart    the publication that was kept travels again, the same bytes; nothing is drawn
    set back   a peer that has nothing kept and is given a record with its own signature has published before: it takes
               that one up
    models     from then on, and not before, it sends its model to each cycle's partner, and takes those that come

What a model is trained on here is this peer's publication, which is kept and vouched for before the first step: so the
walk is post-processing of what was charged, and a model that is lost costs accuracy, never a second draw. It is kept
every ``KEPT_EVERY`` cycles.

The signature is made here, over the body and the study, so that no second body can be signed while one is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tallystick.core.errors import LocalProtocolError, VerificationError
from tallystick.core.randomness import WordSource
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.gossip.codec import decode, encode, pack_publication
from tallystick.protocol.gossip.member import FROM, GossipMember
from tallystick.protocol.gossip.messages import Code, Publication, Walk, publication_digest
from tallystick.protocol.gossip.parameters import GossipParameters
from tallystick.protocol.gossip.publications import Refusal
from tallystick.protocol.gossip.walks import Model, ModelWalks
from tallystick.protocol.instructions import Compute, Persist, Send, Wake

MODEL = "gossip/model"
KEPT_EVERY = 5


class PeerState(Enum):
    """Whether this peer's records are out."""

    SILENT = "silent"
    DRAWING = "drawing"
    SPEAKING = "speaking"
    WITHDRAWN = "withdrawn"


class PeerEvent(Enum):
    """What moves a peer."""

    ASKED = "asked"
    PUBLISHED = "published"
    WITHDREW = "withdrew"
    FOUND = "found its own record with another peer"


@dataclass(frozen=True, slots=True)
class Published:
    """This peer's records are kept and signed, and are about to travel: ``digest`` names them."""

    digest: bytes = field(repr=False)


class PeerMachine(GossipMember):
    """One peer. ``walks`` is its model, if models travel, too."""

    TRANSITIONS = {  # noqa: RUF012 - a table
        (PeerState.SILENT, PeerEvent.ASKED): PeerState.DRAWING,
        (PeerState.DRAWING, PeerEvent.PUBLISHED): PeerState.SPEAKING,
        (PeerState.DRAWING, PeerEvent.WITHDREW): PeerState.WITHDRAWN,
        (PeerState.DRAWING, PeerEvent.FOUND): PeerState.SPEAKING,
        (PeerState.WITHDRAWN, PeerEvent.FOUND): PeerState.SPEAKING,
    }

    def __init__(
        self,
        parameters: GossipParameters,
        name: str,
        records: Mapping[str, bytes],
        *,
        key: SigningKey,
        source: WordSource,
        walks: ModelWalks | None = None,
    ) -> None:
        super().__init__(parameters, name, PeerState.SILENT, source, records)
        if self.own is None:
            raise LocalProtocolError("this party is no peer of the study", party=name)
        self._key, self.walks = key, walks
        self._handlers[Walk] = self._walked
        self._cycles = 0
        if walks is not None and MODEL in records:
            walks.restore(unpack_model(records[MODEL]))
        if FROM + name in records:
            self.state = PeerState.SPEAKING

    @property
    def published(self) -> bytes | None:
        """The digest of what this peer has published; None if it has not, or has been convicted of two."""
        own = self.publications.get(self.own or 0)
        return None if own is None else publication_digest(self.parameters.study, self.name, own.body)

    def begin(self, now: float) -> list[Any]:
        """Join the exchanges; and publish, if that has not been done."""
        self._next = now
        if self.state is PeerState.SPEAKING:
            done = self.published
            return [*([] if done is None else [Published(done)]), Wake(now)]
        self._move(PeerEvent.ASKED)
        return [Compute(1, b""), Wake(now)]

    def publish(self, body: bytes) -> list[Any]:
        """What was drawn, once, from this peer's records."""
        self._move(PeerEvent.PUBLISHED)
        signed = publication_digest(self.parameters.study, self.name, body)
        own = Publication(peer=self.own or 0, body=body, signature=self._key.sign(signed))
        found = self.publications.offer(own)
        if isinstance(found, Refusal) or len(body) > self.parameters.body_limit:
            raise LocalProtocolError("what this peer would publish, nobody would take", party=self.name)
        return [Persist(FROM + self.name, pack_publication(own)), Published(signed)]

    def progressed(self, now: float) -> list[Any]:
        """Its own record may be among what came in: then it was set back, and draws no other."""
        if self.state in (PeerState.DRAWING, PeerState.WITHDRAWN) and self.own in self.publications.held:
            self._move(PeerEvent.FOUND)
            return [Published(self.published or b"")]
        return []

    def withdraw(self) -> list[Any]:
        """This peer publishes nothing; it goes on passing on what others have."""
        self._move(PeerEvent.WITHDREW)
        return []

    def cycle_with(self, partner: str, now: float) -> list[Any]:
        """The exchange, and our model on its way."""
        said = super().cycle_with(partner, now)
        if self.walks is not None:
            self.walks.new_cycle()
            sent = self._sends_model(partner)
            said += [*(self._keeps_model() if sent else []), *sent]
        return said

    def heard_offer(self, sender: str, held: frozenset[int], root: bytes, now: float) -> list[Any]:
        """The collector, which has no model of its own, is given ours."""
        return self._sends_model(sender) if sender == self.parameters.collector else []

    def _sends_model(self, to: str) -> list[Any]:
        if self.walks is None or self.published is None:
            return []  # nothing is made of records that are not out
        if self.walks.model.age == 0:
            self.walks.train_alone()
        if self.walks.model.age == 0:  # a peer without any records, which has met nobody
            return []
        return [Send(to, self._as_message(self.walks))]

    def _keeps_model(self) -> list[Any]:
        self._cycles += 1
        if self.walks is None or self._cycles % KEPT_EVERY != 1:
            return []
        return [Persist(MODEL, encode(self._as_message(self.walks)))]

    def _as_message(self, walks: ModelWalks) -> Walk:
        return Walk(study_hash=self.study_hash, age=walks.model.age, weights=walks.model.weights)

    def _walked(self, sender: str, message: Walk, now: float) -> list[Any]:
        if self.walks is None or sender == self.parameters.collector:
            return self._refuse(sender, message, Code.NOT_EXPECTED, "no models travel in this study")
        if self.published is None or self._index(sender) in self.publications.convicted:
            return []  # there is nothing to train it on yet; or its sender is known to tell lies
        why = self.walks.take(sender, Model(message.age, message.weights))
        return [] if why is None else self._refuse(sender, message, Code.BAD_MODEL, why)


def unpack_model(raw: bytes) -> Model:
    """A model as it is kept: the message that it travels in."""
    message = decode(raw)
    if not isinstance(message, Walk):
        raise VerificationError("what is kept as a model is none", remedy="Restore this party's state; or erase it.")
    return Model(message.age, message.weights)
