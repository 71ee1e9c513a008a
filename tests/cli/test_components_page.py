"""docs/components.md: its Python runs and learns, its study is planned."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Run

PAGE = (Path(__file__).parents[2] / "docs" / "components.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_the_python_runs_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    text = block("python").replace(
        "ts.LogisticRegression()]", "ts.LogisticRegression(rounds=16)]"
    )  # for the time's sake
    made: dict[str, object] = {}
    exec(compile(text, "components.md", "exec"), made)
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.75


def test_the_study_is_planned(run: Callable[..., Run], tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text(block("toml"), encoding="utf-8")
    told = run("plan", study)
    assert told.code == 0
    assert "pca has 30% of the budget" in told.out
    assert "noise/party" in told.out
