"""The Python of docs/tutorial.md that is in no file: the refused program and the last lines do what the page shows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Run

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)


def test_the_refused_program_is_refused_as_shown(run: Callable[..., Run], tmp_path: Path) -> None:
    noisy = tmp_path / "noisy.py"
    noisy.write_text(next(block for block in PYTHON if "class NoisyMean" in block), encoding="utf-8")
    shown = TUTORIAL.split("$ tallystick check-program noisy.py\n")[1].split("```")[0]
    told = run("check-program", noisy)
    assert told.code == 2
    assert told.out.splitlines()[1:] == shown.splitlines()[1:]
    assert "refused, 2 finding(s)" in shown


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_the_last_lines_print_what_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "programs")
    monkeypatch.delitem(sys.modules, "huber_regression", raising=False)
    exec(compile(PYTHON[-1], "tutorial", "exec"), {})
    assert f"`{capsys.readouterr().out.strip()}`" in TUTORIAL


def test_the_program_of_the_readme_may_run_as_a_file(run: Callable[..., Run], tmp_path: Path) -> None:
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    block = next(block for block in readme if "class Means" in block)
    means = tmp_path / "means.py"
    means.write_text("import tallystick as ts\n" + block.split("\nprint(ts.ProgramEstimator")[0])
    told = run("check-program", means)
    assert told.code == 0, told.out
