"""Products of columns that are at different institutions, on shares: a dealer's masks, opened rows, shares of Xᵀ·X.

See ``docs/protocols/vertical.md``.
"""

from tallystick.protocol.joint_products.codec import decode, encode
from tallystick.protocol.joint_products.dealer import DealerMachine
from tallystick.protocol.joint_products.holder import HolderMachine, OwnRows, ProductShares
from tallystick.protocol.joint_products.parameters import JointParameters

__all__ = ["DealerMachine", "HolderMachine", "JointParameters", "OwnRows", "ProductShares", "decode", "encode"]
