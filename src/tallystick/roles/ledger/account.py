"""What the links of a ledger add up to: data sets, budgets, and each study's charge. Pure: a fold over the chain.

There is no table of balances that could disagree with the chain: the account is made from the links, again at every
start. Data sets whose records are the same records share a *budget group*; charges of all of them add up there.

    reserve ──release──▶ released ──commit──▶ committed      all three are spent
       └─────void──────▶ voided                              only while nothing has left; may be reserved anew

After links of the ledger itself were lost (``recovered``), every charge that is still known counts as spent, and all
groups are *closed*, for some may not be: nothing more is admitted until the steward grants a budget anew.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.core.identifiers import format_hash, parse_hash
from tallystick.privacy.accountant import ORDERS
from tallystick.privacy.chain import KINDS, Link, parse_body
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import STEPS, Charge, Totals, steps
from tallystick.protocol.governance.bodies import MAX_DIGITS
from tallystick.study.schema import Schema

_GAUSSIAN, _ASIDE = "gaussian_distance", "distance_aside"
_OF_A_PERSON = ("person", "max_records", "max_institutions")


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """How a source is known again: where it is, its bytes, and its records in whatever order and format."""

    location: str
    bytes: str = ""
    content: str = field(default="", repr=False)

    def shared_with(self, other: Fingerprint) -> str | None:
        """What two sources have in common, if that makes them the same records."""
        if self.location == other.location:
            return "it is the same file or address"
        if self.bytes and self.bytes == other.bytes:
            return "the files are equal byte for byte"
        if self.content and self.content == other.content:
            return "the records are the same, in another order or format"
        return None


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A registered source; ``ident`` is the opaque name that others may see."""

    name: str
    source: str
    fingerprint: Fingerprint
    group: str
    unit: str = "record"
    person: str | None = None
    schema: Schema | None = None
    ident: str = ""
    registered_at: int = 0
    changed_at: int | None = None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """A budget as the steward stated it: the group's new total."""

    budget: Budget
    by: str
    reason: str
    at: int
    sequence: int


@dataclass(frozen=True, kw_only=True)
class StudyCharge:
    """A study on the account; ``sequence`` is that of its reservation."""

    charge: Charge
    name: str
    dataset: str
    group: str
    state: str
    sequence: int
    at: int
    total_rho: Fraction
    """The group's Σρ right after the reservation, as it can be written; where units are mixed, of the largest figure
    that bounds them all."""
    result: str = ""


@dataclass(frozen=True, kw_only=True)
class Group:
    """A budget and what is charged to it."""

    name: str
    grants: tuple[Grant, ...] = ()
    totals: Totals = field(default_factory=Totals)
    closed: bool = False

    @property
    def budget(self) -> Budget:
        return self.grants[-1].budget


def charge_facts(charge: Charge) -> dict[str, Any]:
    """A charge as it is written into a link; the curve is rounded up to whole steps."""
    pure = charge.pure_epsilon
    named = (charge.person, charge.max_records, charge.max_institutions)
    return {
        "study": format_hash(charge.study),
        "rho": ratio(charge.rho),
        "pure_epsilon": None if pure is None else ratio(pure),
        "curve": [steps(value) for value in charge.curve],
        "private": charge.private,
        "neighbours": charge.neighbours,
        "unit": charge.unit,
        # Only where persons are the unit: links about records stay what they were, to the byte.
        **(dict(zip(_OF_A_PERSON, named)) if charge.protects.kind == "person" and charge.protects.noted else {}),
        # Only where there is one: a charge without the first was not made by the exact Gaussian curve.
        **({} if charge.gaussian_distance is None else {_GAUSSIAN: ratio(charge.gaussian_distance)}),
        **({_ASIDE: ratio(charge.distance_aside)} if charge.distance_aside else {}),
    }


def dataset_facts(dataset: DataSet) -> dict[str, Any]:
    """A data set as it is written into a ``register`` link."""
    mark = dataset.fingerprint
    return {
        "name": dataset.name,
        "id": dataset.ident,
        "group": dataset.group,
        "source": dataset.source,
        "location": mark.location,
        "bytes": mark.bytes,
        "content": mark.content,
        "unit": dataset.unit,
        "person": dataset.person,
        "schema": None if dataset.schema is None else [list(c) for c in dataset.schema.to_dict().items()],  # in order
    }


class Account:
    """The state of a ledger after some of its links."""

    def __init__(self) -> None:
        self.datasets: dict[str, DataSet] = {}
        self.groups: dict[str, Group] = {}
        self.studies: dict[bytes, StudyCharge] = {}

    def apply(self, link: Link) -> None:
        """Take one more link into account; one that cannot follow is an error that names it."""
        body = parse_body(link)
        try:
            if link.kind not in KINDS:
                raise ValueError
            getattr(self, f"_{link.kind}")(link, body)
        except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, TallystickError) as error:
            raise VerificationError(
                f"the ledger's link {link.sequence} ({link.kind}) says what cannot be: {type(error).__name__}",
                rule="ledger-account",
                remedy="Restore the newest copy of the state directory; if there is none: tallystick ledger recover.",
            ) from None

    def _register(self, link: Link, body: Mapping[str, Any]) -> None:
        name = body["name"]
        if name in self.datasets:
            raise ValueError
        schema = body["schema"]
        self.datasets[name] = DataSet(
            name=name,
            source=body["source"],
            fingerprint=Fingerprint(location=body["location"], bytes=body["bytes"], content=body["content"]),
            group=body["group"],
            unit=body["unit"],
            person=body["person"],
            schema=None if schema is None else Schema.from_dict(dict(schema)),
            ident=body["id"],
            registered_at=body["at"],
        )
        self.groups.setdefault(body["group"], Group(name=body["group"]))

    def _changed(self, link: Link, body: Mapping[str, Any]) -> None:
        mark = Fingerprint(location=body["location"], bytes=body["bytes"], content=body["content"])
        known = self.datasets[body["name"]]
        self.datasets[body["name"]] = replace(known, fingerprint=mark, source=body["source"], changed_at=body["at"])

    def _grant(self, link: Link, body: Mapping[str, Any]) -> None:
        group = self.groups.get(body["group"], Group(name=body["group"]))
        budget = Budget(epsilon=float(body["epsilon"]), delta=float(body["delta"]))
        if not (0 < budget.epsilon < math.inf and 0 <= budget.delta < 1):
            raise ValueError
        grant = Grant(budget=budget, by=body["by"], reason=body["reason"], at=body["at"], sequence=link.sequence)
        self.groups[group.name] = replace(group, grants=(*group.grants, grant), closed=False)

    def _reserve(self, link: Link, body: Mapping[str, Any]) -> None:
        charge = _charge(body)
        known = self.studies.get(charge.study)
        if known is not None and known.state != "voided":
            raise ValueError
        self._charge(link, charge, body)

    def _charge(self, link: Link, charge: Charge, body: Mapping[str, Any]) -> None:
        group = self.groups[body["group"]]
        totals = group.totals.plus(charge)
        self.groups[group.name] = replace(group, totals=totals)
        self.studies[charge.study] = StudyCharge(
            charge=charge,
            name=body["study_name"],
            dataset=body["dataset"],
            group=group.name,
            state="reserved",
            sequence=link.sequence,
            at=body["at"],
            total_rho=_writable(totals.rho),
        )

    def _release(self, link: Link, body: Mapping[str, Any]) -> None:
        self._move(body, "reserved", "released")

    def _commit(self, link: Link, body: Mapping[str, Any]) -> None:
        self._move(body, "released", "committed", result=body["result"])

    def _void(self, link: Link, body: Mapping[str, Any]) -> None:
        known = self._move(body, "reserved", "voided")
        group = self.groups[known.group]
        self.groups[group.name] = replace(group, totals=group.totals.minus(known.charge))

    def _move(self, body: Mapping[str, Any], old: str, new: str, **more: str) -> StudyCharge:
        study = parse_hash(body["study"])
        known = self.studies[study]
        if known.state != old or known.sequence != body["reserved"]:
            raise ValueError
        self.studies[study] = replace(known, state=new, **more)  # type: ignore[arg-type]
        return known

    def _recovered(self, link: Link, body: Mapping[str, Any]) -> None:
        """What lost links are known to have said is taken over; every reservation may have been released by now."""
        for carried in body["carried"]:
            kind, facts = carried["kind"], {"at": body["at"], **carried["body"]}
            if kind == "register" and facts["name"] not in self.datasets:
                self._register(link, facts)
            elif kind == "grant":
                self._grant(link, facts)
            elif kind == "reserve":
                charge = _charge(facts)
                known = self.studies.get(charge.study)
                if known is None or known.state == "voided":
                    self._charge(link, charge, facts)
        for study, entry in self.studies.items():
            if entry.state == "reserved":
                self.studies[study] = replace(entry, state="released")
        for name, group in self.groups.items():
            self.groups[name] = replace(group, closed=True)


def _charge(body: Mapping[str, Any]) -> Charge:
    curve = body["curve"]
    rho, pure = _exact(body["rho"]), body["pure_epsilon"]
    if len(curve) != len(ORDERS) or not all(type(step) is int and 0 <= step <= _MOST * STEPS for step in curve):
        raise ValueError
    person, records, institutions = _person(body)
    return Charge(
        study=parse_hash(body["study"]),
        curve=tuple(Fraction(step, STEPS) for step in curve),
        rho=rho,
        pure_epsilon=None if pure is None else _exact(pure),
        private=body["private"],
        neighbours=body["neighbours"],
        unit=body["unit"],
        person=person,
        max_records=records,
        max_institutions=institutions,
        gaussian_distance=_exact(body[_GAUSSIAN]) if _GAUSSIAN in body else None,
        distance_aside=_exact(body.get(_ASIDE, "0/1")),
    )


def _person(body: Mapping[str, Any]) -> tuple[str | None, int, int]:
    """How the charge names and caps persons; (None, 0, 0) where an earlier version did not note it."""
    if body["unit"] == "record":
        return None, 1, 1
    if not any(key in body for key in _OF_A_PERSON):
        return None, 0, 0
    person, *caps = (body[key] for key in _OF_A_PERSON)
    if not isinstance(person, str | None) or not all(
        type(cap) is int and 1 <= cap <= _MOST_OF_A_PERSON for cap in caps
    ):
        raise ValueError
    return person, caps[0], caps[1]


def _writable(total: Fraction) -> Fraction:
    """The sum itself, or, where it has more digits than a statement may, rounded up to whole steps.

    Every study with a denominator of its own adds some ten digits, and neither Python nor a statement writes more than
    some 4000. The sums in :class:`Totals`, which budgets are held against, stay exact: only what is told is rounded,
    upwards, and only where it could not be told at all. So every statement ever made says what it said.
    """
    longest = max(total.numerator, total.denominator)
    return total if longest < 10**MAX_DIGITS else Fraction(steps(total), STEPS)


_MOST_OF_A_PERSON = 1_000_000  # as in a study: privacy.ranges
_RATIO = re.compile(r"(0|[1-9][0-9]*)/([1-9][0-9]*)")
_MOST = 10**24
"""Of ρ, ε and a curve: ε = 10^5, the largest, is ρ ≤ 10^10, at orders up to 10^7. Another's ledger may say more."""


def _exact(text: str) -> Fraction:
    """Inverse of :func:`ratio`. ``Fraction(text)`` would take "1e999999999" as well, and all the memory there is."""
    found = _RATIO.fullmatch(text)
    value = Fraction(int(found[1]), int(found[2])) if found is not None else Fraction(-1)
    if not 0 <= value <= _MOST:
        raise ValueError
    return value


def ratio(value: Fraction) -> str:
    """How an exact number is written: n/d."""
    return f"{value.numerator}/{value.denominator}"
