"""Running a program: the same loop for every algorithm and every trust model.

    reserve → for each round: state out, noisy total in, reduce → commit → release

The charge is reserved before the first round and stays spent from the first noisy total on, whatever happens then. If
nothing noised has left (the first round aborted), the reservation is withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.compiled import CompiledMap
from tallystick.algorithms.program import BlockProgram, Program, Public, State, pack_state, unpack_state
from tallystick.core.errors import RoundAborted, StudyError
from tallystick.crypto.fixed_point import to_real
from tallystick.data.encoding import Records
from tallystick.engines.totals import NoisyTotals, RoundRequest
from tallystick.privacy.contribution import total, total_by_person
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.privacy.plan import Plan, RoundPlan
from tallystick.privacy.release import Release, release

__all__ = ["ClientMap", "Outcome", "Progress", "run_program"]

Progress = Callable[[int, int], None]
"""Called with (round, rounds) after every round."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run: the released final state, the released states before it, and who took part."""

    release: Release
    history: tuple[State, ...]
    contributors: tuple[tuple[str, ...], ...]
    dropped: tuple[tuple[str, ...], ...]


class ClientMap:
    """One client's half of a program: its records, and the exact clipped total it would share in a round."""

    def __init__(
        self, program: Program, records: Records, template: State, *, persons: NDArray[np.int64] | None
    ) -> None:
        self._program = program
        self._template = program.query(template)
        self._persons = persons
        if isinstance(program, BlockProgram):
            self._prepared: Any = program.prepare(records.features, records.target)
            self._compiled = None
        else:
            parts = [records.features] if records.target is None else [records.features, records.target[:, None]]
            self._prepared = np.ascontiguousarray(np.hstack(parts))
            self._compiled = CompiledMap(program)

    def contribute(self, model: bytes, plan: RoundPlan) -> NDArray[np.int64]:
        """The client's own sum at this state, every record gridded and clipped."""
        state = unpack_state(model, self._template)
        if isinstance(self._program, BlockProgram):
            contribution = self._program.map_block(self._prepared, state)
            if self._persons is not None:
                return total_by_person(contribution, plan.grid, self._persons)
            return total(contribution, plan.grid)
        if self._compiled is None:
            raise StudyError("the program was not compiled")
        return self._compiled.total(self._prepared, state, plan.grid, persons=self._persons)


def run_program(
    program: Program,
    public: Public,
    plan: Plan,
    totals: NoisyTotals,
    *,
    study: bytes,
    ledger: Ledger,
    progress: Progress | None = None,
) -> Outcome:
    """Run every round of the plan (or until the program says it is finished on released state) and release the end."""
    entry = ledger.reserve(charge_of(study, plan))
    state = program.init(public)
    history: list[State] = []
    contributors: list[tuple[str, ...]] = []
    dropped: list[tuple[str, ...]] = []
    for number, round_plan in enumerate(plan.rounds, start=1):
        model = pack_state(program.query(state))
        try:
            noisy = totals.noisy_total(RoundRequest(round=number, model=model, plan=round_plan))
        except RoundAborted:
            if number == 1:
                ledger.withdraw(entry)
            raise
        state = program.reduce_in_aggregator(to_real(noisy.values, round_plan.grid.fraction_bits), state)
        history.append(state)
        contributors.append(noisy.participants)
        dropped.append(noisy.dropped)
        if progress is not None:
            progress(number, len(plan.rounds))
        if program.finished(state):
            break
    return Outcome(
        release=release(state, plan=plan, study=study, entry=ledger.commit(entry)),
        history=tuple(history),
        contributors=tuple(contributors),
        dropped=tuple(dropped),
    )
