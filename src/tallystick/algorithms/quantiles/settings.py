"""A user's keywords for quantiles, checked: the same for the estimator and for a study's [program]."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallystick.algorithms.keywords import one_of
from tallystick.algorithms.program import Public
from tallystick.core.caller import for_caller
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import did_you_mean

METHODS = ("counts", "exponential", "subranges")
WEIGHTS = ("epsilon", "ln2", "ln2/2^d")
"""Of a draw by subranges."""
MOST_QUANTILES = 100


@dataclass(frozen=True, kw_only=True)
class QuantileSettings:
    """Which quantiles, of which columns, for which groups."""

    q: tuple[float, ...] = (0.5,)
    column: tuple[str, ...] = ()
    by: str | None = None
    method: str = "counts"
    weights: str = "epsilon"


def quantile_settings(keywords: Mapping[str, Any]) -> QuantileSettings:
    """What the keywords mean; what is out of range is refused with the range."""
    method = one_of("method", keywords.get("method", "counts"), METHODS)
    return QuantileSettings(
        q=quantiles_asked(keywords.get("q", (0.5,))),
        column=columns_asked(keywords.get("column")),
        by=by_asked(keywords.get("by")),
        method=method,
        weights=weights_asked(keywords.get("weights"), method),
    )


def weights_asked(weights: Any, method: str) -> str:
    """Of a draw by subranges; the other methods have none that could be chosen."""
    asked = one_of("weights", "epsilon" if weights is None else weights, WEIGHTS)
    if asked != "epsilon" and method != "subranges":
        written = for_caller(python='method="subranges"', toml='method = "subranges"')
        raise StudyError(
            f"weights = {asked!r} with method = {method!r}, which has no such weights",
            rule="weights-are-of-subranges",
            remedy=f"Leave weights out, or use {written}.",
        )
    return asked


def by_asked(by: Any) -> str | None:
    """The column to group by."""
    if by is not None and not isinstance(by, str):
        example = for_caller(python='by="sex"', toml='by = "sex"')
        raise StudyError(
            f"by = {str(by)[:80]!r} is not a column",
            rule="by-is-a-category",
            remedy=f"Name one category, as in {example}, or leave it out.",
        )
    return by


def quantiles_asked(given: Any) -> tuple[float, ...]:
    """Shares from 0 to 1, each once, ascending."""
    values = given.tolist() if isinstance(given, np.ndarray) else given
    values = [values] if isinstance(values, numbers.Real) else values
    example = for_caller(python="q=(0.25, 0.5, 0.75)", toml="q = [0.25, 0.5, 0.75]")
    remedy = f"Give shares from 0 (the smallest) to 1 (the largest), each once, as in {example}."
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence) or not len(values):
        raise StudyError(f"q = {str(given)[:80]!r} asks for no quantile", rule="quantiles-are-shares", remedy=remedy)
    for value in values:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not real or not 0 <= value <= 1:  # NaN is not; and compared exactly, whatever an integer's size
            said = f"{str(value)[:80]!r}" if isinstance(value, (str, Sequence)) else f"{value!s:.80}"
            raise StudyError(f"q holds {said}, which is no share", rule="quantiles-are-shares", remedy=remedy)
    asked = tuple(sorted(abs(float(v)) for v in values))  # −0.0 is the smallest as well, and has one name
    if len(set(asked)) != len(asked):
        raise StudyError("q names a quantile twice", rule="quantiles-are-shares", remedy=remedy)
    if len(asked) > MOST_QUANTILES:
        raise StudyError(
            f"q asks for {len(asked)} quantiles",
            rule="vector-size",
            remedy=f"Ask for at most {MOST_QUANTILES}; a histogram (Summary) tells of a whole distribution.",
        )
    return asked


def columns_asked(given: Any) -> tuple[str, ...]:
    """The columns as a tuple of names, each once; none where all numbers are meant."""
    if given is None:
        return ()
    names = (given,) if isinstance(given, str) else given
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise StudyError(
            f"column = {str(given)[:80]!r} is not a column",
            rule="column-is-named",
            remedy="Name a number or integer column, as in "
            + for_caller(python='column="age"', toml='column = "age"')
            + ", or several in a list.",
        )
    if len(set(names)) != len(names):
        raise StudyError("column names a column twice", rule="column-is-named", remedy="Name each column once.")
    return tuple(names)


def _has_target(target: str) -> StudyError:
    return StudyError(
        f"quantiles have no target, and the study names {target!r}",
        rule="quantiles-have-no-target",
        remedy="Leave target out of [study], and name the column as `column` instead.",
    )


def with_columns(settings: QuantileSettings, public: Public) -> QuantileSettings:
    """With the columns it is about; refuses those that the study does not have, or of the wrong kind."""
    kinds = {block[0]: block[3] for block in public.columns}
    if public.target is not None:  # a record without one would be left out, of a number of records that is public
        raise _has_target(public.target)
    if not settings.column:
        numbers = tuple(name for name, kind in kinds.items() if kind == "number" and name != settings.by)
        if not numbers:
            raise StudyError(
                "the study has no number whose quantiles could be asked for",
                rule="quantiles-of-numbers",
                remedy="Declare a column as number or integer, without bins.",
            )
        settings = replace(settings, column=numbers)
    asked = [("column", name) for name in settings.column] + ([] if settings.by is None else [("by", settings.by)])
    for key, name in asked:
        if name not in kinds:
            raise StudyError(
                f"{key} names {name!r}, which the study does not have",
                rule="columns-are-declared",
                remedy=f"Columns are: {', '.join(kinds)}.{did_you_mean(str(name), kinds)}",
            )
    for name in settings.column:
        if kinds[name] != "number":
            raise StudyError(
                f"column {name!r} is a category, a set of items, or cut into bins: its values have no ranks",
                rule="quantiles-of-numbers",
                remedy="Quantiles are of columns declared as number or integer, without bins.",
            )
    if settings.by in settings.column:
        raise StudyError(
            f"by names {settings.by!r}, which is also the column",
            rule="by-is-a-category",
            remedy="Group by another column, one declared as a category, or leave by out.",
        )
    if settings.by is not None and kinds[settings.by] != "onehot":
        raise StudyError(
            f"by names {settings.by!r}, which is not a category",
            rule="by-is-a-category",
            remedy="Declare it as a category, or as a number with bins: groups are public.",
        )
    return settings
