"""Whether a client's own approval of a study is in force now: its newest decision, its own clock, rules and data set.

Asked when the aggregator opens the study, while the client waits for the start, when the start comes, and just before
the charge is released with the first share. Not after that: then the client has started, and what it has sent is spent.
"""

from __future__ import annotations

from tallystick.core.errors import NotApproved, PrivacyRefused
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.governance.taking_part import check_taking_part
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.review import lapsed, review
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.ledger.store import LedgerStore


def check_own_approval(
    study: bytes, exchange: Exchange, ledger: LedgerStore, config: RoleConfig, *, in_time: bool = False
) -> Statement:
    """The proposal that this client approves of, for the data set that studies use here; ``NotApproved`` says why not.

    Reads statements and the ledger only, so it may be asked often. ``in_time``: the client has kept a start from before
    the expiry, and only the first share is still to come, so the clock is not asked again.
    """
    standing = check_taking_part(exchange.docket(study), exchange.name, 0.0 if in_time else exchange.wall())
    stated, used = standing.approvals[exchange.name].body["dataset"], ledger.dataset(config.dataset).ident
    if stated not in ("", used):
        raise NotApproved(
            f"this client has approved the study for another data set than {config.dataset!r}, which it uses now",
            party=exchange.name,
            rule="own-approval",
            remedy="Name that data set again under [data], or decide about the study anew: tallystick study approve.",
        )
    if standing.proposal is None:  # an approved study has one
        raise NotApproved("nobody has proposed this study", rule="study-unknown")
    return standing.proposal


def check_own_rules(
    study: bytes, exchange: Exchange, ledger: LedgerStore, config: RoleConfig, *, in_time: bool = False
) -> None:
    """Whether the client's limits and rules, as they are now, still let the study through.

    A limit made stricter since the approval holds. What a rule has approved is as good as the rule: if today's rules
    would ask a person, a person is asked.
    """
    proposal = check_own_approval(study, exchange, ledger, config, in_time=in_time)
    own = exchange.docket(study).decisions(exchange.name)[-1]
    verdict = review(proposal, config, ledger).verdict
    if verdict.decision == "reject" and verdict.rule != "budget-covers-charge":  # the ledger says that in figures
        raise PrivacyRefused(verdict.because, rule=verdict.rule, remedy="Ask this client's data steward.")
    why = lapsed(own, verdict)
    if why is not None:
        raise NotApproved(
            why,
            party=exchange.name,
            rule="own-approval",
            remedy="A person may approve it: tallystick study approve.",
        )
