"""A peer: it publishes its perturbed records once, keeps everybody else's, and may let models walk.

    begin      nothing published yet: Compute (the driver charges, has it countersigned, draws)
    publish    Persist own publication → Published → it travels with the next exchanges
    restart    the publication that was kept travels again, the same bytes; nothing is drawn

The signature is made here, over the body and the study, so that no second body can be signed while one is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.gossip.codec import pack_publication
from tallystick.protocol.gossip.member import FROM, GossipMember
from tallystick.protocol.gossip.messages import Code, Publication, Walk, publication_digest
from tallystick.protocol.gossip.parameters import GossipParameters
from tallystick.protocol.gossip.publications import Refusal
from tallystick.protocol.gossip.walks import Model, ModelWalks
from tallystick.protocol.instructions import Compute, Persist, Send, Wake


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

    def withdraw(self) -> list[Any]:
        """This peer publishes nothing; it goes on passing on what others have."""
        self._move(PeerEvent.WITHDREW)
        return []

    def cycle_with(self, partner: str, now: float) -> list[Any]:
        """The exchange, and our model on its way."""
        said = super().cycle_with(partner, now)
        if self.walks is not None:
            self.walks.new_cycle()
            self.walks.train_alone()
            model = self.walks.model
            said.append(Send(partner, Walk(study_hash=self.study_hash, age=model.age, weights=model.weights)))
        return said

    def _walked(self, sender: str, message: Walk, now: float) -> list[Any]:
        if self.walks is None or sender == self.parameters.collector:
            return self._refuse(sender, message, Code.NOT_EXPECTED, "no models travel in this study")
        why = self.walks.take(sender, Model(message.age, message.weights))
        return [] if why is None else self._refuse(sender, message, Code.BAD_MODEL, why)
