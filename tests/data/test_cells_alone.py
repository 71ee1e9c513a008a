"""Each cell is encoded by itself: alone as together, over mixed types and every kind of source.

One cell of another type used to send its whole column through another path: replacing one record by "maybe" moved a
released count from 1,000 to 5.4 at ε = 1. Here every source is read whole, and record by record; what a record becomes
(its row, or that it is left out) must be the same to the bit.
"""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.data.cell_rules import (
    MISSING,
    NO_CELL,
    UNKNOWN,
    as_category,
    as_number,
    canonical_text,
    with_other_spellings,
)
from tallystick.data.column_values import CellReader, canonical_texts
from tallystick.data.csv_records import _lines, _quoted, read_csv_records
from tallystick.data.encoding import encode
from tallystick.data.object_columns import cells_to_arrow
from tallystick.data.opened import broken_records
from tallystick.data.sources import read_table
from tallystick.study.columns import Category, Integer, Items, Missing, Number
from tallystick.study.schema import Schema

COLUMN = {
    "number": Number(-2, 40),
    "log": Number(0, 40, log=True),
    "bins": Number(-2, 40, bins=[0, 1, 7]),
    "integer": Integer(0, 9),
    "truth": Category(["True", "False"]),
    "bit": Category([1, 0]),
    "declared": Category([True, False]),
    "word": Category(["a", "7", "1.50", "2020-01-01"], merge="other"),
    "items": Items(["a", "1", "7", "True"], 2),
}


class Anything:
    """A cell of no known type."""


ODD: list[Any] = [
    None, math.nan, pd.NA, pd.NaT, np.datetime64("NaT"), np.ma.masked, Decimal("NaN"), "", " ", "?", "nan",
    True, False, np.bool_(True), "True", "TRUE", "true", "false", "maybe",
    0, 1, 7, -1, 10**30, 10**500, 2**53 + 1, np.int8(7), np.uint64(2**64 - 1), 1.0, 7.0, -0.0, 1.5, math.inf,
    -math.inf, 1e308, 5e-324, np.float32(0.1), np.float16(7), np.longdouble(7), Fraction(3, 2), Fraction(10**400),
    "1", "1.0", " 1", "1e0", "007", "7.00", "1_000", "0x10", "1.50", "-9.0", "-9", -9, "inf", "١",
    Decimal("1.00"), Decimal("1.5"), Decimal("1e999"), Decimal("Infinity"), Decimal("0.1"),
    b"7", b"\xff7", bytearray(b"a"), np.bytes_(b"a"), np.str_("a"), "a;7", "a; 1 ;zzz;7", "a\nb", 'a"b', "é", "\ud800",
    date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), time(1), timedelta(1), np.datetime64("2020-01-01"),
    np.timedelta64(1, "D"), pd.Timestamp("2020-01-01"), pd.Interval(0, 1), pd.Period("2020"), UUID(int=7),
    ["a", 7], ("a", True), [], {"a"}, [None, "zzz"], [[1]], np.array(["a", "1"]), np.zeros((2, 2)),
    {}, {"a": 1}, {"no_cell": 1}, Anything(), 1j, range(2), Ellipsis, len,
]  # fmt: skip

cell = st.one_of(
    st.sampled_from(ODD),
    st.integers(-3, 45),
    st.floats(width=32),
    st.decimals(allow_nan=False, places=2, min_value=-5, max_value=50),
    st.sampled_from(["0", "1", "2.50", "40", "x", "a;7"]),
    st.text(max_size=4),
)
columns = st.lists(cell, min_size=1, max_size=9)
quick = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])


def bits_of(source: Any, kind: str, missing: Missing | None = None) -> list[bytes | None]:
    """What becomes of each record: the bits of its row, or None if it is left out."""
    try:
        got = encode(source, Schema({"c": COLUMN[kind]}), missing=missing, lenient=True)
    except DataError:  # the declared type of the whole column
        return [b"refused"]
    out: list[bytes | None] = [None] * got.tallies.records
    for row, features in zip(got.rows, got.features):
        out[row] = features.tobytes()
    return out


def assert_alone_as_together(make: Callable[[Sequence[Any]], Any], cells: Sequence[Any], kind: str) -> None:
    for missing in (None, Missing(marker="-9")):
        together = bits_of(make(cells), kind, missing)
        alone = [bits_of(make([one]), kind, missing)[0] for one in cells]
        assert together == alone


def object_array(cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    out = np.empty(len(cells), dtype=object)
    for place, one in enumerate(cells):
        out[place] = one
    return out


def structured(cells: Sequence[Any]) -> np.ndarray[Any, Any]:
    out = np.empty(len(cells), dtype=[("c", object), ("n", float)])
    out["c"] = object_array(cells)
    return out


def masked(cells: Sequence[Any]) -> dict[str, Any]:
    return {"c": np.ma.MaskedArray(object_array(cells), mask=[isinstance(c, int) and c == 2 for c in cells])}


UNTYPED: dict[str, Callable[[Sequence[Any]], Any]] = {
    "dict of lists": lambda cells: {"c": list(cells)},
    "tuple": lambda cells: {"c": tuple(cells)},
    "dict of object arrays": lambda cells: {"c": object_array(cells)},
    "object matrix": lambda cells: object_array(cells).reshape(-1, 1),
    "structured array": structured,
    "masked array": masked,
    "pandas object": lambda cells: pd.DataFrame({"c": pd.Series(object_array(cells), dtype=object)}),
    "polars object": lambda cells: pl.DataFrame({"c": pl.Series(list(cells), dtype=pl.Object)}),
}


@pytest.mark.parametrize("kind", COLUMN)
def test_of_every_two_odd_cells_neither_changes_the_other(kind: str) -> None:
    alone = [bits_of({"c": [one]}, kind)[0] for one in ODD]
    for place, one in enumerate(ODD):
        assert bits_of({"c": [one, *ODD]}, kind) == [alone[place], *alone]
        for other in (place - 1, place - 7):
            assert bits_of({"c": [one, ODD[other]]}, kind) == [alone[place], alone[other]]


@pytest.mark.parametrize("source", UNTYPED)
@quick
@given(cells=columns, kind=st.sampled_from(sorted(COLUMN)))
def test_alone_as_together_where_nobody_declares_a_type(source: str, cells: list[Any], kind: str) -> None:
    assert_alone_as_together(UNTYPED[source], cells, kind)


def frames_by_pandas(cells: Sequence[Any]) -> list[pd.DataFrame]:
    """The cells in every dtype that pandas gives them: it is declared then, and the same for a part of the frame."""
    out = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in (None, "category", "string", "Int64", "Float64", "boolean", "float64", "datetime64[ns]"):
            try:
                series = pd.Series(list(cells), dtype=dtype)
                len(series.dropna())
                out.append(pd.DataFrame({"c": series}))
            except Exception:  # these cells have no such dtype
                continue
    return out


@quick
@given(cells=columns, kind=st.sampled_from(sorted(COLUMN)))
@example(cells=[True, False, "maybe"], kind="truth")
@example(cells=[1, 0, None], kind="bit")
@example(cells=[1.5, None, 7], kind="word")
def test_alone_as_together_in_pandas(cells: list[Any], kind: str) -> None:
    for frame in frames_by_pandas(cells):
        for missing in (None, Missing(marker="-9")):
            together = bits_of(frame, kind, missing)
            parts = [bits_of(frame.iloc[[i]], kind, missing)[0] for i in range(len(frame))]
            assert together == (parts if len(together) == len(frame) else parts[:1])


TYPES = {
    "int8": (pa.int8(), st.integers(-3, 45)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
    "float": (pa.float32(), st.floats(width=32)),
    "half": (pa.float16(), st.floats(width=16)),
    "double": (pa.float64(), st.floats()),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(9, 2), st.decimals(allow_nan=False, places=2, min_value=-5, max_value=50)),
    "string": (pa.string(), st.text(max_size=3) | st.sampled_from(["1", "1.0", "True", "7", "a"])),
    "view": (pa.string_view(), st.text(max_size=3) | st.sampled_from(["1", "1.0", "a"])),
    "binary": (pa.binary(), st.binary(max_size=3) | st.sampled_from([b"1", b"a"])),
    "date": (pa.date32(), st.dates()),
    "stamp": (pa.timestamp("us"), st.datetimes()),
    "list": (pa.list_(pa.string()), st.lists(st.sampled_from(["a", "1", "zzz"]), max_size=3)),
}


@quick
@given(data=st.data(), name=st.sampled_from(sorted(TYPES)), kind=st.sampled_from(sorted(COLUMN)))
def test_alone_as_together_in_arrow_polars_and_parquet(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, kind: str
) -> None:
    """Slices, chunks, dictionaries of other records' values, row groups: a declared type, and cells one by one."""
    type_, values = TYPES[name]
    cells = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    cut = data.draw(st.integers(0, len(cells)))
    array = pa.array(cells, type=type_)
    alone = [bits_of(pa.table({"c": array.slice(i, 1)}), kind)[0] for i in range(len(cells))]
    fresh = [bits_of(pa.table({"c": pa.array([one], type=type_)}), kind)[0] for one in cells]
    assert alone == fresh
    wanted = alone if bits_of(pa.table({"c": array[:0]}), kind) == [] else alone[:1]
    whole = pa.table({"c": array})
    sources = [whole, pa.table({"c": pa.chunked_array([array[:cut], array[cut:]], type=type_)}), {"c": array}]
    if name not in ("list", "view", "half"):
        coded = array.dictionary_encode()
        sources.append(pa.table({"c": coded}))
        sources.append(pa.table({"c": pa.chunked_array([coded[:cut], array[cut:].dictionary_encode()])}))
    if name not in ("half", "view", "decimal"):
        sources += [pl.from_arrow(whole), pl.from_arrow(whole).lazy()]
        path = tmp_path_factory.mktemp("groups") / "c.parquet"
        pq.write_table(whole, path, row_group_size=max(1, cut))
        sources.append(path)
    for source in sources:
        assert bits_of(source, kind) == wanted


def categorical(values: Sequence[str | None]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int8()), pa.array(values, pa.string()))


def test_one_more_value_of_a_categorical_column_spoils_no_other_cell(tmp_path: Path) -> None:
    """Row groups with dictionaries of their own, and indices of 8 bits: together they have more values than fit."""
    parts = [categorical([f"{part}{i}" for i in range(100)]) for part in "abc"]
    with pq.ParquetWriter(tmp_path / "x.parquet", pa.schema([("x", parts[0].type)])) as writer:
        for part in parts:
            writer.write_batch(pa.record_batch([part], ["x"]))
    schema = Schema({"x": Category(["a1", "c99"])})
    for source in (tmp_path / "x.parquet", pa.table({"x": pa.chunked_array(parts)})):
        together = encode(source, schema, lenient=True)
        assert len(together) == 300
        assert [together.features[1].tolist(), together.features[299].tolist()] == [[1, 0], [0, 1]]
        assert together.features.sum() == 2
    nulls = pa.table({"x": pa.chunked_array([categorical(["a1", None]), categorical([None, "c99"])])})
    assert encode(nulls, schema, missing=Missing(policy="drop")).features.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("kind", [pa.list_view(pa.string()), pa.large_list_view(pa.string())], ids=str)
def test_alone_as_together_in_list_views(tmp_path: Path, kind: pa.DataType) -> None:
    cells = [["a", "b"], None, ["b"], [], ["a"]]
    schema, column = Schema({"x": Items(["a", "b"], 2)}), pa.array(cells, kind)
    pq.write_table(pa.table({"x": column}), tmp_path / "x.parquet")
    for source in (tmp_path / "x.parquet", pa.table({"x": column})):
        together = encode(source, schema, lenient=True)
        assert together.rows.tolist() == [0, 2, 3, 4]
        assert together.features.tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]
    for place, cell in enumerate(cells):
        alone = encode(pa.table({"x": column[place : place + 1]}), schema, lenient=True)
        assert len(alone) == (cell is not None)
        assert alone.features.tolist() == [
            [float(item in cell) for item in "ab"] for cell in [cell] if cell is not None
        ]


def test_texts_and_times_that_python_cannot_hold_spoil_no_other_cell() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 2, 3], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"7\xffa")])  # as Parquet may hold it
    assert bits_of({"c": texts}, "number")[0] == bits_of({"c": ["7"]}, "number")[0]
    assert bits_of({"c": texts}, "number")[1:] == [None, None]
    far = pa.array([0, 2**62], pa.timestamp("us"))
    assert bits_of({"c": far}, "word")[1] is None
    assert bits_of({"c": far}, "word")[0] == bits_of({"c": far.slice(0, 1)}, "word")[0]


# -- CSV files ---------------------------------------------------------------------------------------------------------

csv_cell = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=5) | st.sampled_from(
    ["1", "1.0", " 1", "1e0", "TRUE", "", "?", "maybe", 'a"b', "a,b", "a\nb", "7"]
)


def write_csv(path: Path, cells: Sequence[str]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["c", "other"])
        writer.writerows([(one, "x") for one in cells])
    return path


@quick
@given(cells=st.lists(csv_cell, min_size=1, max_size=6), kind=st.sampled_from(sorted(COLUMN)))
def test_alone_as_together_in_csv_files(tmp_path_factory: pytest.TempPathFactory, cells: list[str], kind: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "c.csv"
    together = bits_of(write_csv(path, cells), kind)
    assert together == [bits_of(write_csv(path, [one]), kind)[0] for one in cells]
    assert together == bits_of({"c": cells}, kind)
    write_csv(path, cells)
    assert read_table(path, ["c"], lenient=True).to_pylist() == read_table(path, ["c"]).to_pylist()


SPOILT_LINES = [
    b"3", b"3,4,5", b'"3,4', b'3,"4', b'3,"4"x', b'"3"4,5,6', b"3,\xff\xfe", b'"', b'""', b'3,"""', b",", b"\0,\0",
    b'3,"4\n', b'"3\n4\n5",', b"\xef\xbb\xbf3,4", b"3,4\r5", b"x" * 2_000_000 + b",4", b'"' + b"x" * 200_000 + b'",4',
]  # fmt: skip


@pytest.mark.parametrize("line", SPOILT_LINES)
def test_a_spoilt_line_of_a_csv_file_spoils_no_other(tmp_path: Path, line: bytes) -> None:
    """Whether the other records have quotes or not, and wherever it stands."""
    for others in ([b"1,2", b"7,8", b"9,10"], [b'"1",2', b'7,"8"', b'"9","10"'], [b'"1\n1",2', b'"7, 7",8', b"9,10"]):
        plain = tmp_path / "plain.csv"
        plain.write_bytes(b"a,b\n" + b"\n".join(others) + b"\n")
        intact = read_table(plain, ["a", "b"], lenient=True).to_pylist()
        assert len(intact) == 3
        for place in range(4):
            spoilt = tmp_path / "spoilt.csv"
            spoilt.write_bytes(b"a,b\n" + b"\n".join([*others[:place], line, *others[place:]]) + b"\n")
            table = read_table(spoilt, ["a", "b"], lenient=True)
            found = table.to_pylist()
            added = len(found) - 3
            assert [*found[:place], *found[place + added :]] == intact, (others, place)
            assert added + broken_records(table) >= 1


pieces = st.sampled_from(
    [b"1", b",", b",", b"\n", b"\n", b"\r\n", b"\r", b"\xff", b" ", b"\xe2\x82", b'"', b'""', b',"']
)


def _by_line(text: str, delimiter: str, width: int, places: Sequence[int]) -> tuple[list[list[str]], int]:
    """The definition: records cut from lines one after another."""
    lines = _lines(text)
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


@settings(quick, max_examples=150)
@given(raw=st.lists(pieces, max_size=40))
def test_the_fast_reader_of_lines_is_the_definition(tmp_path_factory: pytest.TempPathFactory, raw: list[bytes]) -> None:
    for width, header in ((1, b"a\n"), (2, b"a,b\n")):
        path = tmp_path_factory.mktemp("lines") / "a.csv"
        path.write_bytes(header + b"".join(raw))
        fast, broken = read_csv_records(path, ",", width, range(width))
        text = path.read_bytes().decode("utf-8-sig", errors="replace")
        assert ([column.to_pylist() for column in fast], broken) == _by_line(text, ",", width, range(width))


# -- the scalar rule is the definition ---------------------------------------------------------------------------------


@quick
@given(cells=columns, marker=st.sampled_from([None, "?", "-9", "1.0", "true"]))
def test_whole_columns_are_read_as_the_scalar_rule_says(cells: list[Any], marker: str | None) -> None:
    cells = [one for one in cells if not (isinstance(one, str) and "\ud800" in one)]  # Arrow holds no half character
    array = cells_to_arrow(cells)
    reader = CellReader(column="c", marker=marker)
    numbers = reader.numbers(array)
    for one, value, bad in zip(cells, numbers.values.tolist(), numbers.bad.tolist()):
        expected = as_number(one, marker)
        assert bad == (expected is None)
        assert value == expected or (math.isnan(value) and (expected is None or math.isnan(expected)))
    for column in (COLUMN["truth"], COLUMN["bit"], COLUMN["declared"], COLUMN["word"]):
        codes = column.codes()  # type: ignore[union-attr]
        found = reader.codes(array, codes)
        assert found.values.tolist() == [as_category(one, with_other_spellings(codes), marker) for one in cells]
    assert canonical_texts(array) == [canonical_text(one) for one in cells]


@pytest.mark.parametrize(
    ("declared", "cells"),
    [
        ([1, 2], [1, 1.0, "1", " 1 ", "1.0", "1.", "1e0", Decimal("1.00"), np.float32(1), np.int8(1), b"1", True]),
        (["1", "2"], [1, 1.0, "1", "1.00", np.uint8(1)]),
        (["1.0", "2.0"], [1, 1.0, "1", "1.0", Decimal(1)]),
        ([1.5, 2], [1.5, "1.5", "1.50", Decimal("1.500"), Fraction(3, 2), "15e-1"]),
        ([True, False], [True, "True", "TRUE", "true", np.bool_(True), 1, "1", 1.0]),
        (["True", "False"], [True, "True", "TRUE", "true", np.bool_(True)]),
        (["2020-01-01", "x"], ["2020-01-01", date(2020, 1, 1), np.datetime64("2020-01-01")]),
        (["007", "7"], ["007", " 007"]),
        (["250.0", "250.00"], ["250.0"]),
    ],
)
def test_equal_values_are_one_category(declared: list[Any], cells: list[Any]) -> None:
    codes = with_other_spellings(Category(declared).codes())
    assert {repr(one): as_category(one, codes) for one in cells} == dict.fromkeys(map(repr, cells), 0)


def test_what_is_not_equal_stays_apart() -> None:
    codes = with_other_spellings(Category(["250.0", "250.00", "7"]).codes())
    found = [as_category(c, codes, "-9") for c in ("250.00", "250", 250, "007", "", None, "-9.0", {}, "seven")]
    assert found == [1, UNKNOWN, UNKNOWN, UNKNOWN, MISSING, MISSING, MISSING, NO_CELL, UNKNOWN]
    same = {canonical_text(c) for c in (7, 7.0, "7", "7 ", "\t7", "7.0", b"7", Decimal("7.00"), np.int64(7))}
    assert same == {"7"}
    assert [canonical_text(c) for c in (None, "", " ", math.nan, pd.NA, [], {}, Anything())] == [None] * 8
    assert (
        len({canonical_text(c) for c in ("a", "A", "007", 7, 8, 7.5, "12345678901234567.0", "12345678901234568.0")})
        == 8
    )


def test_a_blank_cell_of_items_is_the_empty_set_unless_it_is_the_marker() -> None:
    for marker, blank in (("?", False), (None, False), ("", True), (" ", True)):
        missing = None if marker is None else Missing(marker=marker)
        for cells in (["", "a"], ["", "a", 7], [" ", "a"]):
            got = encode({"c": cells}, Schema({"c": COLUMN["items"]}), missing=missing, lenient=True)
            assert got.tallies.missing == ({"c": 1} if blank else {})
            assert got.features[0].any() == blank  # the mark of a missing cell


# -- the attack --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
@pytest.mark.parametrize("values", [["True", "False"], [1, 0]])
def test_replacing_one_cell_moves_a_released_count_by_one(values: list[Any]) -> None:
    """The review's attack: a column of True, of which one becomes "maybe"."""
    schema = ts.Schema({"smoker": ts.Category(values), "x": ts.Number(0, 1)})

    def count(last: object) -> float:
        cells = [True] * 999 + [last]
        fed = ts.Federation.simulate([pd.DataFrame({"smoker": cells, "x": [0.5] * 1000}, dtype=object)], schema=schema)
        table = ts.Summary(columns=["smoker"], epsilon=1.0, mechanism="none").fit(fed).table_
        return next(r["estimate"] for r in table if r["statistic"] == "histogram" and r["of"] == str(values[0]))

    assert (count(True), count("maybe"), count("1e3")) == (1000, 999, 999)
