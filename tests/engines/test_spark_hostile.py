"""What a hostile reader tried on Spark: odd files and names, secrets on disk, a Java that dies, a cluster without room.

In this process's own Spark, ``local[1]``: what is tried is what this side says to it, not where executors run.
"""

from __future__ import annotations

import datetime
import gzip
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.spark_clusters import CONF, STANDALONE, spark_home, standalone_master
from tests.roles.spool_shares import server_shares

import tallystick as ts
from tallystick.core.errors import DataError, TallystickError
from tallystick.data.content import content_digest
from tallystick.data.sources import read_table
from tallystick.engines.client_map import DistantRecords
from tallystick.engines.federation import SimulatedFederation
from tallystick.engines.record_engine import LocalEngine
from tallystick.engines.spark.pieces import on_executors
from tallystick.engines.spark.records import SparkEngine
from tallystick.engines.spark.session import start_session
from tallystick.engines.spark.sources import reading_of
from tallystick.protocol.secure_sum.shares import sum_shares
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.shares import sharded_sum
from tallystick.roles.shares.cluster_sum import ClusterSum
from tallystick.roles.shares.spool import SpoolShares
from tallystick.study import Study
from tallystick.trust.servers.server import _SpoolingServer

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # none is handed to it
MASTER = "local[1]"
ZONE = CONF | {"spark.sql.session.timeZone": "Europe/Berlin"}
ENGINE = SparkEngine(master=MASTER, conf=ZONE)
AGES = ts.Schema({"age": ts.Number(0, 90)})


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark_home()
    yield start_session(MASTER, ZONE)
    start_session(MASTER, ZONE).stop()  # whichever there is by then


def study_of(schema: ts.Schema) -> Study:
    raw = {"study": {"name": "s", "program": "summary"}, "trust": {"model": "servers"}}
    return Study.from_dict(raw | {"data": {"columns": schema.to_dict()}})


def rows_of(source: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in ENGINE.frame(source).collect()]


# -- one record decides nothing about others ---------------------------------------------------------------------------


def test_a_quote_that_nothing_closes_swallows_no_other_record(spark: Any, tmp_path: Path) -> None:
    """Spark's own reader takes the next quote, three records on, for its end. Blank lists of items stay lists."""
    file = tmp_path / "a.csv"
    file.write_text('age, drugs\n61,a\n62,"b\n40,c\n17,\n35,"d"\n20,"e;\nf"\n50,a,b\n51\n')
    found = rows_of(str(file))
    assert [row["age"] for row in found] == ["61", "40", "17", "35", "20"]
    assert found == read_table(str(file), lenient=True).to_pylist()
    assert ENGINE.content_digest(str(file)) == content_digest(str(file))


def test_files_of_a_folder_have_one_header(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a.csv"
    folder.mkdir()
    (folder / "1.csv").write_text("age,dose\n61,1\n")
    (folder / "2.csv.gz").write_bytes(gzip.compress(b"age,dose\n62,2\n"))
    assert sorted(row["age"] for row in rows_of(str(folder))) == ["61", "62"]
    (folder / "3.csv").write_text("dose,age\n1,61\n")
    with pytest.raises(DataError, match="do not begin with the same line of names"):
        ENGINE.content_digest(str(folder))
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(DataError, match="nothing in it"):
        ENGINE.frame(str(tmp_path / "b.csv"))


def test_json_whose_columns_one_record_could_recode_is_refused() -> None:
    for source in ("json:/srv/x", "/srv/x.json"):
        with pytest.raises(DataError, match="one of them would decide about others"):
            reading_of(source)


# -- what one machine reads --------------------------------------------------------------------------------------------


def test_folders_in_a_folder_are_read_and_their_names_are_no_columns(spark: Any, tmp_path: Path) -> None:
    for number, where in enumerate(("", "more", "year=2020")):
        (tmp_path / "p" / where).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"age": [number], "year": [5]}), tmp_path / "p" / where / "x.parquet")
    expected = read_table(str(tmp_path / "p")).to_pylist()
    assert sorted(rows_of(str(tmp_path / "p")), key=str) == sorted(expected, key=str)


def test_names_with_signs_and_instants_of_another_zone_are_those_of_a_file(spark: Any, tmp_path: Path) -> None:
    when = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
    table = pa.table({"a.b": [1], "c`d": [2], "when": pa.array([when], pa.timestamp("us", "UTC"))})
    file = str(tmp_path / "a.parquet")
    pq.write_table(table, file)
    assert ENGINE.content_digest(file) == content_digest(file)
    schema = ts.Schema({"a.b": ts.Number(0, 2), "when": ts.Category(["2020-01-01 12:00:00+00:00"])})
    for engine in (ENGINE, LocalEngine()):
        assert engine.records(study_of(schema), file, party=None, lenient=True).tallies.unknown == {}


def test_names_that_differ_in_capitals_only_are_refused_in_words(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"Age": [1], "age": [2]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="capitals do not tell columns apart"):
        ENGINE.frame(str(tmp_path / "a.parquet"))


# -- what stays behind -------------------------------------------------------------------------------------------------


def cached(session: Any) -> int:
    return int(session.sparkContext._jsc.getPersistentRDDs().size())


def frame_of(session: Any, ages: list[str]) -> Any:
    return session.createDataFrame([(age,) for age in ages], "age string")


def test_a_first_job_that_fails_leaves_nothing_in_the_cluster_s_cache(spark: Any) -> None:
    before = cached(spark)
    with pytest.raises(TallystickError, match="holds text that is not one"):
        ENGINE.records(study_of(AGES), frame_of(spark, ["61", "forty"]), party=None, lenient=False)
    assert cached(spark) == before


def test_records_read_by_another_schema_replace_those_in_the_cache(spark: Any) -> None:
    before, made = cached(spark), ts.Federation.simulate([frame_of(spark, ["61", "62"])])
    assert isinstance(made, SimulatedFederation)
    made.records(study_of(AGES))
    assert cached(spark) == before + 1
    (records,) = made.records(study_of(ts.Schema({"age": ts.Number(0, 100)})))
    assert isinstance(records, DistantRecords)
    assert cached(spark) == before + 1
    records.forget()
    assert cached(spark) == before


def test_a_check_of_the_data_leaves_nothing_in_the_cache(spark: Any) -> None:
    before = cached(spark)
    assert ts.Federation.simulate([frame_of(spark, ["61", "62"])]).check(AGES).together.used == 2
    assert cached(spark) == before


def test_records_that_a_client_may_not_use_are_forgotten(spark: Any) -> None:
    """More than the study is stated for: the error comes when they are in the cache already."""
    before, raw = cached(spark), {"study": {"name": "s", "program": "summary"}, "trust": {"model": "servers"}}
    asked = Study.from_dict(raw | {"data": {"records": 1, "columns": AGES.to_dict()}})
    session = ClientSession.__new__(ClientSession)
    session._map, session._untold = None, None
    session.setup = SimpleNamespace(study=asked)  # type: ignore[assignment]
    session.part = SimpleNamespace(prepare=lambda records: records)  # type: ignore[assignment]
    frame = frame_of(spark, ["61", "62"])
    session.process = SimpleNamespace(  # type: ignore[assignment]
        source=lambda: "in the cluster",
        open_records=lambda study: ENGINE.records(study, frame, party="client-1", lenient=True),
    )
    with pytest.raises(DataError, match="stated for 1 records in all"):
        session._records()
    assert cached(spark) == before


def test_an_order_with_seeds_is_never_a_file(spark: Any) -> None:
    """PySpark writes orders beyond a megabyte into the folder of temporary files, where no erasure would find them."""
    many = secrets.token_bytes(2 << 20)
    found = on_executors(MASTER, ZONE, lambda low, high: len(many[low:high]).to_bytes(8, "little"), [(0, 9)], "a test")
    assert [made for _, made in found] == [(9).to_bytes(8, "little")]
    left = [file for file in Path(spark.sparkContext._temp_dir).rglob("*") if file.is_file()]
    assert [file for file in left if many[:64] in file.read_bytes() or file.stat().st_size > 1 << 20] == []


# -- a cluster that fails ----------------------------------------------------------------------------------------------


def test_a_java_that_was_killed_is_started_anew(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [61, 62]}), tmp_path / "a.parquet")
    frame = ENGINE.frame(str(tmp_path / "a.parquet"))
    java = spark.sparkContext._gateway.proc
    os.kill(java.pid, signal.SIGKILL)
    java.wait()
    with pytest.raises(DataError):  # typed, so that a client sits the round out and goes on
        ENGINE.records(study_of(AGES), frame, party=None, lenient=True)
    assert len(rows_of(str(tmp_path / "a.parquet"))) == 2
    start_session(MASTER, ZONE).stop()


def test_a_server_whose_cluster_has_no_room_waits_no_longer_than_it_may(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sharded_sum, "LEAST_PIECE", 500)
    start_session(MASTER, ZONE).stop()
    store = SpoolShares(tmp_path)
    for share in server_shares(9, 4001):
        store.put(share)
    try:
        with ClusterSum(standalone_master(), STANDALONE | {"spark.executor.memory": "900g"}) as summer:
            machine = _SpoolingServer.__new__(_SpoolingServer)
            machine.summer, machine._shares = summer, store
            machine.parameters = SimpleNamespace(agreement_seconds=2.0, size=4001)  # type: ignore[assignment]
            current: Any = SimpleNamespace(record=SimpleNamespace(round=1))
            assert (machine._sum(current, (0, 1, 2)) == sum_shares(store, 1, (0, 1, 2), 4001)).all()
    finally:
        store.close()
        start_session(MASTER, ZONE).stop()
    assert "Spark has had no executor for 1 seconds" in caplog.text
