"""Which numbers make sense: the one table, for studies, budgets and role files.

Accounting is exact from ρ on, but ε and δ pass through float64 first, and time limits, counts and sizes end up in
fields of fixed width, in memory and in people's patience. Within these ranges nothing overflows, underflows to 0 or
takes minutes; outside them a number is refused by its name. Every limit says why it is where it is. The privacy rules
that a number in range may still break are in :mod:`tallystick.privacy.rules`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import BoundsError, StudyError

MAX_EPSILON = 1e5
"""Above this an ε says nothing at all; `mechanism = "none"` is the honest word for it."""
MIN_EPSILON = 1e-6
"""ρ ≈ ε²/(4 ln(1/δ)) is kept in steps of 2^-80 ≈ 8·10^-25. At ε = 10^-6 and the smallest δ it is 10^-15, exact to nine
digits; at 10^-12 it would round to 0. At ε = 10^-6 the noise on a single count is several millions already."""
MIN_DELTA = 1e-100
"""1/δ is finite down to 10^-308. What is as unlikely as 10^-100 never happens, and costs 4 times the noise of 10^-6."""
MIN_SAMPLING = 1e-9
"""A total is divided by its rate q: noise and weights grow by 1/q. Below 10^-9 the sample of any data set is empty."""
MAX_ROUNDS = 100_000
MAX_COORDINATES = 1 << 24
"""A vector of 2^24 numbers is 128 MiB, held several times over by every party, before anybody has approved anything."""
MAX_COLUMNS = 20_000
"""Each column is looked at a dozen times while a plan is made: 20,000 take seconds."""
MAX_LABELS = 500_000
"""Categories, items and bins of all columns together. A study of 4 MiB, the longest that travels, holds no more."""
MAX_WHOLE = 1 << 62
"""Whole numbers under [program] and in column declarations: they fit 64 bits with room for a sign and a sum."""


@dataclass(frozen=True)
class Range:
    """The numbers from ``least`` to ``most``, both included; ``what`` it is that is out of range otherwise."""

    least: float
    most: float
    what: str

    def holds(self, value: Any) -> bool:
        """Whether this is a number in the range; NaN is in none."""
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.least <= value <= self.most

    def check(self, name: str, value: Any) -> None:
        """Raise :class:`StudyError` unless the value is a number in this range."""
        if not self.holds(value):
            shown = value if isinstance(value, float) or abs(value) < MAX_WHOLE else "a number of many digits"
            raise StudyError(
                f"{name} = {shown} is no {self.what}",
                rule="number-in-range",
                remedy=f"Use a number from {self.least:g} to {self.most:g}.",
            )


BUDGET_EPSILON = Range(MIN_EPSILON, MAX_EPSILON, "budget")
BUDGET_DELTA = Range(MIN_DELTA, math.nextafter(1, 0), "probability for a budget")


def check_whole_numbers(where: str, value: Any) -> None:
    """Refuse whole numbers beyond 2^62 anywhere in a value; whoever uses them may convert them as they are."""
    if isinstance(value, dict):
        for key, inner in value.items():
            check_whole_numbers(f"{where}.{key}", inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            check_whole_numbers(where, inner)
    elif isinstance(value, int) and not -MAX_WHOLE <= value <= MAX_WHOLE:
        raise StudyError(
            f"{where} is a number of {math.ceil(value.bit_length() * 0.30103)} digits",
            rule="number-in-range",
            remedy="Use a number of at most 62 bits.",
        )


def check_coordinates(what: str, size: int) -> int:
    """The size itself, or :class:`BoundsError` if no party could hold vectors of it; before anything is made."""
    if size > MAX_COORDINATES:
        raise BoundsError(
            f"{what} has {size} coordinates, and a vector has at most {MAX_COORDINATES}",
            rule="vector-size",
            remedy="Use fewer columns, categories, clusters or candidates.",
        )
    return size
