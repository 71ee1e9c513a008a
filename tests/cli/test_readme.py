"""README.md is executed: every block marked ``<!-- tested -->``, and what it shows is what was printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- (tested|printed) -->\n```(\w*)\n(.*?)```", PAGE, re.DOTALL)
TIMES = re.compile(r"\d+\.\d s$")


def test_every_block_runs_and_prints_what_is_shown(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    python, printed = "", ""
    for mark, language, block in BLOCKS:
        if mark == "printed":
            said = [TIMES.sub("", line) for line in printed.splitlines()]
            for line in block.splitlines():
                assert line == "..." or TIMES.sub("", line) in said, line
            continue
        python += block if language == "python" else ""
        command = ["bash", "-euc", block] if language == "sh" else [sys.executable, "readme.py"]
        (tmp_path / "readme.py").write_text(python)  # a block goes on from the one before it
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PATH": path, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout
    assert [mark for mark, *_ in BLOCKS] == ["tested", "printed", "tested", "printed", "tested"]


def test_no_block_is_left_out() -> None:
    """But for the two commands that CI runs, and a picture."""
    unmarked = re.findall(r"(?<!-->\n)```(\w*)\n(.*?)```\n", PAGE, re.DOTALL)
    assert [block.split()[0] for language, block in unmarked if language] == ["make"]
