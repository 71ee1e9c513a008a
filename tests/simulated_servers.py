"""``SimulatedServers`` over client maps that a test made by itself, without a federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import Public
from tallystick.engines.engine import SimulatedStudy
from tallystick.trust.servers.simulation import SimulatedServers

__all__ = ["simulated_servers"]


@dataclass(frozen=True, kw_only=True)
class _GivenMaps(SimulatedStudy):
    clients: Mapping[str, Any] = field(default_factory=dict)

    def maps(self) -> dict[str, Any]:
        return dict(self.clients)


def simulated_servers(
    *,
    study: Any,
    plan: Any,
    program: Any,
    template: Any,
    clients: Mapping[str, Any],
    min_clients: int,
    records: int,
    stream: Any,
    drop: float = 0.0,
    public: Public | None = None,
) -> SimulatedServers:
    """All parties of one study; ``records`` in all."""
    return SimulatedServers(
        _GivenMaps(
            study=study,
            design=SumDesign(program=program, groups=()),
            plan=plan,
            public=public or Public(features=()),
            template=template,
            records={"all": range(records)},  # type: ignore[dict-item]  # only their number is asked for
            frames={},
            min_clients=min_clients,
            stream=stream,
            drop=drop,
            clients=clients,
        )
    )
