"""Identifiers: the column by which institutions that hold different columns find the people they have in common.

An identifier is compared as the study declares it (``[data] identifier``): in Unicode's form C without blanks and
invisible characters at its ends, as everywhere, and case-folded if it says so. A blank names nobody, and one that is
there twice names nobody for certain: either is an error, or those rows are left out, as declared. How often that
happened is for the institution's own screen.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError
from tallystick.data.cell_rules import canonical_identifier
from tallystick.data.column_values import canonical_texts
from tallystick.data.sources import errors_name, read_table
from tallystick.study.sections import IdentifierSection


@dataclass(frozen=True, kw_only=True, repr=False)
class Identifiers:
    """The usable identifiers of one institution, and the row of each. Local: nothing of it leaves as it is."""

    names: tuple[str, ...]
    rows: NDArray[np.int64]
    blank: int = 0
    repeated: int = 0
    """Rows that were left out, for this institution's own screen."""

    def __len__(self) -> int:
        return len(self.names)


def read_identifiers(source: Any, declared: IdentifierSection, *, party: str | None = None) -> Identifiers:
    """The identifiers of a source; blanks and repetitions as the study declares."""
    cells = read_table(source, [declared.column], party=party).column(0)
    with errors_name(party):
        return usable_identifiers(canonical_texts(cells, canonical_identifier), declared)


def usable_identifiers(texts: Sequence[str | None], declared: IdentifierSection) -> Identifiers:
    """From the canonical text of every row."""
    if declared.case == "fold":
        # Folding can take a text out of form C, in which two spellings are one.
        texts = [None if t is None else unicodedata.normalize("NFC", t.casefold()) for t in texts]
    blank = sum(text is None for text in texts)
    if blank and declared.blanks == "error":
        raise DataError(
            f"column {declared.column!r} has {blank} row(s) without an identifier",
            rule="identifiers-name-people",
            remedy='Name everybody, or leave such rows out: identifier = { column = …, blanks = "skip" } under [data].',
        )
    times = Counter(text for text in texts if text is not None)
    repeated = sum(count for count in times.values() if count > 1)
    if repeated and declared.duplicates == "error":
        raise DataError(
            f"column {declared.column!r} has {repeated} row(s) whose identifier is there more than once",
            rule="identifiers-are-unique",
            remedy="Give each person one row, or leave such people out: identifier = { column = …, duplicates = "
            '"skip" } under [data].',
        )
    kept = [(text, row) for row, text in enumerate(texts) if text is not None and times[text] == 1]
    return Identifiers(
        names=tuple(text for text, _ in kept),
        rows=np.array([row for _, row in kept], dtype=np.int64),
        blank=blank,
        repeated=repeated,
    )


def aligned_rows(found: Mapping[str, Identifiers]) -> dict[str, NDArray[np.int64]]:
    """The rows of the people whom all have in common, in the same order everywhere: where one person holds all lists.

    Between institutions the same is found without showing them to each other (:mod:`tallystick.protocol.alignment`).
    """
    shared = set.intersection(*(set(one.names) for one in found.values()))
    check_shared(len(shared))
    out = {}
    for name, one in found.items():
        at = dict(zip(one.names, one.rows.tolist()))
        out[name] = np.array([at[person] for person in sorted(shared)], dtype=np.int64)
    return out


def check_shared(count: int) -> None:
    """Refuse an alignment of nobody."""
    if count == 0:
        raise DataError(
            "the institutions have nobody in common",
            rule="somebody-is-shared",
            remedy="Compare how they write the identifier: another column, or another case "
            '(identifier = { column = "…", case = "fold" }).',
        )
