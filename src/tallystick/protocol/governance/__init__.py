"""Governed studies: signed statements and where they leave a study. Pure: time is an argument, files are elsewhere."""

from tallystick.protocol.governance.plan_summary import fold, noise_of, plan_digest, summarise, unfold
from tallystick.protocol.governance.statements import Statement, canonical, decode, encode, make, verify

__all__ = [
    "Statement",
    "canonical",
    "decode",
    "encode",
    "fold",
    "make",
    "noise_of",
    "plan_digest",
    "summarise",
    "unfold",
    "verify",
]
