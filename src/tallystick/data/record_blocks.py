"""Records of one client that do not fit in memory: read and encoded a block at a time, anew whenever they are needed.

:func:`open_records` decides: what fits is read once and kept (:class:`~tallystick.data.encoding.Records`), the rest is
gone through again in every round. The bits are the same, because encoding is row-independent and sums are exact.

What does not fit is a public fact's business (the bytes of encoded records that this machine keeps), never a record's
content: sizes are those of the source, with all its rows.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallystick.core.errors import DataError
from tallystick.data.addresses import is_address
from tallystick.data.encoding import Records, Tallies, study_records
from tallystick.data.opened import broken_records
from tallystick.data.quality import together
from tallystick.data.sources import read_blocks
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout

BLOCK_BYTES = 16 << 20
"""Of one block's encoded records."""
_SMALL_FILE = 64 << 20
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 19


class Piece(NamedTuple):
    """Records as they were read, and how many come before them."""

    table: Any
    before: int


class RecordBlocks:
    """The records of one client, on disk or in a database. Nothing of them is kept but counts."""

    def __init__(
        self,
        study: Study,
        source: Any,
        *,
        party: str | None,
        lenient: bool,
        memory: int | None = None,
        rows: int | None = None,
    ) -> None:
        self.memory = default_memory() if memory is None else memory
        """What may be kept of them at a time, in bytes."""
        self._study, self._source, self._party, self._lenient = study, source, party, lenient
        layout = study.schema_of_data().layout(
            study.study.features, target=study.study.target, missing=study.missing_policy()
        )
        self.layout: FeatureLayout = layout
        self.width = len(layout) + 2  # numbers a record takes, its target and person among them
        self._rows = rows or min(max(BLOCK_BYTES // (8 * self.width), _LEAST_ROWS), _MOST_ROWS)
        self.block_bytes = 8 * self.width * self._rows
        person = study.person_column()
        self.by_person = person is not None
        target = study.study.target
        self._columns = list(dict.fromkeys([*layout.columns, *(c for c in (target, person) if c is not None)]))
        self._tallies: Tallies | None = None

    def pieces(self) -> Generator[Piece, None, None]:
        """Every record, in blocks, as the source has them; read while they are gone through. Close it if not to the
        end: a database's connection is closed with it, by the thread that opened it."""
        before = broken = 0
        tables = read_blocks(self._source, self._columns, rows=self._rows, party=self._party, lenient=self._lenient)
        with closing(tables):
            for table in tables:
                broken += broken_records(table)
                self._check_stated(before + table.num_rows + broken)
                yield Piece(table, before)
                before += table.num_rows

    def _check_stated(self, count: int) -> None:
        """That a source which has grown since it was opened has not more records than the study states in all.

        What is computed rests on that number. Only where no neighbour has another number of records; and lines that are
        no record count, too, else what is in one would decide whether this client takes part.
        """
        stated, known = self._study.data.records, self._tallies
        if stated is None or known is None or not self._study.counts_are_public:
            return
        if count > max(stated, known.records + known.broken):
            raise DataError(
                f"the records have grown while the study runs: it is stated for {stated:,} in all, and there are more "
                "here alone",
                rule="records-as-stated",
                remedy="Name a snapshot of the records as the source, or have more records stated, in a new version.",
            )

    def encoded(self, piece: Piece) -> Records:
        """A block of records, by the study's schema. Safe to call from several threads."""
        return study_records(self._study, piece.table, party=self._party, lenient=self._lenient, before=piece.before)

    def __iter__(self) -> Iterator[Records]:
        with closing(self.pieces()) as pieces:
            yield from map(self.encoded, pieces)

    @property
    def tallies(self) -> Tallies:
        """What reading all of them has counted; they are gone through for it once. Stays local."""
        if self._tallies is None:
            self._tallies = tallies_of(records.tallies for records in self)
        return self._tallies

    def __len__(self) -> int:
        return self.tallies.records - self.tallies.dropped

    def __repr__(self) -> str:
        return f"RecordBlocks({len(self.layout)} features, local)"

    def bytes(self) -> int:
        """What all of them would take in memory."""
        return 8 * self.width * self.tallies.records

    def whole(self) -> Records:
        """All of them in memory, for what cannot be done in blocks."""
        return joined(list(self), self.tallies)


AnyRecords = Records | RecordBlocks


def open_records(
    study: Study,
    source: Any,
    *,
    party: str | None = None,
    lenient: bool,
    memory: int | None = None,
    rows: int | None = None,
) -> AnyRecords:
    """The records of one client: in memory if they take at most ``memory`` bytes there, else in blocks."""
    if rows is None and not _may_be_large(source):
        return study_records(study, source, party=party, lenient=lenient)
    blocks = RecordBlocks(study, source, party=party, lenient=lenient, memory=memory, rows=rows)
    kept: list[Records] = []
    counts: list[Tallies] = []
    size, fits = 0, True
    for records in blocks:
        counts.append(records.tallies)
        size += 8 * blocks.width * records.tallies.records
        fits = fits and size <= blocks.memory
        if fits:
            kept.append(records)
        else:
            kept.clear()
    blocks._tallies = tallies_of(counts)
    return joined(kept, blocks.tallies) if fits else blocks


def default_memory() -> int:
    """A quarter of this machine's memory: what is mapped from the records takes as much again."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    except (ValueError, OSError):  # not told on this system
        return 1 << 30


def tallies_of(blocks: Iterable[Tallies]) -> Tallies:
    """The counts of the blocks of one source, together."""
    every = list(blocks)
    first: dict[str, int] = {}
    for one in every:
        for column, row in one.first_unusable.items():
            first[column] = min(row, first.get(column, row))
    return replace(together(every), first_unusable=first)


def joined(blocks: list[Records], tallies: Tallies) -> Records:
    """The blocks of one source as one."""
    if len(blocks) == 1 and blocks[0].persons is None:
        return blocks[0]
    if not blocks:
        raise DataError("there are no records to join")
    persons = left_out = None
    if blocks[0].persons is not None:
        known, persons = np.unique(
            np.concatenate([b.persons for b in blocks if b.persons is not None]), return_inverse=True
        )
        persons = persons.astype(np.int64)
        gone = np.concatenate([np.empty(0, np.int64), *(b.left_out for b in blocks if b.left_out is not None)])
        every = np.concatenate([known, np.setdiff1d(gone[gone >= 0], known)]).tolist()
        codes = {code: i for i, code in enumerate(every)} | {-1: -1}
        left_out = np.array([codes[code] for code in gone.tolist()], np.int64)
    targets = [b.target for b in blocks if b.target is not None]
    return Records(
        features=np.concatenate([b.features for b in blocks]),
        target=np.concatenate(targets) if targets else None,
        layout=blocks[0].layout,
        rows=np.concatenate([b.rows for b in blocks]),
        tallies=tallies,
        persons=persons,
        left_out=left_out,
    )


def _may_be_large(source: Any) -> bool:
    """Whether a source is worth reading in blocks: frames are in memory already, and most files are small."""
    if isinstance(source, str) and is_address(source):
        return True
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        try:
            return path.is_dir() or path.stat().st_size > _SMALL_FILE
        except OSError:
            return False
    return hasattr(source, "blocks") and hasattr(source, "column_names")
