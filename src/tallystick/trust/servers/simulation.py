"""Trust model ``servers`` in one process: clients share, m servers sum and add noise, an aggregator adds up.

The machines are the deployed ones, every message is encoded and decoded; see :mod:`tallystick.transport.rounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from tallystick.algorithms.joint_moments.program import JointDesign
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import LocalProtocolError
from tallystick.data.partitions import uniforms
from tallystick.engines.client_map import AnyMap, padded
from tallystick.engines.engine import SimulatedStudy
from tallystick.engines.joint_map import JointMap, simulated_joint_maps
from tallystick.engines.round_vectors import RoundNoise, result_limit
from tallystick.engines.rounds import SimulatedRounds, answer_of
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.protocol.secure_sum import Draw
from tallystick.transport.memory_holders import MemoryHolders
from tallystick.transport.rounds import MemoryRounds


class SimulatedServers(SimulatedRounds):
    """All parties of one study; answers for every round."""

    maker = "server"

    def draw_together(self, round: int, drawing: Mapping[str, Draw]) -> int:
        """The place that all servers draw together; where the trust model has draws."""
        raise LocalProtocolError("the servers sum, and draw nothing")

    def __init__(self, simulated: SimulatedStudy) -> None:
        super().__init__(simulated)
        study, plan, program = simulated.study, self.plan, simulated.design.program
        servers = tuple(f"{self.maker}-{i}" for i in range(1, plan.claim.trust.makers.count + 1))
        self._clients: Mapping[str, AnyMap | JointMap]
        self._holders: MemoryHolders | None = None
        if isinstance(simulated.design, JointDesign):
            self._clients, self._holders = simulated_joint_maps(simulated)
        else:
            self._clients = simulated.maps()
        self._size = plan.size
        self._rounds = MemoryRounds.create(
            study_hash=study.hash,
            size=self._size,
            clients=tuple(self._clients),
            servers=servers,
            noise=[RoundNoise(plan, self._size, server, simulated.keyed) for server in servers],
            source=simulated.keyed(b"shares"),
            honest=plan.honest,
            colluding=study.trust.coalition,  # type: ignore[attr-defined]
            min_clients=simulated.min_clients,
            result_limit=result_limit(plan, sum(map(len, simulated.records.values()))),
            model_size=len(pack_state(program.query(simulated.template))) // 8,
            secret_models=simulated.design.tells_of_people,
            round_seconds=study.trust.round_timeout_s,
            simulation_of_one=simulated.min_clients == 1,
            draw_together=self.draw_together,
        )

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        def contribution(client: AnyMap | JointMap) -> Callable[[bytes], NDArray[Any]]:
            return lambda model: padded(client.contribute(model, request.plan, request.round), self._size)

        summed = self._rounds.run_round(
            request.round,
            request.model,
            {name: contribution(client) for name, client in self._clients.items()},
            absent=self._absent(request.round),
        )
        return NoisyTotal(
            values=answer_of(request.plan, summed.total, request.round),
            participants=summed.participants,
            dropped=summed.dropped,
        )

    def bytes_per_client(self) -> tuple[int, int]:
        parts = [self._rounds] if self._holders is None else [self._rounds, self._holders]
        up, down = (sum(sum(getattr(p, way).values()) for p in parts) for way in ("bytes_up", "bytes_down"))
        return round(up / len(self._clients)), round(down / len(self._clients))

    def _absent(self, round: int) -> frozenset[str]:
        if self.simulated.drop == 0:
            return frozenset()
        names = list(self._clients)
        draws = uniforms(len(names), self.simulated.keyed(b"drop", round.to_bytes(8, "little")))
        return frozenset(name for name, u in zip(names, draws) if u < self.simulated.drop)
