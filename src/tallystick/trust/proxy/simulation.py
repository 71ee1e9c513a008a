"""Trust model ``proxy`` in one process: owners encrypt, a proxy adds up and noises, a data user decrypts and noises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import pack_state
from tallystick.crypto.homomorphic.scheme import scheme_for
from tallystick.data.partitions import uniforms
from tallystick.engines.client_map import AnyMap, padded
from tallystick.engines.engine import SimulatedStudy
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.rounds import SimulatedRounds
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.trust.proxy.extent import extent_of
from tallystick.trust.proxy.memory_rounds import DATA_USER, PROXY, MemoryRounds


class SimulatedProxy(SimulatedRounds):
    """All parties of one study; answers for every round."""

    def __init__(self, simulated: SimulatedStudy) -> None:
        super().__init__(simulated)
        study, plan = simulated.study, self.plan
        self._clients = simulated.maps()
        section = study.trust
        extent = extent_of(section, plan, sum(map(len, simulated.records.values())))  # type: ignore[arg-type]
        extent = replace(extent, owners=max(extent.owners, len(self._clients)))
        self._size = extent.size
        self._rounds = MemoryRounds(
            scheme_for(section.scheme, extent),  # type: ignore[attr-defined]
            study_hash=study.hash,
            clients=tuple(self._clients),
            noise={name: RoundNoise(plan, self._size, name, simulated.keyed) for name in (PROXY, DATA_USER)},
            source=simulated.keyed(b"ciphertexts"),
            min_clients=simulated.min_clients,
            model_size=len(pack_state(simulated.design.program.query(simulated.template))) // 8,
            secret_models=simulated.design.tells_of_people,
            round_seconds=section.round_timeout_s,
            simulation_of_one=simulated.min_clients == 1,
        )

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        def contribution(client: AnyMap) -> Callable[[bytes], NDArray[np.int64]]:
            return lambda model: padded(client.contribute(model, request.plan, request.round), self._size)

        summed = self._rounds.run_round(
            request.round,
            request.model,
            {name: contribution(client) for name, client in self._clients.items()},
            absent=self._absent(request.round),
        )
        values = summed.total[: request.plan.grid.size]
        return NoisyTotal(values=values, participants=summed.participants, dropped=summed.dropped)

    def bytes_per_client(self) -> tuple[int, int]:
        up, down = self._rounds.bytes_up, self._rounds.bytes_down
        return round(sum(up.values()) / len(self._clients)), round(sum(down.values()) / len(self._clients))

    def _absent(self, round: int) -> frozenset[str]:
        if self.simulated.drop == 0:
            return frozenset()
        names = list(self._clients)
        draws = uniforms(len(names), self.simulated.keyed(b"drop", round.to_bytes(8, "little")))
        return frozenset(name for name, u in zip(names, draws) if u < self.simulated.drop)
