"""Readers: every format gives the same records, and a file that is wrong is named without quoting it."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.data.example_tables import clinic, clinic_schema

from tallystick.core.errors import DataError
from tallystick.data.encoding import encode
from tallystick.data.sources import column_names, read_table
from tallystick.study.columns import Category, Items, Missing, Number
from tallystick.study.schema import Schema

SECRET = "Zebediah-1847"


def every_form(frame: pl.DataFrame, folder: Path) -> dict[str, Any]:
    """The same records in every form a source may have."""
    frame.write_csv(folder / "data.csv")
    frame.write_csv(folder / "data.tsv", separator="\t")
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / "data.csv").read_bytes()))
    frame.write_parquet(folder / "data.parquet")
    frame.select(reversed(frame.columns)).to_pandas().to_csv(folder / "pandas.csv", index=False)
    categorical = frame.with_columns(pl.col(pl.String).cast(pl.Categorical))
    table = frame.to_arrow()
    return {
        "csv": str(folder / "data.csv"),
        "tsv": folder / "data.tsv",
        "gz": folder / "packed.csv.gz",
        "csv by pandas": folder / "pandas.csv",
        "parquet": folder / "data.parquet",
        "polars": frame,
        "polars lazy": frame.lazy(),
        "polars categorical": categorical,
        "pandas": frame.to_pandas(),
        "pandas object": frame.to_pandas().astype(object),
        "pandas categorical": categorical.to_pandas(),
        "arrow": table,
        "arrow in chunks": pa.concat_tables([table.slice(0, 7), table.slice(7)]),
        "arrow batch": table.combine_chunks().to_batches()[0],
        "dict of arrays": {c: frame[c].to_numpy() for c in frame.columns},
        "dict of lists": {c: frame[c].to_list() for c in frame.columns},
        "dict of series": {c: frame[c] for c in frame.columns},
        "numpy with names": frame.to_pandas().to_records(index=False),
    }


def test_every_format_gives_the_same_bits(tmp_path: Path) -> None:
    frame = clinic(120)
    forms = every_form(frame, tmp_path)
    expected = encode(frame, clinic_schema(), target="readmitted", missing=Missing())
    assert expected.tallies.missing["bmi"] > 0
    for name, source in forms.items():
        got = encode(source, clinic_schema(), target="readmitted", missing=Missing())
        assert got.features.tobytes() == expected.features.tobytes(), name
        assert got.target is not None
        assert expected.target is not None
        assert got.target.tobytes() == expected.target.tobytes(), name
        assert got.tallies.missing == expected.tallies.missing, name


def test_a_matrix_takes_its_names_from_the_schema() -> None:
    x = np.array([[0.0, 10.0], [1.0, 20.0], [np.nan, 30.0]])
    schema = Schema.from_bounds(["a", "b"], [0, 10], [1, 30])
    got = encode(x, schema, missing=Missing(policy="drop"))
    assert got.features.tolist() == [[-1.0, -1.0], [1.0, 0.0]]
    assert got.rows.tolist() == [0, 1]
    assert read_table(x).column_names == ["x0", "x1"]
    for dtype in (np.float32, np.int8, np.uint64, np.bool_, object):
        again = encode(np.array([[0, 1], [1, 1]], dtype=dtype), Schema.from_bounds(["a", "b"], 0, 1))
        assert again.features.tolist() == [[-1.0, 1.0], [1.0, 1.0]]


def test_masked_cells_are_missing_not_read() -> None:
    x = np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    got = encode(x, Schema.from_bounds(["a", "b"], 0, 4), missing=Missing(policy="drop"))
    assert got.rows.tolist() == [1]


def test_only_the_named_columns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(f"name,age,note\n{SECRET},30,a\n{SECRET},40,b\n")
    table = read_table(path, ["age"])
    assert table.column_names == ["age"]
    assert column_names(path) == ("name", "age", "note")
    frame = pd.DataFrame({"age": [1.0], "odd": [object()]})
    assert len(encode(frame, Schema({"age": Number(0, 2)}))) == 1  # what is not named cannot fail


def test_blanks_quotes_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "messy.csv"
    path.write_bytes('\ufeff"sex" , note,age\r\n Male,"a, ""b""\nc", 30 \r\nFemale,,1e1\r\n'.encode())
    assert column_names(path) == ("sex", "note", "age")
    got = encode(path, Schema({"sex": Category(["Female", "Male"]), "age": Number(0, 40)}))
    assert got.features.tolist() == [[0.0, 1.0, 0.5], [1.0, 0.0, -0.5]]


def test_one_column_keeps_its_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("age\n1\n\n3\n")
    got = encode(path, Schema({"age": Number(0, 4)}), missing=Missing())
    assert got.features.tolist() == [[-0.5, 0.0], [0.0, 1.0], [0.5, 0.0]]


@pytest.mark.parametrize("text", ["age,sex\n", "age,sex"])
def test_a_header_alone_is_an_empty_client(tmp_path: Path, text: str) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(text)
    got = encode(path, Schema({"age": Number(0, 4), "sex": Category(["F", "M"])}), target="sex")
    assert got.features.shape == (0, 1)
    assert got.target is not None
    assert got.target.shape == (0,)


def wrong_files(folder: Path) -> dict[str, tuple[Path, str]]:
    cases = {
        "nothing.csv": (b"", "empty"),
        "blank.csv": (b"\n\n", "empty"),
        "ragged.csv": (f"age,name\n1,a\n2,{SECRET},3\n".encode(), "record 2 has 3 cells"),
        "short.csv": (f"age,name\n1,a\n{SECRET}\n".encode(), "record 2 has 1 cells"),
        "latin.csv": ("age,name\n1,Zoë\n".encode("latin-1"), "UTF-8"),
        "latin_header.csv": ("âge,name\n1,a\n".encode("latin-1"), "UTF-8"),
        "binary.parquet": (SECRET.encode() * 20, "Parquet"),
        "torn.parquet": (b"PAR1" + bytes(40), "Parquet"),
        "nothing.parquet": (b"", "Parquet"),
        "table.xlsx": (b"PK", "no known format"),
        "torn.csv.gz": (gzip.compress(b"age,name\n1,2\n")[:12], "cannot be read"),
    }
    for name, (raw, _) in cases.items():
        (folder / name).write_bytes(raw)
    return {name: (folder / name, words) for name, (_, words) in cases.items()}


def test_unreadable_empty_and_ragged_files_are_named_and_never_quoted(tmp_path: Path) -> None:
    schema = Schema({"age": Number(0, 4), "name": Category(["a"])})
    for name, (path, words) in wrong_files(tmp_path).items():
        with pytest.raises(DataError) as caught:
            encode(path, schema, party="north")
        message = str(caught.value)
        assert words in message, (name, message)
        assert name in message
        assert "north" in message
        assert caught.value.exit_code == 2
        assert caught.value.remedy
        assert SECRET not in message
        assert caught.value.__context__ is None, name  # the library's own error quotes the row
    (tmp_path / "folder").mkdir()
    for absent in (tmp_path / "none.csv", tmp_path / "folder"):
        with pytest.raises(DataError, match=r"does not exist|is a directory"):
            read_table(absent)


def test_an_absent_column_lists_those_there_and_the_closest(tmp_path: Path) -> None:
    forms = every_form(clinic(12), tmp_path)
    for name, source in forms.items():
        with pytest.raises(DataError) as caught:
            encode(source, Schema({"systolc": Number(0, 1)}))
        assert "no column 'systolc'" in str(caught.value), name
        assert "Did you mean 'systolic'?" in str(caught.value), name
        assert "hospital" in str(caught.value), name


@pytest.mark.parametrize(
    "source, words",
    [
        (np.zeros((3, 4)), "4 columns, but 2 names"),
        (np.zeros((3, 0)), "0 columns, but 2 names"),
        (np.zeros(3), "1 dimension"),
        (np.zeros((2, 2, 2)), "3 dimension"),
        ({"a": [1, 2], "b": [1]}, "'a' and 'b' differ in length"),
        ({"a": [1, 2], "b": np.zeros((2, 2))}, "column 'b' has 2 dimensions"),
        ({"a": [1], "b": [object()]}, "column 'b' holds values that are neither"),
        (pd.DataFrame([[1, 2, 3]], columns=["a", "b", "b"]), "2 columns named 'b'"),
        (42, "int is not a data source"),
        ({"a": [1, 2], "b": [1 + 2j, 3]}, "column 'b'"),
        ({"a": [1], "b": [[1, 2]]}, "column 'b' is declared as a number"),
        ({"a": [1], "b": np.array(["2020-01-01"], dtype="datetime64[D]")}, "column 'b' is declared as a number"),
    ],
)
def test_wrong_shapes_name_the_column(source: Any, words: str) -> None:
    with pytest.raises(DataError) as caught:
        encode(source, Schema.from_bounds(["a", "b"], 0, 1))
    assert words in str(caught.value)


def test_a_source_of_ones_own() -> None:
    class Warehouse:
        def column_names(self) -> list[str]:
            return ["age", "name"]

        def read(self, columns: list[str]) -> pa.Table:
            return pa.table({"age": [1, 2], "name": [SECRET, SECRET]}).select(columns)

    assert encode(Warehouse(), Schema({"age": Number(0, 2)})).features.tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
def test_whole_numbers_of_128_bits_are_numbers(kind: Any) -> None:
    frame = pl.DataFrame({"age": pl.Series([1, 2**100, None], dtype=kind)})
    got = encode(frame, Schema({"age": Number(0, 2)}), missing=Missing(policy="category"))
    assert got.features.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


def test_items_as_lists_and_as_text(tmp_path: Path) -> None:
    schema = Schema({"basket": Items(["milk", "bread", "tea"], 2)})
    lists = [["bread", "milk"], [], ["tea", "bread", "milk"], None, ["coal", "tea", "tea"]]
    frame = pl.DataFrame({"basket": lists})
    expected = [[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    path = tmp_path / "items.csv"
    path.write_text('basket,x\nbread;milk,1\n"",1\ntea; bread ;milk,1\n?,1\ncoal;tea;tea,1\n')
    frame.write_parquet(tmp_path / "items.parquet")
    array = pa.array(lists, type=pa.list_(pa.dictionary(pa.int8(), pa.string())))
    sources = [
        frame,
        frame.to_pandas(),
        tmp_path / "items.parquet",
        {"basket": lists},
        path,
        pa.table({"basket": array}),
        pa.table({"basket": pa.array(lists, type=pa.list_view(pa.string()))}),
        pa.table({"basket": pa.array(lists, type=pa.large_list_view(pa.string()))}),
    ]
    for source in sources:
        got = encode(source, schema, missing=Missing())
        assert got.features.tolist() == expected
        assert got.tallies.truncated == {"basket": 1}
        assert got.tallies.unknown == {"basket": 1}
        assert got.tallies.missing == {"basket": 1}
    assert encode(frame.slice(2, 1), schema, missing=Missing()).features.tolist() == expected[2:3]
    with pytest.raises(DataError, match="list of items"):
        encode({"basket": [1, 2]}, schema)


def test_pandas_is_not_needed_and_polars_only_when_given(tmp_path: Path) -> None:
    clinic(30).write_csv(tmp_path / "clinic.csv")
    clinic(30).write_parquet(tmp_path / "clinic.parquet")
    script = f"""
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoPandas())
import numpy as np
from tallystick.data.encoding import encode
from tests.data.example_tables import clinic_schema
from tallystick.study.schema import Missing, Schema
for name in ("clinic.csv", "clinic.parquet"):
    assert len(encode({str(tmp_path)!r} + "/" + name, clinic_schema(), target="readmitted", missing=Missing())) == 30
assert len(encode(np.zeros((4, 2)), Schema.from_bounds(["a", "b"], -1, 1))) == 4
assert len(encode({{"a": [1, 2], "b": ["x", "y"]}}, Schema.from_bounds(["a"], 0, 2))) == 2
assert "polars" not in sys.modules
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False, cwd=root
    )
    assert done.returncode == 0, done.stderr
