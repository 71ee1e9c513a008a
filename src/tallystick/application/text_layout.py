"""How words are set: dates, sentences, paragraphs."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from textwrap import fill

_WIDTH = 100


def day(at: float) -> str:
    """A time in print, to the minute."""
    return f"{datetime.fromtimestamp(int(at), UTC):%Y-%m-%d %H:%M} UTC"


def at_most_sure(epsilon: float) -> str:
    """What epsilon means to one person: how sure somebody becomes of a guess that was even odds, e^ε to 1 after it."""
    better = math.exp(min(float(epsilon), 50.0))
    share = better / (1 + better)
    return f"at most {share:.0%} sure" if share < 0.995 else "as good as certain"


def sentence(text: str) -> str:
    """With its full stop."""
    return text if text.endswith(".") else f"{text}."


def paragraph(text: str, indent: int = 2) -> str:
    """Filled lines."""
    pad = " " * indent
    return fill(text, _WIDTH, initial_indent=pad, subsequent_indent=pad)
