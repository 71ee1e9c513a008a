"""A data set's account of what it has spent: a pure state machine (its durable store belongs to a role).

An entry is a Rényi curve at fixed public orders, in exact rationals rounded up, so that sampled and pure mechanisms fit
the same account: ρ-zCDP is ρ·α, pure ε is min(ε, ε²α/2) and ε at order ∞. Curves add up; a charge is admitted when some
order stays under its cap. At order α a budget (ε, δ) caps the curve at  ε − [ln(1/δ) + (α−1)ln(1−1/α) − ln α]/(α−1)
[CKS20, Prop. 12]. Exact comparison: equality is allowed, anything above is refused.

reserve → commit. A reservation counts as spent from the moment it is made; it may be withdrawn only while nothing
noised has left. :class:`Totals` is the sum of an account's charges; adding and taking back are exact, so the order in
which concurrent studies come and go leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import BudgetExceeded, LocalProtocolError
from tallystick.privacy.accountant import ORDERS, epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.plan import Plan

__all__ = [
    "ORDERS",
    "STEPS",
    "Budget",
    "Charge",
    "Entry",
    "Ledger",
    "Spent",
    "Totals",
    "admit",
    "charge_of",
    "covers",
    "steps",
]

STEPS = 2**70
"""Curves are whole multiples of 1/STEPS, rounded up: their sums are sums of integers."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one study costs: a curve over :data:`ORDERS`, and its pure ε where it has one."""

    study: bytes
    curve: tuple[Fraction, ...]
    rho: Fraction
    pure_epsilon: Fraction | None
    private: bool = True
    neighbours: str = "replace-one"
    unit: str = "record"


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

    @property
    def exact_epsilon(self) -> Fraction:
        """ε as it was written: 0.3 is 3/10, which three studies of 0.1 reach and do not pass."""
        return max(Fraction(self.epsilon), Fraction(repr(float(self.epsilon))))


@dataclass(frozen=True, kw_only=True)
class Spent:
    """The composition of everything on a ledger."""

    rho: float
    epsilon: float | None
    delta: float
    fits: int
    differentially_private: bool
    statement: str


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The exact sum of an account's charges; ``curve`` counts in 1/:data:`STEPS`.

    Charges for add-remove and for replace-one neighbours are kept apart as well: where both are on one account, only a
    promise for replace-one can be made of it (:meth:`composed`).
    """

    added: int = 0
    """Charges for add-remove neighbours among them."""
    added_rho: Fraction = Fraction(0)
    added_pure: Fraction = Fraction(0)
    added_curve: tuple[int, ...] = (0,) * len(ORDERS)
    charges: int = 0
    not_pure: int = 0
    not_private: int = 0
    rho: Fraction = Fraction(0)
    pure_epsilon: Fraction = Fraction(0)
    curve: tuple[int, ...] = (0,) * len(ORDERS)

    def plus(self, charge: Charge) -> Totals:
        """With this charge on the account."""
        return self._moved(charge, 1)

    def minus(self, charge: Charge) -> Totals:
        """Without a charge that is on the account."""
        return self._moved(charge, -1)

    def _moved(self, charge: Charge, sign: int) -> Totals:
        if len(charge.curve) != len(ORDERS):
            raise LocalProtocolError(f"a charge has a curve at {len(ORDERS)} orders, this one has {len(charge.curve)}")
        pure = charge.pure_epsilon
        here = sign if charge.neighbours == "add-remove" else 0
        return Totals(
            added=self.added + here,
            added_rho=self.added_rho + here * charge.rho,
            added_pure=self.added_pure + here * (pure or Fraction(0)),
            added_curve=tuple([total + here * steps(value) for total, value in zip(self.added_curve, charge.curve)])
            if here
            else self.added_curve,
            charges=self.charges + sign,
            not_pure=self.not_pure + sign * (pure is None and charge.private),
            not_private=self.not_private + sign * (not charge.private),
            rho=self.rho + sign * charge.rho,
            pure_epsilon=self.pure_epsilon + sign * (pure or Fraction(0)),
            curve=tuple([total + sign * steps(value) for total, value in zip(self.curve, charge.curve)]),
        )

    @property
    def mixed(self) -> bool:
        """Whether both relations are on the account."""
        return 0 < self.added < self.charges

    def composed(self) -> Totals:
        """The totals as one promise: for the one relation there is, or for replace-one if there are both.

        To replace a record is to remove one and to add one: ρ-zCDP for add-remove is 4ρ-zCDP for replace-one, pure ε
        is 2ε [BS16, Prop. 1.9]; the other way round there is nothing, for replace-one says nothing about numbers.
        """
        if not self.mixed:
            return self
        curve = [
            whole - part + steps(4 * self.added_rho * order)
            for whole, part, order in zip(self.curve, self.added_curve, ORDERS)
        ]
        return replace(
            self,
            rho=self.rho + 3 * self.added_rho,
            pure_epsilon=self.pure_epsilon + self.added_pure,
            curve=tuple(curve),
            added=0,
        )

    def spent(self, delta: float = 1e-6) -> Spent:
        """Everything on the account, composed, as one statement."""
        if self.mixed:
            return self.composed().spent(delta)
        by_rho = epsilon_from_rho(self.rho, delta) if self.rho else 0.0
        epsilon: float | None = by_rho
        if self.charges > self.not_private and not self.not_pure:
            by_sum = float(self.pure_epsilon)
            epsilon = min(by_sum, by_rho)
            delta = 0.0 if by_sum <= by_rho else delta
        if self.not_private:
            epsilon = None
        words = (
            f"{self.charges} fit(s) together: epsilon = {epsilon:.6g}, delta = {delta:g}"
            if epsilon is not None
            else f"{self.charges} fit(s), at least one of them NOT differentially private"
        )
        return Spent(
            rho=float(self.rho),
            epsilon=epsilon,
            delta=delta,
            fits=self.charges,
            differentially_private=not self.not_private,
            statement=words,
        )


def steps(value: Fraction) -> int:
    """⌈value · STEPS⌉, without the gcd of a product of fractions."""
    return -(-value.numerator * STEPS // value.denominator)


def charge_of(study: bytes, plan: Plan) -> Charge:
    """The charge of a plan: the composition of its rounds' curves, rounded up.

    Rounds on the same records add up; rounds of a stream, each on records of its own, cost their maximum.
    """
    rho, pure = plan.rho, plan.pure_epsilon
    sampled = plan.sampled_curve()
    curve = []
    for number, order in enumerate(ORDERS):
        value = rho * order if pure is None else min(rho * order, pure)
        if sampled is not None:
            value = min(value, Fraction(sampled[number]))
        curve.append(Fraction(steps(value), STEPS))
    return Charge(
        study=study,
        curve=tuple(curve),
        rho=rho,
        pure_epsilon=pure,
        private=plan.differentially_private,
        neighbours=plan.claim.neighbours,
        unit=plan.claim.unit,
    )


def admit(totals: Totals, charge: Charge, budget: Budget, *, allow_not_private: bool = False) -> Totals:
    """The totals with this charge, if the budget covers them; :class:`BudgetExceeded` otherwise.

    A study without noise costs more than any budget. Where the owner allows it all the same it is put on the account,
    whose statement then says so; the budget goes on to bound the others.
    """
    after = totals.plus(charge)
    if not charge.private and not allow_not_private:
        raise BudgetExceeded(
            "a study without noise costs more than any budget",
            rule="budget-covers-charge",
            remedy='Use mechanism = "gaussian" or "laplace".',
        )
    if not charge.private or covers(budget, after):
        return after
    already, whole = totals.spent(budget.delta or 1e-6), after.spent(budget.delta or 1e-6)
    raise BudgetExceeded(
        f"the data set's budget is epsilon = {budget.epsilon:g}, delta = {budget.delta:g} and does not cover this "
        f"study: with it, {f'epsilon = {whole.epsilon:.4g}' if whole.epsilon is not None else 'more than any budget'} "
        f"would be spent; so far {already.statement if already.fits else 'nothing is'}",
        rule="budget-covers-charge",
        remedy="Lower epsilon, or ask the data steward for a larger budget.",
    )


def covers(budget: Budget, totals: Totals) -> bool:
    """Whether the noised studies of this account stay within the budget; equality is within."""
    totals = totals.composed()
    if not totals.not_pure and totals.pure_epsilon <= budget.exact_epsilon:
        return True
    if budget.delta <= 0:
        return False
    # Every charge is zCDP: Σρ under the budget's own ρ is the same test at every real order at once, so that a
    # study asking for exactly the whole budget is admitted (equality is allowed).
    if totals.rho <= _whole_rho(budget.epsilon, budget.delta):
        return True
    return any(spent <= cap for spent, cap in zip(totals.curve, _caps(budget.epsilon, budget.delta)))


@lru_cache(maxsize=256)
def _whole_rho(epsilon: float, delta: float) -> Fraction:
    return rho_from_epsilon(epsilon, delta)


@lru_cache(maxsize=256)
def _caps(epsilon: float, delta: float) -> tuple[int, ...]:
    """The caps at :data:`ORDERS` in 1/STEPS, rounded down: 2^-48 of every term covers what float64 makes of them."""
    caps = []
    for order in ORDERS:
        a = float(order)
        terms = (math.log(1 / delta), (a - 1) * math.log1p(-1 / a), -math.log(a))
        shift = Fraction(math.fsum(terms)) + Fraction(sum(map(abs, terms))) / 2**48
        caps.append(math.floor((Fraction(epsilon) - shift / (order - 1)) * STEPS))
    return tuple(caps)


class Ledger:
    """Entries in order, an optional budget, and the rule of admission."""

    def __init__(self, budget: Budget | None = None, entries: Iterable[Entry] = ()) -> None:
        self.budget = budget
        self._entries = list(entries)
        self._totals = Totals()
        for entry in self._entries:
            self._totals = self._totals.plus(entry.charge)

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries)

    def reserve(self, charge: Charge) -> Entry:
        """Admit the charge or raise :class:`BudgetExceeded`; from now on it is spent."""
        if self.budget is None:
            self._totals = self._totals.plus(charge)
        else:
            self._totals = admit(self._totals, charge, self.budget)
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
        self._totals = self._totals.minus(entry.charge)

    def spent(self, delta: float = 1e-6) -> Spent:
        """Everything so far, composed, as one statement."""
        return self._totals.spent(delta)

    def _check(self, entry: Entry) -> None:
        known = 0 < entry.number <= len(self._entries)
        if not known or self._entries[entry.number - 1] != entry or entry.committed:
            raise LocalProtocolError("this is not an open reservation of this ledger")
