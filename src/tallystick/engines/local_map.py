"""One client's half of a program with a memory: its step in every round, and the memory from one to the next.

A memory is kept before the vector it goes with can leave. The one before it is kept too: a client that was killed in
between is asked for the same round again, starts from the memory before it, and makes the same bits. Two are enough,
because rounds only go up.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import State, pack_state, unpack_state
from tallystick.core.errors import DataError, LocalProtocolError, RoundAborted
from tallystick.data.encoding import Records
from tallystick.data.held_columns import HeldColumns
from tallystick.privacy.client_vectors import ClientRound, check_room
from tallystick.privacy.round_plan import RoundPlan

Memories = MutableMapping[int, bytes]
"""The packed memory after a round, by that round; those of older rounds may be gone."""


def not_there_before(round: int) -> RoundAborted:
    """The error of a client that has no memory of the round before."""
    return RoundAborted(
        f"this client has not taken part in round {round - 1}, and cannot go on in round {round}",
        rule="a-learner-dropped-out",
        round=round,
        remedy="Every learner takes part in every round: run the study again, as a new version.",
    )


class LocalMap:
    """A client's records and memory. Nothing here leaves the client but what ``contribute`` returns."""

    left_out = 0
    """Records on which the program failed: none, a built-in does not."""

    def __init__(
        self, program: LocalProgram, records: Records | HeldColumns, template: State, memories: Memories
    ) -> None:
        self._program, self._template, self._memories = program, program.query(template), memories
        self._prepared = program.prepare(records.features, records.target)
        self._start = program.start_in_client(self._prepared)
        self.mapped = len(records)

    def contribute(self, model: bytes, plan: RoundPlan, round: int) -> NDArray[np.int64]:
        """The vector of this round, and the memory after it kept."""
        if not isinstance(plan, ClientRound):
            raise LocalProtocolError("a round of clients' vectors has a grid of its own")
        memory = self._before(round)
        vector, after = self._program.step_in_client(self._prepared, unpack_state(model, self._template), memory)
        packed = pack_state(after)
        if not np.isfinite(np.frombuffer(packed, dtype="<f8")).all():
            raise DataError(
                "the variables of this client are no numbers any more",
                remedy="Nothing was shared. Use a smaller C or other bounds; if it happens again, please report it.",
            )
        check_room(vector, plan.grid)
        self._memories[round] = packed
        for old in [number for number in self._memories if number < round - 1]:
            del self._memories[old]
        return vector

    def _before(self, round: int) -> State:
        if round == 1:
            return self._start
        packed = self._memories.get(round - 1)
        if packed is None:
            raise not_there_before(round)
        if len(packed) != len(pack_state(self._start)):
            raise DataError(
                f"the records have changed since round {round - 1}: their number is not the one that this client's "
                "memory of the study was made with",
                remedy="Nothing was shared. Leave the data as it is while a study runs; run it anew, as a new version.",
            )
        return unpack_state(packed, self._start)
