"""All parties of a study's sums in one process, whichever protocol they speak: the deployed machines, without sockets.

Every message is encoded and decoded; only sockets, disks and waiting are missing. The network is lossless and in order,
and time jumps to the next deadline when nothing is under way, so an absent client costs no waiting.
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
from tallystick.crypto.prg import SEED_BYTES
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, NoisySum, Persist, Send, Wake

Contribute = Callable[[bytes], NDArray[np.int64]]


class MemoryParties:
    """Machines by name; the coordinator's opens rounds. :meth:`run_round` sums once."""

    def __init__(
        self,
        machines: Mapping[str, Any],
        *,
        coordinator: str,
        clients: tuple[str, ...],
        encode: Callable[[Any], bytes],
        source: WordSource,
    ) -> None:
        self._machines, self._coordinator, self._encode, self._source = dict(machines), coordinator, encode, source
        self.records: dict[str, dict[str, bytes]] = {name: {} for name in machines if name not in clients}
        self.bytes_up, self.bytes_down = dict.fromkeys(clients, 0), dict.fromkeys(clients, 0)
        self._queue: deque[tuple[str, str, bytes]] = deque()
        self._wakes: list[tuple[float, str]] = []
        self._now = 0.0
        self._end: Finished | Aborted | None = None
        self._contribute: Mapping[str, Contribute] = {}
        self._gone: set[str] = set()

    def run_round(
        self,
        round: int,
        model: bytes,
        contribute: Mapping[str, Contribute],
        absent: frozenset[str] = frozenset(),
    ) -> NoisySum:
        """One sum; raises ``RoundAborted`` or ``TooFewParties`` when it ends without a result."""
        coordinator = self._machines[self._coordinator]
        self._contribute, self._end = contribute, None
        self._gone = {name for name in self.bytes_up if name not in contribute or name in absent}
        blind = self._source.bytes(SEED_BYTES) if coordinator.parameters.secret_models else b""
        self._carry_out(self._coordinator, coordinator.open_round(round, model, self._now, blind=blind))
        try:
            self._run()
        except BaseException:
            self._contribute = {}
            self._carry_out(self._coordinator, coordinator.cancel("the simulation stopped"))
            self._run()
            raise
        if isinstance(self._end, Finished):
            return self._end.result
        if isinstance(self._end, Aborted):
            raise self._end.error
        raise LocalProtocolError("the round did not end", party=self._coordinator, round=round)

    def _run(self) -> None:
        while self._queue or (self._wakes and self._end is None):
            if not self._queue:
                at, name = heapq.heappop(self._wakes)
                self._now = max(self._now, at)
                if name not in self._gone:
                    self._carry_out(name, self._machines[name].tick(self._now))
                continue
            sender, to, raw = self._queue.popleft()
            if to in self._gone:
                continue
            if to in self.bytes_down:
                self.bytes_down[to] += len(raw)
            self._carry_out(to, self._machines[to].receive_bytes(sender, raw, self._now))
        self._wakes.clear()

    def _carry_out(self, name: str, instructions: list[Any]) -> None:
        for step in instructions:
            match step:
                case Send(to=to, message=message):
                    raw = self._encode(message)
                    self._queue.append((name, to, raw))
                    if name in self.bytes_up:
                        self.bytes_up[name] += len(raw)
                    self.sent(name, message)
                case Wake(at=at):
                    heapq.heappush(self._wakes, (at, name))
                case Persist(key=key, record=record):
                    if name in self.records:  # a client in this process never restarts
                        self.records[name][key] = record
                case Forget(key=key):
                    self.records.get(name, {}).pop(key, None)
                case Compute(round=round, model=model):
                    machine = self._machines[name]
                    if name in self._contribute:
                        values = self._contribute[name](model)
                        self._carry_out(name, machine.contribute(round, values, self._source, self._now))
                    else:
                        self._carry_out(name, machine.withdraw(round))
                case Finished() | Aborted():
                    if name == self._coordinator:
                        self._end = step
                case _:
                    self._carry_out(name, self.other(name, step))

    def sent(self, name: str, message: Any) -> None:
        """A party has said this; a subclass may let it fall silent (:meth:`drop`)."""

    def other(self, name: str, step: Any) -> list[Any]:
        """An instruction of one protocol alone; what its machine says next."""
        return []

    def drop(self, name: str) -> None:
        """From now on this client neither hears nor says anything in this round."""
        self._gone.add(name)
