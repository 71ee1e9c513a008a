"""The encrypted sum of trust model ``proxy``: owners, a proxy, a data user with the key (see README.md here)."""

from tallystick.protocol.encrypted_sum.codec import decode, encode, encode_parts
from tallystick.protocol.encrypted_sum.data_user import DataUserMachine
from tallystick.protocol.encrypted_sum.instructions import Drop, Instruction, SumUp
from tallystick.protocol.encrypted_sum.owner import OwnerMachine
from tallystick.protocol.encrypted_sum.parameters import EncryptedSumParameters
from tallystick.protocol.encrypted_sum.proxy import ProxyMachine
from tallystick.protocol.encrypted_sum.uploads import MemoryUploads, UploadStore

__all__ = [
    "DataUserMachine",
    "Drop",
    "EncryptedSumParameters",
    "Instruction",
    "MemoryUploads",
    "OwnerMachine",
    "ProxyMachine",
    "SumUp",
    "UploadStore",
    "decode",
    "encode",
    "encode_parts",
]
