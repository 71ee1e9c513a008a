"""What a missing value of one column means: by the column's own ``missing``, else by the study's policy.

Every answer is a public fact, declared before a record is read. Nothing is ever imputed from records: not a mean, not
a most frequent value, not even whether a column has missing values at all. ``"none"`` says that it has not; then it
gets no column of its own for them, and a record without the value is refused in checks and adds zeros elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tallystick.core.caller import for_caller
from tallystick.core.errors import BoundsError
from tallystick.core.readable_text import did_you_mean
from tallystick.study.declared_values import impossible, is_finite, label_text, shown

if TYPE_CHECKING:
    from tallystick.study.columns import Missing

MissingValue = str | int | float | bool | None
"""A column's own ``missing``; None: what the study's policy says."""
NUMBER_WORDS = ("centre", "drop", "flag", "none")
WORDS = ("drop", "flag", "none")
_OF_POLICY = {"category": "flag", "drop": "drop", "error": "none"}


class MissingRule(NamedTuple):
    """``kind`` is "flag", "drop", "centre", "none", "value" (what it means is ``value``), or "" if nothing is said."""

    kind: str
    value: MissingValue = None


def missing_rule(own: MissingValue, policy: Missing | None) -> MissingRule:
    """The rule for a column whose ``missing`` this is; ``policy`` is that of the study, for those that say nothing."""
    if own is None:
        return MissingRule("" if policy is None else _OF_POLICY[policy.policy])
    if isinstance(own, str) and own in NUMBER_WORDS:
        return MissingRule(own)
    return MissingRule("value", own)


def check_number_missing(name: str, kind: str, missing: object, lower: float, upper: float) -> None:
    """Refuse what is neither a word nor a number within the bounds."""
    if missing is None or (isinstance(missing, str) and missing in NUMBER_WORDS):
        return
    if isinstance(missing, str) or not is_finite(missing):
        near = did_you_mean(missing, NUMBER_WORDS) if isinstance(missing, str) else ""
        raise _not_known(name, missing, [*NUMBER_WORDS], f"a number from {shown(lower)} to {shown(upper)}", near)
    if not lower <= missing <= upper:  # type: ignore[operator]
        raise impossible(
            name,
            f"missing ({missing}) is not within lower ({shown(lower)}) and upper ({shown(upper)})",
            remedy=f"Use a number of the column, or {_written('centre')}: the middle of its bounds.",
        )
    if kind == "integer" and float(missing) != int(missing):  # type: ignore[arg-type, call-overload]
        raise impossible(name, f"missing ({missing}) is not a whole number", remedy="Round it.")


def check_label_missing(name: str, missing: object, labels: Sequence[str]) -> None:
    """Refuse what is neither a word nor one of the declared values, and what could be both."""
    if missing is None:
        return
    is_word = isinstance(missing, str) and missing in WORDS
    if is_word and missing in labels:
        raise impossible(
            name,
            f"missing {missing!r} is a declared value and a word of its own",
            remedy="Rename the value: which of the two is meant cannot be told.",
        )
    if is_word or label_text(missing) in labels:
        return
    near = did_you_mean(str(missing), [*WORDS, *labels])
    raise _not_known(name, missing, [*WORDS], "one of the declared values" if labels else "nothing else", near)


def _written(word: str) -> str:
    return for_caller(python=f'missing="{word}"', toml=f'missing = "{word}"')


def _not_known(name: str, missing: object, words: list[str], other: str, near: str) -> BoundsError:
    told = for_caller(python=f"missing={missing!r}", toml=f"missing = {missing!r}")[:100]
    return impossible(
        name,
        f"{told} is not known",
        remedy=f"Write {_written(words[0])} or {', '.join(map(repr, words[1:]))}, or {other}.{near}",
    )


def how_to_declare(name: str, *, number: bool) -> str:
    """The remedy where a column has missing values that nothing is declared for."""
    first = "centre" if number else "flag"
    kind = ("Number(…" if number else "Category(…", "number" if number else "category")
    choice = (
        '"centre" (the middle of its bounds), "flag" (a column of its own) or "drop"'
        if number
        else ('"flag" (a column of its own), "drop", or one of its values')
    )
    return for_caller(
        python=f'Declare what they mean: "{name}": ts.{kind[0]}, missing="{first}"); it may be {choice}. '
        'For all columns at once: missing=ts.Missing("?", "drop").',
        toml=f'Declare what they mean: {name} = {{ type = "{kind[1]}", …, missing = "{first}" }}; it may be {choice}. '
        'For all columns at once, under [data]: missing = { marker = "?", policy = "category" }   # or "drop", "error"',
    )
