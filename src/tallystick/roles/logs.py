"""Structured logs without secrets: one line an event, control characters escaped, nothing computed from records."""

from __future__ import annotations

import json
import logging
import sys

from tallystick.core.errors import StudyError
from tallystick.core.readable_text import escaped

__all__ = ["configure_logs"]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{self.formatTime(record)} {record.levelname.lower():<7} {escaped(record.getMessage())}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": escaped(record.getMessage()),  # a peer's words cannot forge an entry (X30)
        }
        if record.exc_info:
            entry["fault"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure_logs(format: str) -> None:
    """Log to stderr, as text or as JSON lines."""
    if format not in ("text", "json"):
        raise StudyError(f"log format {format!r} is not known", remedy="Use text or json.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if format == "json" else _Text())
    root = logging.getLogger("tallystick")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
