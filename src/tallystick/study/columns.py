"""The column types: what may be known about a column in public, and the encoded shape that follows.

    Number, Integer    one column, scaled by the declared bounds to [-1, 1]; or one-hot on public cut points (``bins``)
    Category           one-hot over the declared values; anything else is all zeros, or one more column (``merge``)
    Items              multi-hot over a vocabulary, at most ``max_per_record`` ones

A column type alone does not know its name, so it is checked when it enters a :class:`tallystick.study.schema.Schema`,
whose errors name the column. :class:`Missing` says what a missing value means.
"""

from __future__ import annotations

import itertools
import math
import numbers
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tallystick.core.errors import BoundsError, StudyError
from tallystick.core.outside_text import DIGITS
from tallystick.core.readable_text import did_you_mean, what_is_unreadable

__all__ = [
    "COLUMN_TYPES",
    "Category",
    "Column",
    "Encoded",
    "Integer",
    "Items",
    "Missing",
    "Number",
    "label_text",
    "paste_bounds",
    "refuse_unknown",
]

_MAX_EXACT = 2**53  # the largest magnitude up to which float64 holds every integer
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


def _plain(value: Any) -> Any:
    """NumPy scalars as Python ones, so that a schema compares, prints and serialises as it was meant."""
    return value.item() if isinstance(value, np.generic) else value


def _plain_tuple(values: Any) -> Any:
    """A tuple of plain values; a lone string or a non-sequence is left as it is for ``check`` to refuse."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return values
    return tuple(_plain(v) for v in values)


def _shown(value: float) -> str:
    """A declared number in a feature name: 25, not 25.0."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def _is_finite(value: Any) -> bool:
    """Whether this is a number that a double can hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _check_bounds(name: str, kind: str, lower: Any, upper: Any) -> None:
    for which, value in (("lower", lower), ("upper", upper)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise BoundsError(f"column {name!r}: {which} is not a number", remedy=paste_bounds(name, kind))
        if not _is_finite(value):
            raise BoundsError(f"column {name!r}: {which} is not finite", remedy=paste_bounds(name, kind))
    if lower > upper:
        raise BoundsError(
            f"column {name!r}: lower ({lower}) is above upper ({upper})",
            remedy=f"Exchange them: lower = {upper}, upper = {lower}.",
        )
    width = float(upper) - float(lower)
    if width < _SMALLEST_WIDTH:
        raise BoundsError(
            f"column {name!r}: lower and upper are equal or nearly so ({lower})",
            remedy="Declare the range the value can publicly take, or leave the column out.",
        )
    if not math.isfinite(width):
        raise BoundsError(f"column {name!r}: the range is wider than a double", remedy="Declare narrower bounds.")


def paste_bounds(name: str, kind: str = "number") -> str:
    """The remedy of a missing bound: the line to paste."""
    return (
        f'Declare public bounds: {name} = {{ type = "{kind}", lower = ..., upper = ... }} under [data.columns], '
        f'or "{name}": ts.{kind.capitalize()}(lower, upper). They are never taken from the data.'
    )


def _check_labels(name: str, what: str, values: Any) -> None:
    if not isinstance(values, tuple):
        raise BoundsError(f"column {name!r}: {what} is not a list", remedy=f'Write {what} = ["a", "b"].')
    if not values:
        raise BoundsError(f"column {name!r}: {what} is empty", remedy="List at least one public value.")
    seen: set[str] = set()
    for value in values:
        if not isinstance(value, str | bool | int | float):
            raise BoundsError(
                f"column {name!r}: {what} holds a {type(value).__name__}", remedy="Use text, integers or booleans."
            )
        if isinstance(value, int) and abs(value) >= 10**DIGITS:
            raise BoundsError(
                f"column {name!r}: {what} holds a number of more than {DIGITS} digits", remedy="Use text."
            )
        if isinstance(value, float) and math.isinf(value):
            raise BoundsError(f"column {name!r}: {what} holds infinity", remedy="Use text, integers or booleans.")
        text = label_text(value)
        wrong = what_is_unreadable(text, blanks=True)
        if wrong is not None:
            raise BoundsError(
                f"column {name!r}: {what} holds a value with {wrong}",
                rule="readable-text",
                remedy="Write it in plain letters: people decide by what they read.",
            )
        if not text or text == "nan":
            raise BoundsError(
                f"column {name!r}: {what} holds an empty value",
                remedy="Blank cells are missing values; declare `missing` instead.",
            )
        composed = unicodedata.normalize("NFC", text)  # two spellings of one word look the same on every screen
        if composed in seen:
            raise BoundsError(f"column {name!r}: {what} lists {text!r} twice", remedy="List each value once.")
        seen.add(composed)


class Encoded(NamedTuple):
    """What one column contributes to a layout."""

    kind: str
    names: tuple[str, ...]
    kinds: tuple[str, ...]
    centre: float = 0.0
    scale: float = 1.0
    offset: float = 0.0
    ones: int = 1  # most entries of magnitude one: both the squared L2 norm and the L1 norm of the block


@dataclass(frozen=True)
class Missing:
    """What a missing value (null, NaN, a blank cell, or the marker) means: a public decision, made once for a study.

    ``category``: a column of its own, ``age=?``; an unbinned number is then encoded as 0, the midpoint of its bounds.
    ``drop``: the record adds zeros and is counted locally; what divides by complete records counts them with noise.
    ``error`` (also where nothing is declared): checks and simulations refuse, naming the column. In a deployed study
    such a record adds zeros too, because others see whether an institution takes part.
    A record whose *target* is missing cannot be learned from: under ``category`` too it is left out and counted.
    """

    marker: str = "?"
    policy: str = "category"

    POLICIES: ClassVar[tuple[str, ...]] = ("category", "drop", "error")

    def __post_init__(self) -> None:
        if not isinstance(self.marker, str):
            raise StudyError("missing: marker is not text", remedy='Write marker = "?".')
        if self.policy not in self.POLICIES:
            raise StudyError(
                f"missing: policy {self.policy!r} is not known",
                remedy=f"Use one of {', '.join(self.POLICIES)}.{did_you_mean(str(self.policy), self.POLICIES)}",
            )

    def to_dict(self) -> dict[str, str]:
        """As in the study file: ``missing = { marker = "?", policy = "category" }``."""
        return {"marker": self.marker, "policy": self.policy}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Missing:
        """Inverse of :meth:`to_dict`; unknown keys are errors."""
        refuse_unknown("missing", table, ("marker", "policy"))
        return cls(**table)


@dataclass(frozen=True)
class _ColumnType:
    """What every column type has: a name in the study file, a check, an encoded shape."""

    type_name: ClassVar[str]

    def check(self, name: str) -> None:
        """Raise :class:`BoundsError` unless the declaration is possible."""
        raise NotImplementedError

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        """Names, kinds and scaling of the encoded columns."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The line of the study file, without what is default."""
        table: dict[str, Any] = {"type": self.type_name}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                table[f.name] = list(value) if isinstance(value, tuple) else value
        return table


@dataclass(frozen=True)
class Number(_ColumnType):
    """A real number with public bounds; values outside are clamped to them.

    Without ``bins``: scaled linearly to [-1, 1]; with ``log`` on the scale of log(1 + value - lower). With ``bins``:
    one-hot on the intervals the public cut points make, each closed on the left and open on the right.
    """

    lower: float
    upper: float
    bins: Sequence[float] | None = None
    log: bool = False

    type_name: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lower", _plain(self.lower))
        object.__setattr__(self, "upper", _plain(self.upper))
        object.__setattr__(self, "bins", _plain_tuple(self.bins))

    def check(self, name: str) -> None:
        _check_bounds(name, self.type_name, self.lower, self.upper)
        if not isinstance(self.log, bool):
            raise BoundsError(f"column {name!r}: log is not true or false", remedy="Write log = true or leave it out.")
        if self.bins is None:
            return
        if not isinstance(self.bins, tuple) or not self.bins:
            raise BoundsError(
                f"column {name!r}: bins holds no cut point", remedy="Write bins = [20, 40] or leave bins out."
            )
        if not all(_is_finite(b) for b in self.bins):
            raise BoundsError(f"column {name!r}: a cut point in bins is not a finite number", remedy="Correct bins.")
        if any(a >= b for a, b in itertools.pairwise(self.bins)):
            raise BoundsError(
                f"column {name!r}: bins do not increase strictly",
                remedy=f"Write bins = [{', '.join(_shown(b) for b in sorted(set(self.bins)))}].",
            )
        if not (self.lower < self.bins[0] and self.bins[-1] < self.upper):
            raise BoundsError(
                f"column {name!r}: a cut point in bins is not strictly between lower ({self.lower}) and upper "
                f"({self.upper})",
                remedy="Remove it or widen the bounds: an interval nobody can fall in only adds noise.",
            )
        if self.log:
            raise BoundsError(
                f"column {name!r}: bins and log together", remedy="Cut points are on the plain scale: drop log."
            )

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        mark = _mark(name, missing)
        if self.bins is not None:
            cuts = [_shown(b) for b in self.bins]
            names = [f"{name}<{cuts[0]}"]
            names += [f"{a}<={name}<{b}" for a, b in itertools.pairwise(cuts)]
            names += [f"{name}>={cuts[-1]}"]
            return Encoded("onehot", (*names, *mark), ("bin",) * len(names) + ("missing",) * len(mark))
        if self.log:
            half = math.log1p(float(self.upper) - float(self.lower)) / 2
            return Encoded("number", (name, *mark), ("log",) + ("missing",) * len(mark), half, half, float(self.lower))
        return _scaled(name, mark, float(self.lower), float(self.upper))


@dataclass(frozen=True)
class Integer(_ColumnType):
    """A whole number with public bounds: clamped, rounded to ``lower + k * step`` (ties to even k), then scaled."""

    lower: int
    upper: int
    step: int = 1

    type_name: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        for key in ("lower", "upper", "step"):
            value = _plain(getattr(self, key))
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            object.__setattr__(self, key, value)

    def check(self, name: str) -> None:
        _check_bounds(name, self.type_name, self.lower, self.upper)
        for key in ("lower", "upper", "step"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int):
                raise BoundsError(
                    f"column {name!r}: {key} is not a whole number", remedy='Round it, or use type = "number".'
                )
            if abs(value) > _MAX_EXACT:
                raise BoundsError(f"column {name!r}: {key} is beyond 2^53", remedy='Use type = "number".')
        if not 1 <= self.step <= self.upper - self.lower:
            raise BoundsError(
                f"column {name!r}: step ({self.step}) is not between 1 and upper - lower",
                remedy="Choose a smaller positive step.",
            )

    @property
    def last_step(self) -> int:
        """The k of the largest representable value ``lower + k * step`` that does not exceed ``upper``."""
        return (self.upper - self.lower) // self.step

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        return _scaled(name, _mark(name, missing), float(self.lower), float(self.upper))


@dataclass(frozen=True)
class Category(_ColumnType):
    """One of a few public values. Others encode as zeros, or with ``merge`` as the one extra value of that name."""

    values: Sequence[str | int | float | bool]
    merge: str | None = None

    type_name: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", _plain_tuple(self.values))

    def check(self, name: str) -> None:
        _check_labels(name, "values", self.values)
        if self.merge is None:
            return
        if not isinstance(self.merge, str) or not self.merge.strip() or what_is_unreadable(self.merge, blanks=True):
            raise BoundsError(f"column {name!r}: merge is not a name", remedy='Write merge = "other".')
        if label_text(self.merge) in self.labels[:-1]:
            raise BoundsError(
                f"column {name!r}: merge {self.merge!r} is also one of the values", remedy="Choose another name."
            )

    @property
    def classes(self) -> tuple[str | int | float | bool, ...]:
        """The values in declared order, then the merged one: what class index k means."""
        return (*self.values, *([self.merge] if self.merge is not None else []))

    @property
    def labels(self) -> tuple[str, ...]:
        """The canonical text of :attr:`classes`."""
        return tuple(label_text(v) for v in self.classes)

    def codes(self) -> dict[str, int]:
        """Canonical cell text to class index; booleans are found under the spellings that file formats give them."""
        codes = {label: k for k, label in enumerate(self.labels)}
        for k, value in enumerate(self.classes):
            if isinstance(value, bool):
                for alias in ("True", "TRUE", "1") if value else ("False", "FALSE", "0"):
                    codes.setdefault(alias, k)
        return codes

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        labels = self.labels
        mark = () if missing is not None and missing.marker in labels else _mark(name, missing, labels)
        kinds = ("category",) * len(labels) + ("missing",) * len(mark)
        return Encoded("onehot", (*(f"{name}={label}" for label in labels), *mark), kinds)


@dataclass(frozen=True)
class Items(_ColumnType):
    """A set of items from a public vocabulary, at most ``max_per_record`` kept, earlier vocabulary entries first.

    A cell is a list, or text split at ``;``. The order of the vocabulary is the public priority: which items of an
    over-full record are dropped depends on that record alone.
    """

    vocabulary: Sequence[str | int | float | bool]
    max_per_record: int

    type_name: ClassVar[str] = "items"

    def __post_init__(self) -> None:
        object.__setattr__(self, "vocabulary", _plain_tuple(self.vocabulary))
        object.__setattr__(self, "max_per_record", _plain(self.max_per_record))

    def check(self, name: str) -> None:
        _check_labels(name, "vocabulary", self.vocabulary)
        limit = self.max_per_record
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise BoundsError(
                f"column {name!r}: max_per_record is not a positive whole number",
                remedy="Declare how many items one record may publicly count: it bounds that record's influence.",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The canonical text of the vocabulary."""
        return tuple(label_text(v) for v in self.vocabulary)

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        labels = self.labels
        mark = _mark(name, missing, labels)
        return Encoded(
            "items",
            (*(f"{name}={label}" for label in labels), *mark),
            ("item",) * len(labels) + ("missing",) * len(mark),
            ones=min(self.max_per_record, len(labels)),
        )


Column = Number | Integer | Category | Items
COLUMN_TYPES: dict[str, type[Column]] = {t.type_name: t for t in (Number, Integer, Category, Items)}


def _mark(name: str, missing: Missing | None, labels: Sequence[str] = ()) -> tuple[str, ...]:
    """The name of the column for missing values, if the policy has one: ``age=?``, unless ``?`` is itself declared."""
    if missing is None or missing.policy != "category":
        return ()
    return (f"{name}=?" if "?" not in labels else f"{name}=(missing)",)


def _scaled(name: str, mark: tuple[str, ...], lower: float, upper: float) -> Encoded:
    centre, scale = lower / 2 + upper / 2, (upper - lower) / 2
    return Encoded("number", (name, *mark), ("number",) + ("missing",) * len(mark), centre, scale)


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
