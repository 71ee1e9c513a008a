"""The same round through the deployed machines: every message encoded and decoded, survivor sets signed and verified.

Only sockets and disks are missing. Drop-outs fall silent once they have dealt. Noise is drawn, because nothing that
ships is silent, and its seconds are told apart.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.bench.measuring import RoundNoise
from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto.mask_bounds import GraphPlan
from tallystick.crypto.prg import system_stream
from tallystick.trust.masks.memory_rounds import MemoryRounds

_STUDY = digest(b"bench masks, machines")
_DEVIATIONS = 10**9  # of noise of 10^12 a client, 10^6 deviations each: beyond this is no noise


class MaskedMachines:
    """Clients and reducer of a study; ``bytes_up`` is what a survivor sends."""

    def __init__(self, plan: GraphPlan, size: int) -> None:
        self.names = tuple(f"client-{i:04}" for i in range(plan.clients))
        at = np.linspace(0, plan.clients, plan.dropping, endpoint=False)
        self.leaving = frozenset(self.names[int(i)] for i in at)
        self._noise = RoundNoise(size)
        self._values = [np.arange(size, dtype=np.int64) * (2 * i + 1) - size for i in range(min(plan.clients, 50))]
        source = system_stream()
        self._rounds = MemoryRounds(
            study_hash=_STUDY,
            clients=self.names,
            noise=dict.fromkeys(self.names, self._noise),
            source=source,
            plan=plan,
            seed=source.bytes(32),
            size=size,
            min_clients=plan.min_survivors,
            result_limit=2**60,
        )

    def run(self, round: int) -> tuple[float, float]:
        """CPU seconds of a round without its noise, and of the noise; raises if the total is not the sum and noise."""
        self._noise.seconds = 0.0
        contribute = {name: partial(self._contribution, at) for at, name in enumerate(self.names)}
        started = time.process_time()
        summed = self._rounds.run_round(round, b"", contribute, leaving=self.leaving)
        spent = time.process_time() - started
        there = [at for at, name in enumerate(self.names) if name not in self.leaving]
        plain = np.sum([self._contribution(at) for at in there], axis=0)
        if len(summed.participants) != len(there) or np.abs(summed.total - plain).max() > _DEVIATIONS:
            raise LocalProtocolError("a total of the machines is not the sum of the survivors and their noise")
        return spent - self._noise.seconds, self._noise.seconds

    @property
    def bytes_up(self) -> float:
        """Bytes sent so far by a client that stays to the end, on average."""
        stayed = [sent for name, sent in self._rounds.bytes_up.items() if name not in self.leaving]
        return sum(stayed) / len(stayed)

    def _contribution(self, at: int, _model: Any = b"") -> NDArray[np.int64]:
        return self._values[at % len(self._values)]
