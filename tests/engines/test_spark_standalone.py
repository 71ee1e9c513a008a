"""A standalone master with two workers on loopback: the bits of one machine, an executor killed in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engines.engine_contract import in_memory
from tests.engines.spark_clusters import STANDALONE, kill_an_executor, spark_home, standalone_master
from tests.engines.test_spark_engine import spark_frame
from tests.trust.test_same_bits import SCHEMA, frames, states

import tallystick as ts
from tallystick.core.errors import DataError
from tallystick.engines.spark import session as sessions
from tallystick.engines.spark import watching
from tallystick.engines.spark.session import job, start_session

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # none is handed to it


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    spark_home()
    session = start_session(standalone_master(), STANDALONE)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def fed(spark: Any) -> ts.Federation:
    """Three institutions, in five partitions each."""
    return ts.Federation.simulate([spark_frame(spark, part, 5) for part in frames()], schema=SCHEMA, seed=11)


def test_an_executor_is_lost_with_its_cache(spark: Any, fed: ts.Federation) -> None:
    """The others go on, and what was cached there is encoded again."""
    states("logistic_regression", "servers", fed)
    assert kill_an_executor(spark.conf.get("spark.driver.port")) == 2
    assert tuple(states("logistic_regression", "servers", fed)) == in_memory("logistic_regression")


@pytest.mark.parametrize("program", ["kmeans", "frequent_itemsets", "pca"])
def test_the_bits_of_one_machine(fed: ts.Federation, program: str) -> None:
    assert tuple(states(program, "servers", fed)) == in_memory(program)


def test_a_cluster_that_has_nobody_free_ends_a_job(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the session that its cluster has ended is made anew."""
    spark.sparkContext._jsc.sc().stop()
    greedy = {**STANDALONE, "spark.executor.memory": "60g"}
    monkeypatch.setattr(watching, "_POLL_SECONDS", 0.2)
    monkeypatch.setattr(sessions, "WITHOUT_EXECUTORS_SECONDS", 2.0)
    session = start_session(standalone_master(), greedy)
    assert session is not spark
    with pytest.raises(DataError, match="had no executor for 2 seconds: a test") as caught:
        job(session.range(1).collect, session, "a test")
    assert caught.value.rule == "spark-job"
    session.stop()
    with pytest.raises(DataError, match="no Spark session could be had from 'nowhere'") as caught:
        start_session("nowhere", STANDALONE)
    assert caught.value.rule == "spark-session"
