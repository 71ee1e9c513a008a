"""Text that a person can read: the one definition, for every name, purpose, reason and category.

What a steward approves must be what the screen shows. So a text from outside holds no character that a screen leaves
out, reorders or turns into something else: no control characters (they forge log lines and colours), no format
characters (U+202E writes the rest of the line backwards, U+200B is not there at all), no surrogates, private or
unassigned code points, no line or paragraph separators, no blank but U+0020, and none of the letters and marks that are
drawn as nothing.

A *name* is what people and rules find things by, so it has one spelling besides: Unicode's composed form (NFC). A
client's rule on the column ``état`` cannot be passed by a column spelt e + accent.

Look-alike letters of other alphabets are readable and stay allowed; see docs/attacks.md.
"""

from __future__ import annotations

import difflib
import itertools
import unicodedata
from collections.abc import Iterable, Iterator

from tallystick.core.errors import StudyError

_REFUSED = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
_KINDS = {
    "Cc": "a control character",
    "Cf": "an invisible format character",
    "Cs": "half a character (a surrogate)",
    "Co": "a private character",
    "Cn": "a character that does not exist",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
# Letters, marks and symbols that are drawn as nothing: Unicode's Default_Ignorable_Code_Point beyond category Cf, and
# the blank of braille. A name with one of them looks like the name without it.
_DRAWN_AS_NOTHING = frozenset(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0)
).union(range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))
MOST_MARKS = 8
"""Combining marks in a row. No language needs more; a hundred of them cover the lines above and below."""
_COMPARED = 200
_REMEDY = "Write it in plain letters, on one line."


def _looked_at(text: str, *, blanks: bool = False) -> Iterator[tuple[str, str | None]]:
    """Each character, and what makes it unreadable where it stands."""
    marks = 0
    for character in text:
        category = unicodedata.category(character)
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if category in _REFUSED:
            yield character, f"{_KINDS[category]}, U+{ord(character):04X}"
        elif category == "Zs" and character != " " and not blanks:
            yield character, f"a blank that is not the plain one, U+{ord(character):04X}"
        elif ord(character) in _DRAWN_AS_NOTHING:
            yield character, f"a character that is drawn as nothing, U+{ord(character):04X}"
        elif marks > MOST_MARKS:
            yield character, f"more than {MOST_MARKS} combining marks in a row"
        else:
            yield character, None


def what_is_unreadable(text: str, *, lines: bool = False, blanks: bool = False) -> str | None:
    """What makes this text unfit to be shown, in words that can be shown; None if nothing does.

    ``lines``: line ends and tabs are part of it, as in a program's text. ``blanks``: so are blanks of other widths, as
    in the cells of somebody's data.
    """
    plain = text.replace("\n", " ").replace("\t", " ") if lines else text
    if plain.isascii() and plain.isprintable():  # by far the most common, and quickly told
        return None
    return next((wrong for _, wrong in _looked_at(plain, blanks=blanks) if wrong is not None), None)


def what_is_wrong_with_name(text: str) -> str | None:
    """What makes this text unfit to be a name; None if nothing does."""
    wrong = what_is_unreadable(text)
    if wrong is not None or text.isascii():
        return wrong
    if not unicodedata.is_normalized("NFC", text):
        return "letters that are not in composed form (Unicode NFC)"
    if unicodedata.category(text[0]).startswith("M"):
        return "a combining mark at its beginning"
    return None


def check_readable(what: str, text: str, *, lines: bool = False) -> str:
    """The text itself, or a ``StudyError`` that says what a person could not read in it."""
    wrong = what_is_unreadable(text, lines=lines)
    if wrong is not None:
        raise StudyError(f"{what} holds {wrong}", rule="readable-text", remedy=_REMEDY)
    return text


def check_name(what: str, text: str) -> str:
    """The name itself, or a ``StudyError`` that says why it is none."""
    wrong = what_is_wrong_with_name(text)
    if wrong is not None:
        raise StudyError(f"{what} holds {wrong}", rule="readable-text", remedy=_REMEDY)
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`` Did you mean 'x'?`` with a blank before it, or nothing where no known name is close."""
    # Comparing takes a while, and what is compared may be a stranger's: the first names, and as much as one line holds.
    near = [v for v in itertools.islice(known, _COMPARED) if len(v) <= _COMPARED]
    found = difflib.get_close_matches(name, near, n=1, cutoff=0.5) if len(name) <= _COMPARED else []
    return f" Did you mean {found[0]!r}?" if found else ""


def escaped(text: str) -> str:
    """The text with everything unreadable spelt out, as it may go into a log or onto a screen."""
    if text.isascii() and text.isprintable():
        return text
    return "".join([c if wrong is None else _spelt(c) for c, wrong in _looked_at(text)])


def one_line(text: str, most: int = 500) -> str:
    """A text as it can be signed and shown: unreadable characters are blanks, and it is not too long."""
    clean = text[: most + 1]
    if not (clean.isascii() and clean.isprintable()):
        clean = "".join([c if wrong is None else " " for c, wrong in _looked_at(clean)])
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
