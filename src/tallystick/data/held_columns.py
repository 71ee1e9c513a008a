"""The records of institutions that hold different columns: each encodes its own, in the order of the aligned people.

A record with a cell that an institution cannot use adds zeros *there*: no institution can tell the others whose record
to leave out without showing them a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError
from tallystick.data.encoding import Records, encode
from tallystick.data.identifiers import aligned_rows, read_identifiers
from tallystick.data.sources import column_names, read_table
from tallystick.study import Study
from tallystick.study.holders import label_holder, own_columns


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class HeldColumns:
    """One institution's columns of the aligned people; ``records`` are those that it can use."""

    records: Records
    aligned: int

    def __len__(self) -> int:
        return self.aligned

    @property
    def features(self) -> NDArray[np.float64]:
        """A row for each of the aligned people, zeros for those it cannot use."""
        return self.spread(self.records.features)

    @property
    def target(self) -> NDArray[np.float64] | None:
        """Likewise, where the labels are here."""
        return None if self.records.target is None else self.spread(self.records.target)

    @property
    def labels(self) -> NDArray[np.float64] | None:
        """±1 for the second and the first of two classes, 0 for who has no label that can be used."""
        return None if self.records.target is None else self.spread(2.0 * self.records.target - 1.0)

    def among(self, people: int) -> HeldColumns:
        """The same in rows for so many people; those beyond the ones that are aligned are zeros."""
        if self.aligned > people:
            raise DataError(
                f"the study is stated for {people:,} people, and the institutions share {self.aligned:,}",
                rule="records-as-stated",
                remedy="Have the analyst state as many records as there may be, in a new version.",
            )
        return replace(self, aligned=people)

    def spread(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the usable records to all aligned people: zeros for the others."""
        if len(values) == self.aligned:
            return values
        out = np.zeros((self.aligned, *values.shape[1:]))
        out[self.records.rows] = values
        return out


def align_sources(study: Study, sources: Mapping[str, Any]) -> dict[str, NDArray[np.int64]]:
    """Which row of each source belongs to the same person, where one person holds all sources.

    Without an identifier rows belong together by their place: for a table that was just split by columns.
    """
    declared = study.data.identifier
    if declared is not None:
        return aligned_rows({n: read_identifiers(s, declared, party=n) for n, s in sources.items()})
    rows = {name: read_table(s, [column_names(s, party=name)[0]]).num_rows for name, s in sources.items()}
    if len(set(rows.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise DataError(
            f"rows do not belong together by their place: {told}",
            rule="rows-are-aligned",
            remedy='Name the column that tells people apart: identifier="…" in Python, identifier = "…" under [data].',
        )
    return {name: np.arange(count) for name, count in rows.items()}


def joined_table(study: Study, sources: Mapping[str, Any]) -> Any:
    """All columns of the people whom all have in common, where one person holds all sources: for evaluations."""
    import pyarrow as pa

    holders = study.data.holders or {}
    if set(holders) != set(sources):
        raise DataError(
            f"the study's columns are at {', '.join(holders)}, and there are files of {', '.join(sources)}",
            rule="holders-are-the-institutions",
            remedy="Name each file as the study names its institution: bank.csv is bank.",
        )
    rows = align_sources(study, sources)
    columns: dict[str, Any] = {}
    for name, held in holders.items():
        table = read_table(sources[name], list(held.columns), party=name).take(rows[name])
        columns |= dict(zip(table.column_names, table.columns))
    if study.data.identifier is not None:  # whom it names is of no importance any more
        columns[study.data.identifier.column] = pa.chunked_array([pa.array(range(len(next(iter(rows.values())))))])
    return pa.table(columns)


def split_by_holder(study: Study, table: Any) -> list[Any]:
    """The joined table's columns as their institutions hold them, in the study's order."""
    named = [] if study.data.identifier is None else [study.data.identifier.column]
    return [table.select([*named, *held.columns]) for held in (study.data.holders or {}).values()]


def held_table(study: Study, holder: str, source: Any) -> Any:
    """All that one institution's source holds for a study, read at once: the column that names people, and its own.

    Identifiers and cells are then of the same rows, whatever becomes of the source between alignment and products.
    """
    named = [] if study.data.identifier is None else [study.data.identifier.column]
    target = [study.study.target] if study.study.target and holder == label_holder(study) else []
    return read_table(source, [*named, *own_columns(study, holder), *target], party=holder)


def read_held(study: Study, holder: str, source: Any, rows: NDArray[np.int64], *, lenient: bool) -> HeldColumns:
    """One institution's columns of these rows, encoded by the study's schema."""
    target = study.study.target if holder == label_holder(study) else None
    own = own_columns(study, holder)
    table = read_table(source, [*own, *([target] if target else [])], party=holder, lenient=lenient).take(rows)
    records = encode(
        table,
        study.schema_of_data(),
        features=own,
        target=target,
        missing=study.missing_policy(),
        party=holder,
        lenient=lenient,
        labels_only=not own,
    )
    return HeldColumns(records=records, aligned=len(rows))
