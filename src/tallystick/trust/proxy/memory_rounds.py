"""Runs the rounds of one study with every party in this process: the deployed machines, every message encoded.

Only sockets, disks and waiting are missing. The network is lossless and in order, and time jumps to the next deadline
when nothing is under way, so an absent owner costs no waiting.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.homomorphic.scheme import Scheme
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.encrypted_sum import (
    DataUserMachine,
    Drop,
    EncryptedSumParameters,
    MemoryUploads,
    OwnerMachine,
    ProxyMachine,
    SumUp,
    encode,
)
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, NoisySum, Persist, Send, Wake
from tallystick.protocol.noise_source import NoiseSource

Contribute = Callable[[bytes], NDArray[np.int64]]
PROXY, DATA_USER = "proxy", "data-user"


class MemoryRounds:
    """All parties of a study's encrypted sums, made once; :meth:`run_round` sums once.

    ``noise`` has the proxy's and the data user's; ``source`` gives keys, ciphertexts and what drowns errors.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        study_hash: bytes,
        clients: tuple[str, ...],
        noise: Mapping[str, NoiseSource],
        source: WordSource,
        min_clients: int,
        **options: Any,
    ) -> None:
        keys = {name: SigningKey.generate(source) for name in (PROXY, DATA_USER)}
        self.parameters = p = EncryptedSumParameters(
            study_hash=study_hash,
            clients=clients,
            proxy=PROXY,
            data_user=DATA_USER,
            proxy_key=keys[PROXY].public,
            data_user_key=keys[DATA_USER].public,
            scheme=scheme,
            min_clients=min_clients,
            **options,
        )
        self.records: dict[str, dict[str, bytes]] = {PROXY: {}, DATA_USER: {}}
        self.bytes_up, self.bytes_down = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
        self.uploads, self._source = MemoryUploads(), source
        self.proxy = ProxyMachine(p, uploads=self.uploads, key=keys[PROXY], noise=noise[PROXY], source=source)
        self.data_user = DataUserMachine(
            p, scheme.generate(source), key=keys[DATA_USER], noise=noise[DATA_USER], source=source
        )
        self._machines: dict[str, Any] = {name: OwnerMachine(p, name) for name in clients}
        self._machines |= {PROXY: self.proxy, DATA_USER: self.data_user}
        self._queue: deque[tuple[str, str, bytes]] = deque()
        self._wakes: list[tuple[float, str]] = []
        self._now = 0.0
        self._end: Finished | Aborted | None = None

    def run_round(
        self,
        round: int,
        model: bytes,
        contribute: Mapping[str, Contribute],
        absent: frozenset[str] = frozenset(),
    ) -> NoisySum:
        """One encrypted sum; raises ``RoundAborted`` or ``TooFewParties`` when it ends without a result."""
        present, self._end = frozenset(contribute) - absent, None
        self._carry_out(DATA_USER, self.data_user.open_round(round, model, self._now), contribute)
        try:
            self._run(present, contribute)
        except BaseException:
            self._carry_out(DATA_USER, self.data_user.cancel("the simulation stopped"), contribute)
            self._run(present, {})
            raise
        if isinstance(self._end, Finished):
            return self._end.result
        if isinstance(self._end, Aborted):
            raise self._end.error
        raise LocalProtocolError("the round did not end", party=DATA_USER, round=round)

    def _run(self, present: frozenset[str], contribute: Mapping[str, Contribute]) -> None:
        while self._queue or (self._wakes and self._end is None):
            if not self._queue:
                at, name = heapq.heappop(self._wakes)
                self._now = max(self._now, at)
                self._carry_out(name, self._machines[name].tick(self._now), contribute)
                continue
            sender, to, raw = self._queue.popleft()
            if to in self.bytes_down:
                if to not in present:
                    continue
                self.bytes_down[to] += len(raw)
            self._carry_out(to, self._machines[to].receive_bytes(sender, raw, self._now), contribute)
        self._wakes.clear()

    def _carry_out(self, name: str, instructions: list[Any], contribute: Mapping[str, Contribute]) -> None:
        machine = self._machines[name]
        for step in instructions:
            match step:
                case Send(to=to, message=message):
                    raw = encode(message)
                    self._queue.append((name, to, raw))
                    if name in self.bytes_up:
                        self.bytes_up[name] += len(raw)
                case Wake(at=at):
                    heapq.heappush(self._wakes, (at, name))
                case Persist(key=key, record=record):
                    if name in self.records:  # an owner in this process never restarts
                        self.records[name][key] = record
                case Forget(key=key):
                    self.records.get(name, {}).pop(key, None)
                case Compute(round=round, model=model):
                    if name in contribute:
                        steps = machine.contribute(round, contribute[name](model), self._source, self._now)
                    else:
                        steps = machine.withdraw(round)
                    self._carry_out(name, steps, contribute)
                case SumUp(round=round):
                    self._carry_out(name, self._sum_up(round), contribute)
                case Drop(round=round, sums=sums):
                    self.uploads.drop(round, sums=sums)
                case Finished() | Aborted():
                    if name == DATA_USER:
                        self._end = step
                case _:
                    pass

    def _sum_up(self, round: int) -> list[Any]:
        digests, job = [], self.proxy.sum_job()
        for index in range(self.parameters.chunks):
            payload = job.chunk(index, self._source)
            self.uploads.put_sum(round, index, payload)
            digests.append(job.digest(index, payload))
        return list(self.proxy.summed(round, tuple(digests)))
