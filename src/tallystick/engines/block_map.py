"""A client's half of a program whose records are gone through anew in every round, a block at a time.

What is in memory is a block for every core, however many records there are. Exact sums make the order of blocks, their
size and the number of cores invisible in the bits.

Where persons are the unit, a person's records may lie in any blocks and must be clipped together: then the records are
gone through several times a round, each time for as many persons as there is room for, chosen by a hash of the name.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.data.record_blocks import Piece, RecordBlocks, joined
from tallystick.engines.record_choice import tossed
from tallystick.privacy.round_plan import RoundPlan

_In = TypeVar("_In")
_Out = TypeVar("_Out")
Rates = Callable[[Records, NDArray[np.int64]], NDArray[np.float64]]
"""The rate at which each place of a block is sampled, given which places its records have."""
_BLOCKS_AT_LEAST = 8
Coins = Callable[[bytes], WordSource]


class PartMap(Protocol):
    """The map of some records, in memory (:class:`tallystick.engines.client_map.ClientMap`)."""

    mapped: int
    left_out: int

    def contribute(self, model: bytes, plan: RoundPlan) -> NDArray[np.int64]:
        """Their exact sum."""


class BlockMap:
    """Records in blocks; ``contribute`` goes through all of them. Nothing here leaves the client."""

    def __init__(
        self,
        blocks: RecordBlocks,
        map_of: Callable[[Records], PartMap],
        *,
        workers: int | None = None,
        rates: Rates | None = None,
        coins: Coins | None = None,
    ) -> None:
        self._blocks, self._map_of = blocks, map_of
        self._workers = workers or os.cpu_count() or 1
        self._rates, self._coins = rates, coins
        self.mapped = self.left_out = 0

    def contribute(self, model: bytes, plan: RoundPlan, round: int = 0) -> NDArray[np.int64]:
        """The client's own sum at this state."""
        total = np.zeros(plan.grid.size, dtype=np.int64)
        self.mapped = self.left_out = 0

        def of(records: Records) -> tuple[NDArray[np.int64], int, int]:
            part = self._map_of(records)
            return part.contribute(model, plan), part.mapped, part.left_out

        for values, mapped, left_out in self._parts(of, round):
            total += values
            self.mapped, self.left_out = self.mapped + mapped, self.left_out + left_out
        return total

    def _parts(self, of: Callable[[Records], _Out], round: int) -> Iterator[_Out]:
        if self._blocks.by_person:
            return map(of, self._persons())
        if self._coins is not None and self._rates is not None:
            return in_parallel(of, self._sampled(self._coins, self._rates, round), self._workers)

        def read(piece: Piece) -> _Out:
            return of(self._blocks.encoded(piece))

        return in_parallel(read, self._blocks.pieces(), self._workers)

    def _sampled(self, coins: Coins, rates: Rates, round: int) -> Iterator[Records]:
        """One coin for every place of the source, in its order, from the round's one stream."""
        source = coins(round.to_bytes(8, "little"))
        for piece in self._blocks.pieces():
            records = self._blocks.encoded(piece)
            places = records.rows - piece.before
            yield records.take(tossed(rates(records, places), source)[places])

    def _persons(self) -> Iterator[Records]:
        """All records of some persons at a time, as many as there is room for."""
        room = max(self._blocks.memory, _BLOCKS_AT_LEAST * self._blocks.block_bytes)
        passes = max(1, -(-self._blocks.bytes() // room))
        for turn in range(passes):
            mine = []
            for records in self._blocks:
                if records.persons is not None:
                    mine.append(records.take(records.persons % passes == turn))
            yield joined(mine, self._blocks.tallies)


def in_parallel(function: Callable[[_In], _Out], items: Iterable[_In], workers: int) -> Iterator[_Out]:
    """The function's values in order; ``workers`` at once, and no more items taken than are worked on."""
    waiting: deque[Future[_Out]] = deque()
    try:
        if workers == 1:
            yield from map(function, items)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="tallystick-map") as pool:
            try:
                for item in items:
                    waiting.append(pool.submit(function, item))
                    if len(waiting) > workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
    finally:
        if isinstance(items, Generator):
            items.close()  # a database's connection goes with it, in this thread
