"""docs/two-hospitals.md is executed: every block marked ``<!-- tested -->``, in one shell, on ports that are free."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tallystick.application.demo.free_ports import free_ports

PAGE = (Path(__file__).parents[2] / "docs" / "two-hospitals.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- tested -->\n```sh\n(.*?)```", PAGE, re.DOTALL)


def test_from_two_files_to_a_private_answer(tmp_path: Path) -> None:
    script = "set -eu\ntrap 'kill $(jobs -p)' EXIT\n" + "\n".join(BLOCKS)
    ports = re.findall(r"127\.0\.0\.1:(\d+)", script)
    for stated, free in zip(ports, free_ports(len(ports)), strict=True):
        script = script.replace(f"127.0.0.1:{stated}", f"127.0.0.1:{free}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in tmp_path.glob("*.log"))
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{logs}"
    table = PAGE[PAGE.index("  term   ") : PAGE.index("...\n  accuracy")]
    assert table in done.stdout  # the simulation's own numbers: it is seeded
    for line in ("  accuracy            0.7429", "  without privacy     0.7400", "  majority class      0.6921"):
        assert line in done.stdout
        assert line in PAGE
    assert done.stdout.count("smoker=yes") >= 2  # the deployed answer is printed, too
    assert "result/result.json: everything in this result holds together." in done.stdout
    assert "all 4000 records can be used" in done.stdout
    assert (tmp_path / "coefficients.csv").read_text().startswith("term,")
    assert done.stdout.splitlines()[-1] == "['yes' 'no']"
