"""How many of a client's records a study could use: for that institution's own screen, and for nobody else's.

In a deployed study a record with a bad or missing cell adds zeros, and nobody outside can tell. Whoever keeps the data
must be able to: here is the same reading that the study does, as a sentence. Its numbers are exact statistics of
private data: they are shown by commands on this machine and go into its own log, never into a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tallystick.application.party_files import PartyFiles
from tallystick.core.errors import DataError, TallystickError
from tallystick.data.identifiers import read_identifiers
from tallystick.data.quality import DataQuality
from tallystick.data.record_blocks import open_records
from tallystick.engines.data_check import study_quality
from tallystick.protocol.governance.statements import Statement
from tallystick.study import Study
from tallystick.study.holders import as_seen_by
from tallystick.study.proposed import proposed_study


class OwnRecords(NamedTuple):
    """What a study finds in this client's data; ``fine`` if it can use every record, as it is meant."""

    fine: bool
    words: str
    quality: DataQuality | None = None
    """None where the data cannot be read at all."""


def own_records(proposal: Statement, source: str | Path, *, party: str) -> OwnRecords:
    """Read the data as the proposed study would."""
    try:
        study = as_seen_by(Study.from_canonical(proposal.body["study"]), party)
        people = _named_people(Study.from_canonical(proposal.body["study"]), source, party)
        found = study_quality(study, open_records(study, source, party=party, lenient=True).tallies)
    except TallystickError as error:
        remedy = f". {error.remedy}" if error.remedy else ""
        return OwnRecords(False, f"the data cannot be used: {error.cause}{remedy}")
    said = [found.left_out or f"all {found.records} records can be used", *people, *(c.meaning for c in found.findings)]
    return OwnRecords(found.fine, ". ".join(text.rstrip(".") for text in said), found)


def _named_people(study: Study, source: str | Path, party: str) -> list[str]:
    """How many people it names, where they are to be found again at other institutions."""
    held = (study.data.holders or {}).get(party)
    if held is None or study.data.identifier is None:
        return []
    found = len(read_identifiers(source, study.data.identifier, party=party))
    if held.people is not None and found > held.people:
        raise DataError(
            f"{found:,} people are named here, and the study binds this institution's list to {held.people:,}",
            rule="lists-have-lengths",
            remedy="Have the analyst state more, in a new version.",
        )
    return [f"{found:,} people are named"]


def records_of_open_studies(files: PartyFiles) -> Iterator[tuple[str, OwnRecords]]:
    """(a study's name, what it finds) of every study that waits, may run or runs here."""
    config = files.config
    if not config.holds_records or config.data is None or config.spark is not None or not files.statements():
        return
    for standing in files.proposed().values():
        if standing.proposal is None or standing.state not in ("open", "approved", "running"):
            continue
        found = own_records(standing.proposal, config.data, party=config.name)
        yield proposed_study(standing.proposal.body["study"]).name, found
