"""Secrets that do not print.

Anything that must not reach a log, a traceback or a crash dump is wrapped: its
``repr`` tells type and length, nothing else.
"""

from __future__ import annotations

from typing import Any


class Secret:
    """Bytes that never show themselves; ``reveal()`` is the one, greppable, way to them."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """The bytes. Every call site is a place to review."""
        return self._value

    def __len__(self) -> int:
        return len(self._value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._value)} bytes)"

    def __eq__(self, other: object) -> bool:
        raise TypeError("secrets are not compared; use hmac.compare_digest on revealed bytes")

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        raise TypeError("secrets are not serialised")
