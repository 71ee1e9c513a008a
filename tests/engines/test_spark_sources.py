"""What Spark is asked to read, how a source is known again, and that its files are told as one machine tells them."""

from __future__ import annotations

import bz2
import gzip
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from tests.data.test_table_folders import MARKS, table_in
from tests.engines.spark_clusters import CONF, spark_home

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.data.content import content_digest
from tallystick.data.sources import read_table
from tallystick.engines.record_engine import LocalEngine
from tallystick.engines.spark import session as sessions
from tallystick.engines.spark.records import SparkEngine
from tallystick.engines.spark.session import job, start_session
from tallystick.engines.spark.sources import location_of, reading_of, settled_spark_source
from tallystick.roles.ledger.datasets import make_dataset
from tallystick.roles.processes.client_session import check_stated
from tallystick.study import Study

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # none is handed to it
MASTER = "local[1]"
ENGINE = SparkEngine(master=MASTER, conf=CONF)


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark_home()
    yield start_session(MASTER, CONF)
    start_session(MASTER, CONF).stop()


# -- how a source is written -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "format", "path"),
    [
        ("/srv/x", "parquet", "/srv/x"),
        ("/srv/x.parquet/", "parquet", "/srv/x.parquet/"),
        ("/srv/x.PQ", "parquet", "/srv/x.PQ"),
        ("/srv/x.csv/", "csv", "/srv/x.csv/"),
        ("/srv/x.CSV.GZ", "csv", "/srv/x.CSV.GZ"),
        ("/srv/x.tsv", "csv", "/srv/x.tsv"),
        ("s3a://lake/x.csv.zst", "csv", "s3a://lake/x.csv.zst"),
        ("HDFS://name/x.orc", "orc", "HDFS://name/x.orc"),
        ("Orc:/srv/x", "orc", "/srv/x"),
        ("DELTA:s3a://lake/x", "delta", "s3a://lake/x"),
        ("hudi:/srv/x", "hudi", "/srv/x"),
        ("parquet:/srv/x.csv", "parquet", "/srv/x.csv"),
        ("Table:clinic.patients", "table", "clinic.patients"),
        ("/srv/a:b/x.csv", "csv", "/srv/a:b/x.csv"),
        ("/srv/2026.csv/part", "parquet", "/srv/2026.csv/part"),
        ("file:/srv/x.csv", "csv", "file:/srv/x.csv"),
    ],
)
def test_a_source_is_read_by_its_prefix_else_by_its_name(source: str, format: str, path: str) -> None:
    assert reading_of(source)[:2] == (format, path)


@pytest.mark.parametrize("source", ["JSON:/srv/x", "/srv/x.json/", "/srv/x.jsonl", "hdfs://name/x.json.gz"])
def test_json_is_refused_however_it_is_written(source: str) -> None:
    with pytest.raises(DataError, match="one of them would decide about others"):
        reading_of(source)


def test_a_path_is_kept_absolute_and_known_again_however_it_is_written() -> None:
    folder = Path("/srv/role")
    kept = {
        "x.csv": "/srv/role/x.csv",
        "CSV:x": "csv:/srv/role/x",
        "delta:/srv/x": "delta:/srv/x",
        "delta:s3a://lake/x": "delta:s3a://lake/x",
        "iceberg:db.patients": "iceberg:db.patients",
        "file:/srv/x": "file:/srv/x",
        "hdfs:/srv/x": "hdfs:/srv/x",
        "Table:a.b": "table:a.b",
        "file": "/srv/role/file",
    }
    assert {source: settled_spark_source(source, folder=folder) for source in kept} == kept
    for same in ("/srv/x", "/srv/x/", "parquet:/srv/x", "CSV:/srv//x", "file:/srv/x", "file:///srv/x"):
        assert location_of(same) == "/srv/x"
    assert location_of("delta:s3a://lake/x/") == location_of("s3a://lake/x") == "s3a://lake/x"
    assert location_of("postgresql://me@Host/db#SELECT  1") == location_of("postgresql://host/db#SELECT 1")


# -- what must not be seen ---------------------------------------------------------------------------------------------


def test_the_keys_of_a_store_are_in_no_command_line_and_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every account of a machine can read command lines, and PySpark puts all settings into Java's."""
    spark_home()
    from pyspark import SparkContext

    told: dict[str, str] = {}
    masks: list[int] = []

    def launched(conf: Any) -> None:
        told.update(conf.getAll())
        masks.append(os.umask(0o022))
        os.umask(masks[-1])

    for name in ("_gateway", "_jvm"):
        monkeypatch.setattr(SparkContext, name, None)
    monkeypatch.setattr(SparkContext, "_ensure_initialized", launched)
    before = os.umask(0o022)
    try:
        keys = ("spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.azure.account.key.x", "spark.ssl.keyPassword",
                "spark.hadoop.fs.s3a.encryption.key")  # fmt: skip
        sessions._launch({"spark.driver.memory": "1g", **dict.fromkeys(keys, "hunter2")})
        assert os.umask(before) == 0o022
    finally:
        os.umask(before)
    assert told == {"spark.driver.memory": "1g"}
    assert masks == [0o077]  # Spark's files in /tmp, encoded records among them, are this account's alone
    assert "hunter2" not in repr(SparkEngine(conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"}))


def test_a_session_s_token_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    spark_home()

    class Failing:
        def __getattr__(self, name: str) -> Any:
            if name == "getOrCreate":
                raise RuntimeError("no")
            return lambda *_: self

    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Failing())
    monkeypatch.setattr(sessions, "_bury", lambda: None)
    with pytest.raises(DataError, match=r"could be had from 'sc://spark\.example:443/' \(") as caught:
        start_session("sc://spark.example:443/;use_ssl=true;token=hunter2", {})
    assert "hunter2" not in f"{caught.value!r}{caught.value}"


# -- with Spark --------------------------------------------------------------------------------------------------------


def summary_of_ages(records: int) -> Study:
    raw = {"study": {"name": "s", "program": "summary"}, "trust": {"model": "servers"}}
    columns = ts.Schema({"age": ts.Number(0, 90)}).to_dict()
    return Study.from_dict(raw | {"data": {"records": records, "columns": columns}})


@pytest.mark.parametrize("format", MARKS)
def test_a_table_s_folder_is_refused_by_spark_as_well(spark: Any, tmp_path: Path, format: str) -> None:
    folder = table_in(tmp_path / "lake" / "patients", MARKS[format])
    for named in (folder, folder / "data", folder / "data" / "b.parquet", tmp_path, f"file://{folder}/"):
        with pytest.raises(DataError, match="its files alone would bring back records") as caught:
            ENGINE.frame(str(named))
        assert caught.value.rule == "table-folder"
    with pytest.raises(DataError, match=rf"\({format}\)"):
        make_dataset("a", folder, engine=ENGINE)


BAD = 'age,b\n61,1\n62\n"x\n40,2\n17,3,4\nforty,5\n,6\n'


def test_lines_that_are_no_record_are_counted_by_spark_as_on_one_machine(spark: Any, tmp_path: Path) -> None:
    """A folder of them, a packed one, one with nothing but such lines."""
    study = summary_of_ages(100)
    (tmp_path / "a.csv").write_text(BAD)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(BAD[:9].encode()) + gzip.compress(BAD[9:].encode()))
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(BAD.encode()))
    (tmp_path / "none.csv").write_text("age,b\n1\n2\n")
    for file in sorted(tmp_path.iterdir()):
        here = LocalEngine().records(study, str(file), party=None, lenient=True).tallies
        there = ENGINE.records(study, str(file), party=None, lenient=True).tallies
        assert here.broken == (2 if file.name == "none.csv" else 3)
        for name in ("records", "broken", "dropped", "unusable", "missing", "dropped_by", "spans", "reasons"):
            assert getattr(there, name) == getattr(here, name), (file.name, name)
        assert there.left_out() == here.left_out()
        assert ENGINE.content_digest(str(file)) == content_digest(str(file))
    folder = ENGINE.records(study, f"csv:{tmp_path}/*", party=None, lenient=True).tallies
    assert (folder.records, folder.broken) == (12, 11)


def test_records_that_have_changed_are_read_anew(spark: Any, tmp_path: Path) -> None:
    """Spark would give what it has cached of the same path, for a study of the same columns, as long as it is there."""
    study = summary_of_ages(9)
    for name, write in (("a.parquet", pq.write_table), ("a.csv", pc.write_csv)):
        file = str(tmp_path / name)
        for ages in ([61, 17], [62]):
            write(pa.table({"age": ages}), file)
            tallies = ENGINE.records(study, file, party=None, lenient=True).tallies
            assert (tallies.records, tallies.spans["age"]) == (len(ages), (min(ages), max(ages)))


def test_what_is_in_a_line_does_not_decide_whether_a_client_takes_part(spark: Any, tmp_path: Path) -> None:
    """Two files that differ in one record, of which one is no record: both have one more than is stated."""
    study, file = summary_of_ages(2), tmp_path / "a.csv"
    for last in ("17,3", "17,3,4"):
        file.write_text(f"age,b\n61,1\n62,2\n{last}\n")
        for engine in (LocalEngine(), ENGINE):
            found = engine.records(study, str(file), party=None, lenient=True).tallies
            with pytest.raises(DataError, match="stated for 2 records in all, and there are 3 here alone"):
                check_stated(study, found.records + found.broken)


def test_of_a_csv_file_only_names_and_counts_come_to_this_process(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header was once cut from the file's first megabyte here."""
    from pyspark.sql.classic.dataframe import DataFrame

    brought: list[Any] = []

    def watched(name: str) -> None:
        was = getattr(DataFrame, name)

        def watching(self: Any, *arguments: Any) -> Any:
            found = was(self, *arguments)
            brought.append(found)
            return found

        monkeypatch.setattr(DataFrame, name, watching)

    for name in ("collect", "head", "toArrow"):
        watched(name)
    file = tmp_path / "a.csv"
    file.write_text("age,name\n61,Jane Roe\n")
    ENGINE.content_digest(str(file))
    ENGINE.records(summary_of_ages(1), str(file), party=None, lenient=True)
    assert "age" in str(brought)
    assert "Jane" not in str(brought)


def test_a_packed_file_that_ends_too_early_is_refused_as_on_one_machine(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b"age,b\n" + os.urandom(30_000).hex().encode() + b",1\n61,2\n")[:-300])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(file, lenient=True)
    with pytest.raises(DataError, match="ends too early") as caught:
        ENGINE.content_digest(str(file))
    assert caught.value.rule == "spark-source"


def test_files_that_spark_cannot_read_are_told_in_words(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "half.parquet").write_bytes(b"PAR1 half of it")
    (tmp_path / "a:b.csv").write_text("age\n61\n")
    for file in ("half.parquet", "a:b.csv"):
        with pytest.raises(DataError, match="cannot read one of the files") as caught:
            ENGINE.frame(str(tmp_path / file))
        assert caught.value.rule == "spark-source"
    with pytest.raises(DataError, match="no such file or folder") as caught:
        ENGINE.frame(str(tmp_path / "nowhere.csv.gz"))
    assert "orc:/srv/x" in str(caught.value.remedy)

    def closed() -> None:
        raise RuntimeError("java.io.FileNotFoundException: /srv/x (Permission denied)")

    with pytest.raises(DataError, match="may not read these records"):
        job(closed, spark, "opening the source")


def test_what_pyspark_logs_of_a_failed_query_does_not_quote_records(
    spark: Any, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    spark.createDataFrame([("forty",)], "age string").createOrReplaceTempView("ages")
    with caplog.at_level(logging.DEBUG), pytest.raises(DataError, match="could not finish"):
        job(spark.sql("SELECT CAST(age AS INT) FROM ages").collect, spark, "a test")
    assert "forty" not in caplog.text + "".join(capfd.readouterr())


def test_a_session_that_was_stopped_and_a_port_that_is_taken_are_told_in_words(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [61]}), tmp_path / "a.parquet")
    frame = ENGINE.frame(str(tmp_path / "a.parquet"))
    spark.stop()
    with pytest.raises(DataError, match="has ended its session") as caught:
        ENGINE.records(summary_of_ages(1), frame, party=None, lenient=True)
    assert caught.value.rule == "spark-session"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = {"spark.driver.port": str(taken.getsockname()[1]), "spark.port.maxRetries": "0"}
        with pytest.raises(DataError, match="another process has that port") as caught:
            start_session(MASTER, CONF | port)
    assert caught.value.rule == "spark-session"
    assert start_session(MASTER, CONF).range(3).count() == 3
