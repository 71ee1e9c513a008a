"""``tallystick data add`` at a client whose records are in Spark: they are looked for there, not in this folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_runs import Run
from tests.engines.spark_clusters import CONF, spark_home

from tallystick.data.content import content_digest
from tallystick.engines.spark.session import start_session

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")  # none is handed to it
MASTER = "local[1]"


def test_records_in_spark_are_registered_as_they_lie_there(run: Callable[..., Run], tmp_path: Path) -> None:
    spark_home()
    folder = tmp_path / "con"
    assert run("consortium", "create", "Trial", "--out", folder).code == 0
    server = ("--role", "server", "--address", "127.0.0.1:7001")
    assert run("consortium", "enrol", "server-1", "--in", folder, *server).code == 0
    assert run("consortium", "enrol", "clinic", "--role", "client", "--in", folder, "--data", "a.csv").code == 0
    config = folder / "clinic" / "role.toml"
    pairs = ", ".join(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in CONF.items())
    text = config.read_text().replace("[role]", '[role]\nengine = "spark"')
    config.write_text(f'{text}\n[spark]\nmaster = "{MASTER}"\nconf = {{ {pairs} }}\n')
    pq.write_table(pa.table({"age": [61, 62]}), tmp_path / "a.parquet")
    session = start_session(MASTER, CONF)
    try:
        session.read.parquet(str(tmp_path / "a.parquet")).createOrReplaceTempView("patients")
        words = ("--budget-epsilon", 1, "--format", "json", "--config", config)
        made = run("data", "add", "patients", "--source", "table:patients", *words)
        assert made.code == 0, made.err
        assert made.json["source"] == "table:patients"
        shown = run("data", "describe", "patients", "--format", "json", "--config", config).json
        assert shown["fingerprint"]["content"] == content_digest(tmp_path / "a.parquet")
        refused = run("data", "add", "others", "--source", "table:nowhere", *words)
        assert refused.code != 0
        assert "catalogue has no such table" in refused.err + refused.out
    finally:
        session.stop()
