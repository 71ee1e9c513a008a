"""What all members of a gossiping study agree on beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.gossip.publications import Validator
from tallystick.protocol.gossip.walks import Ball

BATCH_BYTES = 1 << 16
BATCHES = 8
"""Of what a partner lacks, so much is given in one exchange: the rest in the next ones, by whoever they are with."""


@dataclass(frozen=True, kw_only=True)
class GossipParameters:
    """The same at every member whose study and roster are the same, but for ``validate``, which is code."""

    study_hash: bytes
    """Of the session: what messages are called by."""
    study: bytes
    """Of the study: what publications are signed for."""
    peers: tuple[str, ...]
    """In the roster's order."""
    collector: str
    """Who holds no records, gathers all there are, and says when the study ends."""
    identities: Mapping[str, VerifyKey] = field(repr=False)
    validate: Validator = field(repr=False)
    body_limit: int
    """No publication is longer."""
    min_peers: int
    models: Ball | None = None
    """Where honest models are; None: none travel."""
    cycles: int = 0
    """So many of the collector's, models walk."""
    cycle_seconds: float = 1.0
    round_seconds: float = 60.0

    def __post_init__(self) -> None:
        if len(set(self.peers)) != len(self.peers) or self.collector in self.peers:
            raise LocalProtocolError("members of a gossiping study have names of their own")
        if self.cycle_seconds <= 0 or self.round_seconds <= 0:
            raise LocalProtocolError("cycles and rounds take time")

    @property
    def message_limit(self) -> int:
        """The longest message: a proof holds two bodies, an offer two bit maps and a list, a walk a model."""
        lists = 4096 + 24 * len(self.peers)
        model = 0 if self.models is None else 8 * self.models.size
        return lists + max(BATCH_BYTES, 2 * self.body_limit, model) + self.body_limit
