"""Folders of Delta, Iceberg and Hudi tables are not read as plain Parquet: deleted records would come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tallystick.core.errors import DataError
from tallystick.data.content import content_digest
from tallystick.data.sources import read_blocks, read_table
from tallystick.roles.ledger.datasets import make_dataset

MARKS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v1.metadata.json",
}


def table_in(folder: Path, mark: str) -> Path:
    """Two files, of which the log knows one to be deleted."""
    (folder / mark).parent.mkdir(parents=True)
    (folder / mark).write_text("{}")
    (folder / "data").mkdir()
    for file in ("a.parquet", "data/b.parquet"):
        pq.write_table(pa.table({"age": [61]}), folder / file)
    return folder


@pytest.mark.parametrize("format", MARKS)
@pytest.mark.parametrize("named", ["", "data", "data/b.parquet", "..", "link"])
def test_a_table_is_refused_wherever_of_it_is_named(tmp_path: Path, format: str, named: str) -> None:
    """Also a folder with a table within it, and a link to a folder of one; when registered and when read."""
    folder = table_in(tmp_path / "lake" / "patients", MARKS[format])
    source = tmp_path / "link" if named == "link" else folder / named
    if named == "link":
        source.symlink_to(folder / "data")
    tries = (
        lambda: read_table(source),
        lambda: next(read_blocks(source, ["age"], rows=1)),
        lambda: content_digest(source),
        lambda: make_dataset("a", source),
    )
    for tried in tries:
        with pytest.raises(DataError, match=rf"\({format}\), or holds one: its files alone would bring back") as caught:
            tried()
        assert caught.value.rule == "table-folder"
        assert "delta:PATH" in str(caught.value.remedy)
    shutil.rmtree((folder / MARKS[format]).parent)
    assert read_table(source).num_rows == (1 if named.startswith("data") or named == "link" else 2)


def test_a_link_to_a_file_of_a_table_is_refused_in_a_folder_as_by_itself(tmp_path: Path) -> None:
    table, folder = table_in(tmp_path / "lake", MARKS["Delta"]), tmp_path / "records" / "more"
    folder.mkdir(parents=True)
    (folder / "b.parquet").symlink_to(table / "data" / "b.parquet")
    (folder / "circle").symlink_to(folder / "circle")
    for source in (folder / "b.parquet", folder, folder.parent):
        with pytest.raises(DataError) as caught:
            read_table(source)
        assert caught.value.rule == "table-folder"
    shutil.rmtree(table / "_delta_log")
    assert read_table(folder.parent).num_rows == 1


def test_what_only_looks_like_a_table_is_read(tmp_path: Path) -> None:
    """Metadata of somebody else's, a CSV file beside a table: nothing of it is in that log."""
    folder = tmp_path / "records"
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "notes.json").write_text("{}")
    pq.write_table(pa.table({"age": [61]}), folder / "a.parquet")
    assert read_table(folder).num_rows == 1
    (folder / "_delta_log").mkdir()
    (folder / "export.csv").write_text("age\n61\n")
    assert read_table(folder / "export.csv").num_rows == 1
