"""Data sets of a client: what is registered, and how the same records are known again."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.core.errors import StudyError
from tallystick.privacy.account import DataSet, Fingerprint

__all__ = ["DataSet", "Fingerprint", "check_dataset", "check_distinct"]


def check_dataset(dataset: DataSet) -> None:
    """What a registration must say."""


def check_distinct(dataset: DataSet, others: Iterable[DataSet], *, party: str) -> None:
    """Records registered already must share that registration's budget group."""
    for other in others:
        shared = dataset.fingerprint.shared_with(other.fingerprint)
        if shared is not None and other.group != dataset.group:
            raise StudyError(
                f"these records are registered already as {other.name!r}: {shared}",
                rule="source-registered-once",
                party=party,
                remedy=f"Let both share one budget: --group {other.group}.",
            )
