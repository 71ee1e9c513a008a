"""The functions of ``map_in_client``: how many arguments each takes, and which keywords. Nothing else is callable.

Arguments go by position and there are exactly as many as stand here. That is what refuses an output array, which NumPy
takes by position after them; ``axis`` is given by name only.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """From ``least`` to ``most`` arguments by position, and these by name."""

    least: int
    most: int
    keywords: frozenset[str] = frozenset()

    def takes(self, arguments: int, names: Set[str | None]) -> bool:
        """Whether it takes so many arguments by position, and these by name."""
        return self.least <= arguments <= self.most and names <= self.keywords

    def words(self) -> str:
        """As a message says it."""
        number = str(self.least) if self.least == self.most else f"{self.least} or more"
        named = "".join(f", and {k}= by name" for k in sorted(self.keywords))
        return f"{number} argument{'' if number == '1' else 's'}{named}"


def _table(words: str, number: int, keywords: str = "") -> dict[str, Signature]:
    return dict.fromkeys(words.split(), Signature(number, number, frozenset(keywords.split())))


NUMPY: dict[str, Signature] = {
    **_table("abs absolute exp expm1 log log1p log2 log10 sqrt square sin cos tan arcsin arccos arctan", 1),
    **_table("sinh cosh tanh floor ceil trunc rint sign isnan isfinite isinf logical_not cumsum", 1),
    **_table("power arctan2 maximum minimum hypot logical_and logical_or dot outer searchsorted", 2),
    **_table("where clip", 3),
    **_table("sum prod max min mean var std any all argmax argmin concatenate", 1, "axis"),
    **_table("zeros ones array", 1, "dtype"),
    **_table("full", 2, "dtype"),
    **_table("zeros_like ones_like eye", 1),
    **_table("full_like", 2),
}
"""NumPy functions of ``map_in_client``."""

MATH: dict[str, Signature] = {
    **_table("sqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh", 1),
    **_table("erf erfc gamma lgamma fabs isnan isfinite isinf", 1),
    **_table("pow atan2 hypot copysign", 2),
}
"""Functions of ``math``, on numbers."""

BUILTINS: dict[str, Signature] = {
    **_table("len abs float int bool", 1),
    "min": Signature(2, 99),
    "max": Signature(2, 99),
    "range": Signature(1, 3),
}
"""Python's own."""


def signature_of(function: ast.expr) -> Signature | None:
    """Of what is called, written as ``len``, ``np.sum`` or ``math.exp``; None if it is not listed."""
    match function:
        case ast.Name(id=name):
            return BUILTINS.get(name)
        case ast.Attribute(value=ast.Name(id="np"), attr=name):
            return NUMPY.get(name)
        case ast.Attribute(value=ast.Name(id="math"), attr=name):
            return MATH.get(name)
    return None
