"""All parties of a selection in one process: what a simulation, a benchmark and tests run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.protocol.instructions import Aborted, Send
from tallystick.protocol.selection.circuit import Asked
from tallystick.protocol.selection.machine import Chosen, Instruction, SelectionMachine

_SESSION = bytes(32)
_LONG = 1e9


@dataclass(frozen=True, slots=True)
class Selected:
    """The cell, and what finding it took."""

    place: int
    layers: int
    """Messages that wait for each other: times the one-way delay of a network, plus the work, is the running time."""
    bytes_sent: tuple[int, ...]
    """By each party, to all others together."""
    longest_message: int


def select_in_memory(
    question: Asked,
    shares: Sequence[NDArray[np.uint64]],
    words: Sequence[bytes],
    sources: Sequence[WordSource],
    colluding: int,
    *,
    session: bytes = _SESSION,
    round: int = 1,
) -> Selected:
    """The machines of all parties, with messages handed from one to the other."""
    names = tuple(f"party{i}" for i in range(len(shares)))
    machines = {
        name: SelectionMachine(
            name, session, names, colluding=colluding, round=round, question=question, share=share, word=word,
            source=source, retry_seconds=_LONG, give_up_seconds=_LONG,
        )
        for name, share, word, source in zip(names, shares, words, sources, strict=True)
    }  # fmt: skip
    queue: deque[tuple[str, Send]] = deque()
    places: dict[str, int] = {}

    def carry_out(name: str, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Send):
                queue.append((name, instruction))
            elif isinstance(instruction, Chosen):
                places[name] = instruction.place
            elif isinstance(instruction, Aborted):
                raise instruction.error

    for name, machine in machines.items():
        carry_out(name, machine.begin(0.0))
    while queue:
        sender, send = queue.popleft()
        carry_out(send.to, machines[send.to].receive(sender, send.message, 0.0))
    if len(places) < len(names) or len(set(places.values())) != 1:
        raise LocalProtocolError("the parties of a selection in memory came to different ends")
    first = machines[names[0]]
    return Selected(
        place=places[names[0]],
        layers=first.layers,
        bytes_sent=tuple(machine.bytes_sent for machine in machines.values()),
        longest_message=max(machine.longest_message for machine in machines.values()),
    )
