"""Fixtures of the command line's tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Run, clinic, runner, study_file


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return study_file(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return clinic(tmp_path)
