"""The rule for texts in messages, written a second time for the plain decoders."""

from __future__ import annotations

import re
import unicodedata

_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)


def readable(text: str) -> bool:
    """Printable, nothing drawn as nothing, no flood of marks."""
    marks = "".join("m" if unicodedata.category(c) in ("Mn", "Me") else "." for c in text)
    return text.isprintable() and not _NOTHING.search(text) and "m" * 9 not in marks
