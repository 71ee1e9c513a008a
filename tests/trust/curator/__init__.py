"""A toy trust model, to show what one is: a folder and one registration, with no edit anywhere else.

One curator, whom every institution trusts with its sum, adds the noise once. It coordinates, keeps the notice board,
witnesses ledgers and makes the noise. Nothing of it is in the wheel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from tallystick.privacy.trust import NoiseMakers, Trust
from tallystick.study.sections import Real, TrustSection, Whole
from tallystick.study.trust import Role, TrustModel

__all__ = ["CURATOR"]


class CuratorSection(TrustSection):
    """[trust] model = "curator"."""

    model: Literal["curator"] = "curator"
    min_clients: Whole | None = None
    round_timeout_s: Real = 60


class Curator(TrustModel):
    name = "curator"
    section = "tests.trust.curator:CuratorSection"
    roles = (
        Role(
            name="curator",
            words="Adds up what institutions send it, and noise.",
            process="tallystick.roles.processes.coordinator:CoordinatorProcess",
        ),
    )
    coordinator = board = witnesses = makers = "curator"
    simulation = "tests.trust.curator.simulation:SimulatedCurator"
    parts: ClassVar[Mapping[str, str]] = {
        "client": "tests.trust.curator.parts:CuratorClientPart",
        "curator": "tests.trust.curator.parts:CuratorPart",
    }

    def trust(self, section: Any) -> Trust:
        return Trust(
            makers=NoiseMakers(count=1, honest=1),
            facts=(("model", self.name), ("honest", 1)),
            words="holds against everybody but the curator, who sees every institution's sum.",
            maker="curator",
        )


CURATOR = Curator()
"""Registered by whoever uses it: the test for as long as it runs, and ``__main__`` in a role's process."""
