"""Records: cells made into bounded numbers by the public schema, one record at a time.

:func:`encode` reads only the columns the study names and maps each record to a row of float64 as
:class:`~tallystick.study.schema.FeatureLayout` says. The map is *row-independent to the bit*: a record's row is the
same alone, in a block, or in another order, because every step is elementwise (comparisons, one subtraction, one
division; ``log1p`` from libm, cell by cell). Without that, per-record clipping would bound nothing.

| cell                                   | becomes                                                           |
|----------------------------------------|-------------------------------------------------------------------|
| number outside its bounds, ±inf, 1e308 | the nearer bound; counted as clamped                              |
| -0.0, subnormal                        | an ordinary number                                                |
| null, None, NaN, blank, the marker     | missing: by the column's own ``missing`` or the study's policy;   |
|                                        | nothing declared, "none" or "error": *refused*                    |
| text in a number column, an object     | *refused*; counted as unusable                                    |
| category not declared                  | all zeros, or the ``merge`` column; counted as unknown            |
| items beyond ``max_per_record``        | dropped in reverse vocabulary order; counted as truncated         |
| target class not declared, missing     | the record is left out and counted; policy "error": *refused*     |
| no person named                        | *refused*; policy "drop": the record is left out                  |

*Refused* has two meanings. In checks and simulation it is a DataError that names the column. In a deployed study
(``lenient``) the record is left out, whatever the policy: it adds zeros to every sum, as if it were not there, and is
counted. No record's content may decide whether its institution takes part, because others see that it does not.
Only what no single record decides (no file, no column, a declared type that does not fit) is an error there too.

The counts (:class:`Tallies`) are local: they are exact statistics of private data, shown on the institution's own
screen and sent to nobody.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tallystick.core.errors import DataError
from tallystick.data.cell_rules import MISSING, UNKNOWN, canonical_identifier
from tallystick.data.column_values import CellReader, Read, canonical_texts
from tallystick.data.opened import broken_records
from tallystick.data.sources import errors_name, read_table
from tallystick.study import Study
from tallystick.study.columns import Category, Column, Integer, Items, Missing, Number
from tallystick.study.declared_values import label_text
from tallystick.study.missing_values import MissingRule, how_to_declare, missing_rule
from tallystick.study.schema import Block, FeatureLayout, Schema


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Tallies:
    """How many cells of each column were out of the ordinary, for the data's own steward. Never leaves the client."""

    records: int = 0
    dropped: int = 0
    clamped: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    truncated: Mapping[str, int] = field(default_factory=dict)
    unusable: Mapping[str, int] = field(default_factory=dict)
    """Cells that are not what the study declares: text in a number column, an object."""
    first_unusable: Mapping[str, int] = field(default_factory=dict)
    """The first row with such a cell, from 1."""
    dropped_by: Mapping[str, int] = field(default_factory=dict)
    """How many records each column leaves out."""
    unknown_values: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    """The most frequent values that are not declared, and how often each is there."""
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The least and the largest value (or code) of a column, after clamping; none where every cell is missing."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Why records were left out, in words, and how many each."""
    broken: int = 0
    """Lines of a file that are no record."""

    def __repr__(self) -> str:
        return "Tallies(local)"

    def left_out(self) -> str | None:
        """For this institution's own screen: how many records add nothing to the answer, and why; None if all do."""
        if not self.dropped and not self.broken:
            return None
        why = [f"{reason} in {count}" for reason, count in self.reasons.items()]
        why += [f"{self.broken} line(s) are no record"] if self.broken else []
        return f"{self.dropped + self.broken} of {self.records + self.broken} records add nothing: {', '.join(why)}"


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Records:
    """Encoded records of one client: read-only arrays, and the public layout that explains their columns.

    ``target`` is the class index for a category, the clamped value for a number. ``rows`` are the positions the
    records had in the source, which tells the records left out. ``persons`` has equal codes for the records of one
    person, where persons are the unit; ``left_out`` are those codes of the records left out, −1 where nobody is named.
    """

    features: NDArray[np.float64]
    target: NDArray[np.float64] | None
    layout: FeatureLayout
    rows: NDArray[np.int64]
    tallies: Tallies
    persons: NDArray[np.int64] | None = None
    left_out: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for array in (self.features, self.target, self.rows, self.persons, self.left_out):
            if array is not None:
                array.flags.writeable = False

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"Records({len(self.layout)} features, local)"

    def whole(self) -> Records:
        """All of them in memory: these very records. (Others are read when they are asked for.)"""
        return self

    def take(self, indices: ArrayLike) -> Records:
        """The records at these positions, in this order; the tallies stay those of the source."""
        chosen = np.asarray(indices)
        if chosen.dtype != np.bool_:
            chosen = chosen.astype(np.int64)
        return Records(
            features=np.ascontiguousarray(self.features[chosen]),
            target=None if self.target is None else self.target[chosen],
            layout=self.layout,
            rows=self.rows[chosen],
            tallies=self.tallies,
            persons=None if self.persons is None else self.persons[chosen],
            left_out=self.left_out,
        )


def encode(
    frame: Any,
    schema: Schema,
    *,
    features: Sequence[str] | None = None,
    target: str | None = None,
    missing: Missing | None = None,
    person: str | None = None,
    party: str | None = None,
    lenient: bool = False,
    before: int | None = None,
    labels_only: bool = False,
) -> Records:
    """Read ``frame`` (anything :func:`~tallystick.data.sources.read_table` takes) and encode it by the schema.

    ``person`` is the column that names a record's person, where persons are the unit. ``lenient`` is for deployed
    studies: a record that would be refused is left out instead (see the module). ``before``: the frame is a block of a
    source that has so many records before it; persons then have the same code in every block.
    """
    layout = schema.layout(features, target=target, missing=missing, labels_only=labels_only)
    wanted = list(dict.fromkeys([*layout.columns, *(c for c in (target, person) if c is not None)]))
    names = tuple(schema) if isinstance(frame, np.ndarray) else None
    table = read_table(frame, wanted, names=names, party=party, lenient=lenient)
    encoder = _Encoder(len(table), missing, lenient=lenient, before=before or 0)
    matrix = np.zeros((len(table), len(layout)), dtype=np.float64)
    with errors_name(party):
        for block in layout.blocks:
            absent = encoder.feature(table[block.column], schema[block.column], block, matrix)
            if layout.kinds[block.stop - 1] == "missing":
                matrix[absent, block.stop - 1] = 1.0
        labels = None if target is None else encoder.target(table[target], schema[target], target)
        names_of = None if person is None else encoder.persons(table[person], person)
    rows = np.flatnonzero(encoder.keep).astype(np.int64)
    if len(rows) < len(table):
        matrix = matrix[rows]
        labels = None if labels is None else labels[rows]
    persons = left_out = None
    if names_of is not None:
        order = [*rows.tolist(), *np.flatnonzero(~encoder.keep).tolist()]
        codes = _person_codes([names_of[row] for row in order], of_a_block=before is not None)
        persons, left_out = codes[: len(rows)], codes[len(rows) :]
    return Records(
        features=matrix,
        target=labels,
        layout=layout,
        rows=rows + (before or 0),
        tallies=encoder.tallies(broken=broken_records(table)),
        persons=persons,
        left_out=left_out,
    )


def _person_codes(names: Sequence[str | None], *, of_a_block: bool) -> NDArray[np.int64]:
    """Equal codes for equal names, −1 for none. Blocks that do not know of each other use 63 bits of a hash: should two
    persons ever share a code, their records are clipped as those of one, which bounds each of them all the same."""
    codes: dict[str | None, int] = {None: -1}
    for name in names:
        if name not in codes:
            hashed = hashlib.blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
            codes[name] = int.from_bytes(hashed, "little") >> 1 if of_a_block else len(codes) - 1
    return np.array([codes[name] for name in names], dtype=np.int64)


class _Encoder:
    """The state of one :func:`encode`: which records stay, and the local counts."""

    def __init__(self, count: int, missing: Missing | None, *, lenient: bool, before: int = 0) -> None:
        self._before = before
        self.keep = np.ones(count, dtype=bool)
        self._missing = missing
        self._lenient = lenient
        self._reasons: dict[str, int] = {}
        self._first: dict[str, int] = {}
        self._unknown: dict[str, tuple[tuple[str, int], ...]] = {}
        self._spans: dict[str, tuple[float, float]] = {}
        self._counts: dict[str, dict[str, int]] = {
            k: {} for k in ("clamped", "unknown", "missing", "truncated", "unusable", "dropped_by")
        }

    def tallies(self, *, broken: int) -> Tallies:
        return Tallies(
            records=len(self.keep),
            dropped=len(self.keep) - int(np.count_nonzero(self.keep)),
            reasons=self._reasons,
            broken=broken,
            first_unusable=self._first,
            unknown_values=self._unknown,
            spans=self._spans,
            **self._counts,
        )

    def feature(self, cells: Any, column: Column, block: Block, matrix: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Fill the block's columns of the matrix but its mark for missing values; which cells are missing."""
        name, start = block.column, block.start
        rule = missing_rule(column.missing, self._missing)
        if isinstance(column, Number | Integer):
            values, absent = self._numbers(name, cells)
            if rule.kind == "value":
                values[absent] = float(rule.value)  # type: ignore[arg-type]
            elif rule.kind == "centre" and isinstance(column, Number) and column.bins is not None:
                values[absent] = column.lower / 2 + column.upper / 2
            values = self._clamp(name, values, column)
            if isinstance(column, Number) and column.bins is not None:
                code = np.searchsorted(np.asarray(column.bins, dtype=np.float64), values, side="right")
                rows = np.flatnonzero(~np.isnan(values))
                matrix[rows, start + code[rows]] = 1.0
            else:
                matrix[:, start] = np.where(np.isnan(values), 0.0, _scale(values, column))
        elif isinstance(column, Category):
            code, absent = self._category(name, cells, column, rule)
            rows = np.flatnonzero(code >= 0)
            matrix[rows, start + code[rows]] = 1.0
        else:
            absent = self._items(name, cells, column, matrix[:, start : start + len(column.vocabulary)])
        self._apply(rule, column, name, absent)
        return absent

    def target(self, cells: Any, column: Column, name: str) -> NDArray[np.float64]:
        """The class index or the clamped number; records without one are left out."""
        rule = missing_rule(column.missing, self._missing)
        if isinstance(column, Category):
            code, absent = self._category(name, cells, column, rule)
            values = code.astype(np.float64)
            self._leave_out(code == UNKNOWN, name, f"{name!r} not declared")
        elif isinstance(column, Number | Integer):
            numbers, absent = self._numbers(name, cells)
            if rule.kind == "value":
                numbers[absent] = float(rule.value)  # type: ignore[arg-type]
            values = _on_steps(self._clamp(name, numbers, column), column)
        else:  # layout() has refused the other kinds
            raise TypeError(type(column).__name__)
        self._apply(rule, column, name, absent, target=True)
        return values

    def _reader(self, name: str) -> CellReader:
        return CellReader(column=name, marker=self._missing.marker if self._missing else None)

    def persons(self, cells: Any, name: str) -> list[str | None]:
        """The canonical name of every record's person; a record without one is refused or left out."""
        names = canonical_texts(cells, canonical_identifier)
        nameless = np.array([text is None for text in names], dtype=bool) & self.keep
        dropping = self._missing is not None and self._missing.policy == "drop"
        if nameless.any() and not (self._lenient or dropping):
            raise DataError(f"column {name!r} has empty cells", remedy="Name every record's person.")
        self._leave_out(nameless, name, f"{name!r} names nobody")
        return names

    def _numbers(self, name: str, cells: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The numbers, NaN where there is none, and which cells are missing (bad ones are not: they are no cells)."""
        reader = self._reader(name)
        read = reader.numbers(cells)
        self._leave_out_bad(reader, read, "a number")
        return read.values, np.isnan(read.values) & ~read.bad

    def _row(self, flags: NDArray[np.bool_]) -> int:
        """The first of these rows, counted from 1 in the source."""
        return self._before + int(np.argmax(flags)) + 1

    def _leave_out_bad(self, reader: CellReader, read: Read, wanted: str) -> None:
        if not read.bad.any():
            return
        if not self._lenient:
            raise reader.refusal(read.found, wanted, row=self._row(read.bad))
        self._count("unusable", reader.column, read.bad)
        self._first[reader.column] = self._row(read.bad)
        self._leave_out(read.bad, reader.column, f"{reader.column!r} unusable")

    def _leave_out(self, flags: NDArray[np.bool_], column: str, why: str) -> None:
        count = int(np.count_nonzero(flags))
        if count:
            self._reasons[why] = count
            dropped = self._counts["dropped_by"]
            dropped[column] = dropped.get(column, 0) + count
            self.keep &= ~flags

    def _span(self, name: str, values: NDArray[Any], there: NDArray[np.bool_]) -> None:
        """The least and the largest value that is there: a column in which they are equal says nothing."""
        found = values if there.all() else values[there]
        if len(found):
            self._spans[name] = (float(found.min()), float(found.max()))

    def _category(
        self, name: str, cells: Any, column: Category, rule: MissingRule
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The codes, and which cells are missing: those have the code of what they mean, or MISSING."""
        codes = column.codes()
        merged = len(column.values) if column.merge is not None else UNKNOWN
        reader = self._reader(name)
        read = reader.codes(cells, codes)
        self._leave_out_bad(reader, read, "a category")
        code = read.values
        self._count("unknown", name, code == UNKNOWN)
        self._unknown[name] = read.unknown
        code[code == UNKNOWN] = merged
        if rule.kind == "flag" and self._missing is not None and self._missing.marker in codes:
            code[code == MISSING] = codes[self._missing.marker]
        absent = code == MISSING
        if rule.kind == "value":
            code[absent] = codes[label_text(rule.value)]
        self._span(name, code, code >= 0)
        return code, absent

    def _items(self, name: str, cells: Any, column: Items, out: NDArray[np.float64]) -> NDArray[np.bool_]:
        reader = self._reader(name)
        read, absent, unknown = reader.items(cells, {label: k for k, label in enumerate(column.labels)})
        self._leave_out_bad(reader, read, "a list of items")
        member = read.values
        kept = member & (np.cumsum(member, axis=1) <= column.max_per_record)
        if unknown:
            self._counts["unknown"][name] = unknown
        self._unknown[name] = read.unknown
        self._count("truncated", name, member & ~kept)
        out[...] = kept
        if kept.any() or not unknown:  # an empty set is a set
            self._spans[name] = (0.0, 1.0)
        return absent

    def _clamp(self, name: str, values: NDArray[np.float64], column: Number | Integer) -> NDArray[np.float64]:
        """Into the bounds; NaN stays NaN."""
        lower, upper = float(column.lower), float(column.upper)
        self._count("clamped", name, (values < lower) | (values > upper))
        clipped = np.clip(values, lower, upper)
        self._span(name, clipped, ~np.isnan(clipped))
        return clipped

    def _count(self, what: str, name: str, flags: NDArray[np.bool_]) -> None:
        count = int(np.count_nonzero(flags))
        if count:
            self._counts[what][name] = count

    def _apply(
        self, rule: MissingRule, column: Column, name: str, absent: NDArray[np.bool_], *, target: bool = False
    ) -> None:
        """What becomes of records whose value is missing."""
        self._count("missing", name, absent)
        # Without a target nothing can be learned from a record, whatever its missing cells are elsewhere.
        made_up = rule.kind == "value" or (rule.kind in ("flag", "centre") and not target)
        if made_up or not absent.any():
            return
        if self._lenient or rule.kind not in ("", "none"):
            self._leave_out(absent, name, f"{name!r} missing")
            return
        where = f"{int(np.count_nonzero(absent)):,} of {len(absent):,}, first in row {self._row(absent):,}"
        if not rule.kind:
            raise DataError(
                f"column {name!r} has missing values ({where}) and the study declares no policy for them",
                remedy=how_to_declare(name, number=isinstance(column, Number | Integer)),
            )
        raise DataError(
            f"column {name!r} has missing values ({where}), which the study refuses",
            remedy=f"Fill them in. Or: {how_to_declare(name, number=isinstance(column, Number | Integer))}",
        )


def _on_steps(values: NDArray[np.float64], column: Number | Integer) -> NDArray[np.float64]:
    """Integers to ``lower + k * step``; numbers as they are. NaN stays NaN."""
    if isinstance(column, Number):
        return values
    k = np.minimum(np.rint((values - column.lower) / column.step), column.last_step)
    return np.asarray(column.lower + k * column.step, dtype=np.float64)


def _scale(values: NDArray[np.float64], column: Number | Integer) -> NDArray[np.float64]:
    """Clamped values to [-1, 1]. Rounding is monotone, so no value inside the bounds is scaled outside [-1, 1]."""
    width = float(column.upper) - float(column.lower)
    above = _on_steps(values, column) - float(column.lower)
    if isinstance(column, Number) and column.log:
        above = np.fromiter(map(math.log1p, (column.log_factor * above).tolist()), dtype=np.float64, count=len(above))
        width = math.log1p(column.log_factor * width)
    return np.asarray(above / width * 2.0 - 1.0, dtype=np.float64)


def study_records(
    study: Study, source: Any, *, party: str | None = None, lenient: bool, before: int | None = None
) -> Records:
    """The records of one client, encoded by the study's schema, all of them in memory.

    ``lenient``, as in every deployed study: a record with a bad or missing cell is left out, and so adds zeros, instead
    of refused with all others (above). ``before``: it is a block of the client's records (:func:`encode`).
    """
    return encode(
        source,
        study.schema_of_data(),
        features=study.study.features,
        target=study.study.target,
        missing=study.missing_policy(),
        person=study.person_column(),
        party=party,
        lenient=lenient,
        before=before,
    )
