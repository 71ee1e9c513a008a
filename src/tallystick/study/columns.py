"""The column types: what may be known about a column in public, and the encoded shape that follows.

    Number, Integer    one column, scaled by the declared bounds to [-1, 1]; or one-hot on public cut points (``bins``)
    Category           one-hot over the declared values; anything else is all zeros, or one more column (``merge``)
    Items              multi-hot over a vocabulary, at most ``max_per_record`` ones

A column type alone does not know its name, so it is checked when it enters a :class:`tallystick.study.schema.Schema`,
whose errors name the column. What a missing value means is said by the column's own ``missing``
(:mod:`tallystick.study.missing_values`), or by :class:`Missing` for all columns that say nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tallystick.core.caller import for_caller
from tallystick.core.errors import StudyError
from tallystick.core.readable_text import did_you_mean, what_is_unreadable
from tallystick.study.declared_values import (
    check_bounds,
    check_labels,
    impossible,
    is_finite,
    label_text,
    plain,
    shown,
)
from tallystick.study.missing_values import MissingValue, check_label_missing, check_number_missing, missing_rule

_LEAST_LOG, _MOST_LOG = 1e-9, 1e9
_MAX_EXACT = 2**53  # the largest magnitude up to which float64 holds every integer


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


@dataclass(frozen=True)
class _ColumnType:
    """What every column type has: a name in the study file; ``check``, which raises :class:`BoundsError` unless the
    declaration is possible; and ``shape``, its encoded columns when no value is missing."""

    type_name: ClassVar[str]
    if TYPE_CHECKING:  # declared last by each, so that it is written last
        missing: MissingValue = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, plain(getattr(self, f.name)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The canonical texts of its public values."""
        return ()

    def shape(self, name: str) -> Encoded:
        raise NotImplementedError

    def encoded(self, name: str, missing: Missing | None) -> Encoded:
        """Names, kinds and scaling of the encoded columns, and one more where missing values have their own:
        ``age=?``, or ``age=(missing)`` where ``?`` is itself declared."""
        made = self.shape(name)
        own = missing is not None and made.kind == "onehot" and missing.marker in self.labels
        if own or missing_rule(self.missing, missing).kind != "flag":
            return made
        mark = f"{name}=?" if "?" not in self.labels else f"{name}=(missing)"
        return made._replace(names=(*made.names, mark), kinds=(*made.kinds, "missing"))

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

    Without ``bins``: scaled linearly to [-1, 1]; with ``log`` on the scale of log(1 + value - lower), and with a number
    s for it on that of log(1 + s·(value - lower)): a larger s tells small values apart. With ``bins``: one-hot on the
    intervals the public cut points make, each closed on the left and open on the right.
    """

    lower: float
    upper: float
    bins: Sequence[float] | None = None
    log: bool | float = False
    missing: MissingValue = field(default=None, kw_only=True)

    type_name: ClassVar[str] = "number"

    def check(self, name: str) -> None:
        check_bounds(name, self.type_name, self.lower, self.upper)
        check_number_missing(name, self.type_name, self.missing, self.lower, self.upper)
        if not isinstance(self.log, bool) and not (is_finite(self.log) and _LEAST_LOG <= self.log <= _MOST_LOG):
            written = for_caller(python="log=True or log=100", toml="log = true or log = 100")
            raise impossible(name, "log is not true, false or a positive number", remedy=f"Write {written}.")
        if self.bins is None:
            return
        if not isinstance(self.bins, tuple) or not self.bins:
            remedy = f"Write {for_caller(python='bins=[20, 40]', toml='bins = [20, 40]')} or leave bins out."
            raise impossible(name, "bins holds no cut point", remedy=remedy)
        if not all(is_finite(b) for b in self.bins):
            raise impossible(name, "a cut point in bins is not a finite number", remedy="Correct bins.")
        if any(a >= b for a, b in itertools.pairwise(self.bins)):
            raise impossible(
                name,
                "bins do not increase strictly",
                remedy=f"Write bins = [{', '.join(shown(b) for b in sorted(set(self.bins)))}].",
            )
        if not (self.lower < self.bins[0] and self.bins[-1] < self.upper):
            raise impossible(
                name,
                f"a cut point in bins is not strictly between lower ({self.lower}) and upper ({self.upper})",
                remedy="Remove it or widen the bounds: an interval nobody can fall in only adds noise.",
            )
        if self.log:
            raise impossible(name, "bins and log together", remedy="Cut points are on the plain scale: drop log.")

    @property
    def log_factor(self) -> float:
        """s of log(1 + s·(value - lower)); 0 where the scale is linear."""
        return float(self.log)

    def shape(self, name: str) -> Encoded:
        if self.bins is not None:
            cuts = [shown(b) for b in self.bins]
            names = [f"{name}<{cuts[0]}"]
            names += [f"{a}<={name}<{b}" for a, b in itertools.pairwise(cuts)]
            names += [f"{name}>={cuts[-1]}"]
            return Encoded("onehot", tuple(names), ("bin",) * len(names))
        if self.log:
            # log(1 + s·v) = log s + log(1 + (v - 1 + 1/s)): centre and offset as if s were 1.
            s = self.log_factor
            half = math.log1p(s * (float(self.upper) - float(self.lower))) / 2
            return Encoded("number", (name,), ("log",), half - math.log(s), half, float(self.lower) + (1 - 1 / s))
        return _scaled(name, float(self.lower), float(self.upper))


@dataclass(frozen=True)
class Integer(_ColumnType):
    """A whole number with public bounds: clamped, rounded to ``lower + k * step`` (ties to even k), then scaled."""

    lower: int
    upper: int
    step: int = 1
    missing: MissingValue = field(default=None, kw_only=True)

    type_name: ClassVar[str] = "integer"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("lower", "upper", "step"):
            value = getattr(self, key)
            if isinstance(value, float) and value.is_integer():
                object.__setattr__(self, key, int(value))

    def check(self, name: str) -> None:
        check_bounds(name, self.type_name, self.lower, self.upper)
        check_number_missing(name, self.type_name, self.missing, self.lower, self.upper)
        for key in ("lower", "upper", "step"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int):
                raise impossible(name, f"{key} is not a whole number", remedy=f"Round it, or use {_as_number()}.")
            if abs(value) > _MAX_EXACT:
                raise impossible(name, f"{key} is beyond 2^53", remedy=f"Use {_as_number()}.")
        if not 1 <= self.step <= self.upper - self.lower:
            raise impossible(
                name, f"step ({self.step}) is not between 1 and upper - lower", remedy="Choose a smaller positive step."
            )

    @property
    def last_step(self) -> int:
        """The k of the largest representable value ``lower + k * step`` that does not exceed ``upper``."""
        return (self.upper - self.lower) // self.step

    def shape(self, name: str) -> Encoded:
        return _scaled(name, float(self.lower), float(self.upper))


@dataclass(frozen=True)
class Category(_ColumnType):
    """One of a few public values. Others encode as zeros, or with ``merge`` as the one extra value of that name."""

    values: Sequence[str | int | float | bool]
    merge: str | None = None
    missing: MissingValue = field(default=None, kw_only=True)

    type_name: ClassVar[str] = "category"

    def check(self, name: str) -> None:
        check_labels(name, "values", self.values)
        check_label_missing(name, self.missing, self.labels)
        if self.merge is None:
            return
        if not isinstance(self.merge, str) or not self.merge.strip() or what_is_unreadable(self.merge, blanks=True):
            remedy = f'Write {for_caller(python="merge=", toml="merge = ")}"other".'
            raise impossible(name, "merge is not a name", remedy=remedy)
        if label_text(self.merge) in self.labels[:-1]:
            raise impossible(name, f"merge {self.merge!r} is also one of the values", remedy="Choose another name.")

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

    def shape(self, name: str) -> Encoded:
        names = tuple(f"{name}={label}" for label in self.labels)
        return Encoded("onehot", names, ("category",) * len(names))


@dataclass(frozen=True)
class Items(_ColumnType):
    """A set of items from a public vocabulary, at most ``max_per_record`` kept, earlier vocabulary entries first.

    A cell is a list, or text split at ``;``. The order of the vocabulary is the public priority: which items of an
    over-full record are dropped depends on that record alone.
    """

    vocabulary: Sequence[str | int | float | bool]
    max_per_record: int
    missing: MissingValue = field(default=None, kw_only=True)

    type_name: ClassVar[str] = "items"

    def check(self, name: str) -> None:
        check_labels(name, "vocabulary", self.vocabulary)
        check_label_missing(name, self.missing, ())
        limit = self.max_per_record
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise impossible(
                name,
                "max_per_record is not a positive whole number",
                remedy="Declare how many items one record may publicly count: it bounds that record's influence.",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The canonical text of the vocabulary."""
        return tuple(label_text(v) for v in self.vocabulary)

    def shape(self, name: str) -> Encoded:
        names = tuple(f"{name}={label}" for label in self.labels)
        return Encoded("items", names, ("item",) * len(names), ones=min(self.max_per_record, len(names)))


Column = Number | Integer | Category | Items
COLUMN_TYPES: dict[str, type[Column]] = {t.type_name: t for t in (Number, Integer, Category, Items)}


def _as_number() -> str:
    return for_caller(python="ts.Number(…)", toml='type = "number"')


def _scaled(name: str, lower: float, upper: float) -> Encoded:
    return Encoded("number", (name,), ("number",), centre=lower / 2 + upper / 2, scale=(upper - lower) / 2)
