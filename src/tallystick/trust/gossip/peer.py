"""``tallystick peer start``: a client that others may reach; what it publishes is drawn from a secret of its own."""

from __future__ import annotations

from tallystick.core.identifiers import HASH_BYTES
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.ledger.registration import engine_of
from tallystick.roles.processes.client import ClientProcess
from tallystick.roles.processes.session import Parts
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

    def takes_relayed(self, kind: int) -> bool:
        return True  # witnesses among peers are asked and answer, too
