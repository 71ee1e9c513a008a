"""The files of PEM's figures: one line per finished run, and tables."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError

__all__ = ["Cell", "finished_runs", "note_run", "read_table", "write_table"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of Figure 2. ``clients`` is 0 where the result does not depend on it: ours and PEM."""

    figure: str
    approach: str
    epsilon: float
    clients: int
    repeat: int


def finished_runs(path: Path | None) -> dict[Cell, tuple[float, float]]:
    """Every finished run: the measure, and the same without privacy."""
    if path is None or not path.is_file():
        return {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                Cell(
                    figure=r["figure"],
                    approach=r["approach"],
                    epsilon=float(r["epsilon"]),
                    clients=int(r["clients"]),
                    repeat=int(r["repeat"]),
                ): (float(r["value"]), float(r["baseline"]))
                for r in csv.DictReader(file)
            }
    except (OSError, KeyError, TypeError, ValueError):
        raise StudyError(f"{path} is not a list of runs", remedy="Delete it to start anew.") from None


def note_run(path: Path | None, cell: Cell, found: tuple[float, float]) -> None:
    """Add a line; the file is made with the first."""
    if path is None:
        return
    new = not path.is_file()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow([*(f.name for f in fields(Cell)), "value", "baseline"])
        writer.writerow([*asdict(cell).values(), *map(repr, found)])


def write_table(path: Path, table: list[dict[str, Any]]) -> None:
    """As CSV, numbers with six digits."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        for row in table:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def read_table(path: Path) -> list[dict[str, Any]]:
    """What :func:`write_table` wrote; whole numbers are integers again, words stay words."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
