"""What a study finds in an institution's records, column by column, in figures and in words.

Everything here is an exact statistic of private data, and some of it is data: the values that a study does not declare.
It is for the screen of whoever keeps the records: a command on their machine, their client's own log, a simulation.
Nothing of it may enter a message, a metric or a statement, and nothing may be decided by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tallystick.data.column_values import NUMBERS_AS_TEXT, SHOWN_VALUES
from tallystick.data.encoding import Tallies
from tallystick.study.columns import Category, Column, Integer, Items, Missing, Number
from tallystick.study.declared_values import shown
from tallystick.study.missing_values import missing_rule
from tallystick.study.schema import FeatureLayout, Schema

_MANY = 0.05  # of a column's values, above which what was declared to happen now and then is worth a look
_LABELS = 8  # declared values that a sentence lists


@dataclass(frozen=True, kw_only=True)
class ColumnQuality:
    """One column: ``rows`` were read; the other figures count cells, ``dropped`` records that it leaves out."""

    name: str
    used_as: str
    rows: int
    missing: int = 0
    unknown: int = 0
    clamped: int = 0
    unusable: int = 0
    truncated: int = 0
    dropped: int = 0
    values: tuple[tuple[str, int], ...] = ()
    """The most frequent of the unknown values."""
    note: str = ""
    """"empty" if every cell is missing, "lost" if no cell came through, "constant" if all that did are the same."""
    meaning: str = ""
    """What is out of the ordinary and what becomes of it, as a sentence; empty if nothing is."""
    remedy: str = ""

    @property
    def told(self) -> str:
        """The unknown values, each with its number."""
        return ", ".join(f"{value} {count:,}" for value, count in self.values) or self.note

    def line(self) -> str:
        """All of it on one line, for a log."""
        figures = [f"{getattr(self, key):,} {key}" for key in _FIGURES]
        return f"{self.name!r} ({self.used_as}): " + ", ".join(figures) + (f". {self.meaning}" if self.meaning else "")


_FIGURES = ("rows", "missing", "unknown", "clamped", "unusable", "truncated", "dropped")


@dataclass(frozen=True, kw_only=True)
class DataQuality:
    """What a study finds in the records of one institution, or of several together."""

    records: int
    used: int
    broken: int
    """Lines of a file that are no record."""
    columns: tuple[ColumnQuality, ...]
    left_out: str | None
    """Which records add nothing, as a sentence."""
    target: str | None

    @property
    def findings(self) -> tuple[ColumnQuality, ...]:
        """The columns to look at."""
        return tuple(column for column in self.columns if column.meaning)

    @property
    def fine(self) -> bool:
        """Whether every record can be used and no column needs a look."""
        return not self.findings and self.left_out is None

    @property
    def worth_a_look(self) -> bool:
        """Whether a simulation speaks up: not for the few records that are left out as declared."""
        return bool(self.findings) or self.records - self.used + self.broken > _MANY * self.records

    @property
    def useless(self) -> str | None:
        """Why nothing can be learned from these records, whatever noise there is; None if something can."""
        features = [c for c in self.columns if c.used_as == "feature"]
        target = next((c for c in self.columns if c.used_as == "target"), None)
        if self.records and not self.used:
            return f"none of the {self.records:,} records can be used: {self.left_out}"
        if target is not None and self.records and target.clamped == self.records:
            return target.meaning
        if self.records and features and all(_says_nothing(c) for c in features):
            return "no column tells two records apart: " + " ".join(c.meaning for c in features)
        return None

    def table(self) -> str:
        """The figures, a line a column."""
        rows: list[tuple[str, ...]] = [("column", "used as", *_FIGURES, "")]
        for c in self.columns:
            rows.append((c.name, c.used_as, *(f"{getattr(c, key):,}" for key in _FIGURES), c.told))
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = []
        for row in rows:
            words = [cell.ljust(w) for cell, w in zip(row[:2], widths)]
            figures = [cell.rjust(w) for cell, w in zip(row[2:-1], widths[2:])]
            lines.append("  ".join(["", *words, *figures, row[-1]]).rstrip())
        return "\n".join(lines)

    def sentences(self) -> list[str]:
        """What the figures mean and what to do, a sentence or two each."""
        said = [f"{c.meaning} {c.remedy}".strip() for c in self.findings]
        return [*said, f"{self.left_out}."] if self.left_out else said

    def words(self) -> str:
        """Table and sentences."""
        return "\n".join([self.table(), *(f"  * {sentence}" for sentence in self.sentences())])

    def to_dict(self) -> dict[str, Any]:
        """As data, for this machine's own programs."""
        return {
            "records": self.records,
            "used": self.used,
            "broken": self.broken,
            "columns": [asdict(c) for c in self.columns],
            "left_out": self.left_out,
            "fine": self.fine,
            "useless": self.useless,
        }


def quality_of(
    tallies: Tallies,
    schema: Schema,
    layout: FeatureLayout,
    *,
    missing: Missing | None = None,
    person: str | None = None,
) -> DataQuality:
    """The counts of one reading, explained by what was declared."""
    used = dict.fromkeys(layout.columns, "feature")
    if layout.target is not None:
        used[layout.target] = "target"
    columns = [_column(tallies, name, schema[name], role, missing) for name, role in used.items()]
    if person is not None:
        nameless = tallies.dropped_by.get(person, 0)
        told = f"{nameless:,} of {tallies.records:,} records name no person in {person!r} and add nothing."
        columns.append(
            ColumnQuality(
                name=person,
                used_as="person",
                rows=tallies.records,
                missing=nameless,
                dropped=nameless,
                meaning=told if nameless else "",
                remedy="Name every record's person.",
            )
        )
    return DataQuality(
        records=tallies.records,
        used=tallies.records - tallies.dropped,
        broken=tallies.broken,
        columns=tuple(columns),
        left_out=tallies.left_out(),
        target=layout.target,
    )


def together(found: Iterable[Tallies]) -> Tallies:
    """The counts of several institutions, as if their records were in one place. For simulations."""
    every = list(found)

    def added(what: str) -> dict[str, int]:
        total: Counter[str] = Counter()
        for one in every:
            total.update(getattr(one, what))
        return dict(total)

    values: dict[str, Counter[str]] = {}
    spans: dict[str, tuple[float, float]] = {}
    for one in every:
        for name, seen in one.unknown_values.items():
            values.setdefault(name, Counter()).update(dict(seen))
        for name, (low, high) in one.spans.items():
            known = spans.get(name, (low, high))
            spans[name] = (min(low, known[0]), max(high, known[1]))
    counts = ("clamped", "unknown", "missing", "truncated", "unusable", "dropped_by", "reasons")
    return Tallies(
        records=sum(t.records for t in every),
        dropped=sum(t.dropped for t in every),
        broken=sum(t.broken for t in every),
        unknown_values={name: tuple(seen.most_common(SHOWN_VALUES)) for name, seen in values.items()},
        spans=spans,
        **{what: added(what) for what in counts},
    )


def _column(tallies: Tallies, name: str, column: Column, used_as: str, missing: Missing | None) -> ColumnQuality:
    def count(what: Mapping[str, int]) -> int:
        return what.get(name, 0)

    span = tallies.spans.get(name)
    found = ColumnQuality(
        name=name,
        used_as=used_as,
        rows=tallies.records,
        missing=count(tallies.missing),
        unknown=count(tallies.unknown),
        clamped=count(tallies.clamped),
        unusable=count(tallies.unusable),
        truncated=count(tallies.truncated),
        dropped=count(tallies.dropped_by),
        values=tallies.unknown_values.get(name, ()),
    )
    if found.rows and span is None:
        found = replace(found, note="empty" if found.missing == found.rows else "lost")
    elif span is not None and span[0] == span[1] and found.rows > 1 and not found.unknown:
        found = replace(found, note="constant")
    meaning, remedy = _meaning(found, column, missing_rule(column.missing, missing).kind, tallies)
    return replace(found, meaning=meaning, remedy=remedy)


def _meaning(found: ColumnQuality, column: Column, rule: str, tallies: Tallies) -> tuple[str, str]:
    """What is out of the ordinary and what becomes of it, and what to do; empty if nothing is."""
    name, rows = found.name, f"{found.rows:,}"
    target = found.used_as == "target"
    of = "targets" if target else f"values of {name!r}"
    said: list[str] = []
    do: list[str] = []
    if found.note == "empty":
        said.append(f"All {rows} {of} are missing: the column is empty.")
        do.append("Fill it, or leave it out of the study.")
    elif found.missing and found.dropped and rule in ("", "none"):
        said.append(f"{found.missing:,} of {rows} {of} are missing, and the study does not expect that.")
        do.append("Fill in what is missing, or ask for a study that says what it means.")
    if found.unusable:
        first = tallies.first_unusable.get(name)
        where = f", first in row {first:,}" if first else ""
        number = isinstance(column, Number | Integer)
        wanted = "numbers" if number else "categories or items"
        said.append(f"{found.unusable:,} of {rows} {of} are no {wanted}{where}; those records add nothing.")
        do.append(f"Correct those cells: {NUMBERS_AS_TEXT}." if number else "Correct those cells.")
    merged = isinstance(column, Category) and column.merge is not None
    if found.unknown and (not merged or found.unknown == found.rows):
        said.append(_unknown(found, column, of, target=target, merged=merged))
        do.append(_recoding(found.values, column))
    if isinstance(column, Number | Integer) and found.clamped > _MANY * found.rows:
        bounds = f"{shown(column.lower)} to {shown(column.upper)}"
        said.append(f"{found.clamped:,} of {rows} {of} lie outside {bounds} and count as the nearer bound.")
        do.append("Check the unit (years or days, mg or g) and the declared bounds.")
    if found.note == "constant" and found.clamped <= _MANY * found.rows:
        said.append(f"All {rows} {of} are the same: nothing can be learned from the column.")
    return " ".join(said), " ".join(dict.fromkeys(do))


def _unknown(found: ColumnQuality, column: Column, of: str, *, target: bool, merged: bool) -> str:
    labels = [*column.labels[:_LABELS], *(["…"] if len(column.labels) > _LABELS else [])]
    values = "/".join(value for value, _ in found.values) + ("/…" if len(found.values) == SHOWN_VALUES else "")
    if isinstance(column, Items):
        head = f"{found.unknown:,} items of {found.name!r} are {values}"
    else:
        head = f"{found.unknown:,} of {found.rows:,} {of} are {values}"
    becomes = "Those records add nothing." if target else "They count as no category at all."
    return f"{head}; the study declares {', '.join(labels)}. " + (
        f"All are merged into {column.labels[-1]!r}." if merged else becomes
    )


def _recoding(values: Sequence[tuple[str, int]], column: Column) -> str:
    """How to write the values as the study does, where that can be guessed from their letters."""
    spelt = {label.casefold(): label for label in column.labels}
    pairs = [f"{value} as {spelt[value.casefold()]}" for value, _ in values if value.casefold() in spelt]
    how = f" ({', '.join(pairs)})" if pairs else ""
    return f"Write them as the study does{how}, or ask for a study that declares them."


def _says_nothing(column: ColumnQuality) -> bool:
    """Whether no cell of the column came through as it is."""
    return column.note in ("empty", "lost") or column.clamped + column.missing == column.rows
