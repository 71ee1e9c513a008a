"""``tallystick data check``: what a study would find in an institution's records, before it enrols or approves.

It reads the records as the study would and tells the result to this screen, and to nobody else. ``--accept`` is a
person's word that the columns may be read so; from then on this client's rules may approve studies that read them. It
is taken whatever the data hold, and nothing of what they hold is kept with it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles
from tallystick.application.study_files import load_study, read_program_from
from tallystick.application.text_layout import paragraph
from tallystick.core.errors import StudyError
from tallystick.data.quality import DataQuality
from tallystick.engines.data_check import study_quality
from tallystick.engines.record_engine import LocalEngine, RecordEngine
from tallystick.estimators.from_study import estimator_for
from tallystick.roles.governance.review import BY_POLICY, unaccepted
from tallystick.roles.governance.store import STATEMENTS
from tallystick.roles.identity.identity_files import unix_time
from tallystick.roles.ledger.datasets import check_words
from tallystick.roles.ledger.registration import engine_of, own_dataset, register_own, source_of
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.steward.acceptances import Acceptances
from tallystick.study import Study
from tallystick.study.holders import as_seen_by
from tallystick.study.read_columns import columns_read


def check(study: str, config: Path, *, source: str | None = None, accept: bool = False, by: str = "") -> dict[str, Any]:
    """Look at records as a study would; ``study`` is a file, or the hash or name of one that is proposed here.

    ``source`` is for records of no client yet; without it, those of the client whose role file ``config`` is.
    """
    if source is not None:
        if accept:
            raise StudyError(
                "--accept is for the data set of a client, not for a file",
                remedy="Leave --source out, in the client's folder or with --config.",
            )
        return _told(_study(study, None), source, party=None)
    if not config.exists():
        raise StudyError(
            f"there is no role file {str(config)!a} that says where the records are",
            remedy="Name the records: --source FILE. Or the client's role file: --config path/to/role.toml.",
        )
    with PartyFiles.of(config, holder=True) as files:
        wanted = _study(study, files)
        with files.ledger() as ledger:
            where = source_of(files.config, ledger)
            if where is None:
                raise StudyError(
                    f"no data set is called {files.config.dataset!a}",
                    rule="unknown-data-set",
                    remedy="Register it: tallystick data add NAME --source FILE --budget-epsilon 1.",
                )
            found = _told(wanted, where, party=files.config.name, engine=engine_of(files.config))
            if accept:
                _accept(files, ledger, wanted, by)
            lacking = unaccepted(wanted, files.config, ledger)
        return {**found, "dataset": files.config.dataset, "unaccepted": lacking, "accepted": not lacking}


def accept_columns(study: Study, config: Path, *, by: str) -> None:
    """A person's word that a study's columns may be read as it declares them, without looking at the records again."""
    with PartyFiles.of(config, holder=True) as files, files.ledger() as ledger:
        _accept(files, ledger, study, by)


def _accept(files: PartyFiles, ledger: LedgerStore, study: Study, by: str) -> None:
    """On the disk when it returns; the client need not run, and a running one hears of it."""
    check_words(by=by, reason="")
    if not by or by.startswith(BY_POLICY.strip()):
        raise StudyError(f"nobody is called {by!a}", rule="decided-by", remedy="Give the name of who decides: --by.")
    known = own_dataset(files.config, ledger) or register_own(files.config, ledger)
    with closing(Acceptances(files.config.state / STATEMENTS, party=files.config.name)) as kept:
        kept.accept(known.ident, columns_read(study, files.config.name), by=by, at=unix_time())


def _study(name: str, files: PartyFiles | None) -> Study:
    """The study that is meant, as it is or would be proposed."""
    path = Path(name)
    if path.is_file() or files is None:
        study, folder = load_study(path)
        return estimator_for(study, read_program_from(folder))[1]
    proposal = files.docket(files.find(name)).standing(unix_time()).proposal
    if proposal is None:
        raise StudyError("nobody has proposed this study", rule="unknown-study")
    return Study.from_canonical(proposal.body["study"])


def _told(study: Study, source: str, *, party: str | None, engine: RecordEngine | None = None) -> dict[str, Any]:
    seen = as_seen_by(study, party)
    if seen.vertical:
        raise StudyError(
            "the study's columns are at different institutions, and these are whose?"
            if party is None
            else f"{party!r} holds no column of this study",
            rule="holders-are-the-institutions",
            remedy=f"Look with the role file of one of them: {', '.join(study.data.holders or {})}.",
        )
    found: DataQuality = study_quality(
        seen, (engine or LocalEngine()).records(seen, source, party=party, lenient=True).tallies
    )
    return {
        "action": "check",
        "study": {"name": study.study.name, "hash": study.printed_hash},
        "source": source,
        **found.to_dict(),
        "words": found.words(),
    }


def describe(result: dict[str, Any]) -> str:
    """In words."""
    lines = [
        f"{result['study']['name']} on {result['source']}: {result['records']:,} rows read, {result['used']:,} used"
    ]
    lines += ["", result["words"], ""]
    if result["fine"]:
        lines.append("Every record can be used as it is meant.")
    elif result["useless"]:
        lines.append(
            "NOTHING CAN BE LEARNED FROM THESE RECORDS AS THEY ARE. Correct them before you approve the study."
        )
    lines.append("This stays on this machine: nobody outside can tell, and nothing is decided by it.")
    if result.get("accepted"):
        told = (
            f"The columns are accepted for the data set {result['dataset']!r}: rules of this client may approve studies"
        )
        lines.append(paragraph(f"{told} that read them so.", 0))
    elif "accepted" in result:
        told = "No rule of this client approves the study until a person accepts how it reads"
        lines.append(paragraph(f"{told} {', '.join(result['unaccepted'])}: the same command with --accept.", 0))
    return "\n".join(lines)
