"""Consortia for the fault suite: every process is ended, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from consortium_fixture import Parties


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Parties]:
    """A consortium of 2 servers, an aggregator and 3 clients; nobody is running yet."""
    made = Parties(tmp_path)
    try:
        yield made
    finally:
        made.close()
