"""Which cells name one person: judged cell by cell, whatever the rest of the column holds.

A person whose records went by two names would be bounded twice, so equal values are one name however a file writes
them, as all cells are (:func:`tallystick.data.cell_rules.canonical_text`): 7, 7.0, Decimal("7.00"), "7", "7 ", "7.0"
and "7e0". Beyond that, "é" is one name in one code point or in two (Unicode's form C), and blanks and invisible
characters at either end do not count. Leading zeros are kept: "007" is not 7. A cell that names nobody (missing, blank,
a list) has no name.
"""

from __future__ import annotations

import unicodedata

from tallystick.data.cell_rules import canonical_text, plain

__all__ = ["canonical_identifier"]


def canonical_identifier(cell: object) -> str | None:
    """The one text that all spellings of an identifier have, or None if the cell names nobody."""
    value = plain(cell)
    return canonical_text(_bare(unicodedata.normalize("NFC", value)) if isinstance(value, str) else value)


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
