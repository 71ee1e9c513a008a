"""What an analyst does with a study: propose, withdraw, run, fetch the result and the receipt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles
from tallystick.application.result_document import write_canonical
from tallystick.application.studies.views import about, if_a_party_is_lost, stands
from tallystick.application.study_files import check_records_stated, load_study, read_program_from
from tallystick.application.study_results import document, estimator_of, read_receipt
from tallystick.core.errors import NotApproved, StudyError
from tallystick.core.identifiers import format_hash, parse_hash
from tallystick.engines.planning import layout_of
from tallystick.engines.setup import set_up
from tallystick.estimators.answer import Answer
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.study.messages import result_digest
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.governance.receipts import ReceiptBook
from tallystick.roles.governance.results import is_interim
from tallystick.roles.governance.review import DEFAULT_DAYS
from tallystick.roles.identity.identity_files import unix_time
from tallystick.roles.identity.role_config import load_role_config
from tallystick.study import Study


def propose(
    path: Path,
    config: Path,
    *,
    records: int | None = None,
    settings: tuple[str, ...] = (),
    days: float = DEFAULT_DAYS,
    supersedes: str | None = None,
) -> dict[str, Any]:
    """Sign a study and put it before the consortium's stewards."""
    study, folder = load_study(path, settings)
    if records is not None:
        study = study.replace("data", records=records)
    return propose_study(study, config, folder=folder, days=days, supersedes=supersedes)


def propose_study(
    study: Study, config: Path, *, folder: Path = Path(), days: float = DEFAULT_DAYS, supersedes: str | None = None
) -> dict[str, Any]:
    """The same for a study that is no file; ``folder`` is where its program file would be."""
    estimator, study = estimator_for(study, read_program_from(folder))
    check_records_stated(study)
    if not (math.isfinite(days) and 0 < days <= 366):
        raise StudyError(f"--days {days:g} is not possible", remedy="A proposal is open for up to 366 days.")
    design = estimator.design_for(study, layout_of(study))
    program = getattr(design.program, "source_text", "")
    with closing(set_up(study.canonical(), program, allow_not_private=True)) as setup:
        plan = setup.plan  # what every party will derive from it
    with _connected(config) as (files, connection):
        earlier = None if supersedes is None else files.find(supersedes)
        standing = connection.exchange.standing(study.hash)
        if standing.state != "unknown":
            raise StudyError(
                f"this very study is {standing.state} already",
                rule="proposed-once",
                remedy="Its result is fetched with study result; for a new run raise [study] version.",
            )
        connection.propose(study, plan, program, days=days, supersedes=earlier)
        return {"action": "propose", **_said(connection, study.hash)}


@contextmanager
def _connected(config: Path) -> Iterator[tuple[PartyFiles, AnalystConnection]]:
    """The analyst's files and, brought up to date, the connection to the aggregator."""
    with (
        PartyFiles.of(config, role="analyst") as files,
        AnalystConnection(files.config, files.consortium) as connection,
    ):
        yield files, connection


def _said(connection: AnalystConnection, study: bytes) -> dict[str, Any]:
    """How a study stands once what was said about it has had time to leave."""
    connection.wait(lambda: False, 0.5)
    standing = connection.exchange.standing(study)
    return {**about(standing.proposal), **stands(standing)}


def withdraw(name: str, config: Path, *, reason: str = "") -> dict[str, Any]:
    """Take a proposal back."""
    with _connected(config) as (files, connection):
        study = files.find(name)
        body = {"hash": format_hash(study), "reason": reason, "at": int(connection.exchange.wall())}
        connection.exchange.say("withdrawal", body)
        return {"action": "withdraw", **_said(connection, study)}


_WISHES = {
    "run": ("approved", "running", "paused", "finished"),
    "resume": ("running", "paused", "finished"),
    "close": ("paused", "finished"),
}


def run(
    name: str,
    config: Path,
    *,
    wish: str = "run",
    progress: Callable[[int, int], None] | None = None,
    tell: Callable[[str], None] = lambda _words: None,
) -> dict[str, Any]:
    """Run an approved study, or resume or close one that is paused; one that has run gives its stored result."""
    with _connected(config) as (files, connection):
        study = files.find(name)
        standing = connection.exchange.standing(study)
        if standing.proposal is None or standing.state not in _WISHES[wish]:
            remedy = "Ask those who have not decided or said no; tallystick study status shows who."
            if wish != "run":
                remedy = f"Only a study that is paused can be {wish}d: tallystick study status."
            raise NotApproved(
                f"the study is {standing.state}. {standing.words}", rule=f"study-{standing.state}", remedy=remedy
            )
        body = standing.proposal.body
        if standing.state == "approved":
            tell(if_a_party_is_lost(standing.proposal))
        packed = connection.run(str(body["study"]).encode(), str(body["program"]), progress, wish=wish)
        return _document(files, standing.proposal, packed, connection.receipt(study))


def result(name: str, config: Path) -> dict[str, Any]:
    """The stored result of a study that has run, or a running stream's so far, if it is shown to this party."""
    if load_role_config(config).role != "analyst":
        return _kept_result(name, config)
    with _connected(config) as (files, connection):
        study = files.find(name)
        packed = connection.result(study)
        receipt = None if is_interim(packed) else connection.receipt(study)
        proposal = connection.exchange.standing(study).proposal
        if proposal is None:
            raise NotApproved("nobody has proposed this study", rule="study-unknown")
        return _document(files, proposal, packed, receipt)


def _document(files: PartyFiles, proposal: Statement, packed: bytes, receipt: bytes | None) -> dict[str, Any]:
    signer, key = files.config.name, files.identity.signing
    docket = files.docket(proposal.study_hash)
    return document(docket, proposal, packed, receipt, signer=signer, key=key)


def answer(made: dict[str, Any], config: Path) -> Answer:
    """The table of a result that was fetched here; nobody is asked."""
    with PartyFiles.of(config) as files:
        return estimator_of(made, files.docket(parse_hash(made["study"]["hash"]))).answer()


def _kept_result(name: str, config: Path) -> dict[str, Any]:
    """At a client: its process has fetched what the study shows it."""
    with PartyFiles.of(config) as files:
        study = files.find(name)
        standing = files.docket(study).standing(unix_time())
        path = files.config.state / "results" / f"{study.hex()}.packed"
        if standing.proposal is None or not path.exists():
            raise NotApproved(
                f"there is no result of this study here; it is {standing.state}",
                rule="results-visible-to",
                remedy="The study may not show its result to this client, or its process is not connected yet.",
            )
        packed = path.read_bytes()
        receipt = ReceiptBook(files.config.state).of_result(study, format_hash(result_digest(study, packed)))
        return _document(files, standing.proposal, packed, receipt)


def receipt(name: str, config: Path, out: Path) -> dict[str, Any]:
    """The privacy receipt this party has, written into a folder."""
    with PartyFiles.of(config) as files:
        study = files.find(name)
    raw = ReceiptBook(files.config.state).get(study)
    if raw is None and files.config.role == "analyst":
        with _connected(config) as (_, connection):
            raw = connection.receipt(study)
    if raw is None:
        raise NotApproved(
            "there is no receipt of this study here yet",
            rule="no-receipt",
            remedy="It is made when the study has finished and every server has attested it; ask again later.",
        )
    file = write_canonical(read_receipt(raw), out, "receipt.json")
    return {"action": "receipt", "file": str(file), "consortium": str(files.config.consortium)}
