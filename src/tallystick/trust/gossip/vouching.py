"""Whose records count: those of peers that have charged their ledgers, countersigned, and vouch for their own noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tallystick.protocol.governance.receipt_contents import paid
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Cast


def vouched(known: Sequence[Statement], cast: Cast, names: Sequence[str], *, rho: Fraction) -> tuple[str, ...]:
    """Of these peers; ``known`` are statements about this study whose signatures were checked when they came in."""
    cost = f"{rho.numerator}/{rho.denominator}"
    attesting = {s.signer for s in known if s.kind == "attestation"}
    of: dict[str, list[Statement]] = {name: [] for name in names}
    for statement in known:
        owner = statement.body["client"] if statement.kind == "countersignature" else statement.signer
        if owner in of and statement.kind in ("charge", "countersignature"):
            of[owner].append(statement)
    return tuple(n for n in names if n in attesting and next(paid(of[n], [n], cast, cost), None) is None)
