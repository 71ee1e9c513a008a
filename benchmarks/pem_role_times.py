"""What a round costs each role, measured on the protocol's own machines: Figure 3 of PEM.

Every message of a round is encoded, sent through memory and decoded, as in ``tallystick simulate``. A clock charges the
CPU time of this thread to whichever role is at work, and splits two of them:

* server: *sum* (take in shares, agree, add) and *noise* (draw it, by the exact sampler);
* aggregator: *sum* (check and add the servers' vectors: PEM's "independent of the number of clients") and *messages*
  (announce the model and the end to every client, which our protocol does and PEM's text leaves out).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.identifiers import digest
from tallystick.crypto.prg import AesStream, system_stream
from tallystick.privacy.mechanisms import discrete_gaussian
from tallystick.protocol.secure_sum import Instruction
from tallystick.protocol.secure_sum.messages import Partial
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.transport.rounds import Contribute, MemoryRounds

__all__ = ["RoundCost", "measure_round"]

_STUDY = digest(b"bench pem-figures")
_VARIANCE = Fraction(10**12)
"""Of one server's noise, in grid units: the size that fine grids have; the sampler's cost hardly depends on it."""


@dataclass(frozen=True, kw_only=True)
class RoundCost:
    """CPU seconds and bytes of one round; client and server figures are those of one of them, on average."""

    clients: int
    dimension: int
    client_seconds: float
    server_sum_seconds: float
    server_noise_seconds: float
    aggregator_sum_seconds: float
    aggregator_message_seconds: float
    client_bytes: float
    server_bytes: float
    aggregator_bytes: float


class _Clock:
    """CPU time of this thread, charged to the innermost label."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._labels = ["nobody"]
        self._since = time.thread_time()

    @contextmanager
    def of(self, label: str) -> Iterator[None]:
        self._switch()
        self._labels.append(label)
        try:
            yield
        finally:
            self._switch()
            self._labels.pop()

    def _switch(self) -> None:
        now = time.thread_time()
        self.seconds[self._labels[-1]] += now - self._since
        self._since = now


class _Counted(deque[tuple[str, str, bytes]]):
    """The queue of messages; sums what each party sends and receives."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = defaultdict(int)

    def append(self, item: tuple[str, str, bytes]) -> None:
        sender, to, raw = item
        self.bytes[sender] += len(raw)
        self.bytes[to] += len(raw)
        super().append(item)


class _TimedRounds(MemoryRounds):
    """The simulation's rounds with a clock in front of every machine."""

    def watch(self, clock: _Clock) -> _Counted:
        self._clock = clock
        self._queue = queue = _Counted()
        for name, machine in self._machines.items():
            for method in ("receive_bytes", "tick", "contribute", "open_round"):
                self._time(machine, method, self._role(name))
        aggregator: Any = self._aggregator
        self._time(aggregator._handlers, Partial, "aggregator-sum")
        self._time(aggregator, "_finish", "aggregator-messages")
        return queue

    def _time(self, owner: Any, name: Any, label: str) -> None:
        inside: Callable[..., Any] | None = owner[name] if isinstance(owner, dict) else getattr(owner, name, None)
        if inside is None:
            return
        work, clock = inside, self._clock

        def timed(*arguments: Any, **options: Any) -> Any:
            with clock.of(label):
                return work(*arguments, **options)

        if isinstance(owner, dict):
            owner[name] = timed
        else:
            setattr(owner, name, timed)

    def _role(self, name: str) -> str:
        if name in self.parameters.server_index:
            return "server-sum"
        return "client" if name in self.parameters.client_index else "aggregator-messages"

    def _carry_out(self, name: str, instructions: list[Instruction], contribute: Mapping[str, Contribute]) -> None:
        with self._clock.of(self._role(name)):
            super()._carry_out(name, instructions, contribute)


class _Noise(NoiseSource):
    """One server's exact discrete Gaussian noise, on the clock."""

    def __init__(self, size: int, clock: _Clock, server: int) -> None:
        self._size, self._clock = size, clock
        self._source = AesStream(digest(b"pem-figures", bytes([server])))

    def draw(self, round: int) -> NDArray[np.int64]:
        with self._clock.of("server-noise"):
            return discrete_gaussian.sample(_VARIANCE, self._size, self._source)


def measure_round(clients: int, dimension: int, *, servers: int = 2, repeat: int = 3) -> RoundCost:
    """The cheapest of ``repeat`` rounds after one that warms up, part by part: machines are shared."""
    names = [f"client-{i:05d}" for i in range(clients)]
    clock = _Clock()
    rounds = _TimedRounds.create(
        study_hash=_STUDY,
        size=dimension,
        clients=names,
        servers=[f"server-{i}" for i in range(1, servers + 1)],
        noise=[_Noise(dimension, clock, i) for i in range(servers)],
        source=system_stream(),
        honest=servers - 1,
        min_clients=min(3, clients),
        result_limit=2**60,
        model_size=dimension,
        simulation_of_one=clients == 1,
    )
    if not isinstance(rounds, _TimedRounds):
        raise TypeError("not the timed rounds")
    queue = rounds.watch(clock)
    values = np.arange(dimension, dtype=np.int64) - dimension // 2
    exact = clients * values
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(1, repeat + 2):
        clock.seconds.clear()
        queue.bytes.clear()
        summed = rounds.run_round(number, bytes(8 * dimension), dict.fromkeys(names, lambda _model: values))
        if len(summed.participants) != clients or np.abs(summed.total - exact).max() > 40 * servers * 10**6:
            raise RuntimeError("the round's total is wrong")  # a bug, not an input
        if number > 1:
            for label, seconds in clock.seconds.items():
                found[label].append(seconds)
    cost = {label: min(seconds) for label, seconds in found.items()}
    sent = queue.bytes
    return RoundCost(
        clients=clients,
        dimension=dimension,
        client_seconds=cost["client"] / clients,
        server_sum_seconds=cost["server-sum"] / servers,
        server_noise_seconds=cost["server-noise"] / servers,
        aggregator_sum_seconds=cost["aggregator-sum"],
        aggregator_message_seconds=cost["aggregator-messages"],
        client_bytes=sum(sent[name] for name in names) / clients,
        server_bytes=sum(sent[s] for s in rounds.parameters.servers) / servers,
        aggregator_bytes=float(sent[rounds.parameters.aggregator]),
    )
