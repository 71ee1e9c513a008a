"""``tallystick bench network``, small: every row is there, nothing is left running or lying about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

CASES = ["throughput-fsync", "throughput-no-fsync", "server-memory", "vector-10m"]


def test_quick_rows(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tallystick.cli.main", "bench", "network", "--quick", "--format", "json"]
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
    for row in result["rows"]:
        assert row["value"] > 0
        assert row["reference"] > 0
        assert row["ratio"] > 0
    assert not list(tmp_path.glob("tallystick-bench-*"))


def test_no_deployed_role_can_spool_without_fsync() -> None:
    """The spool that does not sync is in the bench alone."""
    source = Path(__file__).parents[2] / "src" / "tallystick"
    named = [file.name for file in source.rglob("*.py") if "_UnsyncedShares" in file.read_text()]
    assert named == ["network_parties.py"]
    importers = [file.name for file in source.rglob("*.py") if "network_parties" in file.read_text()]
    assert sorted(importers) == ["network.py"]
