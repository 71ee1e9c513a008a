"""All parties of a masked sum in one place, each with records that survive it: any can die at any step, or stay away.

Messages of one line stay in order; which line is next is drawn, so that a seed is a schedule.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tallystick.crypto.key_agreement import AgreementKey
from tallystick.crypto.mask_bounds import GraphPlan, complete_plan
from tallystick.crypto.mask_graph import MaskGraph
from tallystick.crypto.prg import AesStream
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.boots import MemoryBoots, Witness
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, Persist, Send, Wake
from tallystick.protocol.masked_sum import ClientMachine, MaskedSumParameters, ReducerMachine, decode, encode
from tallystick.protocol.masked_sum.messages import Survivors
from tallystick.protocol.noise_source import NoiseSource

STUDY = bytes(range(32))
CLIENTS = ("a", "b", "c", "d", "e")
SIZE = 6
MANY = tuple("abcdefghijklmnop")
IDENTITIES = {name: SigningKey(bytes([i + 1]) * 32) for i, name in enumerate(MANY)}
AGREEMENTS = {name: bytes([i + 65]) * 32 for i, name in enumerate(MANY)}
MODEL = np.arange(3, dtype="<f8").tobytes()


def graph_plan(clients: int, *, colluding: int = 1, least: int = 3) -> GraphPlan:
    """Everybody with everybody; a round may lose whoever is not needed."""
    needed = max(least, (clients + colluding) // 2 + 1, colluding + 2)
    return complete_plan(clients=clients, colluding=colluding, dropping=clients - needed)


def parameters(clients: tuple[str, ...] = CLIENTS, *, colluding: int = 1, **other: Any) -> MaskedSumParameters:
    keys = {
        name: AgreementKey(AGREEMENTS[name]).sign(IDENTITIES[name], study_hash=STUDY, party=name, role="client")
        for name in clients
    }
    facts: dict[str, Any] = {
        "study_hash": STUDY, "clients": clients, "reducer": "reducer", "keys": keys,
        "identities": {name: IDENTITIES[name].public for name in clients},
        "graph": MaskGraph(clients, graph_plan(len(clients), colluding=colluding)),
        "size": SIZE, "min_clients": 3, "result_limit": 2**40, "model_size": 3,
    }  # fmt: skip
    return MaskedSumParameters(**facts | other)


class Noise(NoiseSource):
    """Another draw each time it is asked, so that a second one shows."""

    def __init__(self, seed: int, size: int) -> None:
        self._seed, self._size = seed, size
        self.drawn: dict[int, list[np.ndarray]] = {}

    def draw(self, round: int) -> np.ndarray:
        draws = self.drawn.setdefault(round, [])
        stream = AesStream(bytes([self._seed]) * 32, bytes([round, len(draws)]))
        draws.append((stream.words(self._size) >> np.uint64(40)).astype(np.int64) - (1 << 23))
        return draws[-1]


class World:
    """A lossless network, and a party that dies after its n-th instruction, if it is told to."""

    def __init__(
        self, p: MaskedSumParameters, *, die: tuple[str, int] | None = None, seed: int = 0, away: bool = False
    ) -> None:
        self.p, self.die, self.away = p, die, away
        self.schedule = random.Random(seed)
        self.source = AesStream(bytes([seed % 256]) * 32, b"world")
        self.records: dict[str, dict[str, bytes]] = {name: {} for name in (*p.clients, "reducer")}
        self.boots = {name: MemoryBoots() for name in p.clients}
        self.starts = dict.fromkeys(self.records, 0)
        self.noise = {name: Noise(i, p.size) for i, name in enumerate(p.clients)}
        self.steps = dict.fromkeys(self.records, 0)
        self.sent: list[tuple[str, str, Any]] = []
        self.results: list[Any] = []
        self.aborts: list[tuple[str, Any]] = []
        self.lines: dict[tuple[str, str], deque[bytes]] = {}
        self.wakes: list[tuple[float, str]] = []
        self.now = 0.0
        self.absent: set[str] = set()
        self.change: Callable[[str, str, Any], Any] = lambda _sender, _to, message: message
        self.model: dict[str, bytes] = {}
        self.machines: dict[str, Any] = {}
        for name in self.records:
            self.start(name)

    def vector(self, client: str) -> np.ndarray:
        return np.arange(self.p.size, dtype=np.int64) * (self.p.clients.index(client) + 1) - 1000

    def expected(self, clients: tuple[str, ...], round: int) -> np.ndarray:
        """What a total over these must be: every sum once, and every client's first and only draw of noise once."""
        assert all(len(self.noise[name].drawn[round]) == 1 for name in clients)
        return np.sum([self.vector(name) + self.noise[name].drawn[round][0] for name in clients], axis=0)

    def start(self, name: str, *, records: dict[str, bytes] | None = None, boot: int | None = None) -> None:
        """A party begins, from its records."""
        kept = self.records[name] if records is None else records
        self.starts[name] = self.starts[name] + 1 if boot is None else boot
        if name == "reducer":
            machine, first = ReducerMachine.restore(self.p, kept, self.now)
        else:
            value = AesStream(bytes(32), f"{name}{self.starts[name]}".encode()).bytes(16)
            machine, first = ClientMachine.restore(
                self.p, name, kept, key=IDENTITIES[name], agreement=AgreementKey(AGREEMENTS[name]),
                noise=self.noise[name], boot=self.starts[name], boot_value=value, boots=self.boots[name],
            )  # fmt: skip
        self.machines[name] = machine
        self.carry_out(name, first)

    def open(self, round: int) -> None:
        while self.machines["reducer"].round < round:  # again, if it died before anybody had heard of the round
            self.carry_out("reducer", self.machines["reducer"].open_round(round, MODEL, self.now))

    def run(self, until: float = 1e9) -> None:
        while any(self.lines.values()) or (self.wakes and not self._over()):
            if not any(self.lines.values()):
                at, name = heapq.heappop(self.wakes)
                if at > until:
                    return
                self.now = max(self.now, at)
                if name not in self.absent:
                    self.carry_out(name, self.machines[name].tick(self.now))
                continue
            line = self.schedule.choice(sorted(line for line, waiting in self.lines.items() if waiting))
            raw, (sender, to) = self.lines[line].popleft(), line
            message = self.change(sender, to, decode(raw)) if to not in self.absent else None
            if message is not None and to in self.machines:
                self.carry_out(to, self.machines[to].receive_bytes(sender, encode(message), self.now))

    def _over(self) -> bool:
        return self.machines["reducer"].state.value in ("finished", "aborted") and not any(self.lines.values())

    def carry_out(self, name: str, instructions: list[Any]) -> None:
        for step in instructions:
            if name in self.absent:
                return
            self.steps[name] += 1
            self._one(name, step)
            if self.die == (name, self.steps[name]):
                self.die = None
                if self.away:
                    self.absent.add(name)  # for good
                else:
                    self.start(name)
                return

    def _one(self, name: str, step: Any) -> None:
        machine, records = self.machines.get(name), self.records[name]
        match step:
            case Send(to=to, message=message):
                self.sent.append((name, to, message))
                self.lines.setdefault((name, to), deque()).append(encode(message))
            case Persist(key=key, record=record):
                records[key] = record
            case Forget(key=key):
                records.pop(key, None)
            case Wake(at=at):
                heapq.heappush(self.wakes, (at, name))
            case Witness():
                self.boots[name].note(step)
            case Compute(round=round):
                assert machine is not None
                self.carry_out(name, machine.contribute(round, self.vector(name), self.source, self.now))
            case Finished(result=result):
                again = [r for r in self.results if r.round == result.round]  # a restart tells it again
                assert all((r.total == result.total).all() for r in again)
                self.results += [] if again else [result]
            case Aborted(error=error):
                self.aborts.append((name, error))

    def secrets_left(self) -> list[tuple[str, str]]:
        return [(name, key) for name in self.p.clients for key in ("noise", "secrets", "masked", "relay")
                if key in self.records[name]]  # fmt: skip


def said(world: World, kind: type, *, by: str | None = None, round: int = 1) -> list[Any]:
    return [m for name, _, m in world.sent if isinstance(m, kind) and m.round == round and by in (None, name)]


def masked_world() -> tuple[World, Survivors]:
    """All have sent their masked sums; the honest survivor set is known and told to nobody."""
    world = World(parameters())
    world.change = lambda _sender, _to, m: None if isinstance(m, Survivors) else m
    world.open(1)
    world.run(until=0)
    return world, said(world, Survivors)[0]


def without(survivors: Survivors, name: str) -> Survivors:
    left = [i for i, client in enumerate(survivors.clients) if CLIENTS[client] != name]
    return replace(survivors, clients=tuple(survivors.clients[i] for i in left),
                   starts=tuple(survivors.starts[i] for i in left),
                   signatures=tuple(survivors.signatures[i] for i in left))  # fmt: skip


def tell(world: World, name: str, message: Any) -> list[Any]:
    """What a client answers to it."""
    steps = world.machines[name].receive("reducer", message, world.now)
    world.carry_out(name, steps)
    return [s.message for s in steps if isinstance(s, Send)]
