"""The labels of aligned people, told once to whoever reduces, by the one institution that has them.

See ``docs/protocols/vertical.md``.
"""

from tallystick.protocol.labels.codec import decode, encode
from tallystick.protocol.labels.machines import Held, LabelsParameters, TakingMachine, TellingMachine, Told

__all__ = ["Held", "LabelsParameters", "TakingMachine", "TellingMachine", "Told", "decode", "encode"]
