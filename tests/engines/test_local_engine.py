"""The local engine out of core: records that do not fit stream through in blocks, with the bits of memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.engine_contract import EngineContract, Frame, exact
from tests.trust.test_same_bits import SCHEMA, STUDIES, frames

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.data.record_blocks import RecordBlocks, open_records
from tallystick.engines.block_map import in_parallel
from tallystick.engines.record_engine import LocalEngine
from tallystick.privacy.contribution import Dense
from tallystick.study import Study


def write(frame: Frame, folder: Path, files: int = 2) -> Path:
    """A folder of Parquet files."""
    folder.mkdir()
    columns = {n: pa.array(list(c), pa.list_(pa.string()) if n == "drugs" else None) for n, c in frame.items()}
    table = pa.table(columns)
    step = -(-table.num_rows // files) or 1
    for number in range(files):
        pq.write_table(table.slice(number * step, step), folder / f"part-{number}.parquet")
    return folder


class TestOutOfCore(EngineContract):
    """Nothing is kept from one block to the next."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path, self.made = tmp_path, 0

    @pytest.fixture(params=STUDIES)
    def program(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def federation(self, parts: list[Frame], split: int = 7, **options: Any) -> ts.Federation:
        sources = []
        for part in parts:
            self.made += 1
            sources.append(write(part, self.path / f"source-{self.made}"))
        fed = ts.Federation.simulate(sources, seed=11, **{"schema": SCHEMA, **options})
        fed.engine = LocalEngine(memory=0, rows=split)
        return fed

    def test_sampled_rounds_toss_the_coins_of_memory(self) -> None:
        raw = {
            "study": {"name": "s", "program": "logistic_regression", "target": "ill", "features": ["age", "dose"]},
            "program": {"rounds": 3},
            "privacy": {
                "epsilon": 1.0,
                "delta": 1e-6,
                "sampling": {"no": 0.25, "yes": 0.75},
                "neighbours": "add-remove",
            },
            "trust": {"model": "servers"},
            "data": {"records": 120, "columns": {n: SCHEMA.to_dict()[n] for n in ("age", "dose", "ill")}},
        }
        raw["study"]["accept_noise"] = True
        from tallystick.estimators.from_study import estimator_for

        found = []
        for fed in (self.memory(frames()), self.federation(frames()), self.federation(frames(), 1)):
            estimator, study = estimator_for(Study.from_dict(raw), None)
            estimator.fit_study(fed, study)
            found.append([float(x) for x in np.ravel(estimator.coef_)])
        assert found[0] == found[1] == found[2]


@pytest.fixture
def study() -> Study:
    return Study.from_dict(
        {
            "study": {"name": "s", "program": "summary", "features": ["age", "dose"]},
            "trust": {"model": "servers"},
            "data": {"columns": {n: SCHEMA.to_dict()[n] for n in ("age", "dose")}},
        }
    )


def test_what_fits_is_kept_and_what_does_not_is_read_anew(tmp_path: Path, study: Study) -> None:
    folder = write(frames()[1], tmp_path / "records")
    kept = open_records(study, folder, lenient=True, rows=7)
    read = open_records(study, folder, lenient=True, rows=7, memory=50 * 4 * 8 - 1)
    assert isinstance(read, RecordBlocks)
    assert not isinstance(kept, RecordBlocks)
    assert not isinstance(open_records(study, folder, lenient=True, rows=7, memory=50 * 4 * 8), RecordBlocks)
    assert (read.whole().features == kept.features).all()
    assert (read.whole().rows == np.arange(50)).all()
    assert len(read) == len(kept) == 50
    assert [len(block) for block in read] == [7, 7, 7, 4] * 2


def test_a_database_that_grows_beyond_what_is_stated_is_not_used(tmp_path: Path) -> None:
    """What is computed rests on the number: bounds of results, thresholds, circuits. Growing up to it is fine."""
    pytest.importorskip("sqlalchemy", reason='SQLAlchemy is not installed: pip install "tallystick[sql]"')
    raw = {
        "study": {"name": "s", "program": "summary", "features": ["dose"]},
        "trust": {"model": "servers"},
        "data": {"records": 4, "columns": {"dose": SCHEMA.to_dict()["dose"]}},
    }
    database = sqlite3.connect(tmp_path / "a.db")
    database.execute("CREATE TABLE t (dose REAL)")
    database.executemany("INSERT INTO t VALUES (?)", [(1.0,), (2.0,), (3.0,)])
    database.commit()
    blocks = open_records(Study.from_dict(raw), f"sqlite:///{tmp_path}/a.db#t", lenient=True, rows=2, memory=0)
    for count, more in ((3, 1.0), (4, 2.0)):
        assert sum(map(len, blocks)) == count
        database.execute("INSERT INTO t VALUES (?)", (more,))
        database.commit()
    database.close()
    with pytest.raises(DataError, match="grown while the study runs") as caught:
        list(blocks)
    assert caught.value.rule == "records-as-stated"


def test_what_is_in_a_line_does_not_decide_whether_a_grown_file_is_used(tmp_path: Path) -> None:
    """One more line than is stated: a record, or one with a cell too many."""
    raw = {
        "study": {"name": "s", "program": "summary", "features": ["dose"]},
        "trust": {"model": "servers"},
        "data": {"records": 4, "columns": {"dose": SCHEMA.to_dict()["dose"]}},
    }
    for last in ("5", "5,5"):
        file = tmp_path / "a.csv"
        file.write_text("dose\n1\n2\n3,3\n")
        blocks = open_records(Study.from_dict(raw), str(file), lenient=True, rows=2, memory=0)
        assert sum(map(len, blocks)) == 2
        file.write_text(f"dose\n1\n2\n3,3\n4\n{last}\n")
        with pytest.raises(DataError, match="grown while the study runs"):
            list(blocks)


@pytest.mark.parametrize("workers", [1, 2])
def test_items_are_closed_where_a_function_fails(workers: int) -> None:
    """With a generator of blocks goes its database's connection: SQLite's can be closed by its own thread only."""
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(True)

    def fails(item: int) -> int:
        return 1 // (item - 3)

    with pytest.raises(ZeroDivisionError):
        list(in_parallel(fails, items(), workers))
    assert closed == [True]


def test_an_error_in_a_late_block_names_the_row_of_the_source(tmp_path: Path, study: Study) -> None:
    file = tmp_path / "a.csv"
    file.write_text("age,dose\n" + "1,1\n" * 40 + "1,much\n" + "1,1\n" * 10)
    with pytest.raises(ts.TallystickError, match="first in row 41"):
        open_records(study, file, lenient=False, rows=8)
    found = open_records(study, file, lenient=True, rows=8, memory=0)
    assert found.tallies.first_unusable == {"dose": 41}
    assert (found.tallies.records, found.tallies.dropped) == (51, 1)


def test_a_database_streams_through_the_rounds(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason='SQLAlchemy is not installed: pip install "tallystick[sql]"')
    sources = []
    for number, part in enumerate(frames()):
        with sqlite3.connect(tmp_path / f"{number}.db") as database:
            database.execute("CREATE TABLE t (age INTEGER, dose REAL, ill TEXT)")
            rows = zip(part["age"].tolist(), part["dose"].tolist(), part["ill"].tolist())
            database.executemany("INSERT INTO t VALUES (?, ?, ?)", list(rows))
        database.close()
        sources.append(f"sqlite:///{tmp_path}/{number}.db#t")
    fed = ts.Federation.simulate(sources, schema=SCHEMA, seed=11)
    fed.engine = LocalEngine(memory=0, rows=16)
    names, model = ["age", "dose"], ts.LogisticRegression(rounds=2)
    expected = exact(ts.Federation.simulate(frames(), schema=SCHEMA, seed=11), model, features=names)
    assert exact(fed, model, features=names) == expected


def test_a_program_that_looks_at_its_block_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug of row independence: what is summed is less the block's mean."""
    from tallystick.algorithms.tables.summary import SummaryProgram

    honest = SummaryProgram.map_block

    def planted(self: Any, prepared: Any, state: Any) -> Dense:
        made = honest(self, prepared, state)
        values = np.asarray(getattr(made, "values", np.zeros((0, 1))), dtype=np.float64)
        return Dense(values=values - values.mean(axis=0, keepdims=True)) if values.ndim == 2 else made

    monkeypatch.setattr(SummaryProgram, "map_block", planted)
    fed = ts.Federation.simulate([write(frames()[0], tmp_path / "a")], schema=SCHEMA, seed=11)
    found = []
    for rows in (7, 1000):
        fed.engine, fed._encoded = LocalEngine(memory=0, rows=rows), {}
        found.append(exact(fed, ts.Summary(columns=["age", "dose"]), target=None))
    assert found[0] != found[1]


def test_no_more_blocks_are_in_memory_than_are_worked_on() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    done = in_parallel(lambda n: n * n, items(), 3)
    assert next(done) == 0
    assert len(taken) <= 5
    assert list(done) == [n * n for n in range(1, 20)]
