"""Runs the rounds of one study with every party in this process: the simulated federation's motor.

The machines are the deployed ones and every message is encoded and decoded;
only the sockets, the disks and the waiting are missing. The network is
lossless and in order, time jumps to the next deadline when nothing is under
way, so an absent client costs no waiting. For faults see ``memory`` and
``tests/simulation``.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.field import encode_signed
from tallystick.crypto.prg import SEED_BYTES
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.secure_sum import (
    Aborted,
    AggregatorMachine,
    ClientMachine,
    Compute,
    Draw,
    Drop,
    Finished,
    Forget,
    Instruction,
    MemoryShares,
    NoiseSource,
    NoisySum,
    Persist,
    Send,
    ServerMachine,
    SumParameters,
    Wake,
    encode,
)

Contribute = Callable[[bytes], NDArray[Any]]
DrawTogether = Callable[[int, Mapping[str, Draw]], int]
"""The place that all servers draw from their shares of a round's total."""


class MemoryRounds:
    """All parties of a study's secure sums, made once; :meth:`run_round` sums once.

    ``keys`` and ``noise`` have one entry per server, ``source`` gives the clients their share seeds.
    ``bytes_up`` and ``bytes_down`` count each client's encoded traffic so far.
    """

    def __init__(
        self,
        parameters: SumParameters,
        *,
        keys: Sequence[SigningKey],
        noise: Sequence[NoiseSource],
        source: WordSource,
        draw_together: DrawTogether | None = None,
    ) -> None:
        if not len(keys) == len(noise) == len(parameters.servers):
            raise LocalProtocolError("every server needs a key and a noise source")
        self.parameters = parameters
        self.records: dict[str, dict[str, bytes]] = {name: {} for name in (*parameters.servers, parameters.aggregator)}
        self.bytes_up = dict.fromkeys(parameters.clients, 0)
        self.bytes_down = dict.fromkeys(parameters.clients, 0)
        self._source = source
        self._stores = {server: MemoryShares() for server in parameters.servers}
        self._aggregator = AggregatorMachine(parameters)
        self._machines: dict[str, AggregatorMachine | ClientMachine | ServerMachine] = {
            client: ClientMachine(parameters, client) for client in parameters.clients
        }
        for server, key, source_of_noise in zip(parameters.servers, keys, noise):
            self._machines[server] = ServerMachine(
                parameters, server, key=key, noise=source_of_noise, blinds=source, shares=self._stores[server]
            )
        self._machines[parameters.aggregator] = self._aggregator
        self._queue: deque[tuple[str, str, bytes]] = deque()
        self._wakes: list[tuple[float, str]] = []
        self._now = 0.0
        self._end: Finished | Aborted | None = None
        self._draw_together = draw_together
        self._drawing: dict[str, Draw] = {}

    @classmethod
    def create(
        cls,
        *,
        study_hash: bytes,
        size: int,
        clients: Sequence[str],
        servers: Sequence[str],
        noise: Sequence[NoiseSource],
        source: WordSource,
        honest: int,
        min_clients: int,
        result_limit: int,
        draw_together: DrawTogether | None = None,
        **options: Any,
    ) -> MemoryRounds:
        """Parameters and fresh server keys in one go; ``options`` are further fields of ``SumParameters``."""
        keys = [SigningKey.generate(source) for _ in servers]
        parameters = SumParameters(
            study_hash=study_hash,
            size=size,
            servers=tuple(servers),
            clients=tuple(clients),
            server_keys=tuple(key.public for key in keys),
            honest=honest,
            min_clients=min_clients,
            result_limit=result_limit,
            **options,
        )
        return cls(parameters, keys=keys, noise=noise, source=source, draw_together=draw_together)

    def run_round(
        self,
        round: int,
        model: bytes,
        contribute: Mapping[str, Contribute],
        absent: frozenset[str] = frozenset(),
    ) -> NoisySum:
        """One secure sum; raises ``RoundAborted`` or ``TooFewParties`` when it ends without a result.

        ``contribute`` maps client names to what turns the model's bytes (float64, little-endian) into the client's
        vector, int64 totals or field elements. Clients not in it, or in ``absent``, take no part in this round.
        """
        present = frozenset(contribute) - absent
        self._end = None
        blind = self._source.bytes(SEED_BYTES) if self.parameters.secret_models else b""
        opened = self._aggregator.open_round(round, model, self._now, blind=blind)
        self._carry_out(self.parameters.aggregator, opened, contribute)
        try:
            self._run(present, contribute)
        except BaseException:
            self._carry_out(self.parameters.aggregator, self._aggregator.cancel("the simulation stopped"), contribute)
            self._run(present, {})
            raise
        end = self._end
        if isinstance(end, Finished):
            return end.result
        if isinstance(end, Aborted):
            raise end.error
        raise LocalProtocolError("the round did not end", party=self.parameters.aggregator, round=round)

    def _run(self, present: frozenset[str], contribute: Mapping[str, Contribute]) -> None:
        queue, wakes, machines = self._queue, self._wakes, self._machines
        clients, down = self.parameters.client_index, self.bytes_down
        while queue or (wakes and self._end is None):
            if not queue:
                at, name = heapq.heappop(wakes)
                self._now = max(self._now, at)
                self._carry_out(name, machines[name].tick(self._now), contribute)
                continue
            sender, to, raw = queue.popleft()
            if to in clients:
                if to not in present:
                    continue
                down[to] += len(raw)
            self._carry_out(to, machines[to].receive_bytes(sender, raw, self._now), contribute)
        wakes.clear()

    def _carry_out(self, name: str, instructions: list[Instruction], contribute: Mapping[str, Contribute]) -> None:
        machine = self._machines[name]
        last: object = None
        raw = b""
        for step in instructions:
            if type(step) is Send:
                if step.message is not last:
                    last = step.message
                    raw = encode(step.message)
                self._queue.append((name, step.to, raw))
                if name in self.bytes_up:
                    self.bytes_up[name] += len(raw)
            elif type(step) is Wake:
                heapq.heappush(self._wakes, (step.at, name))
            elif type(step) is Persist:
                if name in self.records:  # a client in this process never restarts
                    self.records[name][step.key] = step.record
            elif type(step) is Forget:
                if name in self.records:
                    self.records[name].pop(step.key, None)
            elif type(step) is Compute and isinstance(machine, ClientMachine):
                if name in contribute:
                    values = contribute[name](step.model)
                    vector = encode_signed(values) if values.dtype == np.int64 else values
                    self._carry_out(name, machine.contribute(step.round, vector, self._source, self._now), contribute)
                else:
                    self._carry_out(name, machine.withdraw(step.round), contribute)
            elif isinstance(step, Draw):
                self._draw(name, step, contribute)
            elif isinstance(step, Drop):
                self._stores[name].drop(step.round)
            elif isinstance(step, (Finished, Aborted)) and name == self.parameters.aggregator:
                self._end = step

    def _draw(self, name: str, step: Draw, contribute: Mapping[str, Contribute]) -> None:
        """Draw together as soon as the last server has come so far."""
        self._drawing[name] = step
        if len(self._drawing) < len(self.parameters.servers):
            return
        drawing, self._drawing = self._drawing, {}
        if self._draw_together is None:
            raise LocalProtocolError("nobody here draws", party=name, round=step.round)
        place = self._draw_together(step.round, drawing)
        for server in drawing:
            machine = self._machines[server]
            if isinstance(machine, ServerMachine):
                self._carry_out(server, machine.drawn(step.round, place), contribute)
