"""The one exit. Nothing computed from records leaves except as a :class:`Release`, and only this module makes one.

A release carries the value, the privacy statement in words and as data, and the ledger entry that paid for it. Building
one without a ledger entry for the same study is impossible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.core.errors import LocalProtocolError
from tallystick.privacy.payment import Payment
from tallystick.privacy.plan import Plan
from tallystick.privacy.units import Unit


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """What is promised, to whom it applies and against whom it holds. Public; ``as_dict()`` is the JSON form."""

    epsilon: float | None
    delta: float
    neighbours: str
    unit: str
    mechanism: str
    rho: float
    rounds: int
    noise_std: dict[str, float]
    trust: dict[str, Any]
    differentially_private: bool
    statement: str

    @property
    def protects(self) -> Unit:
        """The unit in full."""
        return Unit(kind=self.unit)

    def as_dict(self) -> dict[str, Any]:
        """The ``privacy`` object of a result."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "neighbours": self.neighbours,
            "unit": self.unit,
            "mechanism": self.mechanism,
            "rho": self.rho,
            "rounds": self.rounds,
            "noise_std": dict(self.noise_std),
            "trust": dict(self.trust),
            "differentially_private": self.differentially_private,
            "statement": self.statement,
        }


@dataclass(frozen=True, kw_only=True)
class PersonStatement(PrivacyStatement):
    """A promise for persons says how they are told apart and bounded, too."""

    person: str | None
    max_records: int
    max_institutions: int

    @property
    def protects(self) -> Unit:
        caps = {"max_records": self.max_records, "max_institutions": self.max_institutions}
        return Unit(kind=self.unit, person=self.person, **caps)

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), **self.protects.as_dict()}


@dataclass(frozen=True, kw_only=True)
class Release:
    """A value that may be shown to anyone, what it promises, and the proof that it was paid for."""

    value: Any
    privacy: PrivacyStatement
    payment: Payment


def release(value: Any, *, plan: Plan, study: bytes, payment: Payment) -> Release:
    """Let ``value`` out: the one exit. The payment must be of this very study and plan."""
    if payment.study != study or payment.rho != plan.rho or not payment.proof:
        raise LocalProtocolError("a release needs the payment of its own study")
    return Release(value=value, privacy=state_privacy(plan), payment=payment)


def state_privacy(plan: Plan) -> PrivacyStatement:
    """The statement of a plan: honest-only budget, relation and unit in words."""
    claim = plan.claim
    private = plan.differentially_private
    facts: dict[str, Any] = {
        "epsilon": claim.epsilon if private else None,
        "delta": claim.delta if private else 0.0,
        "neighbours": claim.neighbours,
        "unit": claim.unit,
        "mechanism": claim.mechanism,
        "rho": float(plan.rho),
        "rounds": claim.rounds,
        "noise_std": plan.noise_std,
        "trust": dict(claim.trust.facts),
        "differentially_private": private,
        "statement": _words(plan),
    }
    if claim.unit == "record":
        return PrivacyStatement(**facts)
    return PersonStatement(
        **facts,
        person=claim.person,
        max_records=claim.max_records,
        max_institutions=claim.max_institutions,
    )


def _words(plan: Plan) -> str:
    claim = plan.claim
    if not plan.differentially_private:
        return (
            "NOT differentially private: exact sums were computed, without noise. "
            "What follows from them may tell of single records: do not publish it as if it could not."
        )
    what = "record" if claim.unit == "record" else "person"
    change = f"replacing any one {what}" if claim.neighbours == "replace-one" else f"adding or removing any one {what}"
    caps = ""
    if claim.unit == "person":
        named = f", as the column {claim.person!a} names them," if claim.person else ""
        caps = (
            f", a person's records{named} being bounded together at each institution "
            f"(up to {claim.max_records} records' worth) "
            f"and a person being known to at most {claim.max_institutions} institution(s)"
        )
    promise = f"epsilon = {claim.epsilon:g}" + (f", delta = {claim.delta:g}" if claim.delta else " (pure)")
    return (
        f"Differentially private with {promise}: {change} changes the probability of any outcome by a factor "
        f"of at most e^epsilon{' (except with probability delta)' if claim.delta else ''}{caps}. "
        f"The promise covers everything released in {claim.rounds} round(s) and {claim.trust.words}"
    )
