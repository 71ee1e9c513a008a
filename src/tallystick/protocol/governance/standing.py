"""What a docket says of a study at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.protocol.governance.statements import Statement
from tallystick.study.proposed import proposed_study

DEFAULT_QUORUM = 3
ENDED_EARLY, RESUMED = "ended-early", "resumed"
"""Codes of an outcome whose result is what a paused study had released, and of a pause that is over."""
STATES = (
    "unknown",
    "open",
    "approved",
    "refused",
    "withdrawn",
    "expired",
    "superseded",
    "running",
    "paused",
    "finished",
    "failed",
)


def quorum_of(study: str) -> int:
    """How many clients must approve: the study's own ``trust.min_clients``, which its hash covers."""
    stated = proposed_study(study).number("trust", "min_clients")
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
    pause: Statement | None = None
    """The last pause in which something was released, whether it is over or not."""

    @property
    def result(self) -> str:
        """The digest of the result, or else of what was released so far, as signed; empty while there is none."""
        said = self.outcome if self.outcome is not None else self.pause
        return "" if said is None else str(said.body["result"])
