"""Which columns a study reads, and a digest of how it reads each: name, bounds, categories, missing values.

A data steward who has looked at a data set through these declarations need not look again for the next study that reads
the same columns in the same way; a bound that moved is another digest.
"""

from __future__ import annotations

import json
from typing import Any

from tallystick.core.identifiers import digest
from tallystick.study.holders import as_seen_by
from tallystick.study.missing_values import missing_rule
from tallystick.study.study import Study


def columns_read(study: Study, holder: str | None = None) -> list[tuple[str, bytes]]:
    """(column, digest of its reading), from public facts alone: the same for whatever the data hold.

    Where institutions hold different columns: those that are read at ``holder``, and the identifier.
    """
    named_by = study.data.identifier
    study = as_seen_by(study, holder)
    schema, policy = study.schema_of_data(), study.missing_policy()
    layout = schema.layout(study.study.features, target=study.study.target, missing=policy)
    named = [*layout.columns, *([layout.target] if layout.target is not None else [])]
    found: list[tuple[str, Any]] = []
    for name in named:
        column = schema[name]
        missing = [None if policy is None else policy.marker, *missing_rule(column.missing, policy)]
        found.append((name, [column.to_dict(), missing]))
    if study.privacy.unit == "person" and study.privacy.person:
        found.append((study.privacy.person, "person"))
    if study.stream is not None and study.stream.time is not None:
        found.append((study.stream.time, "time"))
    if named_by is not None:
        found.append((named_by.column, ["identifier", named_by.case, named_by.blanks, named_by.duplicates]))
    return [(name, _digest([name, how])) for name, how in found]


def _digest(value: Any) -> bytes:
    return digest(b"tallystick/column-read/1", json.dumps(value, sort_keys=True).encode())
