"""A data steward's decision about a study: approve, reject, or counter with a lower epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles
from tallystick.application.studies.still_open import open_to
from tallystick.application.studies.views import about, stands
from tallystick.core.errors import BudgetExceeded, NotApproved, StudyError
from tallystick.protocol.governance.statements import Statement, make
from tallystick.roles.governance.review import BY_POLICY, Review, decision_body, review
from tallystick.roles.identity.identity_files import unix_time
from tallystick.study.proposed import proposed_study


def decide(
    name: str, config: Path, decision: str, *, reason: str = "", by: str = "", epsilon: float | None = None
) -> dict[str, Any]:
    """Sign a decision of this client; its process passes it on."""
    with PartyFiles.of(config) as files:
        party = files.config.name
        if not files.config.holds_records:
            raise StudyError(
                f"the role {files.config.role!r} approves nothing", remedy="Use the role file of a client."
            )
        study = files.find(name)
        if by.startswith(BY_POLICY.strip()):
            raise StudyError(
                f"nobody is called {by!a}", rule="decided-by", remedy="Give the name of who decides: --by."
            )
        docket = files.docket(study)
        with files.ledger() as ledger:
            proposal = open_to(decision, docket, ledger.standing(study), unix_time())
            seen = review(proposal, files.config, ledger, members=files.members)
            if decision == "approve":
                files.check_ledger(ledger)  # a ledger set back would say it has more
                _may_approve(seen)
            dataset = ledger.dataset(files.config.dataset).ident
        terms = _terms(decision, epsilon, proposal)
        body = decision_body(
            docket,
            proposal,
            party,
            decision,
            reason=reason,
            by=by or "steward",
            now=unix_time(),
            dataset=dataset,
            terms=terms,
        )
        files.store.add(make("decision", party, body, files.identity.signing).encode())
        after = files.docket(study).standing(unix_time())
        return {"action": decision, **about(proposal), **stands(after), "reason": reason, "terms": terms}


def _may_approve(seen: Review) -> None:
    if seen.problem:
        raise StudyError(
            f"this study cannot be run: {seen.problem}",
            rule=seen.verdict.rule,
            remedy="Reject it, or change what stands against it in role.toml and restart the client.",
        )
    if seen.effect is not None and not seen.effect.fits:
        raise BudgetExceeded(
            f"this data set cannot pay for it: {seen.effect.after}",
            rule="budget-covers-charge",
            remedy="Counter-propose a lower epsilon, or grant a larger budget: tallystick budget grant.",
        )
    if seen.verdict.decision == "reject":
        raise NotApproved(
            f"this client's own rules forbid it: {seen.verdict.because or seen.verdict.rule}",
            rule=seen.verdict.rule,
            remedy="Change [policy] in the client's role file first, if that is meant.",
        )


def _terms(decision: str, epsilon: float | None, proposal: Statement) -> dict[str, Any]:
    if decision != "counter":
        return {}
    asked = proposed_study(proposal.body["study"]).number("privacy", "epsilon")
    if asked is None:
        raise StudyError("the study asks for no epsilon that could be lowered", rule="lower-cap", remedy="Reject it.")
    if epsilon is None or not 0 < epsilon < asked:
        raise StudyError(
            f"a counter-proposal states an epsilon above 0 and below the {asked:g} that is asked",
            rule="lower-cap",
            remedy="Give --epsilon, or approve or reject the study as it is.",
        )
    return {"epsilon": epsilon}
