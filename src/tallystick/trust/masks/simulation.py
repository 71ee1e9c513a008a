"""Trust model ``masks`` in one process: clients deal, mask and unmask, a reducer adds up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.crypto.field import HALF
from tallystick.data.partitions import uniforms
from tallystick.engines.client_map import AnyMap, padded
from tallystick.engines.engine import SimulatedStudy
from tallystick.engines.replica import Replica
from tallystick.engines.round_vectors import RoundNoise, result_limit
from tallystick.engines.rounds import SimulatedRounds
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.protocol.instructions import NoisySum
from tallystick.trust.masks.graphs import plan_for
from tallystick.trust.masks.memory_rounds import MemoryRounds
from tallystick.trust.masks.unmasked_rounds import UnmaskedRounds

MASKED_UP_TO = 128
"""Beyond so many clients the simulation leaves out what cancels (:mod:`tallystick.trust.masks.unmasked_rounds`)."""


class SimulatedMasks(SimulatedRounds):
    """All parties of one study; answers for every round."""

    def __init__(self, simulated: SimulatedStudy) -> None:
        super().__init__(simulated)
        study, plan, section = simulated.study, self.plan, simulated.study.trust
        self._clients = simulated.maps()
        names, planned = tuple(self._clients), section.clients  # type: ignore[attr-defined]
        if len(names) > planned:
            raise StudyError(
                f"the study is planned for {planned} clients, and there are {len(names)}",
                rule="number-of-clients",
                remedy=f"Set clients = {len(names)} under [trust].",
            )
        self._size = plan.size
        noise = {name: RoundNoise(plan, self._size, name, simulated.keyed) for name in names}
        facts: dict[str, Any] = {
            "clients": names,
            "noise": noise,
            "plan": plan_for(section, len(names)),  # type: ignore[arg-type]
            "seed": simulated.keyed(b"circle").bytes(32),
            "size": self._size,
            "min_clients": simulated.min_clients,
            "result_limit": min(result_limit(plan, sum(map(len, simulated.records.values()))), HALF),
            "model_size": len(pack_state(simulated.design.program.query(simulated.template))) // 8,
            "secret_models": simulated.design.tells_of_people,
        }
        every_peer: bool = section.every_peer  # type: ignore[attr-defined]
        self._rounds: MemoryRounds | UnmaskedRounds
        if len(names) > MASKED_UP_TO:
            self._rounds = UnmaskedRounds(**facts, every_peer=every_peer)
            return
        run = _OneRun(lambda: Replica(simulated.design.program, simulated.public, plan))
        self._rounds = MemoryRounds(
            **facts,
            study_hash=study.hash,
            source=simulated.keyed(b"masks"),
            replica=run.view if every_peer else None,
            round_seconds=section.round_timeout_s,
        )

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        def contribution(client: AnyMap) -> Callable[[bytes], NDArray[np.int64]]:
            return lambda model: padded(client.contribute(model, request.plan, request.round), self._size)

        absent, leaving = self._missing(request.round)
        summed = self._rounds.run_round(
            request.round,
            request.model,
            {name: contribution(client) for name, client in self._clients.items()},
            absent=absent,
            leaving=leaving,
        )
        return NoisyTotal(
            values=summed.total[: request.plan.grid.size],
            participants=summed.participants,
            dropped=summed.dropped,
            makers=summed.makers,
        )

    def bytes_per_client(self) -> tuple[int, int]:
        up, down = self._rounds.bytes_up, self._rounds.bytes_down
        return round(sum(up.values()) / len(self._clients)), round(sum(down.values()) / len(self._clients))

    def _missing(self, round: int) -> tuple[frozenset[str], frozenset[str]]:
        """Who misses this round: every other one from its beginning, the others once they have dealt."""
        if self.simulated.drop == 0:
            return frozenset(), frozenset()
        names = list(self._clients)
        draws = uniforms(len(names), self.simulated.keyed(b"drop", round.to_bytes(8, "little")))
        dropped = [name for name, u in zip(names, draws) if u < self.simulated.drop]
        return frozenset(dropped[::2]), frozenset(dropped[1::2])


class _OneRun:
    """The program that every peer runs by itself, run once for all of them: it is deterministic, and each peer's totals
    are compared with those that it was run on."""

    def __init__(self, make: Callable[[], Replica]) -> None:
        self._make = make
        self._replica: Replica | None = None
        self._models: dict[int, bytes] = {}
        self._results: dict[int, NoisySum | None] = {}

    def view(self) -> _View:
        """One peer's."""
        return _View(self)

    def model(self, round: int) -> bytes:
        """What this round has to be opened with."""
        self._started()
        return self._models[round]

    def _started(self) -> Replica:
        if self._replica is None:
            self._replica = self._make()
            self._models[self._replica.round] = self._replica.model
        return self._replica

    def answer(self, round: int, result: NoisySum | None) -> int:
        """A peer's total of this round, or that there is none; the round that is asked for next."""
        replica = self._started()
        if round not in self._results:
            self._results[round] = result
            if result is None:
                replica.skip(round)
            else:
                replica.take(result)
            self._models.setdefault(replica.round, replica.model)
        known = self._results[round]
        same = known is result if known is None or result is None else bool((known.total == result.total).all())
        if not same:
            raise LocalProtocolError("two peers have come to different totals of one round", round=round)
        return min((later for later in self._models if later > round), default=0)


class _View:
    def __init__(self, run: _OneRun) -> None:
        self._run, self.round = run, 1

    @property
    def model(self) -> bytes:
        return self._run.model(self.round)

    def take(self, result: NoisySum) -> None:
        self.round = self._run.answer(self.round, result)

    def skip(self, round: int) -> None:
        self.round = self._run.answer(round, None)
