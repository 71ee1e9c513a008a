"""Study files, and the program files beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tallystick.core.errors import StudyError
from tallystick.core.outside_text import TOML_BYTES
from tallystick.data.files import read_text
from tallystick.study import Study
from tallystick.study import json_schema as json_schema

PROGRAM_BYTES = 4 << 20


def load_study(path: Path, settings: tuple[str, ...] = ()) -> tuple[Study, Path]:
    """The study of a file, and the folder its program file would be in."""
    if path.suffix.lower() in (".csv", ".tsv", ".parquet", ".json", ".py"):
        raise StudyError(
            f"{path.name!r} is not a study: a study is a TOML file",
            rule="study-unreadable",
            remedy="Name the study first, and records with --data: tallystick simulate study.toml --data records.csv. "
            "examples/ has studies to begin with.",
        )
    return Study.parse(read_text(path, limit=TOML_BYTES, what="the study"), settings=settings), path.parent


def read_program_from(folder: Path) -> Callable[[str], str]:
    """How ``program = "….py"`` is read: beside the study."""

    def read(name: str) -> str:
        return read_text(
            folder / name, limit=PROGRAM_BYTES, what="the program", remedy="Paths are relative to the study."
        )

    return read


def check_records_stated(study: Study) -> None:
    """Refuse a study that leaves out how many records there are though its privacy makes that public."""
    if study.data.records is None and study.counts_are_public:
        raise StudyError(
            "replace-one makes the number of records public, and the study does not state it",
            rule="replace-one-needs-records",
            remedy="Add `records = …` under [data], or pass --records N.",
        )
