"""The noise a server drew, as that server itself knows it: what a colluding one takes off the total.

A server erases its noise when its round is over, so it is noted as it is drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.trust.servers.simulation import SimulatedServers

__all__ = ["note_draws"]


class _Noted(NoiseSource):
    def __init__(self, source: Any, server: str, draws: dict[tuple[str, int], NDArray[np.int64]]) -> None:
        self._source, self._server, self._draws = source, server, draws

    def admit(self, round: int, model: bytes) -> bytes | None:
        return self._source.admit(round, model)  # type: ignore[no-any-return]

    def draw(self, round: int) -> NDArray[np.int64]:
        noise: NDArray[np.int64] = self._source.draw(round)
        assert (self._server, round) not in self._draws, "noise is drawn once a round"
        self._draws[self._server, round] = noise.copy()
        return noise


def note_draws(servers: SimulatedServers) -> dict[tuple[str, int], NDArray[np.int64]]:
    """From now on: every draw by (server, round)."""
    draws: dict[tuple[str, int], NDArray[np.int64]] = {}
    for name in servers._rounds.parameters.servers:
        machine: Any = servers._rounds._machines[name]
        machine._noise = _Noted(machine._noise, name, draws)
    return draws
