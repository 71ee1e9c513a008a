"""The [trust] section of a study among servers; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole


class ServersSection(TrustSection):
    """[trust] model = "servers": how many servers there are, and how many of them may collude."""

    model: Literal["servers"] = "servers"
    servers: Whole = Field(default=2, description="how many, run by different organisations")
    colluding: Whole | None = Field(default=None, description="servers that may collude; servers - 1 if left out")
    parties: Whole = 3  # of no meaning here; it is in the hash of every study that was ever approved
    min_clients: Whole | None = Field(default=None, description="fewer clients abort the round; 3 if left out")
    dealer: str | None = Field(
        default=None, description="where institutions hold different columns: who deals the masks of their products"
    )
    round_timeout_s: Real = Field(default=60, description="seconds a round waits for shares")

    @property
    def coalition(self) -> int:
        """How many servers may collude."""
        return self.servers - 1 if self.colluding is None else self.colluding
