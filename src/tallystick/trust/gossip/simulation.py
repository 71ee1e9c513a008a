"""Trust model ``gossip`` in one process: every peer perturbs its records, and all learn from what was published.

A frame is a peer, and every record of it a record of its own: perturbed once, with the public id (study, peer, number).
4,140 frames of one record or three frames of 1,380 cost each record the same ε. A record that cannot be read is
published as the zero vector of class 0, as a deployed peer publishes it: that it is missing is not seen. Where the unit
is the person, every person of a frame publishes ``max_records`` records, zero vectors if there are fewer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.design import GossipProgram
from tallystick.algorithms.gossip.golf.learning import walk_over_published, walk_with_gradients
from tallystick.algorithms.gossip.moments import GossipModel
from tallystick.core.errors import LocalProtocolError, TooFewParties
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.engines.client_map import HeldRecords
from tallystick.engines.engine import Computation, Computed, Progress, Released, SimulatedStudy
from tallystick.privacy.local.gradient_plan import GradientPlan
from tallystick.privacy.local.plan import LocalPlan
from tallystick.privacy.local.randomiser import Decoded
from tallystick.privacy.local.records import record_identity
from tallystick.privacy.mechanisms.word_buffer import WordBuffer

_BLOCK = 4096


class SimulatedGossip(Computation):
    """All peers of one study."""

    def __init__(self, simulated: SimulatedStudy) -> None:
        if not isinstance(simulated.plan, LocalPlan):
            raise LocalProtocolError("the plan is not one of locally perturbed records")
        self.simulated, self.plan = simulated, simulated.plan
        self.program: GossipProgram = simulated.design.program
        self._published = 0

    def bytes_per_client(self) -> tuple[int, int]:
        """What a peer publishes, and receives if all records reach it."""
        size = 0 if self.plan.randomiser is None else self.plan.randomiser.shape.size
        peers = max(1, len(self.simulated.records))
        return self._published * size // peers, self._published * size

    def compute(self, *, progress: Progress | None = None, released: Released | None = None) -> Computed:
        present, absent = self._present()
        model = self._from_moments(present) if self.program.settings.learner == "moments" else self._walked(present)
        if progress is not None:
            progress(1, 1)
        return Computed(history=(model,), contributors=(present,), dropped=(absent,))

    def _from_moments(self, present: tuple[str, ...]) -> GossipModel:
        """What every peer learns when all records have reached it."""
        moments = self.program.moments()
        for name in present:
            for part in self.published(name, self.simulated.records[name]):
                moments.add(part)
        return self.program.learn(moments, self.plan)

    def _walked(self, present: tuple[str, ...]) -> GossipModel:
        """What models learn that walk from peer to peer: the model that the first peer ends with."""
        seed = int(self.simulated.keyed(b"walks").words(1)[0])
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            if isinstance(self.plan, GradientPlan):
                rows = [self._rows(name, self.simulated.records[name]) for name in present]
                self.answered = True
                return walk_with_gradients(
                    self.program,
                    self.plan.budget,
                    rows,
                    lambda problem: self.simulated.keyed(b"gradients", str(problem).encode()),
                    seed=seed,
                    over=pool.map,
                )
            parts = [part for name in present for part in self.published(name, self.simulated.records[name])]
            return walk_over_published(self.program, parts, seed=seed, over=pool.map)

    def published(self, name: str, records: HeldRecords) -> Iterator[Decoded]:
        """What everybody sees of one peer's records, some thousands at a time."""
        vectors, labels = self._rows(name, records)
        randomiser = self.plan.randomiser
        source, study = self.simulated.keyed(b"perturb", name.encode()), self.simulated.study.hash
        for start in range(0, len(vectors), _BLOCK):
            stop = min(start + _BLOCK, len(vectors))
            self._published += stop - start
            if randomiser is None:
                yield self.program.exact(vectors[start:stop], labels[start:stop])
                continue
            identities = [record_identity(study, name, i) for i in range(start, stop)]
            self.answered = True  # from the first draw on, the charge stays
            batch = randomiser.perturb_all(vectors[start:stop], labels[start:stop], identities, source)
            yield randomiser.decode(identities, batch)

    def _rows(self, name: str, held: HeldRecords) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """In the table's order; persons in a random one. They are numbered as their first usable records come, so
        one whose records cannot be read would move all others to other public ids, and to other batches."""
        records = held.whole()
        vectors, labels = rows_of(records, self.program, self.plan.claim.max_records)
        if records.persons is None:
            return vectors, labels
        order = shuffled(len(vectors), self.simulated.keyed(b"order", name.encode()))
        return vectors[order], labels[order]

    def _present(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Who publishes, and who is away."""
        facts = self.simulated
        names = tuple(facts.records)
        if facts.drop <= 0:
            return names, ()
        words = facts.keyed(b"drop").words(len(names))
        away = words < np.uint64(min(2**64 - 1, int(facts.drop * 2**64)))
        present = tuple(name for name, gone in zip(names, away) if not gone)
        if len(present) < facts.min_clients:
            raise TooFewParties(
                f"{len(present)} of {len(names)} peers are there, and the study asks for {facts.min_clients}",
                rule="too-few-clients",
                round=1,
                remedy="Ask for fewer: min_clients under [trust].",
            )
        return present, tuple(name for name, gone in zip(names, away) if gone)


def rows_of(
    records: Records, program: GossipProgram, max_records: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The vectors and classes that a holder perturbs: one for every row of its table, zeros where it has no record."""
    vectors = program.vectors(records.features)
    labels = np.zeros(len(vectors), np.int64) if records.target is None else records.target.astype(np.int64)
    if records.persons is not None:
        return _person_rows(vectors, labels, records.persons, max_records, _unread_persons(records))
    rows = np.zeros((records.tallies.records, program.dimension), np.int64)
    classes = np.zeros(len(rows), np.int64)
    rows[records.rows], classes[records.rows] = vectors, labels
    return rows, classes


def _person_rows(
    vectors: NDArray[np.int64], labels: NDArray[np.int64], persons: NDArray[np.int64], most: int, unread: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``most`` rows for every person, so that how many records it has is not seen.

    Of a person with more, those whose digests are smallest: which ones must not depend on the order of a table, or two
    readings of it would be two different draws. A choice among a person's own records is no matter to its privacy.
    """
    order: Sequence[int] = range(len(persons))
    if len(persons) and int(np.bincount(persons).max()) > most:
        order = sorted(order, key=lambda at: _digest_of(vectors[at], int(labels[at])))
    count = (int(persons.max()) + 1 if len(persons) else 0) + unread
    rows, classes = np.zeros((count * most, vectors.shape[1]), np.int64), np.zeros(count * most, np.int64)
    taken = np.zeros(count, np.int64)
    for record in order:
        person = persons[record]
        if taken[person] < most:
            at = person * most + taken[person]
            rows[at], classes[at] = vectors[record], labels[record]
            taken[person] += 1
    return rows, classes


def _digest_of(vector: NDArray[np.int64], label: int) -> bytes:
    return digest(b"tallystick/gossip/record-of-a-person/1", vector.astype("<i8").tobytes(), str(label).encode())


def _unread_persons(records: Records) -> int:
    """Persons of whom no record can be used: else it would be seen that one cannot. Nobody knows whose a line without
    a name is; it stands for a person of its own."""
    if records.left_out is None or records.persons is None:
        return 0
    named = records.left_out[records.left_out >= 0]
    return len(np.setdiff1d(named, records.persons)) + int(np.count_nonzero(records.left_out < 0))


def shuffled(count: int, source: WordSource) -> NDArray[np.int64]:
    """A uniformly random order [Fisher-Yates, Durstenfeld], of exact whole numbers; one record takes no word."""
    order, words = np.arange(count), WordBuffer(source, block=1)
    for last in range(count - 1, 0, -1):
        places = last + 1
        while True:
            product = words.next() * places  # Lemire: the upper half, unless the lower one is in the uneven rest
            if product & ((1 << 64) - 1) >= (1 << 64) % places:
                break
        at = product >> 64
        order[last], order[at] = order[at], order[last]
    return order
