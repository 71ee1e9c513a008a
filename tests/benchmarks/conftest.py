"""Fixtures of the figures' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """scikit-learn's threads, on a few hundred records and beside other tests, mostly wait for each other."""
    with threadpool_limits(1):
        yield
