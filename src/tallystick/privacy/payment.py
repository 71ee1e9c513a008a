"""Proof that a study was paid for: without it nothing is released.

In a simulation that is the ledger's own committed entry. Deployed, every institution keeps its own ledger, and proof is
what all of them have signed and the witnesses countersigned: a head per client, each with the whole charge.
``protocol.governance.receipt_contents`` puts it together from the statements; a receipt carries them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.ledger import Entry


@dataclass(frozen=True, kw_only=True)
class PaidHead:
    """One institution's ledger with the charge in it, as it and its witnesses have signed: all of them, or as many as
    the study's trust model asks for."""

    client: str
    head: str
    witnesses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Payment:
    """A study's whole cost, charged. Made by :func:`paid_from` or from countersigned heads, and by nobody else."""

    study: bytes
    rho: Fraction
    proof: Entry | tuple[PaidHead, ...]


def paid_from(entry: Entry) -> Payment:
    """The proof that a committed entry of a ledger is."""
    if not entry.committed:
        raise LocalProtocolError("a reservation is no payment: the study has not been released")
    return Payment(study=entry.charge.study, rho=entry.charge.rho, proof=entry)
