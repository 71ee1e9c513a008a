"""The [trust] section of a study among peers; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole


class GossipSection(TrustSection):
    """[trust] model = "gossip": peers and nobody else."""

    model: Literal["gossip"] = "gossip"
    min_clients: Whole | None = Field(default=None, description="fewer peers learn nothing; 3 if left out")
    round_timeout_s: Real = Field(default=60, description="seconds a peer waits for records that it knows of")
