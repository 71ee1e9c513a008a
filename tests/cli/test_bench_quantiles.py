"""``tallystick bench quantiles``, small: every row is there, nothing is left lying about; the slow network is slow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.bench.draws import Drawers
from tallystick.bench.quantiles import planned_question, planned_questions, some_totals
from tallystick.bench.share_intake import take_in
from tallystick.bench.slow_links import Network

CASES = [
    "draw-3-1000", "draw-3-4096", "draw-3-records-1e3", "draw-3-records-1e4", "draw-3-1000-wan",
    "input-accepted", "input-summed", "counts-seconds", "counts-rounds", "counts-rank-error",
]  # fmt: skip


def test_quick_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tallystick.cli.main", "bench", "quantiles", "--quick", "--format", "json"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [row["case"] for row in result["rows"]] == CASES
    assert all(row["value"] > 0 for row in result["rows"] if row["case"] != "counts-rank-error")
    draws = [row for row in result["rows"] if row["case"].startswith("draw-")]
    assert all(row["layers"] > 0 and row["bytes_per_party"] > 0 for row in draws)
    assert not list(tmp_path.glob("tallystick-bench-*"))


def test_a_slow_network_holds_every_layer_back() -> None:
    question = planned_question(1000)
    with Drawers(3, network=Network(delay_seconds=0.01, bytes_per_second=1e7)) as drawers:
        drawn = drawers.select(question, some_totals(question, 1000))
    assert drawn.seconds >= 0.01 * drawn.layers


@pytest.mark.parametrize(("records", "cells"), [(10**6, 1000), (500, 131_072)])
def test_the_question_is_the_product_s(records: int, cells: int) -> None:
    (question,) = planned_questions(records)
    assert question.cells == cells
    totals = some_totals(question, records)
    assert (len(totals), sum(totals)) == (question.values, records)


def test_shares_taken_in_are_checked_against_the_counts() -> None:
    taken = take_in(50, 20)
    assert taken.accepting > 0
    assert taken.summing > 0
    assert taken.megabytes > 50 * 8 * 22 / 3 / 1e6
