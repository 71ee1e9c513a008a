"""A party's own files, as its commands and pages use them beside the running role: who it is, what it has heard, and
(a client) its ledger.

Whoever relies on a ledger asks first whether this is its newest copy. The servers' countersignatures reach every party
on the notice board: if one of them is for a link this ledger does not have, the client's folder was restored from an
older copy, or another copy of it went on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from tallystick.application.text_layout import day
from tallystick.core.errors import StudyError
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.standing import Standing
from tallystick.protocol.governance.statements import Statement
from tallystick.protocol.members import Members
from tallystick.roles.governance.store import STATEMENTS, GovernanceStore
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import Identity, load_identity, read_consortium, unix_time, wall_clock
from tallystick.roles.identity.places import members_of
from tallystick.roles.identity.role_config import RoleConfig, load_role_config
from tallystick.roles.ledger.report import LedgerReport
from tallystick.roles.ledger.store import LEDGER, LedgerStore
from tallystick.roles.steward.refusals import Refusals
from tallystick.study.proposed import proposed_study
from tallystick.study.trust import CLIENT


def identities_of(consortium: Consortium) -> dict[str, VerifyKey]:
    """The key under which each party's signatures count."""
    return {party.name: party.identity for party in consortium.parties}


class PartyFiles:
    """The files that a role file names; nothing is opened before it is asked for."""

    def __init__(self, config: RoleConfig, consortium: Consortium) -> None:
        self.config, self.consortium = config, consortium
        self._statements = config.state / STATEMENTS

    @classmethod
    def of(cls, path: Path, *, role: str | None = None, holder: bool = False) -> Self:
        """The files of the party whose role file this is, once its keys are found to be its own; ``holder``: of one
        that has records."""
        config = load_role_config(path, role=role)
        if holder and not config.holds_records:
            load_role_config(path, role=CLIENT)  # says what is meant
        files = cls(config, read_consortium(config.consortium))
        _ = files.identity
        return files

    @cached_property
    def identity(self) -> Identity:
        """Its keys and certificate."""
        return load_identity(self.config, self.consortium, wall_clock())

    @cached_property
    def members(self) -> Members:
        """The consortium as studies know it."""
        return members_of(self.consortium)

    @cached_property
    def store(self) -> GovernanceStore:
        """What it has heard and said."""
        return GovernanceStore(self._statements, party=self.config.name, identities=identities_of(self.consortium))

    @property
    def has_heard(self) -> bool:
        """Whether anything was ever said here about studies."""
        return self._statements.exists()

    def statements(self) -> tuple[Statement, ...]:
        """Every statement kept here; none, and no new file, where the role has never run."""
        return self.store.statements() if self.has_heard else ()

    def ledger(self) -> LedgerStore:
        """This client's ledger, to be closed after use."""
        return LedgerStore(self.config.state / LEDGER, party=self.config.name, signing=self.identity.signing)

    def check_ledger(self, ledger: LedgerStore) -> LedgerReport:
        """The report on a ledger that is in order and the newest known here; ``VerificationError`` otherwise."""
        mine = [s for s in self.statements() if s.kind == "countersignature" and s.body["client"] == self.config.name]
        return ledger.verify(identities_of(self.consortium), mine)

    def refusal(self, study: bytes) -> dict[str, Any] | None:
        """When and why this party's process last refused to take part in a study, if it did."""
        with closing(Refusals(self._statements, party=self.config.name)) as kept:
            found = kept.get(study)
        return None if found is None else {"at": day(found.at), "rule": found.rule, "cause": found.cause}

    def docket(self, study: bytes) -> Docket:
        """Everything known here about a study."""
        return Docket.of(study, self.members, self.store.statements(study))

    def proposed(self) -> dict[bytes, Standing]:
        """How every study that was proposed stands now, the oldest first."""
        known = {study: self.docket(study).standing(unix_time()) for study in self.store.hashes()}
        return {study: standing for study, standing in known.items() if standing.proposal is not None}

    def find(self, name: str) -> bytes:
        """The study meant by a hash, the beginning of one, or a study's name, with ``@2`` for its version 2."""
        proposed = self.proposed()
        called = {}
        for h, standing in proposed.items():
            if standing.proposal is not None:
                study = proposed_study(standing.proposal.body["study"])
                called[h] = (study.name, f"{study.name}@{study.number('study', 'version')}")
        text = name.removeprefix("sha256:").lower()
        found = [h for h in proposed if len(text) >= 4 and h.hex().startswith(text)]
        found = found or [h for h, names in called.items() if name in names]
        if len(found) > 1 and not any(h.hex() == text for h in found):
            live = [h for h in found if proposed[h].state in ("open", "approved")]
            found = live if len(live) == 1 else found
        if len(found) != 1:
            cause, remedy = f"no study known here is called {name!a}", "tallystick study list shows what was proposed."
            if found:
                cause = f"{len(found)} studies known here are called {name!a}"
                ways = [f"{called[h][1]} or {h.hex()[:12]}" for h in found]
                remedy = f"Say which one: {'; '.join(ways[:10])}."
            raise StudyError(cause, rule="unknown-study", remedy=remedy)
        return found[0]

    def close(self) -> None:
        """Give the files free."""
        if "store" in self.__dict__:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


@contextmanager
def client_ledger(config: Path) -> Iterator[LedgerStore]:
    """The ledger of the client whose role file this is, found to be in order and the newest copy known here."""
    with PartyFiles.of(config, holder=True) as files, files.ledger() as ledger:
        files.check_ledger(ledger)
        yield ledger
