"""What charges add up to: unit by unit, exactly, and what of it can be said with one figure.

Charges of one unit add up (:class:`UnitTotals`). Charges of different units are kept apart (:class:`Totals`): for each
unit on the account there is a figure of its own, into which the others go by group privacy where that bounds them
(:mod:`tallystick.privacy.units`), and are named as left out where it does not. Adding and taking back are exact, so the
order in which concurrent studies come and go leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import reduce
from typing import Any

from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.accountant import ORDERS
from tallystick.privacy.conversion import Composed
from tallystick.privacy.spent import Spent, UnitSpent
from tallystick.privacy.units import RECORD, Unit

STEPS = 2**70
"""Curves are whole multiples of 1/STEPS, rounded up: their sums are sums of integers."""


def steps(value: Fraction) -> int:
    """⌈value · STEPS⌉, without the gcd of a product of fractions."""
    return -(-value.numerator * STEPS // value.denominator)


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What one study costs: a curve over :data:`ORDERS`, its pure ε where it has one, and for whom."""

    study: bytes
    curve: tuple[Fraction, ...]
    rho: Fraction
    pure_epsilon: Fraction | None
    private: bool = True
    neighbours: str = "replace-one"
    unit: str = "record"
    person: str | None = None
    max_records: int = 1
    max_institutions: int = 1
    gaussian_distance: Fraction | None = None
    """Where all noise is Gaussian, with μ² = 2ρ: how far it is from a rounded Gaussian (:class:`Plan`); else None."""
    distance_aside: Fraction = Fraction(0)
    """What the trust model's own means may tell, as a total variation (:attr:`Claim.distance_aside`)."""

    @property
    def protects(self) -> Unit:
        """The unit in full."""
        if self.unit == "record":
            return RECORD
        return Unit(
            kind=self.unit,
            person=self.person,
            max_records=self.max_records,
            max_institutions=self.max_institutions,
        )


@dataclass(frozen=True, kw_only=True)
class UnitTotals:
    """The exact sum of charges that all say something about one unit; ``curve`` counts in 1/:data:`STEPS`.

    Charges for add-remove and for replace-one neighbours are kept apart as well: where both are there, only a promise
    for replace-one can be made of them (:meth:`composed`).
    """

    added: int = 0
    """Charges for add-remove neighbours among them."""
    added_rho: Fraction = Fraction(0)
    added_pure: Fraction = Fraction(0)
    added_curve: tuple[int, ...] = (0,) * len(ORDERS)
    added_gaussian_rho: Fraction = Fraction(0)
    added_distance: Fraction = Fraction(0)
    added_aside: Fraction = Fraction(0)
    charges: int = 0
    not_pure: int = 0
    not_private: int = 0
    rho: Fraction = Fraction(0)
    pure_epsilon: Fraction = Fraction(0)
    curve: tuple[int, ...] = (0,) * len(ORDERS)
    gaussian: int = 0
    """Charges whose noise is all Gaussian, the Σρ of these, and their distances from rounded Gaussians."""
    gaussian_rho: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)
    aside: Fraction = Fraction(0)
    """What trust models' own means may tell, in all, as a total variation."""

    @classmethod
    def of(cls, charge: Charge) -> UnitTotals:
        """One charge alone."""
        if len(charge.curve) != len(ORDERS):
            raise LocalProtocolError(f"a charge has a curve at {len(ORDERS)} orders, this one has {len(charge.curve)}")
        pure = charge.pure_epsilon
        # One of the three: charges are told apart by their numbers, and one that says two things must not count twice.
        normal = charge.private and pure is None and charge.gaussian_distance is not None
        alone = cls(
            charges=1,
            not_pure=int(pure is None and charge.private),
            not_private=int(not charge.private),
            rho=charge.rho,
            pure_epsilon=pure or Fraction(0),
            curve=tuple([steps(value) for value in charge.curve]),
            gaussian=int(normal),
            gaussian_rho=charge.rho if normal else Fraction(0),
            distance=(charge.gaussian_distance or Fraction(0)) if normal else Fraction(0),
            aside=charge.distance_aside,
        )
        if charge.neighbours != "add-remove":
            return alone
        return replace(
            alone,
            added=1,
            added_rho=alone.rho,
            added_pure=alone.pure_epsilon,
            added_curve=alone.curve,
            added_gaussian_rho=alone.gaussian_rho,
            added_distance=alone.distance,
            added_aside=alone.aside,
        )

    def joined(self, other: UnitTotals, sign: int = 1) -> UnitTotals:
        """With (+1) or without (−1) the other: field by field."""

        def moved(mine: Any, others: Any) -> Any:
            if isinstance(mine, tuple):
                return tuple([a + sign * b for a, b in zip(mine, others)])
            return mine + sign * others

        return UnitTotals(**{f.name: moved(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    def grouped(self, size: int) -> UnitTotals:
        """For groups of so many units: k²ρ and kε [BS16, Prop. 1.9; DR14, Thm. 2.2].

        Curves that are not ρα (of sampled rounds, of pure ε) have no such rule here and are bounded by their k²ρα.
        Gaussian rounds that are shifted k times as far have k²ρ. A distance is that of every data set's own law,
        however far apart two are, but for a stream, where k records may be in k ticks: k times.
        """
        if size == 1:
            return self
        square = size**2
        return replace(
            self,
            added_rho=square * self.added_rho,
            added_pure=size * self.added_pure,
            added_curve=_zcdp(square * self.added_rho),
            rho=square * self.rho,
            pure_epsilon=size * self.pure_epsilon,
            curve=_zcdp(square * self.rho),
            added_gaussian_rho=square * self.added_gaussian_rho,
            added_distance=size * self.added_distance,
            added_aside=size * self.added_aside,
            gaussian_rho=square * self.gaussian_rho,
            distance=size * self.distance,
            aside=size * self.aside,
        )

    @property
    def mixed(self) -> bool:
        """Whether both relations are there."""
        return 0 < self.added < self.charges

    @property
    def neighbours(self) -> str:
        """The relation for which one promise can be made of them."""
        return "add-remove" if self.charges and self.added == self.charges else "replace-one"

    def composed(self) -> UnitTotals:
        """The totals as one promise: for the one relation there is, or for replace-one if there are both.

        To replace a record is to remove one and to add one: ρ-zCDP for add-remove is 4ρ-zCDP for replace-one, pure ε
        is 2ε [BS16, Prop. 1.9]; the other way round there is nothing, for replace-one says nothing about numbers.
        Gaussian rounds and distances as for groups of two (:meth:`grouped`).
        """
        if not self.mixed:
            return self
        twice = _zcdp(4 * self.added_rho)
        return replace(
            self,
            rho=self.rho + 3 * self.added_rho,
            pure_epsilon=self.pure_epsilon + self.added_pure,
            curve=tuple([whole - part + more for whole, part, more in zip(self.curve, self.added_curve, twice)]),
            gaussian_rho=self.gaussian_rho + 3 * self.added_gaussian_rho,
            distance=self.distance + self.added_distance,
            aside=self.aside + self.added_aside,
            added=0,
        )

    def to_convert(self) -> Composed:
        """What a figure for one unit is made of, as one promise (:mod:`tallystick.privacy.conversion`)."""
        one = self.composed()
        return Composed(
            rho=one.rho,
            pure_epsilon=one.pure_epsilon,
            all_pure=not one.not_pure,
            # Every charge that is not pure is Gaussian: then the exact curve holds, with Σε of the pure ones on top.
            gaussian_rho=one.gaussian_rho if one.gaussian == one.not_pure else None,
            distance=one.distance,
            aside=one.aside,
        )

    def spent(self, unit: Unit, delta: float, left_out: int) -> UnitSpent:
        """The same as a figure for this unit at δ."""
        if self.mixed:
            return self.composed().spent(unit, delta, left_out)
        epsilon, delta = self.to_convert().promise(delta)
        return UnitSpent(
            unit=unit,
            neighbours=self.neighbours,
            rho=float(self.rho),
            epsilon=None if self.not_private else epsilon,
            delta=delta,
            fits=self.charges,
            left_out=left_out,
        )


def _zcdp(rho: Fraction) -> tuple[int, ...]:
    return tuple([steps(rho * order) for order in ORDERS])


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The exact sum of an account's charges, unit by unit.

    ``person_records``: what nobody has more records of in the data set, where its owner declares that as a public fact.
    """

    units: tuple[tuple[Unit, UnitTotals], ...] = ()
    person_records: int | None = None

    def plus(self, charge: Charge, times: int = 1) -> Totals:
        """With this charge on the account, so many times."""
        return self._moved(charge, times)

    def minus(self, charge: Charge) -> Totals:
        """Without a charge that is on the account."""
        return self._moved(charge, -1)

    def _moved(self, charge: Charge, sign: int) -> Totals:
        unit = charge.protects
        kept = dict(self.units)
        kept[unit] = kept.get(unit, UnitTotals()).joined(UnitTotals.of(charge), sign)
        if not kept[unit].charges:
            del kept[unit]
        return replace(self, units=tuple(sorted(kept.items(), key=_place)))

    def figure(self, asked: Unit) -> tuple[UnitTotals, int]:
        """Everything that bounds what is said about ``asked``, converted; and how many charges bound nothing."""
        bounded, left_out = [], 0
        for unit, part in self.units:
            size = unit.chain(asked, records=self.person_records)
            if size is None:
                left_out += part.charges
            else:
                bounded.append(part.grouped(size))
        return _sum(bounded), left_out

    def whole(self) -> tuple[tuple[Unit, UnitTotals], ...]:
        """The units on the account for which every charge is bounded; a record, if there is none of them."""
        found = [(unit, *self.figure(unit)) for unit, _ in self.units]
        return tuple([(unit, part) for unit, part, left_out in found if not left_out]) or (
            (RECORD, self.figure(RECORD)[0]),
        )

    @property
    def largest(self) -> tuple[Unit, UnitTotals]:
        """The one of :meth:`whole` that costs most: what a budget is compared with."""
        return max(self.whole(), key=lambda one: (one[1].composed().rho, one[1].composed().pure_epsilon))

    def summed(self) -> UnitTotals:
        """All charges as if they were for one unit: how versions before units were told apart admitted them."""
        return _sum([part for _, part in self.units])

    def composed(self) -> UnitTotals:
        """The largest figure as one promise."""
        return self.largest[1].composed()

    @property
    def mixed_units(self) -> bool:
        """Whether the charges are for different units."""
        return len(self.units) > 1

    @property
    def charges(self) -> int:
        return sum(part.charges for _, part in self.units)

    @property
    def not_pure(self) -> int:
        return sum(part.not_pure for _, part in self.units)

    @property
    def not_private(self) -> int:
        return sum(part.not_private for _, part in self.units)

    @property
    def rho(self) -> Fraction:
        """Σρ, of the largest figure."""
        return self.largest[1].rho

    @property
    def pure_epsilon(self) -> Fraction:
        """Σε, of the largest figure."""
        return self.largest[1].pure_epsilon

    @property
    def curve(self) -> tuple[int, ...]:
        """The sum of the curves, of the largest figure."""
        return self.largest[1].curve

    def spent(self, delta: float = 1e-6) -> Spent:
        """Everything on the account, composed, as one statement; unit by unit where there are several."""
        unit, part = self.largest
        head = part.spent(unit, delta, 0)
        asked = dict.fromkeys([RECORD, *(u for u, _ in self.units)]) if self.mixed_units else {unit: None}
        units = []
        for one in asked:
            found, left_out = self.figure(one)
            units.append(found.spent(one, delta, left_out))
        return Spent(
            rho=head.rho,
            epsilon=head.epsilon,
            delta=head.delta,
            fits=self.charges,
            differentially_private=not self.not_private,
            statement=self._words(tuple(units)),
            unit=unit,
            neighbours=head.neighbours,
            units=tuple(units),
        )

    def _words(self, units: tuple[UnitSpent, ...]) -> str:
        if self.not_private:
            return f"{self.charges} fit(s), at least one of them NOT differentially private"
        if not self.mixed_units:
            return f"{self.charges} fit(s) together: {units[0].figure}, for {units[0].whom}"
        said = []
        for one in units:
            own = dict(self.units).get(one.unit)
            others = one.fits - (0 if own is None else own.charges)
            notes = [f"by {one.fits} of them"]
            if others:
                notes.append(f"{others} for other units, counted by group privacy")
            if one.left_out:
                notes.append(f"the other {one.left_out} bound(s) nothing here")
            said.append(f"For {one.whom}: {one.figure} ({', '.join(notes)})")
        return f"{self.charges} fit(s) for different units, stated for each. {'. '.join(said)}"


def _sum(parts: Sequence[UnitTotals]) -> UnitTotals:
    return reduce(UnitTotals.joined, parts) if parts else UnitTotals()


def _place(one: tuple[Unit, UnitTotals]) -> tuple[bool, str, int, int]:
    """Records first; otherwise any order that does not depend on who came first."""
    unit = one[0]
    return unit.kind != "record", unit.person or "", unit.max_institutions, unit.max_records
