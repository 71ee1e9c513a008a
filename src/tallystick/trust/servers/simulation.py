"""Trust model ``servers`` in one process: clients share, m servers sum and add noise, an aggregator adds up.

The machines are the deployed ones, every message is encoded and decoded; see :mod:`tallystick.transport.rounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Program, State, pack_state
from tallystick.core.randomness import WordSource
from tallystick.data.partitions import uniforms
from tallystick.engines.client_map import ClientMap
from tallystick.engines.record_choice import ChosenMap
from tallystick.engines.round_vectors import RoundNoise, Stream, padded, result_limit
from tallystick.engines.totals import NoisyTotal, RoundRequest
from tallystick.privacy.plan import Plan
from tallystick.study import Study
from tallystick.transport.rounds import MemoryRounds

__all__ = ["SimulatedServers"]


class SimulatedServers:
    """All parties of one study; answers for every round (:class:`tallystick.engines.totals.NoisyTotals`)."""

    def __init__(
        self,
        *,
        study: Study,
        plan: Plan,
        program: Program,
        template: State,
        clients: Mapping[str, ClientMap | ChosenMap],
        min_clients: int,
        records: int,
        stream: Stream,
        drop: float = 0.0,
    ) -> None:
        servers = tuple(f"server-{i}" for i in range(1, plan.claim.trust.makers.count + 1))
        self._clients = clients
        self._drop = drop
        self._size = max(r.grid.size for r in plan.rounds)  # one length for the whole study; shorter rounds are padded

        def keyed(*labels: bytes) -> WordSource:
            return stream(study.hash, *labels)

        self._stream = keyed
        self._rounds = MemoryRounds.create(
            study_hash=study.hash,
            size=self._size,
            clients=tuple(clients),
            servers=servers,
            noise=[RoundNoise(plan, self._size, server, keyed) for server in servers],
            source=keyed(b"shares"),
            honest=plan.honest,
            colluding=study.trust.coalition,  # type: ignore[attr-defined]
            min_clients=min_clients,
            result_limit=result_limit(plan, records),
            model_size=len(pack_state(program.query(template))) // 8,
            round_seconds=study.trust.round_timeout_s,
            simulation_of_one=min_clients == 1,
        )

    def noisy_total(self, request: RoundRequest) -> NoisyTotal:
        def contribution(client: ClientMap | ChosenMap) -> Callable[[bytes], NDArray[np.int64]]:
            return lambda model: padded(client.contribute(model, request.plan, request.round), self._size)

        summed = self._rounds.run_round(
            request.round,
            request.model,
            {name: contribution(client) for name, client in self._clients.items()},
            absent=self._absent(request.round),
        )
        return NoisyTotal(
            values=summed.total[: request.plan.grid.size],
            participants=summed.participants,
            dropped=summed.dropped,
        )

    @property
    def bytes_up_per_client(self) -> int:
        """Mean bytes one client sent, all rounds and servers."""
        return round(sum(self._rounds.bytes_up.values()) / len(self._clients))

    @property
    def bytes_down_per_client(self) -> int:
        """Mean bytes one client received."""
        return round(sum(self._rounds.bytes_down.values()) / len(self._clients))

    def _absent(self, round: int) -> frozenset[str]:
        if self._drop == 0:
            return frozenset()
        names = list(self._clients)
        draws = uniforms(len(names), self._stream(b"drop", round.to_bytes(8, "little")))
        return frozenset(name for name, u in zip(names, draws) if u < self._drop)
