"""What a study may hold, besides having the right keys and types: readable texts and numbers that make sense.

A study is written by one party and read by all the others, by their machines and by the people who approve it. Every
text in it is shown to somebody, every number is computed with before anybody has agreed to anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.core.readable_text import check_name, check_readable
from tallystick.privacy.ranges import MAX_COLUMNS, MAX_LABELS, MAX_WHOLE, Range, check_whole_numbers

_NESTED = 16
_LONGEST = 1000
"""Characters of one name; a screen shows a hundred."""
RANGES: dict[str, Range] = {
    "study.version": Range(0, 2**31, "version"),
    # 30 days: milliseconds travel in 32 bits, which end after 49 days. A round that takes longer is a stream.
    "trust.round_timeout_s": Range(0.001, 2_592_000, "time limit of a round"),
    "trust.servers": Range(-MAX_WHOLE, MAX_WHOLE, "number of servers"),  # 2 to 255: a privacy rule
    "trust.colluding": Range(-MAX_WHOLE, MAX_WHOLE, "number of servers"),  # below servers: a privacy rule
    "trust.parties": Range(0, 255, "number of parties"),
    "trust.min_clients": Range(-MAX_WHOLE, 100_000, "number of clients"),  # statements name 100,000 parties at most
    # A person's bound is so many records' bounds; it must fit a grid of 31 bits, which a million of them exhaust.
    "privacy.max_records": Range(-MAX_WHOLE, 1_000_000, "number of records of one person"),
    "privacy.max_institutions": Range(-MAX_WHOLE, 1_000_000, "number of institutions"),
    # Sums live below 2^63 on a grid of at least one unit a record. No data set is near.
    "data.records": Range(1, 10**18, "number of records"),
    "stream.records_per_tick": Range(1, 10**12, "number of records"),
    # A clock is read in milliseconds; a tick shorter than that would never be seen to pass.
    "stream.tick_seconds": Range(0.001, 31_622_400, "length of a tick"),
}


def check_limits(study: Mapping[str, Any]) -> None:
    """Raise :class:`StudyError` for the first text or number that is not fit; ``study`` is a validated one, as tables.

    Column names and categories are looked at by the schema.
    """
    for key, allowed in RANGES.items():
        section, _, name = key.partition(".")
        value = (study[section] or {}).get(name)
        if value is not None:
            allowed.check(key, value)
    for key, text in _names(study):
        if len(text) > _LONGEST:
            raise StudyError(f"{key} has {len(text)} characters", rule="readable-text", remedy="Use a shorter name.")
        check_name(key, text)
    check_readable("study.purpose", study["study"]["purpose"])
    _check_columns(study["data"]["columns"])
    _check_program("program", study["program"], _NESTED)
    check_whole_numbers("program", study["program"])


def _names(study: Mapping[str, Any]) -> list[tuple[str, str]]:
    head, privacy, data = study["study"], study["privacy"], study["data"]
    sampling = privacy["sampling"] if isinstance(privacy["sampling"], Mapping) else {}
    found = [
        *((f"study.{key}", head[key]) for key in ("name", "program", "target", "program_hash")),
        *(("study.features", name) for name in head["features"] or ()),
        *((f"privacy.{key}", privacy[key]) for key in ("neighbours", "mechanism", "unit", "person")),
        *(("privacy.groups", group["name"]) for group in privacy["groups"]),
        *(("privacy.sampling", name) for name in sampling),
        ("data.missing.marker", (data["missing"] or {}).get("marker")),
        *(("results.visible_to", name) for name in study["results"]["visible_to"]),
        ("stream.time", (study["stream"] or {}).get("time")),
    ]
    return [(key, text) for key, text in found if text is not None]


def _check_columns(columns: Mapping[str, Mapping[str, Any]]) -> None:
    labels = sum(len(c.get(key) or ()) for c in columns.values() for key in ("values", "vocabulary", "bins"))
    for what, found, most in (("columns", len(columns), MAX_COLUMNS), ("categories", labels, MAX_LABELS)):
        if found > most:
            raise StudyError(
                f"the study declares {found} {what}", rule="study-size", remedy=f"Declare at most {most} {what}."
            )
    for name, column in columns.items():
        check_whole_numbers(f"data.columns.{name}", [v for k, v in column.items() if k not in ("values", "vocabulary")])


def _check_program(where: str, value: Any, depth: int) -> None:
    """The program's own keywords: what it makes of them is its business, what kind of thing they are is not."""
    if depth == 0:
        raise StudyError(f"{where[:100]} is nested too deeply", rule="study-unreadable")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_name(f"a key of {where[:100]}", str(key))
            _check_program(f"{where}.{key}", inner, depth - 1)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_program(where, inner, depth - 1)
    elif isinstance(value, str):
        check_readable(where, value, lines=True)  # a program written in Python carries its own text
    elif isinstance(value, (date, time)):
        raise StudyError(f"{where} is a date or a time", rule="wrong-value", remedy="No program takes one.")
