"""Fixtures of the command line's tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_runs import Run, clinic, runner, study_file


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A role that a test starts sets up the log, to a stream that is gone after the test."""
    log = logging.getLogger("tallystick")
    handlers, level, propagate = list(log.handlers), log.level, log.propagate
    yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    return runner(capsys)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return study_file(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return clinic(tmp_path)
