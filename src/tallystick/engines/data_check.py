"""What a study finds in the records of one institution or of several, looked at by somebody who holds them.

In a simulation everything is in the caller's hands: what would be lost without a word is a warning with a table, and
what would make the answer useless is an error. A deployed client never comes here: nothing it does may depend on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import DataError, DataWarning
from tallystick.data.encoding import Tallies
from tallystick.data.quality import DataQuality, quality_of, together
from tallystick.engines.client_map import DistantRecords
from tallystick.engines.planning import layout_of
from tallystick.engines.record_engine import LocalEngine, mapped_where_it_lies
from tallystick.study import Study

_SHOWN = 5  # institutions that a sentence names


def study_quality(study: Study, tallies: Tallies) -> DataQuality:
    """The counts of one reading, explained by what the study declares."""
    return quality_of(
        tallies,
        study.schema_of_data(),
        layout_of(study),
        missing=study.missing_policy(),
        person=study.person_column(),
    )


@dataclass(frozen=True, repr=False)
class DataCheck:
    """What ``fed.check(schema)`` gives: ``institutions`` by name, and all of them ``together``. Prints as a table."""

    institutions: Mapping[str, DataQuality]
    together: DataQuality

    @property
    def fine(self) -> bool:
        """Whether every record of every institution can be used as it is meant."""
        return self.together.fine

    def __repr__(self) -> str:
        return "\n".join([self.together.table(), *(f"  * {line}" for line in self._sentences())])

    def _sentences(self) -> list[str]:
        """What is out of the ordinary, said of all and with the names of those it is about."""
        if len(self.institutions) == 1:
            return self.together.sentences()
        said = []
        for column in self.together.findings:
            own = {n: q for n, q in self.institutions.items() if column.name in [c.name for c in q.findings]}
            names = ", ".join([*list(own)[:_SHOWN], *(["…"] if len(own) > _SHOWN else [])])
            where = f" (at {names})" if own and len(own) < len(self.institutions) else ""
            said.append(f"{column.meaning} {column.remedy}".strip() + where)
        lost = [name for name, q in self.institutions.items() if q.records and not q.used]
        if lost:
            said.append(f"No record of {', '.join(lost[:_SHOWN])} can be used.")
        return [*said, *([f"{self.together.left_out}."] if self.together.left_out else [])]

    def to_dict(self) -> dict[str, Any]:
        """As data."""
        every = {name: quality.to_dict() for name, quality in self.institutions.items()}
        return {"together": self.together.to_dict(), "institutions": every}


def check_tallies(study: Study, found: Mapping[str, Tallies]) -> DataCheck:
    """From what reading has counted at each institution."""
    every = {name: study_quality(study, tallies) for name, tallies in found.items()}
    return DataCheck(every, study_quality(study, together(found.values())))


def check_sources(study: Study, sources: Mapping[str, Any]) -> DataCheck:
    """Read as a deployed study would, and say what that gives; a bad cell is counted, not refused."""
    found = {}
    for name, source in sources.items():
        records = mapped_where_it_lies(source, LocalEngine()).records(study, source, party=name, lenient=True)
        found[name] = records.tallies
        if isinstance(records, DistantRecords):  # nobody asks them anything else
            records.forget()
    return check_tallies(study, found)


def refuse_or_warn(check: DataCheck, *, refuse_useless: bool = True) -> None:
    """In a simulation: a target that the study does not declare is an error, and so is an answer from nothing."""
    for name, quality in check.institutions.items():
        target = next((c for c in quality.columns if c.used_as == "target"), None)
        if target is not None and target.unknown and target.meaning:
            raise DataError(target.meaning.rstrip("."), party=name, rule="unknown-target", remedy=target.remedy)
    useless = check.together.useless
    if useless is not None and refuse_useless:
        remedies = dict.fromkeys(c.remedy for c in check.together.findings if c.remedy)
        raise DataError(useless.rstrip("."), rule="useless-data", remedy=" ".join(remedies))
    if check.together.worth_a_look:
        warnings.warn(f"look at the data before you trust the answer\n{check!r}", DataWarning, stacklevel=5)
