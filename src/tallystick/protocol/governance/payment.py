"""Proof of payment in a deployed study: every participant's charge, countersigned by every witness."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from tallystick.privacy.payment import PaidHead, Payment
from tallystick.protocol.governance.receipt_contents import paid
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Cast

__all__ = ["countersigned"]


def countersigned(
    known: Sequence[Statement], cast: Cast, participants: Iterable[Sequence[str]], *, study: bytes, rho: Fraction
) -> Payment | None:
    """The payment that these statements prove, for everybody who took part in a round; None if one is missing.

    ``known`` are about this study, and their signatures were checked when they came in.
    """
    took_part = {name for names in participants for name in names}
    clients = [name for name in cast.clients if name in took_part]
    cost = f"{rho.numerator}/{rho.denominator}"
    if not clients or len(clients) != len(took_part) or next(paid(known, clients, cast.witnesses, cost), None):
        return None
    heads = {s.signer: str(s.body["head"]) for s in known if s.kind == "charge"}
    proof = tuple(PaidHead(client=name, head=heads[name], witnesses=cast.witnesses) for name in clients)
    return Payment(study=study, rho=rho, proof=proof)
