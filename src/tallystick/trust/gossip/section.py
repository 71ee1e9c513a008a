"""The [trust] section of a study among peers; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole


class GossipSection(TrustSection):
    """[trust] model = "gossip": peers and nobody else."""

    model: Literal["gossip"] = "gossip"
    board: str = Field(
        default="",
        max_length=100,
        description="the peer whose institution runs the relay; empty: somebody who has no records",
    )
    witnesses: tuple[str, ...] = Field(
        default=(),
        max_length=100,
        description="peers that countersign ledgers; the first three of the consortium if left out",
    )
    countersignatures: Whole | None = Field(
        default=None, description="so many witnesses sign before a peer's records travel; more than half if left out"
    )
    min_clients: Whole | None = Field(default=None, description="fewer peers learn nothing; 3 if left out")
    round_timeout_s: Real = Field(default=60, description="seconds a peer waits for records that it knows of")
