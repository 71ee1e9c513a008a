"""The answer of a study as a table: rows with equal keys, and notes that say what its numbers mean.

One table for the screen, for ``--csv``, for ``to_frame()`` and for a notebook. It is made from a released state and
public facts alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

_MOST_ROWS = 60
"""On a screen; files and frames have all of them."""
_MOST_COLUMNS = 8
_DIGITS = 5


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Rows of one table. ``columns`` names them also where there is no row."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], notes: Sequence[str] = (), columns: Sequence[str] = ()) -> Answer:
        """From rows that all have the keys of the first."""
        return cls(columns=tuple(rows[0] if rows else columns), rows=tuple(rows), notes=tuple(notes))

    def frame(self) -> Any:
        """All rows as a polars frame (``.to_pandas()`` where pandas is wanted)."""
        import polars as pl

        ends = {c: pl.Float64 for c in self.columns if c.endswith(("lower", "upper"))}  # also where there are none
        columns = {c: [row[c] for row in self.rows] for c in self.columns}
        return pl.DataFrame(columns, schema_overrides=ends, strict=False)

    def text(self) -> str:
        """For a screen: a table too wide for it is turned on its side, one too long is cut, and says so."""
        lines = [self.columns, *([_shown(row[c]) for c in self.columns] for row in self.rows[:_MOST_ROWS])]
        if len(self.columns) > _MOST_COLUMNS:
            turned = list(zip(*lines))
            parts = range(1, len(turned[0]), _MOST_COLUMNS)
            laid = [_laid_out([(row[0], *row[at : at + _MOST_COLUMNS]) for row in turned]) for at in parts]
        else:
            laid = [_laid_out(lines)]
        if len(self.rows) > _MOST_ROWS:
            laid.append(f"  … and {len(self.rows) - _MOST_ROWS:,} more rows: --csv FILE or to_frame() has all.")
        return "\n\n".join(laid)

    def html(self) -> str:
        """For a notebook."""
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(row[c]))}</td>" for c in self.columns) + "</tr>"
            for row in self.rows[:_MOST_ROWS]
        )
        more = len(self.rows) - _MOST_ROWS
        rest = f"<p>… and {more:,} more rows: to_frame() has all.</p>" if more > 0 else ""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}{notes}"


def _shown(value: Any) -> str:
    """A cell in print; numbers with five digits that count."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or value == 0:
        return f"{value:,.0f}"
    size = math.floor(math.log10(abs(value))) if math.isfinite(value) else 99
    return f"{value:,.{max(0, min(8, _DIGITS - 1 - size))}f}" if -5 < size < 9 else f"{value:.{_DIGITS}g}"


def _laid_out(lines: Sequence[Sequence[str]]) -> str:
    """Columns under each other: texts to the left, numbers to the right."""
    cells = list(zip(*lines))
    widths = [max(map(len, column)) for column in cells]
    right = [all(c == "" or c[0] in "-0123456789" for c in column[1:]) for column in cells]
    return "\n".join(
        "  " + "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right)).rstrip()
        for line in lines
    )
