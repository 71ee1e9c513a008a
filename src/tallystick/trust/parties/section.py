"""The [trust] section of a study among computing parties; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole


class PartiesSection(TrustSection):
    """[trust] model = "parties": how many compute together, and how many of them may collude."""

    model: Literal["parties"] = "parties"
    parties: Whole = Field(default=3, description="how many, from 3 to 10, run by different organisations")
    colluding: Whole | None = Field(
        default=None, description="parties that may collude, fewer than half; (parties - 1) // 2 if left out"
    )
    min_clients: Whole | None = Field(default=None, description="fewer clients abort the round; 3 if left out")
    round_timeout_s: Real = Field(default=60, description="seconds a round waits for shares")

    @property
    def coalition(self) -> int:
        """How many parties may collude."""
        return max(0, self.parties - 1) // 2 if self.colluding is None else self.colluding
