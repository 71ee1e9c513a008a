"""A user's keywords, checked one by one: what is not meant that way is refused with what to write."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from tallystick.core.errors import StudyError


def flag(name: str, value: Any) -> bool:
    """True or false. ``--set program.fit_intercept=False`` is a text, and ``bool("False")`` would be true."""
    if not isinstance(value, (bool, np.bool_)):
        raise StudyError(
            f"{name} = {str(value)[:80]!r} is neither true nor false",
            rule="wrong-value",
            remedy=f"Write {name} = true or {name} = false, in small letters and without quotes.",
        )
    return bool(value)


def whole(name: str, value: Any, least: int, most: int) -> int:
    """A whole number in this range."""
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not real or not math.isfinite(value) or value != int(value):  # int() of NaN or infinity is no refusal of ours
        raise StudyError(f"{name} = {value!r} is not a whole number", remedy=f"Use {least} to {most}.")
    if not least <= value <= most:
        raise StudyError(f"{name} = {value} is out of range", remedy=f"Use {least} to {most}.")
    return int(value)


def whole_or_auto(name: str, value: Any, most: int) -> int | None:
    """A whole number from 1 on, or None for "auto"."""
    return None if isinstance(value, str) and value == "auto" else whole(name, value, 1, most)


def one_of(name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in known:
        raise StudyError(f"{name} = {value!r} is not known", remedy=f"Use {' or '.join(known)}.")
    return str(value)
