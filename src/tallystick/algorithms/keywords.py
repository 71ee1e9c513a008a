"""A user's keywords, checked one by one: what is not meant that way is refused with what to write."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from tallystick.core.errors import StudyError


def wrong_target(title: str, target: str | None, wanted: str, *, rule: str, instead: str = "") -> StudyError:
    """Of a program whose target is not there, or of the wrong kind; ``instead`` does what may have been meant."""
    if target is None:
        return StudyError(
            f"{title} needs {wanted} as its target, and none is named",
            rule="target-is-named",
            remedy='Name the column to be learned: fit(fed, target="ill") in Python, target = "ill" under [study] in a '
            "study file.",
        )
    return StudyError(
        f"{title} needs {wanted} as its target, and {target!r} is declared as something else",
        rule=rule,
        remedy=f"Name another target, declare this one as {wanted}, or use {instead}.",
    )


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
