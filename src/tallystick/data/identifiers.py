"""Which cells name one person: judged cell by cell, whatever the rest of the column holds.

A person whose records went by two names would be bounded twice, so equal values are one name however a file writes
them: 7, 7.0, Decimal("7.00"), "7", "7 ", "7.0" and "7e0"; "é" in one code point or in two (Unicode's form C). Blanks
and invisible characters at either end do not count. Leading zeros are kept: "007" is not 7. A cell that names nobody
(missing, blank, a list) has no name.
"""

from __future__ import annotations

import math
import numbers
import re
import unicodedata
from decimal import Decimal

import numpy as np

__all__ = ["canonical_identifier"]

_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d{1,3})?", re.ASCII)
_ABSENT = ("NAType", "NaTType", "MaskedConstant")
_LONGEST = 400
"""Characters beyond which a text is no number."""


def canonical_identifier(cell: object) -> str | None:
    """The one text that all spellings of an identifier have, or None if the cell names nobody."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or type(cell).__name__ in _ABSENT or isinstance(cell, list | tuple | set | dict | np.ndarray):
        return None
    if isinstance(cell, float | Decimal) and math.isnan(cell):
        return None
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, numbers.Integral):
        return str(int(cell))
    if isinstance(cell, float):
        return _shortest(Decimal(repr(cell))) if math.isfinite(cell) else repr(cell)
    if isinstance(cell, Decimal):
        return _shortest(cell) if cell.is_finite() and abs(cell.adjusted()) < _LONGEST else str(cell)
    text = bytes(cell).decode("utf-8", errors="replace") if isinstance(cell, bytes | bytearray) else str(cell)
    text = _bare(unicodedata.normalize("NFC", text))
    if len(text) < _LONGEST and _DECIMAL.fullmatch(text):
        return _shortest(Decimal(text))
    return text or None


def _shortest(number: Decimal) -> str:
    """All the digits of a number and no more: 7, 7.5, 0.001; minus zero is 0."""
    whole = number.to_integral_value()
    return str(int(whole)) if number == whole else format(number.normalize(), "f")


def _bare(text: str) -> str:
    """Without blanks, control and format characters at its ends (a mark of byte order, a space of no width)."""
    first, last = 0, len(text)
    while first < last and _unseen(text[first]):
        first += 1
    while first < last and _unseen(text[last - 1]):
        last -= 1
    return text[first:last]


def _unseen(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")
