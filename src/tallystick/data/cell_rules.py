"""What one cell is, judged by itself: the definition that every column, file format and vectorised path answers to.

A cell is first made plain (:func:`plain`): missing, a truth value, a number, a text, a list of items, or no cell at
all. What it means then follows from the plain cell and from public declarations alone, never from another cell of its
column: one odd cell must not recode its neighbours.

Equal values are equal cells, however a file writes them: 1, 1.0, Decimal("1.00"), "1", " 1 ", "1.0" and "1e0" are one
category and one person, and so are True, "True", "TRUE" and "true" one category. A category is looked up as it is
written first, so that values declared as "250.0" and "250.00" stay two. Leading zeros are kept: "007" is not 7.

| plain cell    | as a number                            | as a category                    | as items             |
|---------------|----------------------------------------|----------------------------------|----------------------|
| missing       | missing                                | missing                          | missing              |
| true, false   | 1, 0                                   | by its spellings, or as 1, 0     | no cell              |
| number        | itself; the marker's number is missing | its shortest text                | no cell              |
| text          | the number it spells ("true": 1);      | the text without outer blanks;   | split at ";";        |
|               | blank or the marker: missing;          | blank or the marker: missing     | the marker: missing  |
|               | anything else: no cell                 |                                  |                      |
| list          | no cell                                | no cell                          | its elements         |
| other objects | no cell                                | no cell                          | no cell              |
"""

from __future__ import annotations

import math
import numbers
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from tallystick.study.declared_values import label_text

UNKNOWN = -1
"""The code of a category that is not declared."""
MISSING = -2
"""The code of a missing cell."""
NO_CELL = -3
"""The code of what is no category at all: a list, an object."""

ITEM_SEPARATOR = ";"
_BOOLEANS = {True: ("true", "True", "TRUE", "1"), False: ("false", "False", "FALSE", "0")}
_DECIMAL = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d{1,3})?", re.ASCII)
_ABSENT = ("NAType", "NaTType", "MaskedConstant")
_LARGEST = 10**400
_LONGEST = 400
"""Characters and digits beyond which a number is no label."""


@dataclass(frozen=True)
class NoCell:
    """An object that is neither a number, nor a text, nor a list; errors name its type, never its content."""

    type_name: str


Plain = None | bool | int | float | str | list[Any] | NoCell


def plain(value: object) -> Plain:
    """A cell as every library has it, in the few forms that are told apart; a list keeps its elements as they are."""
    if value is None or type(value) in (str, bool):
        return value  # type: ignore[return-value]
    if isinstance(value, np.generic) or type(value).__name__ in _ABSENT:
        return _plain_scalar(value)
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    if isinstance(value, int):
        return _plain_integer(int(value))
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", errors="replace")
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, numbers.Real):
        return _plain_real(value)
    if isinstance(value, datetime | date | time | timedelta | UUID) or _is_pandas_scalar(value):
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value)
    if isinstance(value, Mapping) and set(value) == {"no_cell"}:  # as an Arrow column keeps one
        return NoCell(str(value["no_cell"]))
    return value if isinstance(value, NoCell) else NoCell(type(value).__name__)


def _is_pandas_scalar(value: object) -> bool:
    """An interval, a period: what a column of pandas' own types holds."""
    return type(value).__module__.partition(".")[0] == "pandas" and not hasattr(value, "ndim")


def _plain_scalar(value: Any) -> Plain:
    """NumPy's scalars, and the libraries' own words for "missing"."""
    if type(value).__name__ in _ABSENT:
        return None
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
        item = value.item()
        if isinstance(item, int) and isinstance(value, np.datetime64):  # nanoseconds, or beyond Python's years
            item = value.astype("datetime64[us]").item()
        return NoCell(type(value).__name__) if isinstance(item, int) else str(item)
    if isinstance(value, np.floating):
        return plain(float(value))
    item = value.item()
    return NoCell(type(value).__name__) if isinstance(item, np.generic) else plain(item)


def _plain_integer(value: int) -> Plain:
    if abs(value) < _LARGEST:
        return value
    return math.inf if value > 0 else -math.inf  # no double holds it, and Python does not spell it out


def _plain_decimal(value: Decimal) -> Plain:
    if value.is_nan():
        return None
    if not value.is_finite() or abs(value.adjusted()) > 400:
        return float(value)
    return int(value) if value == value.to_integral_value() else _decimal_text(value)


def _plain_real(value: Any) -> Plain:
    try:
        return plain(float(value))
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return NoCell(type(value).__name__)


def _decimal_text(value: Decimal) -> str:
    """The shortest text of a number: that of the double if it is one, else all of its digits."""
    double = float(value)
    if math.isfinite(double) and Decimal(repr(double)) == value:
        return label_text(double)
    return str(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")


def _number_text(text: str) -> str:
    """A text that spells a decimal number, in that number's own text: "1.0" is "1". Others as they are."""
    return _decimal_text(Decimal(text)) if len(text) < _LONGEST and _DECIMAL.fullmatch(text) else text


def canonical_text(cell: object) -> str | None:
    """The one text that equal cells have: what names a person. None where there is none: missing, blank, a list.

    7, 7.0, "7", " 7 " and "7.0" are "7", whatever the rest of the column made of them.
    """
    value = plain(cell)
    if value is None or isinstance(value, list | NoCell):
        return None
    text = label_text(value)
    if text.lower() in ("true", "false"):
        return text.lower()
    return (_number_text(text) if isinstance(value, str) else text) or None


def canonical_identifier(cell: object) -> str | None:
    """The one text that all spellings of an identifier have, or None if the cell names nobody: missing, blank, a list.

    A person whose records went by two names would be bounded twice. So beyond :func:`canonical_text` "é" is one name in
    one code point or in two (Unicode's form C), and blanks and invisible characters at either end do not count.
    """
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


def is_marker(marker: str | None, text: str) -> bool:
    """Whether a text is the one that the study declares to mean "missing"."""
    return marker is not None and _number_text(text) == _number_text(marker.strip())


def is_blank_or(marker: str | None, text: str) -> bool:
    """Whether a text says that the value is missing."""
    return not text or is_marker(marker, text)


def as_number(cell: object, marker: str | None = None) -> float | None:
    """The number of a cell, NaN where it is missing; None for what is no number."""
    value = plain(cell)
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if is_blank_or(marker, text):
            return math.nan
        found = float(text.lower() == "true") if text.lower() in ("true", "false") else spelled_number(text)
        if found is None:
            return None
    elif isinstance(value, list | NoCell):
        return None
    else:
        try:
            found = float(value)
        except OverflowError:
            found = math.inf if value > 0 else -math.inf
    return math.nan if found == spelled_number(marker) else found


def spelled_number(text: str | None) -> float | None:
    """The number a text denotes, correctly rounded, or None; Python's digit grouping (1_000) is not a number."""
    if text is None or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def with_other_spellings(codes: Mapping[str, int]) -> dict[str, int]:
    """Declared texts with the number each spells ("1.0" is found as 1 too), where only one of them spells it."""
    out = dict(codes)
    numbers_of: dict[str, set[int]] = {}
    for text, code in codes.items():
        numbers_of.setdefault(_number_text(text), set()).add(code)
    for text, found in numbers_of.items():
        if len(found) == 1:
            out.setdefault(text, next(iter(found)))
    return out


def as_category(cell: object, codes: Mapping[str, int], marker: str | None = None) -> int:
    """The code of a cell by ``codes`` (:func:`with_other_spellings`); UNKNOWN, MISSING or NO_CELL if it has none."""
    value = plain(cell)
    if value is None:
        return MISSING
    if isinstance(value, list | NoCell):
        return NO_CELL
    text = label_text(value)
    for spelling in _spellings(value, text):
        if spelling in codes:  # a marker that is itself a declared value is that value
            return codes[spelling]
    return MISSING if is_blank_or(marker, text) else UNKNOWN


def _spellings(value: Plain, text: str) -> Iterator[str]:
    yield text
    if isinstance(value, str):
        yield _number_text(text)
    if text.lower() in ("true", "false"):
        yield from _BOOLEANS[text.lower() == "true"]


def as_items(cell: object, codes: Mapping[str, int], marker: str | None = None) -> tuple[list[int], int] | int:
    """(codes of a cell's items, how many are not declared), or MISSING or NO_CELL."""
    value = plain(cell)
    if value is None:
        return MISSING
    if isinstance(value, list):
        elements = value
    elif isinstance(value, str):
        text = value.strip()
        if is_marker(marker, text):  # a blank cell is the empty set, unless that is the marker
            return MISSING
        elements = [item for item in map(str.strip, text.split(ITEM_SEPARATOR)) if item]
    else:
        return NO_CELL
    found = [as_category(element, codes, marker) for element in elements]
    return [code for code in found if code >= 0], sum(code == UNKNOWN for code in found)
