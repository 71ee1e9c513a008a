"""Trust model ``gossip``: peers and nobody else. Each perturbs its own records, once, before anything of them leaves.

Local differential privacy: whoever sees what travels, all other peers together and the network, sees what was
published. Nobody is trusted, so nothing is lost when anybody is dishonest; what it costs is noise in every record
instead of noise in a sum (docs/protocols/gossip.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tallystick.privacy.trust import NoiseMakers, Trust
from tallystick.study.trust import register
from tallystick.trust.gossip.cast import PEER, PeersAndRelay, witness_problems

if TYPE_CHECKING:
    from tallystick.trust.gossip.section import GossipSection

__all__ = ["GOSSIP"]


class Gossip(PeersAndRelay):
    """The registration."""

    name = "gossip"
    section = "tallystick.trust.gossip.section:GossipSection"
    computes = ("gossip",)
    simulation = "tallystick.trust.gossip.simulation:SimulatedGossip"

    def trust(self, section: GossipSection) -> Trust:
        return Trust(
            makers=NoiseMakers(count=1, honest=1),
            facts=(("model", self.name), ("trusted", "nobody")),
            words="holds against everybody, all other peers and whoever carries their messages together: local "
            "differential privacy, each record perturbed once by the peer that holds it, before anything of it leaves.",
            maker=PEER,
            problems=tuple(witness_problems(section.witnesses, section.countersignatures)),
        )

    def describe(self, facts: Mapping[str, Any]) -> str:
        return "peers only, nobody trusted: every record is perturbed where it is held (local differential privacy)"


GOSSIP = register(Gossip())
