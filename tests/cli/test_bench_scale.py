"""``tallystick bench scale``, very small and without Spark: the measured code runs and gives figures."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tallystick import bench
from tallystick.bench import scale
from tallystick.core.errors import DataError, StudyError
from tallystick.engines.record_engine import LocalEngine


def test_a_round_over_generated_rows_and_a_sum_of_stored_shares(tmp_path: Path) -> None:
    scale._generate(tmp_path / "records", 3000)
    assert scale._round_seconds(LocalEngine(memory=0, rows=500), str(tmp_path / "records"), 3000) > 0
    assert scale._numpy_seconds(str(tmp_path / "records")) > 0
    assert scale._stream(str(tmp_path / "records"), 3000)[0] > 0
    summed = scale._server_sum(tmp_path, 6, 1000)
    assert summed["value"] > 0
    assert summed["ratio"] > 0


def test_a_case_by_itself_and_cases_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_server_sum", lambda _folder, clients, size: {"case": f"{clients} x {size}"})
    assert bench.run("scale", quick=True, cases=["server-sum"])["rows"] == [{"case": "200 x 20000"}]
    with pytest.raises(StudyError, match="no case 'cluster'") as caught:
        bench.run("scale", cases=["cluster"])
    assert "local-stream" in caught.value.remedy
    with pytest.raises(StudyError, match="no case 'local-round'"):
        bench.run("noise", cases=["local-round"])


def test_a_round_in_spark_that_is_asked_for_and_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a table without a row, and exit code 0."""
    monkeypatch.setattr(scale, "find_spec", lambda _name: None)
    with pytest.raises(DataError, match="Java or PySpark is not here"):
        scale.rows(quick=True, cases=["spark-round"])


def _dies(_folder: str, _count: int) -> tuple[float, float, float]:
    os._exit(9)


def test_a_measuring_process_that_dies_is_told_in_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ended without an answer") as caught:
        scale._apart(_dies, str(tmp_path), 1)
    assert caught.value.rule == "bench-unfinished"


def test_a_disk_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=9_000_000_000))
    with pytest.raises(DataError, match=r"10\.0 GB are to be generated, and 9\.0 GB are free"):
        scale.rows(cases=["local-stream"])
