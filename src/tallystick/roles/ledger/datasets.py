"""Data sets of a client: what a registration says, which studies it fits, and that records are registered once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.core.readable_text import check_name, check_readable
from tallystick.data.addresses import is_address, parse_address, settled_source
from tallystick.data.sources import column_names
from tallystick.engines.record_engine import KnowsContent, RecordEngine
from tallystick.engines.spark.sources import location_of, settled_spark_source
from tallystick.privacy.totals import Charge
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.fingerprints import fingerprint
from tallystick.study import Study
from tallystick.study.schema import Schema

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
UNITS = ("record", "person")


def make_dataset(
    name: str,
    source: str | Path,
    *,
    query: str | None = None,
    group: str | None = None,
    unit: str = "record",
    person: str | None = None,
    schema: Schema | None = None,
    party: str | None = None,
    engine: RecordEngine | None = None,
) -> DataSet:
    """A data set to be registered; reads its source to know it again. Its group is its own unless one is named.

    ``query`` is what a database is asked, if the address in ``source`` does not say it. ``engine``: one that reads the
    source where it lies (:class:`tallystick.engines.spark.records.SparkEngine`); None reads it here.
    """
    distant = isinstance(engine, KnowsContent)
    told = (
        settled_spark_source(str(source), query=query, folder=Path.cwd())
        if distant
        else settled_source(source, query=query)
    )
    checked = DataSet(
        name=name,
        source=told,
        fingerprint=Fingerprint(location=location_of(told) if distant else _location(told)),
        group=name if group is None else group,
        unit=unit,
        person=person,
        schema=schema,
    )
    check_dataset(checked)  # before anything is read
    if isinstance(engine, KnowsContent):
        mark = Fingerprint(location=location_of(told), content=engine.content_digest(told))
        _check_columns(checked, engine.column_names(told), party)
    else:
        mark = fingerprint(told, party=party)
        _check_columns(checked, column_names(told, party=party), party)
    return replace(checked, fingerprint=mark)


def _location(told: str) -> str:
    """An address without user and options, where it is that of a database."""
    return parse_address(told).location if is_address(told) else told


def _check_columns(dataset: DataSet, there: Sequence[str], party: str | None) -> None:
    """The columns a registration names are there."""
    named = [*(dataset.schema or ()), *([dataset.person] if dataset.person else [])]
    for column in named:
        if column not in there:
            raise StudyError(
                f"the source has no column {column!r}",
                rule="registered-columns-exist",
                party=party,
                remedy="Correct the schema or --person.",
            )


def check_words(*, by: str, reason: str) -> None:
    """Who decided something, and why: kept for ever, and read by people."""
    for what, text, most in (("by", by, 200), ("reason", reason, 4000)):
        check_readable(what, text)
        if len(text) > most:
            raise StudyError(
                f"{what} has {len(text)} characters", rule="readable-text", remedy=f"Use at most {most} characters."
            )


def check_dataset(dataset: DataSet) -> None:
    """What a registration must say."""
    for what, text in (("name", dataset.name), ("group", dataset.group)):
        if not _NAME.fullmatch(text):
            raise StudyError(
                f"a data set's {what} {ascii(text)[:80]} is not allowed",
                rule="data-set-name",
                remedy="Use 1 to 63 letters, digits, blanks, dots, dashes or underscores.",
            )
    if dataset.unit not in UNITS:
        raise StudyError(
            f"unit = {ascii(dataset.unit)[:40]} does not exist",
            rule="unit-is-known",
            remedy="Use record, or person with the column that names a person.",
        )
    if dataset.person is not None:
        check_name("the person's column", dataset.person)
    if (dataset.unit == "person") != (dataset.person is not None):
        raise StudyError(
            "a person is named by a column, and only where the unit is a person",
            rule="unit-is-known",
            remedy="Give --unit person --person COLUMN, or neither.",
        )


def check_distinct(dataset: DataSet, others: Iterable[DataSet], *, party: str) -> None:
    """Records registered already must share that registration's budget group."""
    for other in others:
        shared = dataset.fingerprint.shared_with(other.fingerprint)
        if shared is not None and other.group != dataset.group:
            raise StudyError(
                f"these records are registered already as {other.name!r}: {shared}",
                rule="source-registered-once",
                party=party,
                remedy=f"Let both share one budget: --group {other.group}.",
            )


def check_unit(dataset: DataSet, known: Iterable[DataSet], charge: Charge) -> None:
    """Records that are registered with persons as their unit, under whatever name, take no charge for anything else.

    One for single records would bound nothing for the persons that the steward's budget is about.
    """
    for other in (dataset, *known):
        same = other is dataset or dataset.fingerprint.shared_with(other.fingerprint) is not None
        if same and other.unit == "person" and (charge.unit, charge.person) != ("person", other.person):
            raise PrivacyRefused(
                f"these records are registered to protect persons (column {other.person!r}), and the charge is for any "
                f"one {charge.protects.words}",
                rule="unit-of-the-data-set",
                remedy=f'Propose the study with unit = "person", person = "{other.person}".',
            )


def check_fits(dataset: DataSet, study: Study, holder: str | None = None) -> None:
    """Whether a study protects what the data set's steward registered as the unit, on columns registered for it;
    of columns that are at different institutions, those that ``holder`` has."""
    privacy = study.privacy
    if dataset.unit == "person" and (privacy.unit, privacy.person) != ("person", dataset.person):
        raise PrivacyRefused(
            f"this data set protects persons (column {dataset.person!r}), the study protects single records",
            rule="unit-of-the-data-set",
            remedy=f'Propose it with unit = "person", person = "{dataset.person}".',
        )
    if dataset.schema is not None:
        time = study.stream.time if study.stream is not None else None
        held = (study.data.holders or {}).get(holder or "")
        told_apart = () if held is None or study.data.identifier is None else (study.data.identifier.column,)
        times = () if time is None else (time,)
        for column in (*(study.data.columns if held is None else held.columns), *times, *told_apart):
            if column not in dataset.schema:
                raise PrivacyRefused(
                    f"the column {column!r} is not registered for studies here",
                    rule="columns-of-the-data-set",
                    remedy=f"Registered are: {', '.join(dataset.schema)}.",
                )
