"""From records to a publication and from publications to a model: what a peer draws, what all accept, what is learnt.

    publication = number of records u32 | the published records, all of one size (``privacy.local.records``)

One record is published for every line of the peer's table, readable or not, and nothing of it says which: unreadable
ones are zero vectors. The lines are shuffled before they are numbered. A number is part of a record's public id, and a
line that cannot be read has lost its place in the table: without shuffling, one bad line would move all that follow it
to other ids, and many published records would change with one line. With it, for every order, two tables that differ in
one line differ in one published record, so the whole is ε-DP as each of them is (a mixture over orders that do not
depend on the records). Nothing is claimed for the shuffling besides.

The words of a draw are a function of the peer's secret, of the study and of the rows (:meth:`Publishing.drawn`): an old
copy of a peer, or two at once, draw one record and not two. THEOREM. Let F be a uniformly random function. For every
table X the publication is M(X; F(X)), with X in the words' name; F is read at one place, where its value is uniform, so
its law is that of M(X; fresh words), and the ratio between two tables is at most e^ε as ever. For X ≠ X′ the words are
independent: two copies with other rows make two releases, each ε-DP. (Words that are the same for all rows would not
do: of x + n and x′ + n everybody has the difference.) F stands for HMAC-SHA256 and AES-128-CTR, so this holds against
everybody who cannot tell those from random, as all noise here does (decision 3). All else that a draw depends on is
public, and in the name too: study, peer, randomiser with its exact parameters, and how words are read (`_READING`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.gossip.design import GossipProgram
from tallystick.algorithms.gossip.golf.learning import walk_over_published
from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.engines.setup import Setup
from tallystick.privacy.local.plan import LocalPlan
from tallystick.privacy.local.randomiser import Decoded, Randomiser
from tallystick.privacy.local.records import PerturbedBatch, PerturbedRecord, record_identities
from tallystick.trust.gossip.simulation import rows_of, shuffled

_COUNT = Struct("<I")
_READING = b"tallystick/gossip-draw/1"
"""How rows and words become a publication. Another number wherever that changes: a draw with the same words, read in
another way, would be a second release, and one whose noise is not independent of the first."""
Words = Callable[[bytes, bytes], WordSource | None]
"""Of a study and a context: :meth:`tallystick.trust.gossip.draw_key.DrawKey.words`."""
MOST_RECORDS = 1 << 20
"""Of one peer, where the study does not state a number."""
BODY_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Publishing:
    """One study's: everything in it is public."""

    study: bytes
    plan: LocalPlan
    randomiser: Randomiser
    program: GossipProgram
    most: int
    """No peer has more records."""

    @classmethod
    def of(cls, setup: Setup, study: bytes) -> Publishing:
        """From what every party derives from the study by itself."""
        plan, program = setup.plan, setup.design.program
        if not isinstance(plan, LocalPlan) or not isinstance(program, GossipProgram) or plan.randomiser is None:
            raise LocalProtocolError(f"{setup.study.study.program} is not of locally perturbed records")
        stated = setup.study.data.records
        most = (MOST_RECORDS if stated is None else stated) * plan.claim.max_records
        most = max(1, min(most, (BODY_BYTES - _COUNT.size) // plan.randomiser.shape.size))
        return cls(study=study, plan=plan, randomiser=plan.randomiser, program=program, most=most)

    @property
    def body_limit(self) -> int:
        """No publication is longer."""
        return _COUNT.size + self.most * self.randomiser.shape.size

    def perturbed(self, records: Records, name: str, source: WordSource) -> bytes:
        """What a peer publishes: to be kept before a byte of it leaves, and never drawn again."""
        return self._draw(*self._rows(records), name, source)

    def drawn(self, records: Records, name: str, words: Words) -> bytes | None:
        """The same, with words that follow from the peer's secret, the study and the rows; None if it gives none.

        ``words(study, context)``: independent uniform words for every context, always the same ones for one. The order
        of the rows in their table is no matter: they are sorted before they are hashed, and shuffled after.
        """
        vectors, labels = self._rows(records)
        rows = np.ascontiguousarray(np.column_stack([labels, vectors]).astype("<i8", copy=False))
        rows = rows[np.lexsort(rows.T[::-1])]
        shape = self.randomiser.shape
        told = [self.randomiser.name, self.randomiser.label_kind, *map(str, self.randomiser.parameters)]
        facts = [name.encode(), repr(shape).encode(), repr(rows.shape).encode(), *(t.encode() for t in told)]
        source = words(self.study, digest(_READING, self.study, rows.tobytes(), *facts))
        return None if source is None else self._draw(rows[:, 1:], rows[:, 0], name, source)

    def _rows(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What is to be published, readable or not."""
        vectors, labels = rows_of(records, self.program, self.plan.claim.max_records)
        lost = records.tallies.broken * (1 if records.persons is None else self.plan.claim.max_records)
        vectors = np.vstack([vectors, np.zeros((lost, vectors.shape[1]), np.int64)])
        labels = np.concatenate([labels, np.zeros(lost, np.int64)])
        if len(vectors) > self.most:
            raise DataError(
                f"{len(vectors):,} records are here, and one peer publishes at most {self.most:,}",
                rule="records-as-stated",
                remedy="Have the analyst state the number of records of all peers together, in a new version.",
            )
        return vectors, labels

    def _draw(self, vectors: NDArray[np.int64], labels: NDArray[np.int64], name: str, source: WordSource) -> bytes:
        order = shuffled(len(vectors), source)
        identities = record_identities(self.study, name, len(vectors))
        batch = self.randomiser.perturb_all(vectors[order], labels[order], identities, source)
        return self.pack(batch.records())

    def pack(self, records: list[PerturbedRecord]) -> bytes:
        """Published records as one body."""
        return _COUNT.pack(len(records)) + b"".join(one.to_bytes(self.randomiser.shape) for one in records)

    def unpack(self, body: bytes) -> list[PerturbedRecord]:
        """Inverse of :meth:`pack`, of bytes that anybody may have signed."""
        size = self.randomiser.shape.size
        count = _COUNT.unpack_from(body)[0] if len(body) >= _COUNT.size else -1
        if not 0 <= count <= self.most or len(body) != _COUNT.size + count * size:
            raise RemoteProtocolError(
                "a publication does not have the length that it states", rule="publication", remedy="It is not kept."
            )
        places = range(_COUNT.size, len(body), size)
        return [PerturbedRecord.from_bytes(body[at : at + size], self.randomiser.shape) for at in places]

    def check(self, _name: str, body: bytes) -> None:
        """Raise unless this could have been drawn in this study."""
        self.unpack(body)

    def decode(self, name: str, body: bytes, *, of: NDArray[np.int64] | None = None) -> Decoded:
        """One peer's records as learners take them; only those at the places ``of``, if these are given."""
        records = self.unpack(body)
        identities = record_identities(self.study, name, len(records))
        if of is not None:
            records, identities = [records[i] for i in of], [identities[i] for i in of]
        return self.randomiser.decode(identities, PerturbedBatch.of(records, self.randomiser.shape))

    def learn(self, bodies: Mapping[str, bytes]) -> Any:
        """The model of these peers' records; whoever holds the same ones, in whatever order they came, has the same."""
        parts = (self.decode(name, bodies[name]) for name in sorted(bodies))
        if self.program.settings.learner != "moments":  # walks over what is held; the study's hash draws their order
            seed = int.from_bytes(self.study[:8], "little")
            return walk_over_published(self.program, list(parts), seed=seed, over=map)
        moments = self.program.moments()
        for part in parts:
            moments.add(part)
        return self.program.learn(moments, self.plan)
