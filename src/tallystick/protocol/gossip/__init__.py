"""Gossip: peers exchange perturbed records, and models, until everybody holds everything (see README.md here)."""

from tallystick.protocol.gossip.codec import decode, encode
from tallystick.protocol.gossip.collector import CollectorMachine
from tallystick.protocol.gossip.member import Isolated, Noticed, TurnedDown
from tallystick.protocol.gossip.messages import Message
from tallystick.protocol.gossip.parameters import GossipParameters
from tallystick.protocol.gossip.peer import PeerMachine, Published
from tallystick.protocol.gossip.walks import Ball, Model, ModelWalks

__all__ = [
    "Ball",
    "CollectorMachine",
    "GossipParameters",
    "Isolated",
    "Message",
    "Model",
    "ModelWalks",
    "Noticed",
    "PeerMachine",
    "Published",
    "TurnedDown",
    "decode",
    "encode",
]
