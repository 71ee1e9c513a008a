"""What a data steward sees of a proposal, and what the client's own rules say of it: the same for both.

Everything is derived anew from the study on this machine: the plan, its words, the charge. Of what the proposer wrote
only the study itself, its program and its purpose count; a proposal whose own summary differs is refused.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import BudgetExceeded, StudyError, TallystickError
from tallystick.core.identifiers import format_hash
from tallystick.core.readable_text import one_line
from tallystick.crypto.signing import SigningKey
from tallystick.engines.setup import Setup, set_up
from tallystick.privacy.ledger import charge_of
from tallystick.privacy.plan import Plan
from tallystick.privacy.spent import Spent
from tallystick.privacy.totals import Charge
from tallystick.protocol.governance import policy as governance
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.governance.statements import Statement, make
from tallystick.protocol.members import Members
from tallystick.roles.governance.store import STATEMENTS
from tallystick.roles.identity.role_config import Policy, RoleConfig
from tallystick.roles.ledger.datasets import check_fits, check_unit
from tallystick.roles.ledger.registration import own_dataset
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.steward.acceptances import Acceptances
from tallystick.study import Study
from tallystick.study.read_columns import columns_read

DAY = 86_400
DEFAULT_DAYS = 30
NAMES_COMPARED = "names-are-compared"  # the verdict on columns at different institutions, each time
UNACCEPTED = "columns-accepted"  # the verdict on columns that no person has accepted for the data set
MOST_NAMED = 8
BY_POLICY = "policy: "
"""How a decision that a rule has made says so; no person is called that."""


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a study would do to this client's budget. Stays on this machine."""

    dataset: str
    before: str
    after: str
    fits: bool
    share: float
    """Of what is left, as much as the study takes; above 1 if it does not fit."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """A proposal as seen from here. ``setup`` is None if the study cannot be used at all; ``problem`` says why."""

    proposal: Statement
    setup: Setup | None
    charge: Charge | None
    effect: Effect | None
    verdict: governance.Verdict
    problem: str = ""

    @property
    def study_hash(self) -> bytes:
        return self.proposal.study_hash


def proposal_statement(
    study: Study,
    plan: Plan,
    program: str,
    *,
    analyst: str,
    key: SigningKey,
    consortium: bytes,
    now: float,
    days: float = DEFAULT_DAYS,
    supersedes: bytes | None = None,
) -> Statement:
    """A study proposed to a consortium, with its plan."""
    body = {
        "study": study.canonical().decode(),
        "program": program,
        "hash": format_hash(study.hash),
        "consortium": format_hash(consortium),
        "created": int(now),
        "expires": int(now + days * DAY),
        "supersedes": None if supersedes is None else format_hash(supersedes),
        "purpose": study.study.purpose or "",
        "plan": summarise(plan),
    }
    return make("proposal", analyst, body, key)


def review(proposal: Statement, config: RoleConfig, ledger: LedgerStore, *, members: Members | None = None) -> Review:
    """Look at a proposal with this client's eyes: reads no record, spends nothing. ``members``: who there is."""
    policy = config.policy or Policy()
    body = proposal.body
    try:
        setup = set_up(str(body["study"]).encode(), str(body["program"]), allow_not_private=policy.allow_not_private)
        if summarise(setup.plan) != body["plan"]:
            raise StudyError("the proposal's summary is not that of its study", rule="plan-summary")
        if members is not None:
            setup.check_cast(members.cast(setup.study.trust_model, setup.study.trust.model_dump()))
        charge = charge_of(proposal.study_hash, setup.plan)
        for known in ledger.datasets():
            if known.name == config.dataset:
                check_fits(known, setup.study, config.name)
                check_unit(known, ledger.datasets(), charge)
    except TallystickError as error:
        # The cause may repeat what the proposer wrote, at any length: it is cut to what can be signed and shown.
        verdict = governance.Verdict(decision="reject", rule=error.rule or "study", because=one_line(error.cause))
        problem = one_line(str(error), 2000)
        return Review(proposal=proposal, setup=None, charge=None, effect=None, verdict=verdict, problem=problem)
    effect = _effect(config, ledger, charge)
    facts = governance.facts_of(
        setup.study.model_dump(mode="json"),
        analyst=proposal.signer,
        delta=setup.plan.claim.delta,
        budget_share=effect.share,
        purpose=str(body["purpose"]),
    )
    return Review(
        proposal=proposal,
        setup=setup,
        charge=charge,
        effect=effect,
        verdict=_accepted(_verdict(policy, facts, effect), setup.study, config, ledger),
    )


def unaccepted(study: Study, config: RoleConfig, ledger: LedgerStore) -> list[str]:
    """The columns of a study that no person has accepted as they would be read from the data set in use here."""
    known = own_dataset(config, ledger)
    columns = columns_read(study, config.name)
    if known is None:
        return [name for name, _ in columns]
    with closing(Acceptances(config.state / STATEMENTS, party=config.name)) as kept:
        return kept.lacking(known.ident, columns)


def _accepted(verdict: governance.Verdict, study: Study, config: RoleConfig, ledger: LedgerStore) -> governance.Verdict:
    """The verdict; but what a rule would approve is for a person until one has accepted how its columns are read.

    A rule cannot see that a hospital writes YES where the study declares yes, and must not look: whether it approves
    is seen by all. A person looks once, on this machine (``tallystick data check``), whatever the data then hold.
    """
    if verdict.decision != "approve":
        return verdict
    names = unaccepted(study, config, ledger)
    if not names and study.data.identifier is not None:
        # Whom institutions have in common is no part of epsilon: a study answers for as many names as a partner lists
        # so that cheap studies one after another would, under a rule, try every name there is.
        why = f"{verdict.rule} would approve, but partners learn whom they have in common, at no charge"
        return governance.Verdict(decision="ask", rule=NAMES_COMPARED, because=f"A person decides: {why}.")
    if not names:
        return verdict
    shown = ", ".join([*names[:MOST_NAMED], *(["…"] if len(names) > MOST_NAMED else [])])
    why = f"{verdict.rule} would approve, but nobody has accepted how it reads {shown}"
    remedy = f"tallystick data check {study.hash.hex()[:12]} --accept"
    return governance.Verdict(
        decision="ask", rule=UNACCEPTED, because=one_line(f"A person looks at the data first: {why}: {remedy}.")
    )


def _verdict(policy: Policy, facts: governance.Facts, effect: Effect) -> governance.Verdict:
    rules = governance.Policy(
        limits=governance.Limits(
            programs=policy.programs,
            max_epsilon=policy.max_epsilon,
            allow_not_private=policy.allow_not_private,
            min_clients=policy.min_clients,
        ),
        rules=policy.rules,
        default=policy.default,
    )
    verdict = rules.decide(facts)
    if verdict.decision != "reject" and not effect.fits:
        because = "The data set's budget does not cover it."
        return governance.Verdict(decision="reject", rule="budget-covers-charge", because=because)
    return verdict


def lapsed(decision: Statement, verdict: governance.Verdict) -> str | None:
    """Why an approval that a rule has given holds no more, if today's rules would ask a person; a person's holds."""
    if verdict.decision != "ask" or not str(decision.body["by"]).startswith(BY_POLICY):
        return None
    why = f": {verdict.because}" if verdict.because else ""
    return f"a rule of this client had approved the study, and its rules do so no more{why}".rstrip(".")


def _effect(config: RoleConfig, ledger: LedgerStore, charge: Charge) -> Effect:
    view = ledger.view(config.dataset)
    on_account = ledger.standing(charge.study) not in (None, "voided")
    share = view.share_of(charge, on_account=on_account)
    try:
        allowed = config.policy is not None and config.policy.allow_not_private
        before, after = ledger.preview(config.dataset, charge, allow_not_private=allowed)
    except BudgetExceeded as error:
        return Effect(dataset=config.dataset, before=view.words, after=error.cause, fits=False, share=max(share, 1.0))
    return Effect(dataset=config.dataset, before=_told(before), after=_told(after), fits=True, share=share)


def _told(spent: Spent) -> str:
    return spent.statement if spent.fits else "nothing spent"


def decision_body(
    docket: Docket,
    proposal: Statement,
    client: str,
    decision: str,
    *,
    reason: str,
    by: str,
    now: float,
    dataset: str = "",
    terms: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The next decision of a client about a proposal."""
    return {
        "hash": proposal.body["hash"],
        "proposal": proposal.ident,
        "decision": decision,
        "reason": reason,
        "terms": terms or {},
        "by": by,
        "dataset": dataset,
        "sequence": docket.next_sequence(client),
        "at": int(now),
    }
