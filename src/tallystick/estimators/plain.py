"""Plain ``fit(X, y)``: how a matrix or a frame in hand becomes one institution's records with a declared schema.

Two doors. A matrix (or a frame, with ``bounds=``) is checked as scikit-learn checks it and its columns are numbers. A
frame with ``schema=`` is read by column name like an institution's frame, text and categories included. Bounds are
declared in either case; a missing one is an error that prints the lines to paste.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import BoundsError, DataError, StudyError
from tallystick.data.sources import column_names, read_table
from tallystick.study.columns import Category, Column
from tallystick.study.schema import Schema

_TARGET = "y"
_SHOWN = 12


@dataclass(frozen=True, kw_only=True, repr=False)
class PlainRecords:
    """What ``fit`` was given, as one institution would hold it. Lives as long as the fit."""

    frame: Any
    schema: Schema
    features: list[str]
    target: str | None
    classes: NDArray[Any] | None
    """The labels in the order of their codes, where they were not declared in the schema."""


def target_column(schema: Schema | None, y: Any) -> str | None:
    """The schema's declaration of ``y``: the column of its own name, or the one called "y"."""
    name = getattr(y, "name", None)
    return next((c for c in (name, _TARGET) if schema is not None and isinstance(c, str) and c in schema), None)


def matrix_columns(
    X: NDArray[np.float64], *, names: Sequence[str], schema: Schema | None, bounds: Any, target: str | None
) -> tuple[dict[str, Any], Schema]:
    """A validated matrix: column i is the schema's i-th feature, or a number within ``bounds``."""
    if schema is not None:
        features = [c for c in schema if c != target]
        if len(features) != X.shape[1]:
            raise BoundsError(
                f"the schema declares {len(features)} features where X has {X.shape[1]}",
                remedy='Declare one column per feature of X, in its order; the target may be declared as "y".',
            )
    else:
        features = list(names)
        schema = Schema.from_bounds(features, *_pair(bounds))
    return {name: X[:, i] for i, name in enumerate(features)}, schema


def frame_columns(X: Any, y: Any, schema: Schema, target: str | None) -> dict[str, Any]:
    """A frame, read by the names of the schema's columns."""
    table = read_table(X, [c for c in schema if c != target])
    if y is not None and len(y) != table.num_rows:
        raise DataError(f"X has {table.num_rows} records and y {len(y)}", remedy="Give one label per record.")
    return {name: table.column(name) for name in table.column_names}


def with_target(
    frame: dict[str, Any], schema: Schema, y: Any, target: str | None, *, labels: Any, declared: Column | None
) -> PlainRecords:
    """Features and ``y``: as the schema declares it, as the estimator does, or as classes read from its labels."""
    features, classes = list(frame), None
    columns = {name: schema[name] for name in features}
    if y is None:
        target = None
    elif target is not None:
        columns[target] = schema[target]
    else:
        target = _TARGET
        if declared is not None and target not in columns:  # by the estimator, beside the schema
            columns[target] = declared
        elif labels is None:
            raise BoundsError(
                "y is not declared",
                remedy='Declare it in the schema: "y": ts.Number(lower, upper) or "y": ts.Category([...]).',
            )
        elif target in columns:
            raise StudyError('a feature is called "y"', remedy="Rename it; that name is the target's.")
        else:
            columns[target] = Category([str(i) for i in range(len(labels))])
            classes, y = labels, np.searchsorted(labels, y).astype(str)
    if target is not None:
        frame = frame | {target: y}
    return PlainRecords(frame=frame, schema=Schema(columns), features=features, target=target, classes=classes)


def _pair(bounds: Any) -> tuple[Any, Any]:
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise BoundsError("bounds is not a pair", remedy="Write bounds=(lower, upper), numbers or one per feature.")
    return bounds[0], bounds[1]


def undeclared(source: Any) -> BoundsError:
    """The error of data without declared bounds: says what to declare, with the lines to paste."""
    return BoundsError(
        "the columns' public bounds and categories are not declared",
        remedy="They are agreed public facts and are never read from the data. Fill in and pass\n"
        f"{lines_to_paste(source)}\nor, for numbers alone, bounds=(lower, upper).",
    )


def lines_to_paste(source: Any) -> str:
    """A schema for this source with the bounds left open; reads column names, no record."""
    try:
        names: Sequence[str] = column_names(source)
    except (StudyError, TypeError, ValueError):  # not a table: scikit-learn's own checks come later
        names = ("x0", "x1")
    shown = [f'    "{name}": ts.Number(lower=..., upper=...),   # or ts.Category([...])' for name in names[:_SHOWN]]
    more = [f"    # ... and {len(names) - _SHOWN} more columns"] if len(names) > _SHOWN else []
    return "\n".join(["schema=ts.Schema({", *shown, *more, "})"])
