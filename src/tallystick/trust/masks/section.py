"""The [trust] section of a study with masks; apart, because listing the roles must not load a parser."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tallystick.study.sections import Real, TrustSection, Whole
from tallystick.trust.masks import EVERY_PEER, REDUCER, honest_clients


class MasksSection(TrustSection):
    """[trust] model = "masks": how many clients there are, how many may collude, who adds up."""

    model: Literal["masks"] = "masks"
    clients: Whole = Field(default=3, description="noise and masks are planned for so many, or fewer")
    colluding: Whole | None = Field(
        default=None, description="clients that may collude with the reducer; 1 if left out"
    )
    reducer: str = Field(
        default=REDUCER,
        min_length=1,
        max_length=100,
        description="reducer: run by nobody who has records; or the client whose institution runs it; or every-peer: "
        "each client adds up itself, and the reducer passes on",
    )
    dropout: Real = Field(default=0.1, ge=0, lt=1, description="clients that may miss a round, beyond 100 clients")
    min_clients: Whole | None = Field(default=None, description="fewer clients abort the round; 3 if left out")
    round_timeout_s: Real = Field(default=60, description="seconds a round waits for each of its steps")

    @property
    def least(self) -> int:
        """How many clients every total has at least."""
        return 3 if self.min_clients is None else self.min_clients

    @property
    def colluders(self) -> int:
        """How many clients may collude with the reducer."""
        return 1 if self.colluding is None else self.colluding

    @property
    def every_peer(self) -> bool:
        """Whether each client adds up itself and believes no total but its own."""
        return self.reducer == EVERY_PEER

    @property
    def reducer_is_client(self) -> bool:
        """Whether who adds up has records in the study: one institution, or every one."""
        return self.reducer != REDUCER

    @property
    def coalition(self) -> int:
        """How many clients know what the reducer knows."""
        return self.colluders + (1 if self.reducer_is_client else 0)

    @property
    def honest(self) -> int:
        """How many clients' noise surely carries the promise."""
        return honest_clients(self.least, self.colluders, reducer_is_client=self.reducer_is_client)
