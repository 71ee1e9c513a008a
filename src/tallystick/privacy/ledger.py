"""A data set's account of what it has spent: a pure state machine (its durable store belongs to a role).

An entry is a Rényi curve at fixed public orders, in exact rationals rounded up, so that sampled and pure mechanisms fit
the same account: ρ-zCDP is ρ·α, pure ε is min(ε, ε²α/2) and ε at order ∞. Curves add up; a charge is admitted when some
order stays under its cap. At order α a budget (ε, δ) caps the curve at  ε − [ln(1/δ) + (α−1)ln(1−1/α) − ln α]/(α−1)
[CKS20, Prop. 12]. Exact comparison: equality is allowed, anything above is refused. Charges whose noise is all Gaussian
are told apart, and admitted by the exact Gaussian curve as well (:mod:`tallystick.privacy.conversion`).

reserve → commit. A reservation counts as spent from the moment it is made; it may be withdrawn only while nothing
noised has left. What charges add up to, each for the unit it protects, is in :mod:`tallystick.privacy.totals`; a budget
bounds every unit for which a figure covers the whole account.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tallystick.core.errors import BudgetExceeded, LocalProtocolError
from tallystick.privacy.accountant import ORDERS, pure_rho, rho_from_epsilon
from tallystick.privacy.gaussian_curve import RESERVED, gaussian_rho
from tallystick.privacy.plan import Plan
from tallystick.privacy.spent import Spent
from tallystick.privacy.totals import STEPS, Charge, Totals, UnitTotals, steps
from tallystick.privacy.units import Unit


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


def charge_of(study: bytes, plan: Plan) -> Charge:
    """The charge of a plan: the composition of its rounds' curves, rounded up.

    Rounds on the same records add up; rounds of a stream, each on records of its own, cost their maximum.
    """
    rho, pure = plan.rho, plan.pure_epsilon
    known = plan.renyi_curve()
    curve = []
    for number, order in enumerate(ORDERS):
        value = rho * order if pure is None else min(rho * order, pure)
        if known is not None:
            value = min(value, Fraction(known[number]))
        curve.append(Fraction(steps(value), STEPS))
    return Charge(
        study=study,
        curve=tuple(curve),
        rho=rho,
        pure_epsilon=pure,
        private=plan.differentially_private,
        neighbours=plan.claim.neighbours,
        unit=plan.claim.unit,
        person=plan.claim.person,
        max_records=plan.claim.max_records,
        max_institutions=plan.claim.max_institutions,
        gaussian_distance=plan.gaussian_distance,
        distance_aside=plan.claim.distance_aside,
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
        f"would be spent for any one {whole.unit.words}; so far {already.statement if already.fits else 'nothing is'}",
        rule="budget-covers-charge",
        remedy="Lower epsilon, or ask the data steward for a larger budget.",
    )


def typical_charge(epsilon: float, delta: float, unit: Unit, neighbours: str) -> Charge:
    """What a study of (ε, δ) costs that uses all it asks for: Gaussian rounds, or pure ε where δ is 0."""
    pure = None if delta > 0 else Fraction(repr(float(epsilon)))
    rho = gaussian_rho(epsilon, Fraction(delta) * (1 - RESERVED)) if pure is None else pure_rho(pure)
    costs = [rho * order if pure is None else min(rho * order, pure) for order in ORDERS]
    return Charge(
        study=b"",
        curve=tuple(Fraction(steps(cost), STEPS) for cost in costs),
        rho=rho,
        pure_epsilon=pure,
        neighbours=neighbours,
        unit=unit.kind,
        person=unit.person,
        max_records=unit.max_records,
        max_institutions=unit.max_institutions,
        gaussian_distance=Fraction(0) if pure is None else None,
    )


def how_many_fit(totals: Totals, charge: Charge, budget: Budget) -> int:
    """How often this charge would be admitted, one after the other: :func:`admit`'s own question, asked of multiples.

    Every sum grows with every charge, so what is covered n times is covered n − 1 times, and halving finds n.
    """
    low, high = 0, 1
    while covers(budget, totals.plus(charge, high)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if covers(budget, totals.plus(charge, middle)) else (low, middle)
    return low


def covers(budget: Budget, totals: Totals) -> bool:
    """Whether the noised studies of this account stay within the budget, for every unit that it bounds as a whole."""
    return all(covers_sum(budget, part) for _, part in totals.whole())


def covers_sum(budget: Budget, totals: UnitTotals) -> bool:
    """Whether charges that all bound one unit stay within the budget; equality is within."""
    whole = totals.to_convert()
    if whole.all_pure and not whole.aside and whole.pure_epsilon <= budget.exact_epsilon:
        return True
    left = whole.delta_left(budget.epsilon, budget.delta)
    if left > 0:
        # Every charge is zCDP: Σρ under the budget's own ρ is the same test at every real order at once, so that a
        # study asking for exactly the whole budget is admitted (equality is allowed).
        if whole.rho <= rho_from_epsilon(budget.epsilon, left):
            return True
        # The same by the exact curve: such a study has its ρ at δ less a millionth, which covers its distance.
        if whole.on_curve(budget.exact_epsilon, budget.delta):
            return True
        if any(spent <= cap for spent, cap in zip(totals.composed().curve, _caps(budget.epsilon, left))):
            return True
    if budget.delta <= 0 or not (whole.aside or whole.distance):
        return False
    # Distances weigh less at a smaller ε, (1 + e^ε)·D: what is promised there is promised here.
    epsilon, delta = whole.promise(budget.delta)
    return epsilon <= budget.epsilon and delta <= budget.delta


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

    def __init__(
        self, budget: Budget | None = None, entries: Iterable[Entry] = (), *, person_records: int | None = None
    ) -> None:
        self.budget = budget
        self._entries = list(entries)
        self._totals = Totals(person_records=person_records)
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
