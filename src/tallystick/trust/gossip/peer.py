"""``tallystick peer start``: a client that others may reach; those it has no line to it reaches through the relay."""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import HASH_BYTES
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.registration import engine_of
from tallystick.roles.processes.client import ClientProcess
from tallystick.roles.processes.session import Parts
from tallystick.transport.link import Envelope
from tallystick.transport.relayed import unwrap, wrap
from tallystick.transport.wire import HEADER_BYTES, RELAYED
from tallystick.trust.gossip.draw_key import DrawKey


class PeerProcess(ClientProcess):
    """The process of a peer."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        source = parts.streams(bytes(HASH_BYTES), b"draw-key", self.name.encode())
        self.draws = DrawKey(parts.config.state, self.ledger, source=source)
        """What its records are drawn from, in all studies."""

    def records_as_charged(self, study: bytes) -> bool:
        """Whether this peer's records are those that its ledger was charged for, by their content."""
        config = self.parts.config
        there = make_dataset(config.dataset, self.source(), party=self.name, engine=engine_of(config))
        return there.fingerprint.content == self.ledger.charged_records(study).content

    def send(self, to: str, raw: Any, length: int | None = None) -> None:
        """Over a line of their own if there is one, else by the relay, signed."""
        if to in self.members.clients and to not in self.node.connected() and isinstance(raw, bytes):
            raw, to, length = wrap(self.name, to, raw, self.parts.identity.signing), self.members.board, None
        super().send(to, raw, length)

    def _message(self, envelope: Envelope) -> None:
        if envelope.raw[:1] != bytes([RELAYED]):
            super()._message(envelope)
            return
        relayed = unwrap(bytes(envelope.raw[HEADER_BYTES:]), envelope.sender)
        if envelope.sender != self.members.board or relayed.to != self.name:
            raise RemoteProtocolError("a relayed message that is not for this party", party=envelope.sender)
        if relayed.sender not in self.members.clients:
            raise RemoteProtocolError("a relayed message of nobody in the consortium", party=envelope.sender)
        relayed.verify(self.members.identities[relayed.sender])
        super()._message(Envelope(sender=relayed.sender, to=self.name, raw=relayed.raw))
