"""Institutions that hold different columns of the same people: who holds which, and how long a record is there.

A study says it under ``[data.holders]``; every party derives the same from it. A block is what one holder's encoded
columns are of one record; its norm B_m is declared, so that ‖x‖² ≤ Σ B_m² whatever the others hold.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.core.errors import BoundsError, PrivacyRefused, StudyError
from tallystick.core.identifiers import check_party_name
from tallystick.privacy.ranges import MAX_COLUMNS
from tallystick.study.columns import Items
from tallystick.study.schema import FeatureLayout, Schema

if TYPE_CHECKING:
    from tallystick.study.study import Study

LONGEST_NORM = math.sqrt(MAX_COLUMNS)
_UNIFORM_SQUARE = 1 / 3
_UNIFORM_SPREAD = math.sqrt(1 / 5 - 1 / 9)
_ROUNDING = 1 + 2.0**-8
"""A little more than any such record is long, so that rounding on the grid shortens none."""


def norms_of(layout: FeatureLayout, schema: Schema) -> tuple[float, float]:
    """(likely, longest) length of such columns of one record, by what is declared alone; indicators are centred.

    k indicators of which one is 1 at most have length² 1 − 1/k around 1/k (¼ around ½ if there is but one). Numbers lie
    in [−1, 1]; likely, they are uniform there, so that Σ x² of q of them has mean q/3 and standard deviation √(q·4/45):
    two deviations above the mean, and never more than q. That is what an estimator declares unless it is told another.
    """
    ones, numbers = 0.0, 0
    for block in layout.blocks:
        column, k = schema[block.column], block.stop - block.start
        if block.kind == "number":
            numbers += 1
            ones += float(k > 1)  # the mark of a missing value
        elif isinstance(column, Items) and column.max_per_record > 1:
            ones += min(column.max_per_record, k)
        else:
            ones += 1 - 1 / k if k > 1 else 0.25
    likely = ones + min(float(numbers), numbers * _UNIFORM_SQUARE + 2 * math.sqrt(numbers) * _UNIFORM_SPREAD)
    return math.sqrt(likely) * _ROUNDING, math.sqrt(ones + numbers) * _ROUNDING


def own_columns(study: Study, holder: str) -> tuple[str, ...]:
    """The study's features that one institution holds, in their order; none if it has the labels alone."""
    held = set((study.data.holders or {})[holder].columns)
    wanted = study.study.features if study.study.features is not None else tuple(study.data.columns)
    return tuple(name for name in wanted if name in held and name != study.study.target)


def label_holder(study: Study) -> str | None:
    """Who holds the target."""
    holders = study.data.holders or {}
    return next((name for name, held in holders.items() if study.study.target in held.columns), None)


def as_seen_by(study: Study, holder: str | None) -> Study:
    """What one institution's own columns would be a study of: for looking at them, and at how they are read. A study of
    whole records is its own."""
    if holder is None or holder not in (study.data.holders or {}):
        return study
    own, target = own_columns(study, holder), study.study.target if holder == label_holder(study) else None
    raw = study.model_dump()
    named = {"features": list(own), "target": target} if own else {"features": [target], "target": None}
    raw["study"] = {**raw["study"], "program": "summary", **named}
    raw["data"] = {**raw["data"], "holders": None, "identifier": None}
    raw["program"] = {}
    return type(study).from_dict(raw)


def check_holders(study: Study, schema: Schema) -> None:
    """Refuse a study among holders that cannot be one; each finding by its own rule."""
    holders = study.data.holders
    if holders is None:
        if study.data.identifier is not None:
            raise StudyError(
                "identifier is for institutions with different columns, and the study names none",
                rule="holders-are-named",
                remedy="Say who holds which under [data.holders], or leave identifier out; persons are named under "
                "[privacy].",
            )
        return
    if len(holders) < 2:
        raise StudyError(
            f"{len(holders)} institution(s) hold columns, and different columns need two at least",
            rule="two-holders-at-least",
            remedy="Name every institution with its columns under [data.holders].",
        )
    for name in holders:
        check_party_name(name)
    _check_columns(study, schema, {name: held.columns for name, held in holders.items()})
    _check_promise(study)
    for name, held in holders.items():
        own = own_columns(study, name)
        if not own and study.study.target not in held.columns:
            raise StudyError(
                f"{name!r} holds no column of this study",
                rule="a-holder-holds-something",
                remedy="Leave it out of [data.holders], or name one of its columns among the features.",
            )
        if own:
            _check_norm(name, held.norm, schema.layout(own, missing=study.missing_policy()), schema)


def check_disjoint(holders: Mapping[str, Any], target: str | None) -> None:
    """No column at two holders, nor twice at one; the labels at one."""
    owner: dict[str, str] = {}
    for name, columns in holders.items():
        for column in columns:
            if owner.get(column) == name:
                raise StudyError(
                    f"column {column!r} is named twice among those of {name!r}",
                    rule="a-column-at-one-party",
                    remedy="Name it once.",
                )
            if column in owner and column == target:
                raise StudyError(
                    f"the labels {column!r} are at two parties, {owner[column]!r} and {name!r}",
                    rule="labels-at-one-party",
                    remedy="Let one institution contribute them, and leave them out of the other's columns.",
                )
            if column in owner:
                raise StudyError(
                    f"column {column!r} is at two parties, {owner[column]!r} and {name!r}",
                    rule="a-column-at-one-party",
                    remedy="Say whose it is: each column is read at one institution.",
                )
            owner[column] = name


def check_identifier(column: str, declared: Collection[str]) -> None:
    """Whom a row is of is no column that anything is learned from."""
    if column in declared:
        raise StudyError(
            f"the identifier {column!r} is declared as a column",
            rule="identifier-is-no-column",
            remedy="It names people and is learned from by nobody: leave it out of [data.columns] and of the holders.",
        )


def _check_columns(study: Study, schema: Schema, holders: Mapping[str, tuple[str, ...]]) -> None:
    check_disjoint(holders, study.study.target)
    held = {column for columns in holders.values() for column in columns}
    identifier = study.data.identifier
    if identifier is not None:
        check_identifier(identifier.column, {*schema, *held})
    for name, columns in holders.items():
        for column in columns:
            schema.column(column, f"column of {name!r},")
    wanted = [study.study.target] if study.study.target else []
    wanted += list(study.study.features) if study.study.features is not None else list(schema)
    for column in wanted:
        if column not in held:
            raise StudyError(
                f"no institution holds column {column!r}",
                rule="every-column-has-a-holder",
                remedy="Name it in the columns of the institution that has it, under [data.holders].",
            )


def _check_promise(study: Study) -> None:
    p = study.privacy
    if p.neighbours != "replace-one" or p.unit != "record":
        raise PrivacyRefused(
            "institutions that find the people they share know who and how many these are, and what is promised "
            "covers their values",
            rule="aligned-people-are-known",
            remedy='Use neighbours = "replace-one" and unit = "record": a record is one person who is aligned.',
        )
    if study.stream is not None or p.sampling is not None or p.threshold is not None:
        raise StudyError(
            "[stream], sampling and threshold are for institutions with the same columns",
            rule="holders-sum-once",
            remedy="Leave them out.",
        )
    if study.drops_incomplete:
        raise StudyError(
            'missing = "drop" where institutions hold different columns: none can tell whose record another one drops',
            rule="holders-keep-records",
            remedy='Let a missing value be a category or a value: policy = "category", or missing = … of the column.',
        )


def _check_norm(name: str, norm: float | None, layout: FeatureLayout, schema: Schema) -> None:
    likely, longest = norms_of(layout, schema)
    paste = (
        f"Add norm = {likely:.4g} under [data.holders.{name}]: few records of such columns are longer; none is longer "
        f"than {longest:.4g}."
    )
    if norm is None:
        raise BoundsError(f"the block of {name!r} has no declared norm", rule="blocks-have-norms", remedy=paste)
    if not (math.isfinite(norm) and 2.0**-10 <= norm <= LONGEST_NORM):
        raise BoundsError(
            f"the norm {norm} of {name!r} is no length of a record", rule="blocks-have-norms", remedy=paste
        )
