"""Is this the newest copy of a client's ledger? Asked before a steward relies on it.

The servers' countersignatures reach every party on the notice board. If one of them is for a link this ledger does not
have, the client's folder was restored from an older copy, or another copy of it went on.
"""

from __future__ import annotations

from contextlib import closing

from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.ledger.report import LedgerReport
from tallystick.roles.ledger.store import LedgerStore

__all__ = ["check_own_ledger"]


def check_own_ledger(ledger: LedgerStore, config: RoleConfig, consortium: Consortium) -> LedgerReport:
    """The report on a ledger that is in order; ``VerificationError`` otherwise."""
    identities = {party.name: party.identity for party in consortium.parties}
    path = config.state / "governance.sqlite"
    if not path.exists():
        return ledger.verify(identities)
    with closing(GovernanceStore(path, party=config.name, identities=identities)) as store:
        signed = [s for s in store.statements() if s.kind == "countersignature" and s.body["client"] == config.name]
    return ledger.verify(identities, signed)
