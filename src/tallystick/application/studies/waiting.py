"""Which studies wait for this client's steward, and waiting until one does: ``tallystick study wait``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick.application.party_files import PartyFiles
from tallystick.application.studies.views import about
from tallystick.core.errors import RoundAborted, StudyError
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.governance.review import review
from tallystick.roles.ledger.store import LedgerStore
from tallystick.roles.storage.stores import is_running

LOOK_SECONDS = 0.5


def waiting(files: PartyFiles) -> list[dict[str, Any]]:
    """The studies that no rule decides and nobody has decided here, the oldest first."""
    if not files.has_heard:
        return []
    mine = files.config.name
    undecided = [
        standing.proposal
        for study, standing in files.proposed().items()
        if standing.proposal and standing.state in ("open", "approved") and not files.docket(study).decisions(mine)
    ]
    if not undecided:
        return []
    with files.ledger() as ledger:
        return [about(proposal) for proposal in undecided if _asks(proposal, files, ledger)]


def _asks(proposal: Statement, files: PartyFiles, ledger: LedgerStore) -> bool:
    try:
        return review(proposal, files.config, ledger, members=files.members).verdict.decision == "ask"
    except StudyError:  # no records are registered yet: nothing decides about it before somebody has looked
        return True


def wait(
    config: Path,
    *,
    new: bool = False,
    timeout: float | None = None,
    tell: Callable[[str], None] = lambda _words: None,
) -> dict[str, Any]:
    """Return once a study waits for this client's steward; with ``new``, one that does not wait yet."""
    if timeout is not None and not timeout >= 0:
        raise StudyError(f"--timeout {timeout:g} is not possible", rule="usage", remedy="Give seconds, 0 or more.")
    with PartyFiles.of(config) as files:
        if not files.config.holds_records:
            raise StudyError(
                f"nothing waits for a decision of the {files.config.role} {files.config.name}",
                rule="usage",
                remedy="Use the role file of a client; tallystick study status STUDY tells how a study stands.",
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        known = {one["study"]["hash"] for one in waiting(files)} if new else set()
        told, looked = False, -1
        while True:
            last = files.store.last() if files.has_heard else 0
            found = [one for one in waiting(files) if one["study"]["hash"] not in known] if last != looked else []
            looked = last
            if found:
                return {"action": "wait", "party": files.config.name, "studies": found}
            if deadline is not None and time.monotonic() >= deadline:
                raise RoundAborted(
                    f"no study has come to wait for a decision within {timeout:g} s",
                    rule="nothing-waits",
                    party=files.config.name,
                    remedy="Nothing need be done; tallystick study list shows what was proposed.",
                )
            if not told:
                told = True
                stopped = (
                    "" if is_running(files.config.state) else " The client does not run, and hears of none: start it."
                )
                tell(f"waiting for a study that needs a decision (Ctrl-C ends it).{stopped}")
            time.sleep(LOOK_SECONDS)
