"""The records of a CSV file of a deployed study, each read by itself: what is wrong with one spoils no other.

A record is a line, or several where a quoted cell holds line breaks. A line with too few or too many cells, or with a
quote that nothing closes, is no record; the next record begins on the next line. Bytes that are no UTF-8 become U+FFFD
in their own cell. Nothing here fails: whether a file can be read must not depend on one of its records.

A quote that is not closed on its line may be that of a cell with line breaks, or a stray one. It is the former only if
the following lines, up to the one that closes it, make a record with the right number of cells under the strict rules
of RFC 4180 (a closing quote is followed by a delimiter or the end of the record).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass

__all__ = ["read_csv_records"]

_LINE_END = re.compile(r"\r\n|\n|\r")
_MOST_LINES = 1000
"""Of one record; a quote that is still open then is a stray one."""


def read_csv_records(path: Path, delimiter: str, width: int, places: Sequence[int]) -> tuple[list[Any], int]:
    """The cells at ``places`` of every record after the header, as Arrow arrays of text; and the lines left out."""
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:
        raw: bytes = stream.read()
    text = raw.decode("utf-8-sig", errors="replace")
    if b'"' not in raw and "\ufffd" not in text:
        fast = _by_arrow(raw, delimiter, width, places)
        if fast is not None:
            return fast
    columns, broken = _by_line(text, delimiter, width, places)
    return [pa.array(column, type=pa.large_string()) for column in columns], broken


def _by_arrow(raw: bytes, delimiter: str, width: int, places: Sequence[int]) -> tuple[list[Any], int] | None:
    """Text without a quote: every line is a record, and Arrow reads it. The same cells, much faster.

    None where Arrow gives up (a line longer than its blocks).
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    names = [f"f{i}" for i in range(width)]
    left_out: list[int] = []

    def leave_out(row: Any) -> str:
        left_out.append(row.actual_columns)
        return "skip"

    try:
        table = arrow_csv.read_csv(
            io.BytesIO(raw),
            read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char=False, ignore_empty_lines=width > 1, invalid_row_handler=leave_out
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[names[i] for i in dict.fromkeys(places)],
                column_types=dict.fromkeys(names, pa.large_string()),
                strings_can_be_null=False,
            ),
        ).slice(1)
    except pa.ArrowException:
        return None
    return [table.column(names[i]) for i in places], len(left_out)


def _by_line(text: str, delimiter: str, width: int, places: Sequence[int]) -> tuple[list[list[str]], int]:
    """The definition: records cut from lines one after another."""
    lines = _LINE_END.split(text)
    if lines and not lines[-1]:
        lines.pop()  # the file ends with a line end
    columns: list[list[str]] = [[] for _ in places]
    at = broken = found = 0
    while at < len(lines):
        line = lines[at]
        if not line and width > 1:
            at += 1
            continue
        cells, took = (line.split(delimiter), 1) if '"' not in line else _quoted(lines, at, delimiter, width)
        at += took
        if len(cells) != width:
            broken += 1
            continue
        found += 1
        if found > 1:  # the first is the header
            for column, place in zip(columns, places):
                column.append(cells[place])
    return columns, broken


def _quoted(lines: Sequence[str], at: int, delimiter: str, width: int) -> tuple[list[str], int]:
    """The cells of the record that begins at a line with quotes, and how many lines it has; no cells if it is none."""
    line = lines[at]
    cells = _strict(line, delimiter)
    if cells is not None:
        return cells, 1
    quotes = line.count('"')
    if quotes % 2 == 0:  # closed, but not as it should be: "a"b
        try:
            return next(csv.reader([line], delimiter=delimiter), []), 1
        except csv.Error:
            return [], 1
    for last in range(at + 1, min(at + _MOST_LINES, len(lines))):
        quotes += lines[last].count('"')
        if quotes % 2 == 0:
            cells = _strict("\n".join(lines[at : last + 1]), delimiter)
            if cells is not None and len(cells) == width:
                return cells, last + 1 - at
            break
    return [], 1


def _strict(text: str, delimiter: str) -> list[str] | None:
    """The cells of a text that is exactly one record by the strict rules; else None."""
    try:
        records = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return records[0] if len(records) == 1 else None
