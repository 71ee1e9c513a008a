"""Folders that are tables: Delta, Iceberg and Hudi keep Parquet files beside a log that says which of them count.

Deleting or correcting a record writes new files and leaves the old ones where they are. Whoever reads the folder as
plain Parquet has records that were deleted, and both versions of those that were changed. So a folder that bears such a
log is refused, and so is one within it or around it, with and without Spark. That is decided by what a folder is, never
by a record in it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tallystick.core.errors import DataError


class Mark(NamedTuple):
    """By what a format is told: a folder in the table's, or the ending of a file in a folder of that name."""

    folder: str
    ending: str
    format: str


MARKS = (
    Mark("_delta_log", "", "Delta"),
    Mark(".hoodie", "", "Hudi"),
    Mark("metadata", ".metadata.json", "Iceberg"),
)


def refuse_table(format: str, where: str) -> DataError:
    """What is said of such a folder."""
    return DataError(
        f"{where} belongs to a table ({format}), or holds one: its files alone would bring back records that were "
        "deleted or replaced",
        rule="table-folder",
        remedy='Read it as the table that it is: engine = "spark" and source = "delta:PATH", "iceberg:PATH", '
        '"hudi:PATH" or "table:NAME" (docs/scale.md). Or write its present records to a folder apart, and name that.',
    )


def refuse_tables(path: Path) -> None:
    """Refuse a Parquet file or a folder of them that belongs to a table, has one within it, or links to its files."""
    for place in dict.fromkeys((*path.absolute().parents, path, *path.resolve().parents)):
        _refuse_marked(place, place)
    if path.is_dir():
        linked: set[Path] = set()
        for root, folders, files in os.walk(path):
            for mark in MARKS:
                if mark.folder in folders:
                    _refuse_marked(Path(root), path)
            links = [file for name in files if (file := Path(root, name)).is_symlink()]
            linked |= {Path(os.path.realpath(link)).parent for link in links}  # links in a circle, too, are no error
        for place in {above for folder in linked for above in (folder, *folder.parents)}:
            _refuse_marked(place, path)


def _refuse_marked(place: Path, named: Path) -> None:
    for mark in MARKS:
        if _is_there(place / mark.folder, mark.ending):
            raise refuse_table(mark.format, f"folder {named.name or named}")


def _is_there(folder: Path, ending: str) -> bool:
    try:
        return folder.is_dir() and (not ending or any(file.name.endswith(ending) for file in folder.iterdir()))
    except OSError:  # closed to this account: nothing is known of it, as of a folder that is not there
        return False
