"""The public description of the data: columns, bounds, categories, and the encoded shape that follows from them.

Everything here is a *public* fact that the parties agree on before a record is read: bounds are declared, never taken
from data, because a bound read from data is itself a release ([DR14] §3.3: sensitivity is a property of the query and
its domain, not of the database). The layout of encoded records, and the largest norm such a record can have, follow
from the schema alone, so every institution derives the same layout without a message being sent.

The column types are in :mod:`tallystick.study.columns`; how cells become numbers is :mod:`tallystick.data.encoding`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tallystick.core.caller import for_caller
from tallystick.core.errors import BoundsError, StudyError
from tallystick.core.readable_text import did_you_mean, what_is_wrong_with_name
from tallystick.study.columns import (
    COLUMN_TYPES,
    Category,
    Column,
    Integer,
    Items,
    Missing,
    Number,
)
from tallystick.study.declared_values import paste_bounds, refuse_unknown

_LONGEST = 1000  # characters of a column's name


class Block(NamedTuple):
    """The encoded columns ``start:stop`` that one declared column became."""

    column: str
    start: int
    stop: int
    kind: str


@dataclass(frozen=True, kw_only=True)
class FeatureLayout:
    """The encoded record, derived from the schema alone: public, the same at every party.

    For kind ``number``: encoded = (value - centre) / scale; for ``log``: (log1p(value - offset) - centre) / scale;
    other kinds are 0 or 1 with centre 0 and scale 1. No encodable record has ``|x|² > max_l2_squared`` or
    ``|x|₁ > max_l1`` (intercept not counted): a one-hot block has at most one 1, a scaled number lies in [-1, 1] and is
    0 when its missing mark is 1, an items block has at most ``max_per_record`` ones.
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    blocks: tuple[Block, ...]
    centre: tuple[float, ...] = field(repr=False)
    scale: tuple[float, ...] = field(repr=False)
    offset: tuple[float, ...] = field(repr=False)
    max_l2_squared: float
    max_l1: float
    target: str | None = None
    classes: tuple[str | int | float | bool, ...] | None = None
    target_bounds: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The declared feature columns, in order."""
        return tuple(b.column for b in self.blocks)


class Schema(Mapping[str, Column]):
    """An ordered, immutable mapping from column name to its public declaration."""

    __slots__ = ("_columns",)

    def __init__(self, columns: Mapping[str, Column]) -> None:
        if not isinstance(columns, Mapping):
            raise StudyError("a schema is a mapping from column name to declaration", remedy=_example())
        for name, column in columns.items():
            if not isinstance(name, str) or not name.strip() or what_is_wrong_with_name(name) or len(name) > _LONGEST:
                raise StudyError(
                    f"column name {ascii(name)[:80]} is not allowed",
                    rule="readable-text",
                    remedy=f"Use readable text of at most {_LONGEST} characters, on one line, in composed form (NFC).",
                )
            if type(column) not in COLUMN_TYPES.values():
                raise StudyError(
                    f"column {name!r} is declared by a {type(column).__name__}, not a column type",
                    remedy=_example(),
                )
            column.check(name)
        self._columns: dict[str, Column] = dict(columns)

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        """Equal columns in equal order: the order is that of the encoded features."""
        if not isinstance(other, Schema):
            return NotImplemented
        return list(self._columns.items()) == list(other._columns.items())

    def __hash__(self) -> int:
        return hash(tuple(self._columns.items()))

    def __repr__(self) -> str:
        return f"Schema({self._columns!r})"

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The table ``[data.columns]`` of a study file."""
        return {name: column.to_dict() for name, column in self._columns.items()}

    @classmethod
    def from_dict(cls, table: Mapping[str, Mapping[str, Any]]) -> Schema:
        """Inverse of :meth:`to_dict`; unknown keys and types are errors that name the closest valid one."""
        if not isinstance(table, Mapping):
            raise StudyError("[data.columns] is not a table", remedy=_example())
        return cls({str(name): _column_from_dict(str(name), line) for name, line in table.items()})

    @classmethod
    def from_bounds(cls, names: Sequence[str], lower: ArrayLike, upper: ArrayLike) -> Schema:
        """Numbers that share bounds, or have one each: what ``fit(X, y)`` makes of ``bounds=(lower, upper)``."""
        columns: list[list[float]] = []
        for which, given in (("lower", lower), ("upper", upper)):
            try:
                values = np.asarray(given, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise BoundsError(f"bounds: {which} is not a number or a list of numbers") from None
            if values.ndim > 1 or (values.ndim == 1 and len(values) != len(names)):
                raise BoundsError(
                    f"bounds: {which} has shape {values.shape}, but there are {len(names)} features",
                    remedy="Give one number for all features, or one per feature.",
                )
            columns.append(np.broadcast_to(values, (len(names),)).tolist())
        return cls({str(n): Number(lo, hi) for n, lo, hi in zip(names, *columns)})

    def column(self, name: str, role: str = "column") -> Column:
        """The declaration of ``name``, or an error that lists the columns and the closest one."""
        if name not in self._columns:
            raise StudyError(
                f"{role} {name!r} is not declared in the schema",
                remedy=f"Declared are: {', '.join(self._columns) or 'none'}.{did_you_mean(str(name), self._columns)}",
            )
        return self._columns[name]

    def layout(
        self,
        features: Sequence[str] | None = None,
        *,
        target: str | None = None,
        missing: Missing | None = None,
        labels_only: bool = False,
    ) -> FeatureLayout:
        """How records are encoded: ``features`` in the given order, or all columns but the target in declared order.

        ``labels_only``: of an institution that holds no other column, where columns are apart.
        """
        classes, bounds = None, None
        if target is not None:
            classes, bounds = _target_facts(target, self.column(target, "target"))
        if isinstance(features, str):
            raise StudyError("features is one string", remedy=f"Write features=[{features!r}].")
        chosen = [c for c in self._columns if c != target] if features is None else list(features)
        if not chosen and not labels_only:
            raise StudyError("there is no feature column", remedy="Declare at least one column beside the target.")
        if target in chosen:
            raise StudyError(f"the target {target!r} is also a feature", remedy="Leave it out of features.")
        if len(set(chosen)) != len(chosen):
            raise StudyError("features names a column twice", remedy="Name each feature column once.")
        names: list[str] = []
        kinds: list[str] = []
        blocks: list[Block] = []
        affine: list[tuple[float, float, float]] = []
        ones = 0
        for name in chosen:
            e = self.column(name, "feature").encoded(name, missing)
            blocks.append(Block(name, len(names), len(names) + len(e.names), e.kind))
            scaled = e.kind == "number"
            affine += [(e.centre, e.scale, e.offset) if scaled and k != "missing" else (0.0, 1.0, 0.0) for k in e.kinds]
            names += e.names
            kinds += e.kinds
            ones += e.ones
        if len(set(names)) != len(names):
            twice = next(name for name, times in Counter(names).items() if times > 1)
            raise StudyError(f"two encoded features are called {twice!r}", remedy="Rename one of the columns.")
        centre, scale, offset = zip(*affine) if affine else ((), (), ())
        return FeatureLayout(
            names=tuple(names),
            kinds=tuple(kinds),
            blocks=tuple(blocks),
            centre=centre,
            scale=scale,
            offset=offset,
            max_l2_squared=float(ones),
            max_l1=float(ones),
            target=target,
            classes=classes,
            target_bounds=bounds,
        )


def _example() -> str:
    return "Write " + for_caller(
        python='ts.Schema({"age": ts.Number(17, 90), "sex": ts.Category(["Female", "Male"])}).',
        toml='age = { type = "number", lower = 17, upper = 90 } under [data.columns].',
    )


def _target_facts(name: str, column: Column) -> tuple[tuple[Any, ...] | None, tuple[float, float] | None]:
    """The classes of a category target, or the bounds of a number target."""
    if isinstance(column, Category):
        return column.classes, None
    if isinstance(column, Integer):
        return None, (float(column.lower), float(column.lower + column.last_step * column.step))
    if isinstance(column, Items) or column.bins is not None:
        raise StudyError(
            f"target {name!r} is declared with {'a vocabulary' if isinstance(column, Items) else 'bins'}",
            remedy="A target is a category, or a number or integer without bins.",
        )
    return None, (float(column.lower), float(column.upper))


def _column_from_dict(name: str, line: Any) -> Column:
    """One line of ``[data.columns]``."""
    where = f"column {name!r}"
    kind = line.get("type") if isinstance(line, Mapping) else None
    if not isinstance(kind, str) or kind not in COLUMN_TYPES:
        cause = f"{where}: type {kind!r} is not known" if kind is not None else f"{where}: no type is given"
        raise StudyError(cause, remedy=f"Types are {', '.join(COLUMN_TYPES)}.{did_you_mean(str(kind), COLUMN_TYPES)}")
    column_type = COLUMN_TYPES[kind]
    keys = [f.name for f in fields(column_type)]
    refuse_unknown(where, line, ["type", *keys])
    if column_type in (Number, Integer) and not {"lower", "upper"} <= set(line):
        absent = " and ".join(k for k in ("lower", "upper") if k not in line)
        raise BoundsError(f"{where}: {absent} not declared", remedy=paste_bounds(name, kind))
    for key in {"values", "vocabulary", "max_per_record"} & set(keys) - set(line):
        raise BoundsError(f"{where}: {key} is not declared", remedy=f"Add {key} = ... to the line of {name}.")
    return column_type(**{k: v for k, v in line.items() if k != "type"})
