"""How words are set: dates, sentences, paragraphs."""

from __future__ import annotations

from datetime import UTC, datetime
from textwrap import fill

_WIDTH = 100


def day(at: float) -> str:
    """A time in print, to the minute."""
    return f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M} UTC"


def sentence(text: str) -> str:
    """With its full stop."""
    return text if text.endswith(".") else f"{text}."


def paragraph(text: str, indent: int = 2) -> str:
    """Filled lines."""
    pad = " " * indent
    return fill(text, _WIDTH, initial_indent=pad, subsequent_indent=pad)
