"""The secure sum of trust model ``servers``: n clients, m servers, an aggregator (see README.md here)."""

from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, Held, NoisySum, Persist, Send, Wake
from tallystick.protocol.secure_sum.aggregator import AggregatorMachine
from tallystick.protocol.secure_sum.boots import BootBook, MemoryBoots
from tallystick.protocol.secure_sum.client import ClientMachine
from tallystick.protocol.secure_sum.codec import decode, encode
from tallystick.protocol.secure_sum.instructions import Blame, Draw, Drop, Instruction, Sync, Witness
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.server import ServerMachine
from tallystick.protocol.secure_sum.shares import MemoryShares, ShareStore

__all__ = [
    "Aborted",
    "AggregatorMachine",
    "Blame",
    "BootBook",
    "ClientMachine",
    "Compute",
    "Draw",
    "Drop",
    "Finished",
    "Forget",
    "Held",
    "Instruction",
    "MemoryBoots",
    "MemoryShares",
    "NoiseSource",
    "NoisySum",
    "Persist",
    "Send",
    "ServerMachine",
    "ShareStore",
    "SumParameters",
    "Sync",
    "Wake",
    "Witness",
    "decode",
    "encode",
]
