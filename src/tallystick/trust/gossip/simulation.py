"""Trust model ``gossip`` in one process: every peer perturbs its records, and all learn from what was published.

A frame is a peer, and every record of it a record of its own: perturbed once, with the public id (study, peer, number).
4,140 frames of one record or three frames of 1,380 cost each record the same ε. A record that cannot be read is
published as the zero vector of class 0, as a deployed peer publishes it: that it is missing is not seen. Where the unit
is the person, every person of a frame publishes ``max_records`` records, zero vectors if there are fewer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.design import GossipProgram
from tallystick.algorithms.gossip.moments import GossipModel
from tallystick.core.errors import LocalProtocolError, StudyError, TooFewParties
from tallystick.data.encoding import Records
from tallystick.engines.engine import Computation, Computed, Progress, Released, SimulatedStudy
from tallystick.privacy.local.plan import LocalPlan
from tallystick.privacy.local.randomiser import Decoded
from tallystick.privacy.local.records import record_identity

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
        """What models learn that walk from peer to peer."""
        raise StudyError(f'learner = "{self.program.settings.learner}" is not there yet', remedy='Use "moments".')

    def published(self, name: str, records: Records) -> Iterator[Decoded]:
        """What everybody sees of one peer's records, in their order, some thousands at a time."""
        vectors, labels = rows_of(records, self.program, self.plan.claim.max_records)
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
        return _person_rows(vectors, labels, records.persons, records.tallies.persons, max_records)
    rows = np.zeros((records.tallies.records, program.dimension), np.int64)
    classes = np.zeros(len(rows), np.int64)
    rows[records.rows], classes[records.rows] = vectors, labels
    return rows, classes


def _person_rows(
    vectors: NDArray[np.int64], labels: NDArray[np.int64], persons: NDArray[np.int64], count: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """``most`` rows for every person, the first records of each, so that how many it has is not seen."""
    rows, classes = np.zeros((count * most, vectors.shape[1]), np.int64), np.zeros(count * most, np.int64)
    taken = np.zeros(count, np.int64)
    for vector, label, person in zip(vectors, labels, persons):
        if taken[person] < most:
            at = person * most + taken[person]
            rows[at], classes[at] = vector, label
            taken[person] += 1
    return rows, classes
