"""A client's ledger: what its data sets may spend, what they have spent, and the proof of both.

    reserve  before anything is computed, durably: from here on the charge is spent
    release  just before the first noised thing leaves; from here on it can no longer be given back
    commit   the study has its result
    void     nothing has left and nothing will: the charge is given back

Usable by any number of threads and processes at once: the client's own process and its steward's commands. Every
method that changes something takes its turn at the file and looks at the newest state before it decides, so concurrent
studies cannot overspend; every step is idempotent, so that a client killed anywhere asks again after its restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tallystick.core.errors import BudgetExceeded, LocalProtocolError, VerificationError
from tallystick.core.identifiers import format_hash
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.privacy.chain import Head
from tallystick.privacy.ledger import Entry, admit
from tallystick.privacy.spent import Spent
from tallystick.privacy.totals import Charge, Totals
from tallystick.protocol.governance.statements import Statement
from tallystick.roles.ledger import countersignatures
from tallystick.roles.ledger.account import Account, Fingerprint, Group, StudyCharge, charge_facts, ratio
from tallystick.roles.ledger.anchor import broken_ledger
from tallystick.roles.ledger.budget_groups import BudgetGroups
from tallystick.roles.ledger.datasets import check_unit
from tallystick.roles.ledger.file import LedgerFile
from tallystick.roles.ledger.report import LedgerReport, verify_ledger

LEDGER = "ledger.sqlite"
"""Its name in a client's state folder."""


class LedgerStore(BudgetGroups):
    """The ledger of one client, in ``path`` (``state/ledger.sqlite``)."""

    def __init__(self, path: Path, *, party: str, signing: SigningKey) -> None:
        self.party = party
        self.file = LedgerFile(path, party=party, signing=signing)

    # -- a study's charge --------------------------------------------------------------------------------------------

    def preview(self, dataset: str, charge: Charge, *, allow_not_private: bool = False) -> tuple[Spent, Spent]:
        """What the group has spent, and would have after this charge; :class:`BudgetExceeded` if it is not covered.

        An exact study is covered by no budget; ``allow_not_private`` as in :meth:`reserve`.
        """
        with self.file.reading() as account:
            found = self._dataset(account, dataset)
            check_unit(found, account.datasets.values(), charge)
            group = self._group(account, found.name)
            before, delta = group.totals, group.budget.delta or 1e-6
            known = account.studies.get(charge.study)
            if known is not None and known.state != "voided":  # it is on the account already
                return before.minus(known.charge).spent(delta), before.spent(delta)
            return before.spent(delta), self._admit(group, charge, allow_not_private).spent(delta)

    def _admit(self, group: Group, charge: Charge, allow_not_private: bool = False) -> Totals:
        if group.closed:
            raise BudgetExceeded(
                "charges of this budget were lost with a damaged ledger, so nothing more is admitted to it",
                rule="budget-closed",
                party=self.party,
                remedy="Its data steward decides what it may still spend: tallystick budget grant.",
            )
        return admit(group.totals, charge, group.budget, allow_not_private=allow_not_private)

    def reserve(self, dataset: str, charge: Charge, *, study_name: str = "", allow_not_private: bool = False) -> Entry:
        """Put the charge on the account, durably, or raise :class:`BudgetExceeded`; a study is charged once."""
        with self.file.turn() as account:
            found = self._dataset(account, dataset)
            known = account.studies.get(charge.study)
            if known is not None and known.state != "voided":
                if known.dataset != found.ident or not _same(known.charge, charge):
                    raise VerificationError(
                        "this study is on the ledger with another charge or data set",
                        rule="one-charge-a-study",
                        party=self.party,
                        remedy="A changed study has another hash: propose it as a new version.",
                    )
                return _entry(known)
            check_unit(found, account.datasets.values(), charge)
            self._admit(account.groups[found.group], charge, allow_not_private)
            facts = {"dataset": found.ident, "group": found.group, "study_name": study_name, **charge_facts(charge)}
            self.file.append(("reserve", facts))
            return _entry(account.studies[charge.study])

    def release(self, study: bytes) -> Entry:
        """Something noised is about to leave. The whole chain is followed first."""
        with self.file.turn() as account:
            known = self._study(account, study)
            if known.state == "voided":
                raise LocalProtocolError("a study whose charge was given back releases nothing", party=self.party)
            self.file.check()
            if known.state == "reserved":
                self.file.append(("release", _of(known)))
            return _entry(account.studies[study])

    def commit(self, study: bytes, result: bytes = b"") -> Entry:
        """The study has this result (its hash)."""
        told = format_hash(result) if result else ""
        with self.file.turn() as account:
            known = self._study(account, study)
            if known.state == "committed" and known.result == told:
                return _entry(known)
            if known.state != "released":
                raise VerificationError(
                    f"a study that is {known.state} cannot be committed with this result",
                    rule="one-result-a-study",
                    party=self.party,
                    remedy="A study has one result: a new run is a new version and a new charge.",
                )
            self.file.append(("commit", {**_of(known), "result": told}))
            return _entry(account.studies[study])

    def void(self, study: bytes, *, reason: str = "") -> None:
        """Give the charge back, because nothing has left; refused once released."""
        with self.file.turn() as account:
            known = self._study(account, study)
            if known.state == "reserved":
                self.file.append(("void", {**_of(known), "reason": reason}))
            elif known.state != "voided":
                raise LocalProtocolError(
                    "what has been released is spent", party=self.party, rule="released-stays-spent"
                )

    def standing(self, study: bytes) -> str | None:
        """None, "reserved", "released", "committed" or "voided"."""
        with self.file.reading() as account:
            known = account.studies.get(study)
            return None if known is None else known.state

    def charged_records(self, study: bytes) -> Fingerprint:
        """The records as they were registered when this study was charged."""
        with self.file.reading() as account:
            known, then = self._study(account, study), Account()
            for link in self.file.links(0, known.sequence):
                then.apply(link)
        return next(d.fingerprint for d in then.datasets.values() if d.ident == known.dataset)

    def reserved(self) -> tuple[bytes, ...]:
        """Studies for which something is set aside, and nothing has left."""
        with self.file.reading() as account:
            return tuple([study for study, known in account.studies.items() if known.state == "reserved"])

    def _study(self, account: Account, study: bytes) -> StudyCharge:
        if study not in account.studies:
            raise LocalProtocolError("this study is not on the ledger", party=self.party, remedy="Reserve it first.")
        return account.studies[study]

    # -- the chain -----------------------------------------------------------------------------------------------------

    def head(self) -> Head:
        """Where the ledger stands."""
        return self.file.head()

    def links(self, since: int, until: int | None = None) -> list[bytes]:
        """The contents (digests) of the links after ``since``: what a server follows the chain with."""
        return [link.content for link in self.file.links(since, until)]

    def compare(self, seen: Head, *, by: str) -> None:
        """Raise unless what a server has seen of this ledger is part of it: otherwise this is not the newest copy."""
        here = self.head()
        if seen.ledger != here.ledger:
            cause = f"{by} knows another ledger of this institution"
        elif seen.sequence > here.sequence:
            cause = f"this ledger was rolled back: it ends at link {here.sequence}, {by} has seen link {seen.sequence}"
        elif self.file.hash_at(seen.sequence) != seen.hash:
            cause = f"there are two copies of this ledger: {by} has seen another link {seen.sequence}"
        else:
            return
        raise broken_ledger(cause, party=self.party, rule="ledger-seen-elsewhere")

    def charge_body(self, study: bytes) -> dict[str, Any]:
        """The body of the ``charge`` statement: always the same for one reservation."""
        with self.file.reading() as account:
            known = self._study(account, study)
            hashed = self.file.hash_at(known.sequence)
            if hashed is None or known.state == "voided":
                raise LocalProtocolError("this study is not charged", party=self.party, remedy="Reserve it first.")
            return {
                "hash": format_hash(study),
                "ledger": self.file.ledger.hex(),
                "dataset": known.dataset,
                "sequence": known.sequence,
                "head": format_hash(hashed),
                "rho": ratio(known.charge.rho),
                "spent_rho": ratio(known.total_rho),
                "at": known.at,
            }

    def add_countersignature(self, raw: bytes, identities: Mapping[str, VerifyKey] | None = None) -> None:
        """Keep a server's signature under a head of this ledger."""
        countersignatures.add(self.file, raw, identities)

    # -- proof ---------------------------------------------------------------------------------------------------------

    def verify(
        self, identities: Mapping[str, VerifyKey] | None = None, statements: Iterable[Statement] = ()
    ) -> LedgerReport:
        """Check everything; ``statements`` are countersignatures kept elsewhere. A report, or ``VerificationError``."""
        return verify_ledger(self.file, identities, statements)

    def close(self) -> None:
        """Give the file free."""
        self.file.close()

    def __enter__(self) -> LedgerStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _same(known: Charge, charge: Charge) -> bool:
    """The same charge; one that an earlier version reserved does not say how persons were named."""
    if not known.protects.noted:
        charge = replace(charge, person=None, max_records=0, max_institutions=0)
    return charge_facts(known) == charge_facts(charge)


def _entry(known: StudyCharge) -> Entry:
    return Entry(number=known.sequence, charge=known.charge, committed=known.state == "committed")


def _of(known: StudyCharge) -> dict[str, Any]:
    return {"study": format_hash(known.charge.study), "reserved": known.sequence}
