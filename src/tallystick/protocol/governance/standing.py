"""What a docket says of a study at a moment, and whether a client may take part in it then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.core.errors import NotApproved
from tallystick.protocol.governance.proposed_study import ProposedStudy
from tallystick.protocol.governance.statements import Statement

__all__ = ["DEFAULT_QUORUM", "STATES", "Standing", "check_taking_part", "quorum_of"]

DEFAULT_QUORUM = 3
STATES = (
    "unknown",
    "open",
    "approved",
    "refused",
    "withdrawn",
    "expired",
    "superseded",
    "running",
    "finished",
    "failed",
)


def quorum_of(study: str) -> int:
    """How many clients must approve: the study's own ``trust.min_clients``, which its hash covers."""
    stated = ProposedStudy(study).number("trust", "min_clients")
    return max(2, stated) if type(stated) is int else DEFAULT_QUORUM


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a study stands at a moment. Public."""

    state: str
    words: str
    quorum: int
    missing: int
    """Approvals it lacks."""
    proposal: Statement | None = None
    approvals: Mapping[str, Statement] = field(default_factory=dict)
    rejections: Mapping[str, Statement] = field(default_factory=dict)
    counters: Mapping[str, Statement] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    equivocators: tuple[str, ...] = ()
    """Parties that signed two contradicting statements."""
    start: Statement | None = None
    outcome: Statement | None = None


def check_taking_part(standing: Standing, client: str) -> None:
    """Return if this client may take part in the study as it stands; ``NotApproved`` says why not."""
    if standing.state in ("approved", "running") and client in standing.approvals:
        return
    if standing.state not in ("approved", "running"):
        raise NotApproved(
            f"the study is {standing.state}: {standing.words}".rstrip("."),
            rule=f"study-{standing.state}",
            remedy="Only an approved study is run: tallystick study show tells what is missing.",
        )
    raise NotApproved(
        "this client's data steward has not approved the study",
        party=client,
        rule="own-approval",
        remedy="Its steward may approve it: tallystick study approve.",
    )
