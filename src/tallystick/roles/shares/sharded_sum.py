"""The sum over the agreed clients, straight from the spool, by one process or by several: always the same bits.

Coordinates are cut into equal pieces, as many for each worker; a worker sums one piece over all clients and takes the
next when it is done, so where vectors are long a slow core does not hold the others up. Vector shares are read two at a
time into the same small buffers: memory does not grow with the number of clients. (To map the file instead costs more:
with 400 kB of each of 10,000 vectors a page's mapping and unmapping take longer than copying it.)

A seed is expanded from the piece's first word on (counter mode can start anywhere). That is the expansion itself
unless a word somewhere was ≥ p and had to be passed over, which shifts all later elements. A worker adds every word
at its own place, counts such a word as zero, and says so; for that seed, about one in 4,000 at a million elements,
the words are taken out of the total again and the expansion is put in. Addition mod p is exact, so neither the
pieces nor their order leave a trace, and W = 1 takes the same way.

Workers are spawned once and serve every round. One that dies costs nothing but its time: its piece is summed here.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, TallystickError
from tallystick.crypto.additive import share_context as server_context
from tallystick.crypto.field import add_all_into
from tallystick.crypto.prg import add_expanded, add_words_at
from tallystick.protocol.secure_sum.messages import share_context
from tallystick.roles.shares.spool import Place, SpoolShares
from tallystick.roles.storage.database import corrupt, storage_guard

LEAST_PIECE = 1 << 15  # elements: below this a worker opens vectors longer than it adds them
PIECES_PER_WORKER = 4
_READ = 1 << 16  # elements of a vector that are read at once
_U32 = Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class SumJob:
    """One round's sum: where the vectors lie, and the seeds with the contexts they are expanded in."""

    size: int
    vectors: tuple[Place, ...]
    seeds: tuple[tuple[bytes, bytes], ...] = field(repr=False)

    @classmethod
    def of(cls, store: SpoolShares, round: int, clients: Sequence[int], size: int) -> SumJob:
        """The job of summing exactly these clients' shares."""
        vectors, shares = store.places(round, clients)
        seeds = []
        for s in shares:
            context = share_context(s.study_hash, s.round, s.client, s.servers, s.size, s.model_hash)
            seeds.append((bytes(s.payload), server_context(context, s.server)))
        if any(place.size != size for place in vectors) or any(s.size != size for s in shares):
            raise LocalProtocolError("a stored share does not have the sum's size", round=round)
        return cls(size=size, vectors=tuple(vectors), seeds=tuple(seeds))


class _Spools:
    """Spool files open for reading while a piece is summed."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def read_into(self, buffer: NDArray[np.uint64], place: Place, low: int) -> None:
        """Fill the buffer with a vector's elements from ``low`` on."""
        with storage_guard("the spool of shares"):
            if place.path not in self._open:
                self._open[place.path] = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
            room, at = buffer.data.cast("B"), place.offset + 8 * low
            while room:
                got = os.preadv(self._open[place.path], [room], at)
                if not got:
                    raise corrupt("the spool of shares")
                room, at = room[got:], at + got

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)


def sum_piece(job: SumJob, low: int, high: int) -> tuple[NDArray[np.uint64], tuple[int, ...]]:
    """Elements low … high − 1 of the sum, and the seeds (by number) that had a word ≥ p in this piece."""
    total: NDArray[np.uint64] = np.zeros(high - low, dtype=np.uint64)
    buffers = [np.empty(min(_READ, high - low), dtype="<u8") for _ in range(2)]
    spools = _Spools()
    try:
        for at in range(0, len(job.vectors), 2):
            pair = job.vectors[at : at + 2]
            for first in range(low, high, _READ):
                blocks = [buffer[: high - first] for buffer, _ in zip(buffers, pair)]
                for block, place in zip(blocks, pair):
                    spools.read_into(block, place, first)
                add_all_into(total[first - low : first - low + len(blocks[0])], blocks)
    finally:
        spools.close()
    shifted = [i for i, (seed, context) in enumerate(job.seeds) if not add_words_at(total, seed, context, low)]
    return total, tuple(shifted)


def _work(line: Connection) -> None:
    """A worker: jobs and pieces in, sums out, until the line closes."""
    job: SumJob | None = None
    with contextlib.suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            order = line.recv()
            if isinstance(order, SumJob):
                job = order
                continue
            if job is None:
                return
            try:
                total, shifted = sum_piece(job, *order)
            except TallystickError:
                line.send_bytes(b"")  # summed again at home, where the error is told in full
                continue
            line.send_bytes(_U32.pack(len(shifted)) + Struct(f"<{len(shifted)}I").pack(*shifted))
            line.send_bytes(total.data.cast("B"))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    line: Connection
    piece: tuple[int, int] | None = None


class SpoolSum:
    """Sums rounds out of a spool with ``workers`` processes; one means none but this."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise LocalProtocolError("a sum needs a worker", remedy="Set workers to 1 or more.")
        self._count = workers
        self._workers: list[_Worker] = []

    patience: float | None = None
    """For so many seconds other machines are waited for, where there are any."""

    def total(self, store: SpoolShares, round: int, clients: Sequence[int], size: int) -> NDArray[np.uint64]:
        """The sum mod p of exactly these clients' shares: the bits of ``sum_shares``, whatever the workers."""
        return self.run(SumJob.of(store, round, clients, size))

    def run(self, job: SumJob) -> NDArray[np.uint64]:
        """The sum of a job."""
        total: NDArray[np.uint64] = np.zeros(job.size, dtype=np.uint64)
        shifted: set[int] = set()
        pieces = deque(self._pieces(job.size))
        if self._count > 1 and len(pieces) > 1:
            self._share_out(job, pieces, total, shifted)
        for low, high in pieces:
            total[low:high], found = sum_piece(job, low, high)
            shifted.update(found)
        for seed, context in (job.seeds[i] for i in sorted(shifted)):
            add_words_at(total, seed, context, 0, negate=True)
            add_expanded(total, seed, context)
        return total

    def _pieces(self, size: int) -> list[tuple[int, int]]:
        if self._count == 1:
            return [(0, size)]
        # Every worker gets as many: one more piece than workers would keep all but one of them waiting for it.
        turns = min(PIECES_PER_WORKER, max(1, size // (self._count * LEAST_PIECE)))
        step = max(1, -(-size // (turns * self._count)))
        return [(low, min(low + step, size)) for low in range(0, size, step)]

    def _share_out(
        self, job: SumJob, pieces: deque[tuple[int, int]], total: NDArray[np.uint64], shifted: set[int]
    ) -> None:
        """Hand out pieces until none is left; those of workers that failed are put back."""
        self.start()
        packed = bytes(ForkingPickler.dumps(job))  # once for all: it names every client's vector
        for worker in list(self._workers):
            self._ask(worker, packed, pieces)
        while busy := {worker.line: worker for worker in self._workers if worker.piece is not None}:
            for line in wait(list(busy)):
                worker = busy[line]  # type: ignore[index]
                low, high = worker.piece or (0, 0)
                try:
                    found = worker.line.recv_bytes()
                    if found:
                        numbers = Struct(f"<{_U32.unpack_from(found)[0]}I").unpack_from(found, 4)
                        part = np.frombuffer(worker.line.recv_bytes(), dtype="<u8")
                        total[low:high] = part
                        shifted.update(numbers)
                    else:
                        pieces.append((low, high))
                        worker.piece = None
                        continue
                except (EOFError, OSError):
                    pieces.append((low, high))
                    self._dismiss(worker)
                    continue
                worker.piece = None
                self._ask(worker, None, pieces)

    def _ask(self, worker: _Worker, job: bytes | None, pieces: deque[tuple[int, int]]) -> None:
        if not pieces:
            return
        piece = pieces.popleft()
        try:
            if job is not None:
                worker.line.send_bytes(job)  # which ``recv`` unpickles
            worker.line.send(piece)
            worker.piece = piece
        except OSError:
            pieces.append(piece)
            self._dismiss(worker)

    def start(self) -> None:
        """Start the workers that are not running; a role does so before its first round (it takes seconds)."""
        spawn = multiprocessing.get_context("spawn")  # a fork would take threads' locks along
        while len(self._workers) < self._count:
            here, there = spawn.Pipe()
            process = spawn.Process(target=_work, args=(there,), daemon=True, name="tallystick-sum")
            process.start()
            there.close()
            self._workers.append(_Worker(process, here))

    def _dismiss(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.line.close()
        worker.process.terminate()
        worker.process.join()
        worker.process.close()

    def close(self) -> None:
        """Send the workers home."""
        for worker in list(self._workers):
            self._dismiss(worker)

    def __enter__(self) -> SpoolSum:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
