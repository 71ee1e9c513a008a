"""Two nurseries of locked children for all tests of this folder: one as shipped, one that checks nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tallystick.engines.sandbox.children import Children, Limits

BYPASS = Path(__file__).with_name("sandbox_bypass.py")


@pytest.fixture(scope="session")
def children() -> Iterator[Children]:
    """As in a role."""
    with closing(Children(limits=Limits(memory_bytes=256 << 20))) as all_of_them:
        yield all_of_them


@pytest.fixture(scope="session")
def unchecked_children() -> Iterator[Children]:
    """Children that check nothing of what they are told to run, behind the same lock."""
    command = (sys.executable, "-I", "-B", str(BYPASS))
    with closing(Children(limits=Limits(memory_bytes=256 << 20), command=command)) as all_of_them:
        yield all_of_them


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Other limits for one test."""

    def change(of: Children, **limits: float) -> None:
        monkeypatch.setattr(of, "limits", dataclasses.replace(of.limits, **limits))  # type: ignore[arg-type]

    return change
