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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTES_END = re.compile(rb"\r\n|\n|\r")
_BLOCK = 1 << 20
_BATCH = 1 << 10
_MOST_LINES = 1000
"""Of one record; a quote that is still open then is a stray one."""


def read_csv_records(path: Path, delimiter: str, width: int, places: Sequence[int]) -> tuple[list[Any], int]:
    """The cells at ``places`` of every record after the header, as Arrow arrays of text; and the lines left out.

    As if records were cut from the lines one after another, and nearly as fast as Arrow: only lines with quotes are
    read one by one. So one record with a quote does not slow down a large file, which others would see.
    """
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream:
        raw: bytes = stream.read()
    columns, broken, _ = _settled(raw, delimiter, width, places, last=True)
    return columns, broken


def csv_record_blocks(
    file: Any, delimiter: str, width: int, places: Sequence[int], *, block: int
) -> Iterator[tuple[list[Any], int]]:
    """The same records, ``block`` bytes of the file at a time: a piece ends where no record can reach beyond. ``file``
    is its path or a stream of it.

    Every piece but the first is given a line in the header's place, so that pieces are read as files are.
    """
    import pyarrow as pa

    header = b"x" + delimiter.encode() * (width - 1) + b"\n"
    with pa.input_stream(str(file) if isinstance(file, Path) else file) as stream:
        held = b""
        while True:
            more = stream.read(block)
            held += more
            end = len(held) if not more else max(held.rfind(b"\n"), held.rfind(b"\r", 0, len(held) - 1)) + 1
            columns, broken, used = _settled(held[:end], delimiter, width, places, last=not more)
            if columns:
                yield columns, broken
                held = header + held[used:]
            if not more:
                return


def _settled(
    raw: bytes, delimiter: str, width: int, places: Sequence[int], *, last: bool
) -> tuple[list[Any], int, int]:
    """The records of these whole lines, the header's not; the lines left out; and how many bytes that took.

    Not ``last``: a quote near the end may be closed by lines to come, so what follows it is left for the next time. No
    columns if nothing but the header is settled.
    """
    import pyarrow as pa

    text = raw.decode("utf-8-sig", errors="replace")
    if b'"' not in raw and "\ufffd" not in text:
        left_out: list[int] = []
        table = _arrow_lines(raw, delimiter, width, places, left_out)
        if table is not None:
            enough = last or len(table) > 1
            return (_columns(table.slice(1), places), len(left_out), len(raw)) if enough else ([], 0, 0)
    lines = _lines(text)
    quoted, broken, settled = _quoted_records(lines, delimiter, width, last=last)
    if settled <= 1 and not last:
        return [], 0, 0
    used = len(raw) if settled == len(lines) else [end.end() for end in _BYTES_END.finditer(raw)][settled - 1]
    lines = lines[:settled]
    inside = {at + step for at, (_, took) in quoted.items() for step in range(took)}
    plain = [at for at, line in enumerate(lines) if at not in inside and (line or width == 1)]
    good = [at for at in plain if lines[at].count(delimiter) == width - 1]
    longest = 4 * max((len(lines[at]) for at in good), default=0)  # bytes of its UTF-8, at most
    # After a line of ours: of the first cell Arrow would take a mark of byte order for the file's.
    rest = "\n".join(["x" + delimiter * (width - 1), *(lines[at] for at in good), ""]).encode()
    table = _arrow_lines(rest, delimiter, width, places, [], block=2 * longest)
    table = None if table is None else table.slice(1)
    records = [(at, cells) for at, (cells, _) in quoted.items() if cells]
    if table is None or len(table) != len(good):
        split = [lines[at].split(delimiter) for at in good]
        table = pa.table({name: pa.array([c[i] for c in split], pa.large_string()) for name, i in _names(places)})
    by_hand = {name: pa.array([cells[i] for _, cells in records], pa.large_string()) for name, i in _names(places)}
    whole = pa.concat_tables([table.select(list(by_hand)), pa.table(by_hand)])
    order = np.argsort([*good, *(at for at, _ in records)], kind="stable")
    return _columns(whole.take(pa.array(order[1:])), places), broken + len(plain) - len(good), used


def _names(places: Sequence[int]) -> list[tuple[str, int]]:
    return [(f"f{i}", i) for i in dict.fromkeys(places)]


def _columns(table: Any, places: Sequence[int]) -> list[Any]:
    return [table.column(f"f{i}") for i in places]


def _lines(text: str) -> list[str]:
    lines = _LINE_END.split(text)
    if lines and not lines[-1]:
        lines.pop()  # the file ends with a line end
    return lines


def _quoted_records(
    lines: Sequence[str], delimiter: str, width: int, *, last: bool
) -> tuple[dict[int, tuple[list[str], int]], int, int]:
    """(cells, lines) of the record at every line with a quote that begins one, no cells if it is none; how many are
    none; and how many lines are settled: all of the ``last`` ones, else those before a quote that may still be closed.
    """
    found: dict[int, tuple[list[str], int]] = {}
    after, settled = 0, len(lines)
    places = [at for at, line in enumerate(lines) if '"' in line]
    for first in range(0, len(places), _BATCH):
        batch = [at for at in places[first : first + _BATCH] if at >= after]
        together = _each_a_record([lines[at] for at in batch], delimiter)
        for number, at in enumerate(batch):
            if after <= at < settled:
                cells, took = _quoted(lines, at, delimiter, width) if together is None else (together[number], 1)
                if not last and together is None and at + _MOST_LINES > len(lines) and lines[at].count('"') % 2:
                    settled = at
                    continue
                found[at] = cells if len(cells) == width else [], took
                after = at + took
    return found, sum(not cells for cells, _ in found.values()), settled


def _each_a_record(lines: Sequence[str], delimiter: str) -> list[list[str]] | None:
    """The cells of lines that are one record each by the strict rules, read in one go; None if one is not.

    A quote left open joins lines, so that there are fewer records than lines: equal numbers mean one to one.
    """
    try:
        records = list(csv.reader(lines, delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return records if len(records) == len(lines) else None


def _arrow_lines(
    raw: bytes, delimiter: str, width: int, places: Sequence[int], left_out: list[int], block: int = 0
) -> Any:
    """Text without quotes: every line is a record, and Arrow reads it. The same cells, much faster.

    None where Arrow gives up (a line longer than its blocks).
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    names = [f"f{i}" for i in range(width)]

    def leave_out(row: Any) -> str:
        left_out.append(row.actual_columns)
        return "skip"

    if not raw:
        return pa.table({name: pa.array([], pa.large_string()) for name in names})
    try:
        return arrow_csv.read_csv(
            io.BytesIO(raw),
            read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=max(_BLOCK, block)),
            parse_options=arrow_csv.ParseOptions(
                delimiter=delimiter, quote_char=False, ignore_empty_lines=width > 1, invalid_row_handler=leave_out
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[name for name, _ in _names(places)],
                column_types=dict.fromkeys(names, pa.large_string()),
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        return None


def _quoted(lines: Sequence[str], at: int, delimiter: str, width: int) -> tuple[list[str], int]:
    """The cells of the record that begins at a line with quotes, and how many lines it has; no cells if it is none."""
    line = lines[at]
    cells = _strict([line], delimiter)
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
            cells = _strict(lines[at : last + 1], delimiter)
            if cells is not None and len(cells) == width:
                return cells, last + 1 - at
            break
    return [], 1


def _strict(lines: Sequence[str], delimiter: str) -> list[str] | None:
    """The cells of lines that are exactly one record by the strict rules; else None."""
    try:
        records = list(csv.reader([f"{line}\n" for line in lines], delimiter=delimiter, strict=True))
    except csv.Error:
        return None
    return records[0] if len(records) == 1 else None
