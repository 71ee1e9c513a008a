"""Selections in tests: plain evaluation of circuits, shares of totals, parties under a schedule of lost messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from tallystick.crypto.field import MODULUS, uniform
from tallystick.crypto.prg import AesStream
from tallystick.privacy.mechanisms.exponential_mechanism import WeightTable
from tallystick.protocol.instructions import Aborted, Send, Wake
from tallystick.protocol.selection import Chosen, Question, SelectionMachine, decode, encode, ideal
from tallystick.protocol.selection.circuit import Exchange, program

SESSION = bytes(range(32))
SMALL = WeightTable((900, 500, 280, 150, 90, 50, 30, 17))


def stream(*labels: int) -> AesStream:
    return AesStream(bytes(32), repr(labels).encode())


def plain(circuit: Any) -> Any:
    """The circuit on bits themselves: a product of bits is a bit, and needs no resharing."""
    try:
        products = next(circuit)
        while True:
            assert products.size, "a layer without a gate is a wasted message"
            products = circuit.send(products)
    except StopIteration as end:
        return end.value


def depth(circuit: Any) -> int:
    layers = 0
    try:
        products = next(circuit)
        while True:
            layers += 1
            products = circuit.send(products)
    except StopIteration:
        return layers


def bits_of(values: Sequence[int], width: int) -> np.ndarray:
    return np.array([[v >> j & 1 for v in values] for j in range(width)], dtype=np.uint8).reshape(width, len(values))


def numbers(planes: np.ndarray) -> list[int]:
    return [sum(int(bit) << j for j, bit in enumerate(column)) for column in planes.T]


def split(totals: Sequence[int], parties: int, source: AesStream) -> list[np.ndarray]:
    """Additive shares modulo p."""
    shares = [uniform(len(totals), source) for _ in range(parties - 1)]
    last = [(t - sum(int(s[i]) for s in shares)) % MODULUS for i, t in enumerate(totals)]
    return [*shares, np.array(last, dtype=np.uint64)]


def run_programs(
    question: Question,
    shares: Sequence[np.ndarray],
    words: Sequence[bytes],
    colluding: int,
    *,
    sources: Sequence[Any] | None = None,
    watch: Callable[[list[Exchange]], None] = lambda _: None,
) -> list[int]:
    """All parties' programs, layer by layer, without messages; ``watch`` sees every layer."""
    parties = len(shares)
    sources = sources or [stream(11, i) for i in range(parties)]
    running = [
        program(question, i, parties, colluding, share=shares[i], word=words[i], source=sources[i])
        for i in range(parties)
    ]
    exchanges = [next(p) for p in running]
    while True:
        watch(exchanges)
        rows = [np.stack([e.rows[i] for e in exchanges]) for i in range(parties)]
        try:
            exchanges = [p.send(r) for p, r in zip(running, rows)]
        except StopIteration as end:
            return [end.value, *(_result(p, r) for p, r in zip(running[1:], rows[1:]))]


def _result(running: Any, rows: np.ndarray) -> int:
    try:
        running.send(rows)
    except StopIteration as end:
        return end.value
    raise AssertionError("one party has ended and another has not")


@dataclass
class World:
    """Machines on a network that loses, repeats and reorders, by a seed; time is simulated."""

    question: Any
    totals: Sequence[int]
    parties: int = 3
    colluding: int = 1
    seed: int = 0
    loss: float = 0.0
    repeat: float = 0.0
    reorder: bool = False
    retry: float = 1.0
    give_up: float = 30.0
    dead: Callable[[str, Any], bool] = lambda _sender, _message: False
    """Whether this message, and all later ones of its sender, never leave."""
    injected: Callable[[str, str, Any], Iterator[tuple[str, bytes]]] | None = None
    """(sender, receiver, message just delivered) → more bytes for the receiver, in a sender's name."""
    words: list[bytes] = field(default_factory=list)
    """Every party's word; random ones if left out."""
    places: dict[str, int] = field(default_factory=dict)
    errors: dict[str, Any] = field(default_factory=dict)
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.names = tuple(f"p{i}" for i in range(self.parties))
        drawn = [stream(21, self.seed, i).bytes(self.question.word_bytes) for i in range(self.parties)]
        self.words = self.words or drawn
        shares = split(self.totals, self.parties, stream(22, self.seed))
        self.machines = {
            name: SelectionMachine(
                name, SESSION, self.names, colluding=self.colluding, round=4, question=self.question, share=shares[i],
                word=self.words[i], source=stream(23, self.seed, i), retry_seconds=self.retry,
                give_up_seconds=self.give_up,
            )
            for i, name in enumerate(self.names)
        }  # fmt: skip
        self.random = Random(self.seed)
        self.flying: list[tuple[str, str, bytes]] = []
        self.wakes: list[tuple[float, str]] = []

    @property
    def expected(self) -> int:
        return ideal(self.question, self.totals, self.words)

    def do(self, name: str, instructions: list[Any]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                if name in self.gone or self.dead(name, instruction.message):
                    self.gone.add(name)
                    continue
                self.sent.append((name, instruction.to, instruction.message))
                copies = 0 if self.random.random() < self.loss else 1 + (self.random.random() < self.repeat)
                self.flying += [(name, instruction.to, encode(instruction.message))] * copies
            elif isinstance(instruction, Wake):
                self.wakes.append((instruction.at, name))
            elif isinstance(instruction, Chosen):
                assert name not in self.places
                self.places[name] = instruction.place
            else:
                assert isinstance(instruction, Aborted)
                assert name not in self.errors
                self.errors[name] = instruction.error

    def run(self, begin: Sequence[str] | None = None, most: int = 200_000) -> World:
        for name in self.names if begin is None else begin:
            self.do(name, self.machines[name].begin(self.now))
        for _ in range(most):
            if self.flying:
                at = self.random.randrange(len(self.flying)) if self.reorder else 0
                sender, to, raw = self.flying.pop(at)
                if to in self.gone:
                    continue
                self.do(to, self.machines[to].receive_bytes(sender, raw, self.now))
                if self.injected is not None:
                    for name, bad in self.injected(sender, to, decode(raw)):
                        self.do(to, self.machines[to].receive_bytes(name, bad, self.now))
                continue
            living = [n for n in self.names if n not in self.gone]
            if all(n in self.places or n in self.errors for n in living):
                return self
            self.wakes.sort()
            at_time, name = self.wakes.pop(0)
            self.now = max(self.now, at_time)
            self.do(name, self.machines[name].tick(self.now))
        raise AssertionError("the selection does not end")
