"""Which data sets a client has registered, and what each group of them may spend.

Records are registered once. Another registration of the same records (the same place, the same bytes, or the same
content in another order or format) must share the first one's budget group, or it is refused: otherwise a budget could
be had twice for one and the same patient. A budget is the steward's word, given at registration and changed by a later
grant that states the new total; both are links of the chain, with who and why.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tallystick.core.errors import BudgetExceeded, StudyError
from tallystick.privacy.gaussian_curve import RESERVED, gaussian_epsilon
from tallystick.privacy.ledger import Budget, covers, how_many_fit, typical_charge
from tallystick.privacy.ranges import BUDGET_DELTA, BUDGET_EPSILON
from tallystick.privacy.spent import Spent
from tallystick.privacy.totals import Charge, Totals
from tallystick.roles.ledger.account import Account, DataSet, Group, StudyCharge, dataset_facts
from tallystick.roles.ledger.datasets import check_dataset, check_distinct, check_words
from tallystick.roles.ledger.file import LedgerFile


@dataclass(frozen=True, kw_only=True)
class BudgetView:
    """A budget group as its steward sees it."""

    group: str
    datasets: tuple[str, ...]
    budget: Budget
    spent: Spent
    left_epsilon: float
    """The largest ε that one more study (Gaussian, at the budget's δ, for ``spent.unit``) could ask for."""
    closed: bool
    entries: tuple[StudyCharge, ...]
    words: str
    totals: Totals = field(default_factory=Totals, repr=False)

    def share_of(self, charge: Charge, *, on_account: bool = False) -> float:
        """Of the ρ (or pure ε) that is left, as much as the charge takes: the largest share, where it counts for
        several units; above 1 if it does not fit. What is left is counted without a charge that is ``on_account``."""
        shares = []
        epsilon, exact, delta = self.budget.epsilon, self.budget.exact_epsilon, self.budget.delta
        for unit, part in self.totals.plus(charge).whole():
            before = self.totals.figure(unit)[0].to_convert()
            shares.append(before.share(part.to_convert(), epsilon, exact, delta, on_account=on_account))
        return max(shares)

    def how_many_fit(self, epsilon: float) -> int:
        """How many studies of this ε would still be admitted (at the budget's δ, of the kind that was charged most)."""
        unit, part = self.totals.largest
        charge = typical_charge(epsilon, self.budget.delta, unit, part.neighbours)
        return 0 if self.closed else how_many_fit(self.totals, charge, self.budget)


class BudgetGroups:
    """The part of a ledger that is about data sets and their budgets."""

    party: str
    file: LedgerFile

    def register(self, dataset: DataSet, budget: Budget | None = None, *, by: str = "") -> DataSet:
        """Enter a data set with its group's budget; the same again changes nothing, changed records are noted.

        Records that are registered already must share the other registration's group (``source-registered-once``).
        """
        check_dataset(dataset)
        check_words(by=by, reason="")
        with self.file.turn() as account:
            known = account.datasets.get(dataset.name)
            if known is not None:
                return self._again(account, known, dataset, budget)
            check_distinct(dataset, account.datasets.values(), party=self.party)
            made = replace(dataset, ident=os.urandom(8).hex())
            entries: list[tuple[str, dict[str, Any]]] = [("register", dataset_facts(made))]
            group = account.groups.get(made.group)
            if group is None:
                entries.append(("grant", _grant_facts(made.group, _check_budget(budget), by, "at registration")))
            elif budget is not None and budget != group.budget:
                raise StudyError(
                    f"the budget group {made.group!r} has epsilon = {group.budget.epsilon:g}, delta = "
                    f"{group.budget.delta:g} already",
                    rule="one-budget-a-group",
                    remedy="Leave the budget out to share it as it is; tallystick budget grant changes it.",
                )
            self.file.append(*entries)
            return account.datasets[made.name]

    def _again(self, account: Account, known: DataSet, dataset: DataSet, budget: Budget | None) -> DataSet:
        """A name that is taken: fine if it means the same source."""
        facts = (known.fingerprint.location, known.unit, known.person)
        if facts != (dataset.fingerprint.location, dataset.unit, dataset.person) or (
            dataset.schema not in (None, known.schema)
        ):
            raise StudyError(
                f"the data set {known.name!r} is registered with another source, unit or schema",
                rule="source-registered-once",
                remedy="Register it under another name; tallystick data describe shows what is known of it.",
            )
        grants = account.groups[known.group].grants
        if budget is not None and budget not in (grants[0].budget, grants[-1].budget):
            raise StudyError(
                f"the data set {known.name!r} has a budget of epsilon = {grants[-1].budget.epsilon:g}, delta = "
                f"{grants[-1].budget.delta:g}",
                rule="budget-is-granted",
                remedy="A budget is changed by its steward alone: tallystick budget grant.",
            )
        if known.fingerprint != dataset.fingerprint:
            others = [d for d in account.datasets.values() if d.name != known.name]
            check_distinct(replace(dataset, group=known.group), others, party=self.party)
            mark = dataset.fingerprint
            facts_now = {"location": mark.location, "bytes": mark.bytes, "content": mark.content}
            self.file.append(("changed", {"name": known.name, "source": dataset.source, **facts_now}))
        return account.datasets[known.name]

    def datasets(self) -> tuple[DataSet, ...]:
        """Every data set, in the order they were registered."""
        with self.file.reading() as account:
            return tuple(account.datasets.values())

    def dataset(self, name: str) -> DataSet:
        """The data set of this name."""
        with self.file.reading() as account:
            return self._dataset(account, name)

    def _dataset(self, account: Account, name: str) -> DataSet:
        if name not in account.datasets:
            raise StudyError(
                f"no data set is called {name!a}",
                rule="unknown-data-set",
                party=self.party,
                remedy=f"Known: {', '.join(account.datasets)}."
                if account.datasets
                else "Start the client once (it registers the source of its role file), or tallystick data add.",
            )
        return account.datasets[name]

    def _group(self, account: Account, name: str) -> Group:
        """The group of the data set of this name, or of this name itself."""
        if name in account.datasets or name not in account.groups:
            name = self._dataset(account, name).group
        return account.groups[name]

    def grant(self, group: str, *, epsilon: float, delta: float, by: str, reason: str = "") -> BudgetView:
        """State the group's new total. It may be larger or smaller than before, never below what is spent."""
        budget = _check_budget(Budget(epsilon=epsilon, delta=delta))
        check_words(by=by, reason=reason)
        with self.file.turn() as account:
            found = self._group(account, group)
            if not covers(budget, found.totals):
                raise BudgetExceeded(
                    f"epsilon = {epsilon:g}, delta = {delta:g} is below what is spent already: "
                    f"{found.totals.spent(delta or 1e-6).statement}",
                    rule="grant-covers-spent",
                    remedy="State a total that covers it; what is spent stays spent.",
                )
            self.file.append(("grant", _grant_facts(found.name, budget, by, reason)))
            return self._view(account, account.groups[found.name])

    def view(self, name: str) -> BudgetView:
        """The budget of a group, or of a data set's group."""
        with self.file.reading() as account:
            return self._view(account, self._group(account, name))

    def views(self) -> tuple[BudgetView, ...]:
        """Every budget group."""
        with self.file.reading() as account:
            return tuple(self._view(account, group) for group in account.groups.values())

    def _view(self, account: Account, group: Group) -> BudgetView:
        budget, totals = group.budget, group.totals
        spent = totals.spent(budget.delta or 1e-6)
        left = 0.0 if group.closed else _left(budget, totals)
        names = tuple(d.name for d in account.datasets.values() if d.group == group.name)
        entries = tuple(s for s in account.studies.values() if s.group == group.name)
        return BudgetView(
            group=group.name,
            datasets=names,
            budget=budget,
            spent=spent,
            left_epsilon=left,
            closed=group.closed,
            entries=entries,
            words=_words(group, spent, left, entries),
            totals=totals,
        )


def _check_budget(budget: Budget | None) -> Budget:
    if budget is None:
        raise StudyError(
            "a new budget group needs a budget", rule="budget-stated", remedy="State epsilon: --budget-epsilon 1."
        )
    epsilon, delta = budget.epsilon, budget.delta
    if not (BUDGET_EPSILON.holds(epsilon) and (delta == 0 or BUDGET_DELTA.holds(delta))):
        raise StudyError(
            f"epsilon = {budget.epsilon}, delta = {budget.delta} is no budget",
            rule="budget-stated",
            remedy=f"State an epsilon from {BUDGET_EPSILON.least:g} to {BUDGET_EPSILON.most:g} (1 is a common choice) "
            f"and a delta of 0, or from {BUDGET_DELTA.least:g} to well below 1/records.",
        )
    return budget


def _grant_facts(group: str, budget: Budget, by: str, reason: str) -> dict[str, Any]:
    figures = {"epsilon": repr(float(budget.epsilon)), "delta": repr(float(budget.delta))}
    return {"group": group, **figures, "by": by, "reason": reason}


def _left(budget: Budget, totals: Totals) -> float:
    """The ε of what is left for one more study of the account's unit: of the ρ that the budget's (ε, δ) leaves, or
    of ε itself for a pure budget. Where the study would count for several units, the least that any of them leaves."""
    if not totals.rho:
        return budget.epsilon
    asked, _ = totals.largest
    lefts = []
    for unit, part in totals.whole():
        size = asked.chain(unit, records=totals.person_records)
        if size is None:
            continue
        whole = part.to_convert()
        if budget.delta <= 0:
            lefts.append((budget.exact_epsilon - whole.pure_epsilon) / size if whole.all_pure else Fraction(0))
        else:
            lefts.append(whole.rho_left(budget.epsilon, budget.exact_epsilon, budget.delta) / size**2)
    left = min(lefts)
    if left <= 0:
        return 0.0
    if budget.delta <= 0:
        return float(left)
    return min(budget.epsilon, gaussian_epsilon(left, Fraction(budget.delta) * (1 - RESERVED)))


def _words(group: Group, spent: Spent, left: float, entries: tuple[StudyCharge, ...]) -> str:
    budget = group.budget
    open_ones = sum(e.state == "reserved" for e in entries)
    said = [f"The budget is epsilon = {budget.epsilon:g}, delta = {budget.delta:g}."]
    if not spent.fits:
        said.append("Nothing has been spent.")
    elif spent.epsilon is None:
        exact = group.totals.not_private
        said.append(f"{exact} of {spent.fits} studies released exact sums: no figure bounds what they tell.")
    elif group.totals.mixed_units:
        said.append(f"{spent.statement}.")
        said.append(f"The budget is held against the figure for one {spent.unit.kind}, which bounds all of them.")
    else:
        count = "1 study has" if spent.fits == 1 else f"{spent.fits} studies together have"
        whom = spent.units[0].whom
        said.append(f"{count} spent epsilon = {spent.epsilon:.4g}, delta = {spent.delta:g}, for {whom}.")
    if open_ones:
        said.append(f"{open_ones} of them not released yet; what is reserved counts as spent.")
    if len({e.charge.neighbours for e in entries if e.state != "voided"}) > 1:
        said.append(
            f"They protect different things; the figure is for replacing one {spent.unit.kind}, for which a study for "
            "adding or removing one counts about twice its epsilon."
        )
    if group.closed:
        said.append("CLOSED: a damaged ledger lost entries, perhaps charges; nothing is admitted until a new grant.")
    elif left >= 1e-4:
        whom = "" if spent.unit.kind == "record" and not group.totals.mixed_units else f" for one {spent.unit.kind}"
        said.append(f"One more study{whom} of up to epsilon = {math.floor(left * 1e4 + 1e-3) / 1e4:g} fits.")
    else:
        said.append("Nothing is left.")
    return " ".join(said)
