"""A simulation of institutions that hold different columns: who holds which, by the frames themselves."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.core.errors import BoundsError, DataWarning, StudyError
from tallystick.data.held_columns import HeldColumns, align_sources, read_held
from tallystick.data.sources import column_names
from tallystick.engines.data_check import check_tallies, refuse_or_warn
from tallystick.study import Study
from tallystick.study.columns import Missing
from tallystick.study.holders import as_seen_by, check_disjoint, check_identifier, norms_of, own_columns
from tallystick.study.schema import Schema


def check_vertical(frames: Sequence[Any], drop: float) -> None:
    """What can be said of the frames before there is a study."""
    if len(frames) < 2:
        raise StudyError(
            f"{len(frames)} institution(s) hold columns, and different columns need two at least",
            rule="two-holders-at-least",
            remedy="Pass one frame per institution, each with its columns: simulate([bank, clinic], vertical=True).",
        )
    if drop:
        raise StudyError(
            "drop where institutions hold different columns: without one of them there is no record",
            rule="holders-take-part",
            remedy="Leave drop out.",
        )


def data_apart(
    frames: Mapping[str, Any],
    schema: Schema,
    *,
    target: str | None,
    features: Sequence[str] | None,
    identifier: str | Mapping[str, str] | None,
    norms: Mapping[str, float] | None,
    missing: Missing | None = None,
) -> dict[str, Any]:
    """``identifier`` and ``holders`` of [data]: each declared column is at the one frame that has it."""
    there = {name: column_names(frame, party=name) for name, frame in frames.items()}
    if norms is not None and (not isinstance(norms, Mapping) or set(norms) - set(frames)):
        raise BoundsError(
            "norms names somebody who is no institution here",
            rule="blocks-have-norms",
            remedy=f"Institutions are: {', '.join(frames)}. Give names=[…] to call them otherwise.",
        )
    named = identifier.get("column") if isinstance(identifier, Mapping) else identifier
    if isinstance(named, str):
        check_identifier(named, features if features is not None else schema)
    told = blocks_of(there, schema, target=target, features=features, missing=missing)
    for name, block in told.items():
        if norms is not None and block["norm"] is not None:
            block["norm"] = norms.get(name)
    if identifier is None:
        shared = set.intersection(*(set(columns) for columns in there.values())) - set(schema)
        if len(shared) > 1:
            raise StudyError(
                f"all institutions have the columns {', '.join(sorted(shared)[:5])}, and one of them names people",
                rule="identifier-is-named",
                remedy=f'Say which: simulate(…, identifier="{min(shared)}").',
            )
        identifier = next(iter(shared), None)
    return {"identifier": dict(identifier) if isinstance(identifier, Mapping) else identifier, "holders": told}


def blocks_of(
    there: Mapping[str, Sequence[str]],
    schema: Schema,
    *,
    target: str | None,
    features: Sequence[str] | None,
    norms: Mapping[str, float] | None = None,
    missing: Missing | None = None,
) -> dict[str, dict[str, Any]]:
    """The study's columns at each institution, by what is there, and their norm: the one given, or the schema's."""
    wanted = [*(features if features is not None else schema), *([target] if target else [])]
    holders = {name: [c for c in dict.fromkeys(wanted) if c in columns] for name, columns in there.items()}
    check_disjoint(holders, target)
    told: dict[str, dict[str, Any]] = {}
    for name, columns in holders.items():
        own, norm = [c for c in columns if c != target], None
        if own:
            norm = (norms or {}).get(name)
            norm = norms_of(schema.layout(own, missing=missing), schema)[0] if norm is None else norm
        told[name] = {"columns": columns, "norm": norm}
    return told


def simulated_held(study: Study, frames: Mapping[str, Any]) -> dict[str, HeldColumns]:
    """Aligned and encoded. Strictly: whoever simulates has the records in hand, and is told what is wrong with them."""
    holders = study.data.holders or {}
    if set(holders) != set(frames):
        raise StudyError(
            f"the study's columns are at {', '.join(holders)}, and the institutions are {', '.join(frames)}",
            rule="holders-are-the-institutions",
            remedy="Call them as the study does: names=[…], or files that are named so (bank.csv is bank).",
        )
    rows = align_sources(study, frames)
    held = {name: read_held(study, name, frames[name], rows[name], lenient=False) for name in holders}
    for name, one in held.items():
        own = own_columns(study, name)
        if own:
            refuse_or_warn(check_tallies(as_seen_by(study, name), {name: one.records.tallies}), refuse_useless=False)
    if study.data.identifier is None:
        warnings.warn(
            "rows were taken to belong together by their place: between institutions an identifier says so",
            DataWarning,
            stacklevel=5,
        )
    return held
