"""Real processes, mutual TLS, durable state: under the same seed the very bits of the simulation."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from consortium_fixture import Parties, bits, frames


def test_real_processes_give_the_bits_of_the_simulation(parties: Parties) -> None:
    parties.start()
    study = parties.study(rounds=3)
    real = parties.fit(study)
    simulated = parties.simulated(study)
    assert bits(real) == bits(simulated), parties.logs()
    assert real.contributors_ == simulated.contributors_
    assert real.privacy_.epsilon == simulated.privacy_.epsilon


def test_a_file_a_folder_and_a_table_of_a_database_are_records_alike(tmp_path: Path) -> None:
    """Every client keeps its records in another way; the studies' bits do not tell."""
    pytest.importorskip("sqlalchemy", reason='SQLAlchemy is not installed: pip install "tallystick[sql]"')
    first, second, third = frames(3)
    csv = tmp_path / "a.csv"
    csv.write_text("\n".join(["x,z,y", *(f"{x!r},{z!r},{y}" for x, z, y in _rows(first))]) + "\n")
    (tmp_path / "folder").mkdir()
    table = pa.table(second)
    for number, rows in enumerate((table.slice(0, 7), table.slice(7))):
        pq.write_table(rows, tmp_path / "folder" / f"{number}.parquet")
    with sqlite3.connect(tmp_path / "clinic.db") as database:
        database.execute("CREATE TABLE patients (x REAL, z REAL, y TEXT)")
        database.executemany("INSERT INTO patients VALUES (?, ?, ?)", _rows(third))
    database.close()
    sources = [str(csv), str(tmp_path / "folder"), f"sqlite:///{tmp_path}/clinic.db#SELECT x, z, y FROM patients"]
    parties = Parties(tmp_path / "parties", files=sources)  # type: ignore[arg-type]
    try:
        parties.start()
        study = parties.study(rounds=3)
        assert bits(parties.fit(study)) == bits(parties.simulated(study)), parties.logs()
    finally:
        parties.close()


def _rows(frame: dict[str, Any]) -> list[tuple[Any, ...]]:
    return list(zip(*(column.tolist() for column in frame.values())))
