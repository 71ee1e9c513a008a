"""Local programs without a protocol around them: learners in a list, exact totals; for the bench and the figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import Public
from tallystick.privacy.client_vectors import FRACTION_BITS

Floats = NDArray[np.float64]


@dataclass(kw_only=True)
class Learners:
    """All learners of a program, dealt their records in turn, and the state after each round."""

    program: LocalProgram
    public: Public
    prepared: list[Any]
    memories: list[Any]
    states: list[Any] = field(default_factory=list)
    seconds: float = 0.0
    """Of processor time in the learners' own steps, all of them one after the other."""

    @classmethod
    def dealt(cls, program: LocalProgram, public: Public, rows: Floats, target: Floats, learners: int) -> Learners:
        """Every ``learners``-th record to each."""
        parts = [(np.ascontiguousarray(rows[m::learners]), target[m::learners]) for m in range(learners)]
        prepared = [program.prepare(x, y) for x, y in parts]
        memories = [program.start_in_client(p) for p in prepared]
        return cls(program=program, public=public, prepared=prepared, memories=memories)

    @property
    def state(self) -> Any:
        """The newest."""
        return self.states[-1] if self.states else self.program.init(self.public)

    def steps(self) -> list[tuple[NDArray[np.int64], Any]]:
        """What all learners do in the next round; nothing is kept of it."""
        query = self.program.query(self.state)
        return [self.program.step_in_client(p, query, m) for p, m in zip(self.prepared, self.memories)]

    def round(self) -> bool:
        """One round; whether the program says that it is finished."""
        started = time.thread_time()
        made = self.steps()
        self.seconds += time.thread_time() - started
        self.memories = [memory for _, memory in made]
        total = np.sum([vector for vector, _ in made], axis=0).astype(np.float64)
        self.states.append(self.program.reduce_in_aggregator(np.ldexp(total, -FRACTION_BITS), self.state))
        return self.program.finished(self.state)

    def run(self, rounds: int) -> Learners:
        """So many rounds, or until it is finished."""
        for _ in range(rounds):
            if self.round():
                break
        return self


def public_of(rows: Floats) -> Public:
    """The public facts of two classes on these columns."""
    names = tuple(f"x{i}" for i in range(rows.shape[1]))
    return Public(features=names, records=len(rows), target="y", classes=("0", "1"))
