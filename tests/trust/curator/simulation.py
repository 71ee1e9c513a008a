"""All parties of a curator's study in one process: the same machines, without a line between them."""

from __future__ import annotations

from tests.trust.curator.machines import ClientMachine, CuratorMachine, decode, encode

from tallystick.engines.client_map import padded
from tallystick.engines.engine import SimulatedStudy
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.rounds import SimulatedRounds
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.protocol.instructions import Aborted, Compute, Finished, Send


class SimulatedCurator(SimulatedRounds):
    """Answers for every round."""

    def __init__(self, simulated: SimulatedStudy) -> None:
        super().__init__(simulated)
        study, self._maps = simulated.study, simulated.maps()
        self._size = max(r.grid.size for r in self.plan.rounds)
        self._curator = CuratorMachine(
            "curator",
            study.hash,
            tuple(self._maps),
            {},
            min_clients=simulated.min_clients,
            seconds=60.0,
            noise=RoundNoise(self.plan, self._size, "curator", simulated.keyed),
        )
        self._clients = {name: ClientMachine(name, study.hash, "curator", {}) for name in self._maps}
        self._up = self._down = 0

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        waiting = [("curator", step) for step in self._curator.open_round(request.round, request.model, 0.0)]
        while waiting:
            party, step = waiting.pop(0)
            if isinstance(step, Send):
                raw = encode(step.message)
                self._up, self._down = self._up + len(raw) * (party != "curator"), self._down + len(raw)
                receiver = self._curator if step.to == "curator" else self._clients[step.to]
                waiting += [(step.to, s) for s in receiver.receive(party, decode(raw), 0.0)]
            elif isinstance(step, Compute):
                values = padded(self._maps[party].contribute(step.model, request.plan, step.round), self._size)
                waiting += [(party, s) for s in self._clients[party].contribute(step.round, values)]
            elif isinstance(step, Aborted):
                raise step.error
            elif isinstance(step, Finished):
                done = step.result
        values = done.total[: request.plan.grid.size]
        return NoisyTotal(values=values, participants=done.participants, dropped=done.dropped)

    def bytes_per_client(self) -> tuple[int, int]:
        return self._up // len(self._clients), self._down // len(self._clients)
