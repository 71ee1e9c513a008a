"""Structured logs without secrets: one line an event, control characters escaped, nothing computed from records.

Nobody can fill the log. A line that tells what a member did carries the member (``extra={"member": name}``), and each
member has so many lines in a while; so has each kind of line that tells of nobody. What is left out is counted, and
told with the next line of the same kind.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable

from tallystick.core.allowance import Allowances
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import escaped

LINES_AT_ONCE, LINES_A_SECOND = 100, 0.2
_log = logging.getLogger("tallystick.roles")


def _message(record: logging.LogRecord) -> str:
    left_out = getattr(record, "left_out", 0)
    more = f" ({left_out} more lines like this were left out)" if left_out else ""
    return escaped(record.getMessage()) + more


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname.lower():<7} {_message(record)}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        if getattr(record, "member", None):
            entry["member"] = escaped(str(record.member))  # type: ignore[attr-defined]
        if record.exc_info:
            entry["fault"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class LineLimit(logging.Filter):
    """So many lines about each member, and so many of each kind that is about nobody."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._lines = Allowances(rate=LINES_A_SECOND, burst=LINES_AT_ONCE)
        self._left_out: dict[str, int] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        key = str(getattr(record, "member", None) or record.msg)
        with self._lock:
            if not self._lines.take(key, self._now()):
                self._left_out[key] = self._left_out.get(key, 0) + 1
                return False
            record.left_out = self._left_out.pop(key, 0)
        return True

    def left_out(self) -> dict[str, int]:
        """Lines left out since this was last asked, or since a line of the kind was last written."""
        with self._lock:
            told, self._left_out = self._left_out, {}
        return told


_limit: LineLimit | None = None


def tell_left_out() -> None:
    """Say of whom lines were left out, when no line of theirs has come since that could say it."""
    for key, count in (_limit.left_out() if _limit is not None else {}).items():
        _log.warning("left out %d lines about: %s", count, key)


def configure_logs(format: str) -> None:
    """Log to stderr, as text or as JSON lines."""
    global _limit
    if format not in ("text", "json"):
        raise StudyError(f"log format {format!r} is not known", remedy="Use text or json.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Text())
    _limit = LineLimit()
    handler.addFilter(_limit)
    root = logging.getLogger("tallystick")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
