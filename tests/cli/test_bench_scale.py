"""``tallystick bench scale``, very small and without Spark: the measured code runs and gives figures."""

from __future__ import annotations

from pathlib import Path

from tallystick.bench import scale
from tallystick.engines.record_engine import LocalEngine


def test_a_round_over_generated_rows_and_a_sum_of_stored_shares(tmp_path: Path) -> None:
    scale._generate(tmp_path / "records", 3000)
    assert scale._round_seconds(LocalEngine(memory=0, rows=500), str(tmp_path / "records"), 3000) > 0
    assert scale._numpy_seconds(str(tmp_path / "records")) > 0
    summed = scale._server_sum(tmp_path, 6, 1000)
    assert summed["value"] > 0
    assert summed["ratio"] > 0
