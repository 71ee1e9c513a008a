"""The Spark engine on ``local-cluster[2,1,1500]``: two executors, processes of their own; the bits of one machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.data.postgres_server import WORD, postgresql
from tests.engines.engine_contract import EngineContract, Frame, exact, whole
from tests.engines.spark_clusters import CLUSTER, CONF, JDBC_DRIVER, free_port, spark_home
from tests.trust.test_same_bits import OWN, SCHEMA, STUDIES, frames

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import DataError, StudyError
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.content import content_digest
from tallystick.engines.client_map import ClientMaps
from tallystick.engines.spark import session as sessions
from tallystick.engines.spark.executor import summing, total_of
from tallystick.engines.spark.records import SparkEngine
from tallystick.engines.spark.session import job, start_session
from tallystick.engines.spark.sources import reading_of
from tallystick.roles.ledger.fingerprints import fingerprint

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # none is handed to it
FEW = ("logistic_regression", "kmeans", "frequent_itemsets", "pca", OWN)
IN_ORDER = 2
"""Partitions as Spark cuts a list for two executors. Others are shuffled, and programs with a memory mind the order."""


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark_home()
    session = start_session(CLUSTER, CONF)
    yield session
    session.stop()


def spark_frame(session: Any, frame: Frame, partitions: int) -> Any:
    from pyspark.sql.types import (
        ArrayType,
        DoubleType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    kinds = {"age": LongType(), "dose": DoubleType(), "cost": DoubleType(), "drugs": ArrayType(StringType())}
    fields = [StructField(name, kinds.get(name, StringType())) for name in frame]
    columns = [[c.item() if hasattr(c, "item") else c for c in column] for column in frame.values()]
    columns = [[[str(d) for d in c] if isinstance(c, list) else c for c in column] for column in columns]
    made = session.createDataFrame(list(zip(*columns)), StructType(fields))
    return made if partitions == IN_ORDER else made.repartition(partitions)


class TestSpark(EngineContract):
    """Every institution's records are a Spark DataFrame."""

    splits = (1, 5)

    @pytest.fixture(autouse=True)
    def _session(self, spark: Any) -> None:
        self.session = spark

    @pytest.fixture(params=[p if p in FEW else pytest.param(p, marks=pytest.mark.audit) for p in STUDIES])
    def program(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def federation(self, parts: list[Frame], split: int = IN_ORDER, **options: Any) -> ts.Federation:
        made = [spark_frame(self.session, part, split) for part in parts]
        return ts.Federation.simulate(made, seed=11, **{"schema": SCHEMA, **options})

    def test_a_program_that_is_a_class_is_refused_with_the_reason(self) -> None:
        class Mean(ts.Program):
            rounds, bound = 1, 1.0

            def init(self, public: Any) -> float:
                return 0.0

            def map_in_client(self, record: Any, state: Any) -> Any:
                return record[:1]

            def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
                return float(total[0])

        with pytest.raises(StudyError, match="a Python class runs in this process only"):
            exact(self.federation(frames()), ts.ProgramEstimator(Mean()), target=None, features=["age"])

    def test_the_fingerprint_is_that_of_a_file(self) -> None:
        frame = {name: cells for name, cells in whole(frames()).items() if name != "drugs"}
        assert SparkEngine().content_digest(spark_frame(self.session, frame, 3)) == content_digest(
            {name: [c.item() if hasattr(c, "item") else c for c in cells] for name, cells in frame.items()}
        )

    def test_parquet_csv_and_orc_by_path_and_tables_by_name(self, tmp_path: Path) -> None:
        part = {name: cells for name, cells in frames()[0].items() if name != "drugs"}
        made = spark_frame(self.session, part, 2)
        made.write.parquet(str(tmp_path / "p"))
        made.write.csv(str(tmp_path / "c.csv"), header=True)
        made.write.orc(str(tmp_path / "o.orc"))
        made.createOrReplaceTempView("patients")
        engine, model = SparkEngine(master=CLUSTER, conf=CONF), ts.LogisticRegression(rounds=2)
        expected = exact(self.memory([part]), model, features=["age", "dose"])
        paths = [str(tmp_path / name) for name in ("p", "c.csv", "o.orc")]
        for source in (*paths, f"orc:{paths[2]}", "table:patients"):
            fed = ts.Federation.simulate([source], schema=SCHEMA, seed=11)
            fed.engine = engine
            assert exact(fed, model, features=["age", "dose"]) == expected

    def test_a_table_and_a_query_of_postgresql_through_jdbc(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """With the password that the client's environment has; a log of everything does not have it."""
        caplog.set_level("DEBUG")
        sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
        pytest.importorskip("pg8000", reason="the driver pg8000 is not installed")
        if not JDBC_DRIVER.exists():
            pytest.skip("PostgreSQL's driver for Java is not installed: make system (as root, where apt-get is)")
        monkeypatch.setenv(WORD, "hunter2")
        part, names = frames()[0], ["age", "dose"]
        expected = exact(self.memory([part]), ts.LogisticRegression(rounds=2), features=names)
        port = free_port()
        with postgresql(port=port, password="hunter2"):
            where = f"postgresql://reader:${{{WORD}}}@127.0.0.1:{port}/postgres"
            made = sqlalchemy.create_engine(f"postgresql+pg8000://reader:hunter2@127.0.0.1:{port}/postgres")
            with made.begin() as there:
                there.exec_driver_sql('CREATE TABLE "Patients" (age integer, dose double precision, ill text)')
                rows = zip(part["age"].tolist(), part["dose"].tolist(), part["ill"].tolist())
                there.exec_driver_sql('INSERT INTO "Patients" VALUES (%s, %s, %s)', list(rows))
                there.exec_driver_sql("CREATE SEQUENCE counter")
                there.exec_driver_sql("CREATE TABLE odd (n numeric, m numeric(9, 2))")
                there.exec_driver_sql("INSERT INTO odd VALUES (1e25, 1.50), ('NaN', 'NaN'), (1e-30, 2), (NULL, NULL)")
            made.dispose()
            engine = SparkEngine(master=CLUSTER, conf=CONF)
            for asked in ("Patients", "public.Patients", 'WITH p AS (SELECT * FROM "Patients") SELECT * FROM p'):
                fed = ts.Federation.simulate([f"{where}#{asked}"], schema=SCHEMA, seed=11)
                fed.engine = engine
                assert exact(fed, ts.LogisticRegression(rounds=2), features=names) == expected
            digest = engine.content_digest(f"{where}#Patients")
            assert digest == fingerprint(f"postgresql+pg8000{where.removeprefix('postgresql')}#Patients").content
            # Java fails at 1e25 and at NaN: one record would decide whether its institution takes part.
            for asked in ("odd", "SELECT * FROM odd -- all of it"):
                digest = engine.content_digest(f"{where}#{asked}")
                assert digest == fingerprint(f"postgresql+pg8000{where.removeprefix('postgresql')}#{asked}").content
            assert "hunter2" not in caplog.text
            with pytest.raises(DataError) as caught:  # read only
                engine.content_digest(f"{where}#SELECT nextval('counter')")
            assert "hunter2" not in str(caught.value)

    def test_what_is_not_there_is_named(self, tmp_path: Path) -> None:
        engine = SparkEngine(master=CLUSTER, conf=CONF)
        for source, words in (
            (str(tmp_path / "nowhere"), "sees no such file or folder"),
            ("table:nowhere", "catalogue has no such table"),
            ("delta:/srv/x", "no package here for records of this format"),
            ("iceberg:/srv/x", "no package here for records of this format"),
            ("mysql://reader@127.0.0.1/db#patients", "no driver here for this database"),
        ):
            with pytest.raises(DataError, match=words) as caught:
                engine.frame(source)
            assert caught.value.rule == "spark-source"

    def test_executors_with_another_tallystick_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = spark_frame(self.session, {"age": [1]}, 1)
        monkeypatch.setattr(sessions, "_checked", set())
        monkeypatch.setattr("tallystick.__version__", "0.0.1")
        with pytest.raises(DataError, match=r"executors have tallystick .* this process 0\.0\.1 on") as caught:
            SparkEngine().content_digest(frame)
        assert caught.value.rule == "spark-versions"

    def test_a_sample_s_sum_is_that_of_one_machine_over_the_same_blocks(self) -> None:
        from tests.engines.test_spark_sampling import order_of, sampled_study

        setup = sampled_study(120)
        made = spark_frame(self.session, {name: whole(frames())[name] for name in ("age", "ill")}, 5)
        records = SparkEngine().records(setup.study, made, party=None, lenient=True)

        def streams(*labels: bytes) -> AesStream:
            return AesStream(derive(bytes(32), *labels))

        mapped = ClientMaps(setup.study, setup.design.program, setup.template).of(records, streams, "a")
        plan, model = setup.sum_plan.rounds[0], pack_state(setup.design.program.query(setup.template))
        blocks = records.blocks.toArrow().to_batches()
        sums = []
        for round in (1, 2):
            sums.append(mapped.contribute(model, plan, round).tolist())
            coins = streams(setup.study.hash, b"coins", round.to_bytes(8, "little"), b"a").bytes(32)
            (row,) = [row for out in summing(order_of(setup, coins))(blocks) for row in out.to_pylist()]
            assert sums[-1] == total_of([row], plan.grid.size).tolist()
            assert 0 < mapped.mapped == row["mapped"] < 120
        assert sums[0] != sums[1]

    def test_an_executor_that_is_killed_changes_nothing(self) -> None:
        parts, model = frames(), ts.LogisticRegression(rounds=4)
        fed = self.federation(parts)
        fed.records(model.study_for(fed, target="ill", features=None))  # encoded, and in the executors' cache
        found = subprocess.run(["pgrep", "-P", str(_jvm(self.session))], capture_output=True, text=True, check=False)
        executors = [int(pid) for pid in found.stdout.split() if b"CoarseGrained" in _command(int(pid))]
        assert len(executors) == 2
        os.kill(executors[0], signal.SIGKILL)
        assert exact(fed, model) == exact(self.memory(parts), model)

    def test_what_fails_in_a_cluster_is_told_without_its_words(self) -> None:
        def broken(batches: Any) -> Any:
            raise ValueError("SECRET")
            yield from batches

        frame = self.session.range(1).mapInArrow(broken, "id long")
        with pytest.raises(DataError, match="Spark could not finish: a test") as caught:
            job(frame.collect, self.session, "a test")
        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_a_server_s_shares_are_summed_on_executors(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.roles.spool_shares import server_shares

    from tallystick.protocol.secure_sum.shares import sum_shares
    from tallystick.roles.shares import sharded_sum
    from tallystick.roles.shares.cluster_sum import ClusterSum
    from tallystick.roles.shares.spool import SpoolShares

    monkeypatch.setattr(sharded_sum, "LEAST_PIECE", 500)
    shares, agreed = server_shares(9, 4001), (0, 1, 2, 4, 5, 7, 8)
    store = SpoolShares(tmp_path)
    for share in shares:
        store.put(share)
    expected = sum_shares(store, 1, agreed, 4001)
    caplog.set_level("INFO", logger="tallystick.roles")
    with ClusterSum(CLUSTER, CONF) as summer:
        assert (summer.total(store, 1, agreed, 4001) == expected).all()
        assert [record.getMessage() for record in caplog.records] == ["executors summed 7 shares in 8 pieces"]
    asked = []

    def no_session(*_arguments: Any) -> Any:
        asked.append(1)
        raise DataError("no Spark session could be had")

    monkeypatch.setattr("tallystick.engines.spark.pieces.start_session", no_session)
    alone = ClusterSum("spark://nowhere:1", {})
    for _ in range(2):
        assert (alone.total(store, 1, agreed, 4001) == expected).all()
    assert caplog.text.count("the cluster did not sum, so this server does, for 10 minutes") == len(asked) == 1
    store.close()


def _jvm(session: Any) -> int:
    return int(session.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# -- without a cluster -------------------------------------------------------------------------------------------------


def test_what_a_source_s_text_means(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reading_of("table:clinic.patients")[:2] == ("table", "clinic.patients")
    assert reading_of("hdfs://node/patients")[:2] == ("parquet", "hdfs://node/patients")
    assert reading_of("s3a://b/x.orc")[0] == "orc"
    assert reading_of("delta:/srv/x")[:2] == ("delta", "/srv/x")
    assert reading_of("/srv/x.csv") == ("csv", "/srv/x.csv", {})  # by tallystick's own reader: no option of Spark's
    assert reading_of("/srv/x").options == {
        "recursiveFileLookup": "true",
        "datetimeRebaseMode": "CORRECTED",  # dates before 1582 as they are written, as on one machine
        "int96RebaseMode": "CORRECTED",
    }
    monkeypatch.setenv("PW", "a/b")
    jdbc = reading_of("postgresql+psycopg://reader:${PW}@db:5432/clinic?sslmode=verify-full#SELECT 1")
    assert jdbc[:2] == ("jdbc", None)
    assert jdbc.options == {
        "url": "jdbc:postgresql://db:5432/clinic?sslmode=verify-full",
        "query": "SELECT 1",
        "user": "reader",
        "password": "a/b",
        "fetchsize": "10000",
        "readOnly": "true",
        "driver": "org.postgresql.Driver",
    }
    assert reading_of("postgresql://db/clinic#Ward.Patients").options["dbtable"] == '"Ward"."Patients"'
    assert reading_of("mysql://db/clinic#ward.patients").options["dbtable"] == "ward.patients"


def test_without_java_or_pyspark_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    if "pyspark" in sys.modules or shutil.which("java"):
        pytest.importorskip("pyspark", reason="PySpark is not installed")
        monkeypatch.setattr(shutil, "which", lambda _name: None)
        monkeypatch.delenv("JAVA_HOME", raising=False)
        with pytest.raises(DataError, match="no Java on this machine") as caught:
            start_session("local[1]", {})
        assert "default-jre-headless" in caught.value.remedy
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(DataError, match="PySpark is not installed") as caught:
        start_session("local[1]", {})
    assert "tallystick[spark]" in caught.value.remedy


def test_without_the_packages_of_spark_connect_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    # In a worker of pytest-xdist the main module has no file, which PySpark takes for its own doctests.
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    with pytest.raises(DataError, match="Spark Connect needs packages") as caught:
        start_session("sc://127.0.0.1:1", {})
    assert "pyspark[connect]" in caught.value.remedy
