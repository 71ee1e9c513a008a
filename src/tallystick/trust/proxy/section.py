"""The [trust] section of a study with a proxy; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole


class ProxySection(TrustSection):
    """[trust] model = "proxy": under which scheme sums are encrypted, and for how many clients there is room."""

    model: Literal["proxy"] = "proxy"
    scheme: Literal["bfv", "paillier"] = Field(
        default="bfv", description="bfv is fast; paillier has shorter ciphertexts and, with laplace, gives pure epsilon"
    )
    max_clients: Whole = Field(default=1000, description="room and flooding are planned for so many")
    min_clients: Whole | None = Field(default=None, description="fewer clients abort the round; 3 if left out")
    round_timeout_s: Real = Field(default=60, description="seconds a round waits for uploads")
