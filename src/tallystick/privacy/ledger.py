"""A data set's account of what it has spent: a pure state machine (its durable store belongs to a role).

An entry is a Rényi curve at fixed public orders, in exact rationals rounded up, so that sampled and pure mechanisms fit
the same account: ρ-zCDP is ρ·α, pure ε is min(ε, ε²α/2) and ε at order ∞. Curves add up; a charge is admitted when some
order stays under its cap. At order α a budget (ε, δ) caps the curve at  ε − [ln(1/δ) + (α−1)ln(1−1/α) − ln α]/(α−1)
[CKS20, Prop. 12]. Exact comparison: equality is allowed, anything above is refused.

reserve → commit. A reservation counts as spent from the moment it is made; it may be withdrawn only while nothing
noised has left.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tallystick.core.errors import BudgetExceeded, LocalProtocolError
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.plan import Plan

__all__ = ["ORDERS", "Budget", "Charge", "Entry", "Ledger", "Spent", "charge_of"]

ORDERS: tuple[Fraction, ...] = (
    *(Fraction(n, 16) for n in range(17, 48)),
    *(Fraction(n, 2) for n in range(6, 64)),
    *(Fraction(2**k) for k in range(5, 24)),
    *(Fraction(3 * 2**k) for k in range(4, 22)),
)
_BITS = 2**70


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one study costs: a curve over :data:`ORDERS`, and its pure ε where it has one."""

    study: bytes
    curve: tuple[Fraction, ...]
    rho: Fraction
    pure_epsilon: Fraction | None
    private: bool = True


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the ledger. ``committed`` is False while the study runs (and after a crash): spent all the same."""

    number: int
    charge: Charge
    committed: bool


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most a data set may ever spend."""

    epsilon: float
    delta: float = 1e-6


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The composition of everything on a ledger."""

    rho: float
    epsilon: float | None
    delta: float
    fits: int
    differentially_private: bool
    statement: str


def charge_of(study: bytes, plan: Plan) -> Charge:
    """The charge of a plan: the sum of its rounds' curves, each rounded up."""
    rho = plan.rho
    pure: Fraction | None = None
    if plan.claim.mechanism == "laplace":
        pure = sum((r.epsilon or Fraction(0) for r in plan.rounds), Fraction(0))
    curve = []
    for order in ORDERS:
        value = rho * order if pure is None else min(rho * order, pure)
        curve.append(Fraction(math.ceil(value * _BITS), _BITS))
    return Charge(study=study, curve=tuple(curve), rho=rho, pure_epsilon=pure, private=plan.differentially_private)


class Ledger:
    """Entries in order, an optional budget, and the rule of admission."""

    def __init__(self, budget: Budget | None = None, entries: Iterable[Entry] = ()) -> None:
        self.budget = budget
        self._entries = list(entries)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def reserve(self, charge: Charge) -> Entry:
        """Admit the charge or raise :class:`BudgetExceeded`; from now on it is spent."""
        if self.budget is not None:
            self._admit(charge, self.budget)
        entry = Entry(number=len(self._entries) + 1, charge=charge, committed=False)
        self._entries.append(entry)
        return entry

    def commit(self, entry: Entry) -> Entry:
        """The study released its result: the entry stays for ever."""
        self._check(entry)
        done = Entry(number=entry.number, charge=entry.charge, committed=True)
        self._entries[entry.number - 1] = done
        return done

    def withdraw(self, entry: Entry) -> None:
        """Take back the newest reservation; only while nothing noised has left (the caller's duty to know)."""
        self._check(entry)
        if entry.number != len(self._entries):
            raise LocalProtocolError("only the newest reservation can be withdrawn")
        self._entries.pop()

    def spent(self, delta: float = 1e-6) -> Spent:
        """Everything so far, composed, as one statement."""
        charges = [e.charge for e in self._entries]
        private = all(c.private for c in charges)
        rho = sum((c.rho for c in charges), Fraction(0))
        pure = [c.pure_epsilon for c in charges]
        by_rho = epsilon_from_rho(rho, delta) if rho else 0.0
        epsilon: float | None
        if charges and all(p is not None for p in pure):
            by_sum = float(sum((p or Fraction(0) for p in pure), Fraction(0)))
            epsilon = min(by_sum, by_rho)
            delta = 0.0 if by_sum <= by_rho else delta
        else:
            epsilon = by_rho
        if not private:
            epsilon = None
        words = (
            f"{len(charges)} fit(s) together: epsilon = {epsilon:.6g}, delta = {delta:g}"
            if epsilon is not None
            else f"{len(charges)} fit(s), at least one of them NOT differentially private"
        )
        return Spent(
            rho=float(rho),
            epsilon=epsilon,
            delta=delta,
            fits=len(charges),
            differentially_private=private,
            statement=words,
        )

    def _check(self, entry: Entry) -> None:
        known = 0 < entry.number <= len(self._entries)
        if not known or self._entries[entry.number - 1] != entry or entry.committed:
            raise LocalProtocolError("this is not an open reservation of this ledger")

    def _admit(self, charge: Charge, budget: Budget) -> None:
        charges = [e.charge for e in self._entries] + [charge]
        if not all(c.private for c in charges):
            raise BudgetExceeded(
                "a study without noise costs more than any budget",
                rule="budget-covers-charge",
                remedy='Use mechanism = "gaussian" or "laplace".',
            )
        pure = [c.pure_epsilon for c in charges]
        if all(p is not None for p in pure) and sum(p or Fraction(0) for p in pure) <= Fraction(budget.epsilon):
            return
        if budget.delta > 0:
            # All charges so far are zCDP: Σρ under the budget's own ρ is the same test at every real order at once,
            # so that a study asking for exactly the whole budget is admitted (equality is allowed).
            if sum(c.rho for c in charges) <= rho_from_epsilon(budget.epsilon, budget.delta):
                return
            totals = [sum((c.curve[i] for c in charges), Fraction(0)) for i in range(len(ORDERS))]
            if any(total <= _cap(order, budget) for order, total in zip(ORDERS, totals)):
                return
        already = self.spent(budget.delta or 1e-6)
        raise BudgetExceeded(
            f"the data set's budget (epsilon = {budget.epsilon:g}, delta = {budget.delta:g}) does not cover "
            "this study: "
            f"{already.statement if already.fits else 'nothing was spent before'}",
            rule="budget-covers-charge",
            remedy="Lower epsilon, or ask the data steward for a larger budget.",
        )


def _cap(order: Fraction, budget: Budget) -> Fraction:
    a = float(order)
    shift = (math.log(1 / budget.delta) + (a - 1) * math.log1p(-1 / a) - math.log(a)) / (a - 1)
    return Fraction(budget.epsilon) - Fraction(shift * (1 + 1e-15) if shift > 0 else shift)
