"""Checks of what a study declares about its columns: bounds, labels, keys; and the text that a label is compared by."""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tallystick.core.caller import for_caller
from tallystick.core.errors import BoundsError, StudyError
from tallystick.core.outside_text import DIGITS
from tallystick.core.readable_text import did_you_mean, what_is_unreadable

_SMALLEST_WIDTH = float(np.finfo(np.float64).tiny)


def label_text(value: object) -> str:
    """The canonical text of a category, so that 1, 1.0, "1" and " 1 " are one category in every file format."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value.is_integer() else repr(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace").strip()
    return str(value).strip()


def plain(value: Any) -> Any:
    """NumPy scalars as Python ones and sequences as tuples of such, so that a schema compares, prints and serialises
    as it was meant; a lone text is no sequence, and what is neither is left for ``check`` to refuse."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return value
    return tuple(plain(v) for v in value)


def shown(value: float) -> str:
    """A declared number in a feature name: 25, not 25.0."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def impossible(name: str, cause: str, *, remedy: str, rule: str | None = None) -> BoundsError:
    """What cannot be declared of a column."""
    return BoundsError(f"column {name!r}: {cause}", remedy=remedy, rule=rule)


def is_finite(value: Any) -> bool:
    """Whether this is a number that a double can hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def check_bounds(name: str, kind: str, lower: Any, upper: Any) -> None:
    """Refuse bounds that are no finite range."""
    for which, value in (("lower", lower), ("upper", upper)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise impossible(name, f"{which} is not a number", remedy=paste_bounds(name, kind))
        if not is_finite(value):
            raise impossible(name, f"{which} is not finite", remedy=paste_bounds(name, kind))
    if lower > upper:
        raise impossible(
            name,
            f"lower ({lower}) is above upper ({upper})",
            remedy=f"Exchange them: lower = {upper}, upper = {lower}.",
        )
    width = float(upper) - float(lower)
    if width < _SMALLEST_WIDTH:
        raise impossible(
            name,
            f"lower and upper are equal or nearly so ({lower})",
            remedy="Declare the range the value can publicly take, or leave the column out.",
        )
    if not math.isfinite(width):
        raise impossible(name, "the range is wider than a double", remedy="Declare narrower bounds.")


def paste_bounds(name: str, kind: str = "number") -> str:
    """The remedy of a missing bound: the line to paste."""
    line = for_caller(
        python=f'"{name}": ts.{kind.capitalize()}(lower, upper)',
        toml=f'{name} = {{ type = "{kind}", lower = ..., upper = ... }} under [data.columns]',
    )
    return f"Declare public bounds: {line}. They are never taken from the data."


def check_labels(name: str, what: str, values: Any) -> None:
    """Refuse a list of public values that is empty, ambiguous or unreadable."""
    if not isinstance(values, tuple):
        written = for_caller(python=f"{what}=", toml=f"{what} = ")
        raise impossible(name, f"{what} is not a list", remedy=f'Write {written}["a", "b"].')
    if not values:
        raise impossible(name, f"{what} is empty", remedy="List at least one public value.")
    seen: set[str] = set()
    for value in values:
        if not isinstance(value, str | bool | int | float):
            raise impossible(name, f"{what} holds a {type(value).__name__}", remedy="Use text, integers or booleans.")
        if isinstance(value, int) and abs(value) >= 10**DIGITS:
            raise impossible(name, f"{what} holds a number of more than {DIGITS} digits", remedy="Use text.")
        if isinstance(value, float) and math.isinf(value):
            raise impossible(name, f"{what} holds infinity", remedy="Use text, integers or booleans.")
        text = label_text(value)
        wrong = what_is_unreadable(text, blanks=True)
        if wrong is not None:
            raise impossible(
                name,
                f"{what} holds a value with {wrong}",
                rule="readable-text",
                remedy="Write it in plain letters: people decide by what they read.",
            )
        if not text or text == "nan":
            raise impossible(
                name,
                f"{what} holds an empty value",
                remedy="Blank cells are missing values; declare `missing` instead.",
            )
        composed = unicodedata.normalize("NFC", text)  # two spellings of one word look the same on every screen
        if composed in seen:
            raise impossible(name, f"{what} lists {text!r} twice", remedy="List each value once.")
        seen.add(composed)


def refuse_unknown(where: str, table: Any, valid: Sequence[str]) -> None:
    """Unknown keys are errors that name the key and the closest valid one."""
    if not isinstance(table, Mapping):
        raise StudyError(f"{where} is not a table", remedy=f"Write {{ {' = ..., '.join(valid)} = ... }}.")
    for key in table:
        if key not in valid:
            raise StudyError(
                f"{where}: unknown key {key!r}",
                remedy=f"Keys are {', '.join(valid)}.{did_you_mean(str(key), valid)}",
            )
