"""What a client may still decide about a study: what its steward is shown goes by the same rule as what it may do."""

from __future__ import annotations

from tallystick.core.errors import NotApproved
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.statements import Statement

DECISIONS = ("approve", "reject", "counter")
OVER = ("withdrawn", "expired", "superseded", "finished", "failed")
"""States of a study about which a decision, though it could be signed, would change nothing any more."""


def open_to(decision: str, docket: Docket, charge: str | None, now: float) -> Statement:
    """The proposal that a client decides about, if it still can.

    Until this client has itself started, with its charge released, it may take its approval back: whatever the
    aggregator says has been started, or has ended; and so it may while a study is paused, and does not go on with it
    then. It may approve what is neither started nor over.
    """
    standing = told = docket.standing(now)
    if decision != "approve" and (charge not in ("released", "committed") or told.state == "paused"):
        standing = docket.unstarted(now)
    if standing.proposal is None or standing.state not in ("open", "approved", "refused"):
        raise NotApproved(
            f"the study is {told.state}: nothing is left to decide. {told.words}", rule=f"study-{told.state}"
        )
    return standing.proposal


def still_open(docket: Docket, charge: str | None, now: float) -> list[str]:
    """The decisions that make sense now."""
    if docket.standing(now).state in OVER:
        return []
    found = []
    for decision in DECISIONS:
        try:
            open_to(decision, docket, charge, now)
        except NotApproved:
            continue
        found.append(decision)
    return found
