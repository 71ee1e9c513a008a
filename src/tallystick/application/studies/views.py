"""Studies as data: what is proposed, how it stands, and (for a client) what it would cost its own records."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tallystick.application.own_records import OwnRecords, own_records
from tallystick.application.party_files import PartyFiles
from tallystick.application.studies.still_open import still_open
from tallystick.application.text_layout import day
from tallystick.core.errors import NotApproved, TallystickError, VerificationError
from tallystick.engines.planning import layout_of
from tallystick.estimators.from_study import estimator_for
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.governance.taking_part import check_taking_part
from tallystick.protocol.members import Members
from tallystick.roles.analyst.connection import AnalystConnection
from tallystick.roles.governance.review import lapsed, review, unaccepted
from tallystick.roles.identity.identity_files import unix_time
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.ledger.registration import source_of
from tallystick.roles.ledger.store import LedgerStore
from tallystick.study import Study
from tallystick.study.holders import label_holder
from tallystick.study.proposed import proposed_study


def listing(config: Path) -> dict[str, Any]:
    """Every study that was proposed to this consortium, newest first."""
    with _up_to_date(config) as files:
        rows = [{**about(standing.proposal), **stands(standing)} for standing in files.proposed().values()]
        return {"action": "list", "role": files.config.role, "studies": rows[::-1]}


def show(name: str, config: Path) -> dict[str, Any]:
    """One study as this party sees it; a client also sees what it would cost its own records."""
    with _up_to_date(config) as files:
        docket = files.docket(files.find(name))
        standing = docket.standing(unix_time())
        found = {"action": "show", "role": files.config.role, **about(standing.proposal), **stands(standing)}
        if standing.proposal is not None:
            labels = told_labels(standing.proposal, files.members)
            found["contents"] = {**_contents(standing.proposal), "labels": labels}
            if files.config.holds_records:
                found["own"] = _own(standing.proposal, docket, files)
        return found


def _up_to_date(config: Path) -> PartyFiles:
    """An analyst has no process of its own that listens: ask the aggregator. The others' processes keep up."""
    files = PartyFiles.of(config)
    if files.config.role == "analyst":
        with AnalystConnection(files.config, files.consortium):
            pass
    return files


def about(proposal: Statement | None) -> dict[str, Any]:
    """What a proposal is about; ``{"study": None}`` if there is none."""
    if proposal is None:
        return {"study": None}
    study = proposed_study(proposal.body["study"])
    return {
        "study": {"name": study.name, "version": study.number("study", "version"), "hash": proposal.body["hash"]},
        "analyst": proposal.signer,
        "program": study.text("study", "program"),
        "purpose": proposal.body["purpose"],
        "epsilon": study.number("privacy", "epsilon"),
        "expires": day(proposal.body["expires"]),
    }


def stands(standing: Standing) -> dict[str, Any]:
    """Who has decided what, and what follows from it."""

    def told(decisions: Any) -> list[dict[str, Any]]:
        return [
            {"client": name, "by": d.body["by"], "reason": d.body["reason"], "terms": d.body["terms"]}
            for name, d in decisions.items()
        ]

    return {
        "state": standing.state,
        "words": standing.words,
        "quorum": standing.quorum,
        "approved": told(standing.approvals),
        "rejected": told(standing.rejections),
        "countered": told(standing.counters),
        "waiting": list(standing.waiting),
        "equivocators": list(standing.equivocators),
    }


def if_a_party_is_lost(proposal: Statement) -> str:
    """What becomes of the study then, in words; empty of a stream, or of a study that nobody can plan."""
    try:
        study, program = Study.from_canonical(proposal.body["study"]), str(proposal.body["program"])
        estimator, study = estimator_for(study, (lambda _name: program) if program else None, sandboxed=True)
        return "" if study.stream is not None else estimator.design_for(study, layout_of(study)).if_a_party_is_lost
    except TallystickError:
        return ""


def told_labels(proposal: Statement, members: Members) -> dict[str, str] | None:
    """Who tells whom the labels of single persons, where a study is reduced with them."""
    try:
        study, program = Study.from_canonical(proposal.body["study"]), str(proposal.body["program"])
        if not study.vertical:
            return None
        estimator, study = estimator_for(study, (lambda _name: program) if program else None, sandboxed=True)
        if not estimator.design_for(study, layout_of(study)).tells_of_people:
            return None
        cast = members.cast(study.trust_model, study.trust.model_dump())
        return {"by": label_holder(study) or "", "to": cast.coordinator}
    except TallystickError:
        return None


def _contents(proposal: Statement) -> dict[str, Any]:
    """What a steward reads before deciding."""
    study = proposed_study(proposal.body["study"])
    return {
        "target": study.text("study", "target") or None,
        "columns": study.columns,
        "options": dict(study.fit_to_show("program")),
        "holders": dict(study.fit_to_show("data").get("holders") or {}),
        "identifier": study.fit_to_show("data").get("identifier"),
        "privacy": dict(study.fit_to_show("privacy")),
        "trust": dict(study.fit_to_show("trust")),
        "visible_to": study.texts("results", "visible_to") or [proposal.signer],
        "plan": proposal.body["plan"]["words"],
        "rounds": proposal.body["plan"]["rounds"],
        "if_a_party_is_lost": if_a_party_is_lost(proposal),
        "program_text": proposal.body["program"],
        "program_hash": study.text("study", "program_hash") or None,
    }


def _own(proposal: Statement, docket: Docket, files: PartyFiles) -> dict[str, Any]:
    """What a study means to this client: for its own screen, and for nobody else's."""
    client = files.config.name
    with files.ledger() as ledger:
        seen = review(proposal, files.config, ledger, members=files.members)
        records = _found_records(proposal, files.config, ledger)
        lacking = [] if seen.setup is None else unaccepted(seen.setup.study, files.config, ledger)
        charge = ledger.standing(docket.study_hash)
        try:
            files.check_ledger(ledger)
            problem = seen.problem
        except VerificationError as error:
            problem = str(error)
    decided = docket.decisions(client)
    try:
        check_taking_part(docket, client, unix_time())
        out_of_force = lapsed(decided[-1], seen.verdict)
    except NotApproved as error:
        out_of_force = error.cause
    effect = seen.effect
    return {
        "decided": decided[-1].body["decision"] if decided else None,
        "decided_by": decided[-1].body["by"] if decided else None,
        "out_of_force": out_of_force,
        "verdict": seen.verdict.decision,
        "verdict_rule": seen.verdict.rule,
        "verdict_because": seen.verdict.because,
        "problem": problem,
        "dataset": effect and effect.dataset,
        "budget_before": effect and effect.before,
        "budget_after": effect and effect.after,
        "fits": effect and effect.fits,
        "share_of_what_is_left": effect.share if effect and math.isfinite(effect.share) else None,
        "records": records and records.words,
        "quality": records and records.quality and records.quality.to_dict(),
        "quality_words": records and records.quality and records.quality.words(),
        "unaccepted_columns": lacking,
        "charge": charge,
        "open_decisions": still_open(docket, charge, unix_time()),
        "refused": files.refusal(docket.study_hash),
    }


def _found_records(proposal: Statement, config: RoleConfig, ledger: LedgerStore) -> OwnRecords | None:
    """What the study would find in this client's records; None where they are not here, or not registered yet."""
    source = source_of(config, ledger)
    return None if source is None or config.spark is not None else own_records(proposal, source, party=config.name)
