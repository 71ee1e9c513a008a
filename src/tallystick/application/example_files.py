"""Two hospitals' invented records and a study of them, written for somebody who wants to try."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.data.examples import discharges

_RECORDS = {"north.csv": 4_000, "south.csv": 3_000}
_STUDY = """\
# Who comes back within 30 days? Two hospitals, and neither shows the other a record.
[study]
name = "readmission"
program = "logistic_regression"
target = "readmitted"
purpose = "which patients need a call after they are discharged"

[privacy]
epsilon = 1.0
delta = 1e-6

[trust]
model = "servers"
servers = 2
colluding = 1
min_clients = 2

[data]
records = 7000

[data.columns]
age = { type = "integer", lower = 18, upper = 100 }
sex = { type = "category", values = ["female", "male"] }
smoker = { type = "category", values = ["no", "yes"] }
bmi = { type = "number", lower = 15, upper = 45 }
days = { type = "integer", lower = 1, upper = 60 }
readmitted = { type = "category", values = ["no", "yes"] }
"""


def write(folder: Path) -> dict[str, Any]:
    """Make the folder and its files; those that are there already are somebody's own, and stay."""
    there = sorted(name for name in (*_RECORDS, "study.toml") if (folder / name).exists())
    if there:
        raise StudyError(f"{str(folder)!r} already holds {there[0]}", remedy="Name another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for seed, (name, records) in enumerate(_RECORDS.items(), start=1):
            discharges(records, seed=seed).write_csv(folder / name)
        (folder / "study.toml").write_text(_STUDY, encoding="utf-8")
    except OSError as error:
        raise StudyError(f"cannot write {str(folder)!r}: {error.strerror}", remedy="Name another folder.") from None
    return {"folder": str(folder), "records": dict(_RECORDS), "study": "study.toml"}


def describe(made: dict[str, Any]) -> str:
    """The same in words."""
    files = ", ".join(f"{name} ({records:,} records)" for name, records in made["records"].items())
    return f"{made['folder']}: {files}, {made['study']}. All of it is invented."
