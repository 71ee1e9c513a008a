"""The masked sum of trust model ``masks``: clients mask their sums in pairs, a reducer adds up (see README.md here)."""

from tallystick.protocol.masked_sum.client import ClientMachine, MaskerParts
from tallystick.protocol.masked_sum.codec import decode, encode
from tallystick.protocol.masked_sum.machine import Instruction
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters
from tallystick.protocol.masked_sum.peer import PeerMachine
from tallystick.protocol.masked_sum.reducer import ReducerMachine

__all__ = [
    "ClientMachine",
    "Instruction",
    "MaskedSumParameters",
    "MaskerParts",
    "PeerMachine",
    "ReducerMachine",
    "decode",
    "encode",
]
