"""A client's records as a study asks for them: the same call in a simulation, in a client and in its checks."""

from __future__ import annotations

from typing import Any

from tallystick.core.errors import StudyError
from tallystick.data.encoding import Records, encode
from tallystick.study import Study


def study_records(study: Study, source: Any, *, party: str | None = None, lenient: bool) -> Records:
    """The records of one client, encoded by the study's schema.

    ``lenient``, as in every deployed study: a record with a bad or missing cell is left out, and so adds zeros, instead
    of refused with all others (:mod:`tallystick.data.encoding`).
    """
    return encode(
        source,
        study.schema_of_data(),
        features=study.study.features,
        target=study.study.target,
        missing=study.missing_policy(),
        person=person_column(study),
        party=party,
        lenient=lenient,
    )


def person_column(study: Study) -> str | None:
    """The column that names a person; None where the unit is the record."""
    if study.privacy.unit != "person":
        return None
    if not study.privacy.person:
        raise StudyError(
            'unit = "person" without the column that names a person', remedy='Add person = "…" under [privacy].'
        )
    return study.privacy.person
