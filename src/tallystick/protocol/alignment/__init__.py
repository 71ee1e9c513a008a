"""Who is at all institutions, found without showing the others whom one has: private set intersection.

See ``docs/protocols/vertical.md``.
"""

from tallystick.protocol.alignment.codec import decode, encode
from tallystick.protocol.alignment.machine import Aligned, AligningMachine, AlignmentParameters

__all__ = ["Aligned", "AligningMachine", "AlignmentParameters", "decode", "encode"]
