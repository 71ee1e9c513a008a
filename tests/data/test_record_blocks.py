"""Sources read in blocks: the records of the whole, in its order, however the blocks fall."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import DataError
from tallystick.data import csv_records, record_files
from tallystick.data.csv_records import csv_record_blocks, read_csv_records
from tallystick.data.opened import broken_records
from tallystick.data.sources import read_blocks, read_table

CHARACTERS = st.sampled_from(["a", "b", ",", '"', "\n", "\r", "\r\n", "\xe9", "\x00", "\ufeff", "BAD"])


def _cells(columns: list[Any]) -> list[list[str]]:
    return [column.to_pylist() for column in columns]


@settings(deadline=None, max_examples=300)
@given(st.lists(CHARACTERS, max_size=60), st.integers(1, 40), st.sampled_from(["a", "a,b", '"a",b']))
def test_csv_records_are_the_same_wherever_the_blocks_end(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], block: int, header: str
) -> None:
    width = header.count(",") + 1
    file = tmp_path_factory.mktemp("csv") / "a.csv"
    body = b"".join(b"\xff" if part == "BAD" else part.encode() for part in parts)
    file.write_bytes(header.encode() + b"\n" + body)
    places = list(range(width))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(csv_records, "_MOST_LINES", 3)
        whole, broken = read_csv_records(file, ",", width, places)
        found = list(csv_record_blocks(file, ",", width, places, block=block))
    joined = [[cell for columns, _ in found for cell in columns[i].to_pylist()] for i in places]
    assert joined == _cells(whole)
    assert sum(lost for _, lost in found) == broken


def test_a_mark_of_byte_order_within_a_file_stays_in_its_cell(tmp_path: Path) -> None:
    """Whatever stands before it: the first line without quotes is nobody's first line."""
    for first in ("", "x,y\n", '"x",y\n'):
        (tmp_path / "a.csv").write_text(f'"a",b\n{first}\ufeffz,1\n')
        columns, _ = read_csv_records(tmp_path / "a.csv", ",", 2, [0, 1])
        assert columns[0].to_pylist()[-1] == "\ufeffz"


_CUT = """
import os, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from tallystick.core.errors import DataError
from tallystick.data.sources import read_blocks
table = pa.table({"n": np.random.default_rng(0).random(1 << 21)})
pq.write_table(table, sys.argv[1], row_group_size=1 << 19, compression="none", use_dictionary=False)
blocks = read_blocks(sys.argv[1], ["n"], rows=1 << 12)
next(blocks)
os.truncate(sys.argv[1], 1 << 10)
try:
    list(blocks)
except DataError as error:
    print(error.cause)
"""


def test_a_parquet_file_that_is_cut_short_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """In a process of its own: one that had mapped the file would be killed by the system."""
    file = tmp_path / "a.parquet"
    ran = subprocess.run([sys.executable, "-c", _CUT, str(file)], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "file a.parquet is not a readable Parquet file"), ran.stderr


def test_a_large_csv_file_is_never_in_memory_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n,text\n" + "".join(f'{i},"t, {i}"\n' for i in range(2000)))
    monkeypatch.setattr(record_files, "_CSV_BLOCK", 1 << 10)
    for lenient in (True, False):
        blocks = list(read_blocks(file, ["text", "n"], rows=100, lenient=lenient))
        assert len(blocks) > 20
        assert max(b.num_rows for b in blocks) <= 100
        assert (
            pa.concat_tables([b.replace_schema_metadata() for b in blocks]).to_pylist()
            == read_table(file, ["text", "n"], lenient=lenient).to_pylist()
        )


def test_a_ragged_line_in_a_late_block_is_refused_or_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n,m\n" + "1,2\n" * 1000 + "SECRET\n" + "1,2\n" * 10)
    monkeypatch.setattr(record_files, "_CSV_BLOCK", 1 << 10)
    blocks = list(read_blocks(file, rows=100, lenient=True))
    assert sum(b.num_rows for b in blocks) == 1010
    assert sum(broken_records(b) for b in blocks) == 1
    with pytest.raises(DataError, match="has 1 cells") as caught:
        list(read_blocks(file, rows=100))
    assert "SECRET" not in str(caught.value)


def test_a_folder_of_parquet_files_is_one_source(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    (folder / "sub").mkdir(parents=True)
    for number, name in enumerate(["b.parquet", "a.parquet", "sub/c.pq", "_temporary.parquet", ".hidden.parquet"]):
        pq.write_table(pa.table({"n": range(10 * number, 10 * number + 10), "t": ["x"] * 10}), folder / name)
    (folder / "_SUCCESS").write_text("")
    expected = [*range(10, 20), *range(10), *range(20, 30)]
    assert read_table(folder, ["n"]).column("n").to_pylist() == expected
    blocks = list(read_blocks(folder, ["n"], rows=4))
    assert [n for b in blocks for n in b.column("n").to_pylist()] == expected
    assert {b.num_rows for b in blocks} == {4, 2}
    pq.write_table(pa.table({"t": ["x"]}), folder / "z.parquet")
    with pytest.raises(DataError, match=r"z.parquet has no column 'n'"):
        read_table(folder, ["n"])


def test_an_empty_source_is_one_empty_block(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n")
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    for source in (tmp_path / "a.csv", tmp_path / "a.parquet", {"n": []}):
        for lenient in (True, False):
            assert [b.num_rows for b in read_blocks(source, ["n"], rows=5, lenient=lenient)] == [0]
