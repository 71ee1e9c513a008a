"""One client's half of a program: its records, and the exact clipped total it would share in a round.

Maps are made in one place (:class:`ClientMaps`) for simulations, roles, a stream's batches and samples. A study's
program is compiled once; every client's records are then given to the same map. Whether a round sees all of them, a
sample by the client's coins or the batch of a tick is the study's to say, not the caller's.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import LocalProgram
from tallystick.algorithms.program import BlockProgram, BuiltInProgram, Program, State, unpack_state
from tallystick.algorithms.user_programs.program_file import compile_live_program
from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records, Tallies
from tallystick.data.record_blocks import AnyRecords, RecordBlocks
from tallystick.engines.block_map import BlockMap
from tallystick.engines.local_map import LocalMap, Memories
from tallystick.engines.record_choice import RecordChoice, record_choice, sampling_rates
from tallystick.engines.stream import Batches, simulated_ticks
from tallystick.privacy.contribution import Dense, total, total_by_person
from tallystick.privacy.grid import Grid
from tallystick.privacy.round_plan import RoundPlan
from tallystick.study import Study

Streams = Callable[..., WordSource]
"""A client's random streams, by labels of bytes: the system's, or a seeded simulation's."""


@runtime_checkable
class RecordMap(Protocol):
    """A compiled ``map_in_client``, here (CompiledMap) or in a locked child (SandboxedMap): the same bits."""

    def vector_size(self, record_size: int, state: State) -> int:
        """How long its vectors are, tried on made-up records."""

    def total_leaving_out(
        self, records: NDArray[np.float64], state: State, grid: Grid
    ) -> tuple[NDArray[np.int64], int]:
        """The exact sum of the clipped vectors; a record that fails adds zeros. And how many did."""

    def vectors_leaving_out(
        self, records: NDArray[np.float64], state: State, size: int
    ) -> tuple[NDArray[np.float64], int]:
        """The vectors; zeros for a record that fails. And how many did."""


def compile_map_of(program: Program, template: State) -> RecordMap | None:
    """The compiled ``map_in_client`` of a user's program; None for a built-in that maps blocks."""
    if isinstance(program, BuiltInProgram):
        return None
    attached = getattr(program, "compiled_map", None)  # a program file was compiled from its approved text
    if attached is not None:
        return attached if isinstance(attached, RecordMap) else None
    owner = next((c for c in type(program).__mro__ if "map_in_client" in vars(c)), Program)
    if owner is Program:
        raise StudyError(
            f"{type(program).__name__} has no map_in_client", remedy="Write map_in_client(self, record, state)."
        )
    try:
        lines, first = inspect.getsourcelines(owner)
    except (OSError, TypeError):
        raise StudyError(
            f"the source of {owner.__name__} cannot be read, so it cannot be checked",
            remedy="Define the program in a file, or in a notebook cell or script that Python can read back.",
        ) from None
    return compile_live_program(
        program, program.query(template), source="".join(lines), name=owner.__name__, first_line=max(1, first)
    )


def rows_of(records: Records) -> NDArray[np.float64]:
    """The records as a user's ``map_in_client`` reads them: one row each, the target last."""
    parts = [records.features] if records.target is None else [records.features, records.target[:, None]]
    return np.ascontiguousarray(np.hstack(parts))


def blocks_of(records: int, most: int | None, persons: NDArray[np.int64] | None) -> Iterator[NDArray[np.int64] | None]:
    """The rows of each block of at most ``most`` records, None for all of them; a person's records stay together."""
    if most is None or records <= most:
        yield None
        return
    order = np.arange(records) if persons is None else np.argsort(persons, kind="stable")
    first = 0
    while first < records:
        last = min(first + most, records)
        while persons is not None and last < records and persons[order[last]] == persons[order[last - 1]]:
            last += 1
        yield order[first:last]
        first = last


def _codes(persons: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(persons, return_inverse=True)[1].astype(np.int64)


class ClientMap:
    """A client's records, prepared once; ``contribute`` answers every round. Nothing here leaves the client."""

    def __init__(
        self,
        program: Program,
        records: Records,
        template: State,
        *,
        compiled: RecordMap | None = None,
        persons: NDArray[np.int64] | None = None,
    ) -> None:
        self._program = program
        self._template = program.query(template)
        self._persons = persons
        self._compiled = compiled
        self.mapped, self.left_out = len(records.features), 0
        """Records of the last round, and on how many of them the program failed, so that they added zeros. The second
        number stays on this machine."""
        self._blocks: list[tuple[Any, NDArray[np.int64] | None]] = []
        if isinstance(program, BlockProgram):
            for rows in blocks_of(len(records.features), program.block_records, persons):
                block, target = records.features, records.target
                if rows is not None:
                    block, target = block[rows], None if target is None else target[rows]
                codes = persons if persons is None or rows is None else _codes(persons[rows])
                self._blocks.append((program.prepare(block, target), codes))
        else:
            self._prepared = rows_of(records)

    def contribute(self, model: bytes, plan: RoundPlan, round: int = 0) -> NDArray[np.int64]:
        """The client's own sum at this state: every record gridded, clipped, added in exact integers.

        All records take part in every round here; in a :class:`ChosenMap` some.
        """
        state = unpack_state(model, self._template)
        if isinstance(self._program, BlockProgram):
            # Row independence to the bit is what lets blocks be mapped one by one: their exact totals add up.
            whole = np.zeros(plan.grid.size, dtype=np.int64)
            for prepared, persons in self._blocks:
                contribution = self._program.map_block(prepared, state)
                if persons is None:
                    whole += total(contribution, plan.grid)
                else:
                    whole += total_by_person(contribution, plan.grid, persons)
            return whole
        if self._compiled is None:
            raise StudyError("the program was not compiled")
        if self._persons is not None:
            vectors, self.left_out = self._compiled.vectors_leaving_out(self._prepared, state, plan.grid.size)
            return total_by_person(Dense(values=vectors), plan.grid, self._persons)
        # A record on which the program fails adds zeros: a client that refused would be seen to be missing, and a
        # hostile program could choose for which record that happens.
        whole, self.left_out = self._compiled.total_leaving_out(self._prepared, state, plan.grid)
        return whole


class ChosenMap:
    """A client's half of a program whose rounds look at some of the records only."""

    def __init__(
        self, program: Program, records: Records, template: State, choice: RecordChoice, compiled: RecordMap | None
    ) -> None:
        self._program, self._records, self._template = program, records, template
        self._choice, self._compiled = choice, compiled
        self.mapped = self.left_out = 0

    def contribute(self, model: bytes, plan: RoundPlan, round: int) -> NDArray[np.int64]:
        """The client's own sum over the records of this round."""
        chosen = self._records.take(self._choice.rows(round))
        part = ClientMap(self._program, chosen, self._template, compiled=self._compiled)
        total = part.contribute(model, plan)
        self.mapped, self.left_out = part.mapped, part.left_out
        return total


class DistantRecords(ABC):
    """Records that are mapped where they are, on other machines: only their sum comes here."""

    tallies: Tallies

    def __len__(self) -> int:
        return self.tallies.records - self.tallies.dropped

    @abstractmethod
    def map_of(self, maps: ClientMaps, streams: Streams, party: str, memories: Memories | None) -> DistantMap:
        """What answers the rounds of a study."""

    @abstractmethod
    def forget(self) -> None:
        """Nobody needs them any more: the other machines keep nothing of them."""

    @abstractmethod
    def whole(self) -> Records:
        """All of them, here; or a typed error that says why not."""


class DistantMap(ABC):
    """A client's half of a program on other machines."""

    mapped: int
    left_out: int

    @abstractmethod
    def contribute(self, model: bytes, plan: RoundPlan, round: int = 0) -> NDArray[np.int64]:
        """The client's own sum at this state."""

    @abstractmethod
    def close(self) -> None:
        """The study is over: let the other machines forget the records."""


HeldRecords = AnyRecords | DistantRecords
"""One client's records: in memory, in blocks, or elsewhere."""
AnyMap = ClientMap | ChosenMap | LocalMap | BlockMap | DistantMap
"""Whatever answers a round for one client."""


class ClientMaps:
    """The maps of one study's clients."""

    def __init__(self, study: Study, program: Program, template: State) -> None:
        self.study, self.program, self.template = study, program, template
        self._compiled = compile_map_of(program, template)

    def whole(self, records: Records) -> ClientMap:
        """Every record in every round; also for one batch of a stream, which is asked once."""
        return ClientMap(self.program, records, self.template, compiled=self._compiled, persons=records.persons)

    def of(self, records: HeldRecords, streams: Streams, party: str, memories: Memories | None = None) -> AnyMap:
        """A client's records, in every round those that the study samples by this client's own coins.

        ``memories``: where a program that has a memory keeps it from round to round, durably in a role.
        """
        if isinstance(records, DistantRecords):
            return records.map_of(self, streams, party, memories)
        if isinstance(self.program, LocalProgram):
            return LocalMap(self.program, records.whole(), self.template, {} if memories is None else memories)

        def coins(round: bytes) -> WordSource:
            return streams(self.study.hash, b"coins", round, party.encode())

        sampling = self.study.privacy.sampling is not None
        if isinstance(records, RecordBlocks):
            return BlockMap(
                records,
                self.whole,
                workers=None if isinstance(self.program, BlockProgram) else 1,  # a user's map has children of its own
                rates=partial(sampling_rates, self.study) if sampling else None,
                coins=coins if sampling else None,
            )
        if not sampling:
            return self.whole(records)
        choice = record_choice(self.study, records, coins)
        return ChosenMap(self.program, records, self.template, choice, self._compiled)

    def simulated(self, records: HeldRecords, streams: Streams, party: str, frame: Any) -> AnyMap:
        """The same in a simulation, where the records of all ticks of a stream are there from the beginning."""
        if self.study.stream is None:
            return self.of(records, streams, party)
        arrivals, here = streams(self.study.hash, b"arrivals", party.encode()), records.whole()
        ticks = simulated_ticks(self.study.stream, frame, here, arrivals, party=party)
        return ChosenMap(self.program, here, self.template, Batches(ticks), self._compiled)


def padded(values: NDArray[Any], size: int) -> NDArray[Any]:
    """Zeros up to the study's one length: they carry neither data nor noise."""
    if len(values) == size:
        return values
    out = np.zeros(size, dtype=values.dtype)
    out[: len(values)] = values
    return out
