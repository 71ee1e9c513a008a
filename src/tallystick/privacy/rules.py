"""The threat linter: a plan whose claim cannot hold is refused, with the rule's name.

Each rule is a sentence about the public facts of a study. None reads a record. The table in ``docs/rules.md`` is
checked against :data:`RULES` by a test.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.privacy.mechanisms.names import PURE
from tallystick.privacy.ranges import MAX_EPSILON, MAX_ROUNDS, MIN_DELTA, MIN_EPSILON, MIN_SAMPLING
from tallystick.privacy.trust import Trust


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Everything a privacy claim rests on: public facts only."""

    epsilon: float
    delta: float
    neighbours: str
    mechanism: str
    rounds: int
    trust: Trust
    min_clients: int | None = None
    records: int | None = None
    unit: str = "record"
    person: str | None = None
    max_records: int = 1
    max_institutions: int = 1
    shares: tuple[float, ...] = (1.0,)
    allow_not_private: bool = False
    """Whether exact sums are allowed: in a simulation, or by every client's own configuration."""
    sampling: float | None = None
    """The largest rate at which a client's coins take a record into a round."""
    parallel: bool = False
    """Every record takes part in one round only (a stream's ticks)."""

    @property
    def noise_delta(self) -> float:
        """The δ that the noise is planned with: all of it, but for what the trust model sets aside.

        A part in 2^30 less than that, so that a ledger that adds :attr:`distance_aside`, rounded up, stays below δ.
        """
        share = self.trust.delta_share
        return self.delta if not share else float(Fraction(self.delta) * (1 - share) * (1 - Fraction(1, 2**30)))

    @property
    def distance_aside(self) -> Fraction:
        """How far, in total variation, what the trust model's own means tell may be from telling nothing: at most
        share·δ/(1 + e^ε), for which its share of δ was set aside. Rounded up to 64 bits or so."""
        share = self.trust.delta_share
        if not share:
            return Fraction(0)
        told = Fraction(self.delta) * share / Fraction(1 + math.exp(min(self.epsilon, 700.0)))
        bits = 64 + max(0, told.denominator.bit_length() - told.numerator.bit_length())
        return Fraction(math.ceil(told * (1 + Fraction(1, 2**40)) * 2**bits), 2**bits)


def default_delta(records: int | None, mechanism: str) -> float:
    """min(10⁻⁶, 1/(10n)) for the Gaussian, as δ ≥ 1/n would allow publishing a record; 0 for pure ε."""
    if mechanism in PURE:
        return 0.0
    return min(1e-6, 1 / (10 * records)) if records else 1e-6


WEAK_EPSILON = 10.0
"""Odds of e^10, 22,000 to 1: allowed, and no protection that a person would call one."""

_Rule = tuple[str, Callable[[Claim], bool], str, str]

RULES: tuple[_Rule, ...] = (
    # name, holds, what is wrong, remedy; {…} is filled from the claim
    (
        "neighbours-are-named",
        lambda c: c.neighbours in ("replace-one", "add-remove"),
        'neighbours = "{neighbours}" is not a relation',
        'Use "replace-one" (the number of records is public) or "add-remove".',
    ),
    (
        "mechanism-is-known",
        lambda c: c.mechanism in ("gaussian", "none", *PURE),
        'mechanism = "{mechanism}" does not exist',
        'Use "gaussian", or "laplace" for pure epsilon; what the parties select takes "exponential".',
    ),
    (
        "epsilon-is-positive-and-finite",
        lambda c: c.mechanism == "none" or (math.isfinite(c.epsilon) and c.epsilon > 0),
        "epsilon = {epsilon} promises nothing",
        "Use a positive number; 1 is a common choice, below 0.1 needs many records.",
    ),
    (
        "epsilon-is-not-vanishing",
        lambda c: c.mechanism == "none" or c.epsilon >= MIN_EPSILON,
        "epsilon = {epsilon} is too small to be computed with, and no result would come of it",
        f"Use {MIN_EPSILON:g} or more; below 0.01 needs millions of records.",
    ),
    (
        "epsilon-means-something",
        lambda c: c.mechanism == "none" or not c.epsilon > MAX_EPSILON,
        "epsilon = {epsilon} allows odds of e^{epsilon}: no protection at all",
        'Use a value below 10, or say mechanism = "none" in a simulation.',
    ),
    (
        "pure-epsilon-has-no-delta",
        lambda c: c.mechanism not in PURE or c.delta == 0,
        "{mechanism} gives pure epsilon, so delta = {delta} has no meaning",
        'Leave delta out, or use mechanism = "gaussian".',
    ),
    (
        "delta-is-a-small-probability",
        lambda c: c.mechanism != "gaussian" or (math.isfinite(c.delta) and 0 < c.delta < 1),
        "delta = {delta} is not a probability in (0, 1)",
        "Use a value well below 1/records, for example 1e-6.",
    ),
    (
        "delta-is-not-vanishing",
        lambda c: c.mechanism != "gaussian" or c.delta >= MIN_DELTA,
        "delta = {delta} is too small to be computed with",
        f'Use {MIN_DELTA:g} or more, for example 1e-6; mechanism = "laplace" needs no delta at all.',
    ),
    (
        "delta-below-one-record",
        lambda c: c.mechanism != "gaussian" or not c.records or c.delta < 1 / c.records,
        "delta = {delta} with {records} records permits publishing a record outright",
        "Use a delta well below 1/records, for example 1/(10·records) or 1e-6.",
    ),
    (
        "rounds-are-bounded",
        lambda c: 1 <= c.rounds <= MAX_ROUNDS,
        "{rounds} rounds cannot be run",
        f"Use between 1 and {MAX_ROUNDS} rounds.",
    ),
    (
        "unit-is-known",
        lambda c: c.unit in ("record", "person"),
        'unit = "{unit}" does not exist',
        'Use "record", or "person" with person, max_records and max_institutions.',
    ),
    (
        "replace-one-needs-records",
        lambda c: c.neighbours != "replace-one" or c.unit == "person" or (c.records is not None and c.records >= 1),
        "replace-one makes the number of records public, and the study does not state it",
        'Add `records = …` under [data], or use neighbours = "add-remove".',
    ),
    (
        "trust-model-holds",  # its own rules, each refused by its own name (:attr:`Trust.problems`)
        lambda c: not c.trust.problems,
        "the trust model's settings cannot be",
        "See docs/rules.md.",
    ),
    (
        "someone-honest-makes-noise",
        lambda c: 1 <= c.trust.makers.honest <= c.trust.makers.count,
        "nobody who makes noise is surely honest",
        "Let fewer parties collude, or more take part.",
    ),
    (
        "a-sum-of-one-hides-nothing",
        lambda c: c.min_clients is None or c.min_clients >= 2,
        "min_clients = {min_clients}: the sum of one institution is that institution",
        "Use min_clients = 3 or more (2 lets each institution compute the other's sum).",
    ),
    (
        "sampling-is-a-probability",
        lambda c: c.sampling is None or MIN_SAMPLING <= c.sampling <= 1,
        "sampling = {sampling} is not a probability, or takes no record at all",
        f"Use a rate from {MIN_SAMPLING:g} to 1.",
    ),
    (
        "sampling-helps-the-gaussian-only",
        lambda c: c.sampling is None or c.mechanism not in PURE,
        "sampling gains nothing under pure epsilon: over many rounds the noise falls as slowly as the signal",
        'Leave sampling out, or use mechanism = "gaussian".',
    ),
    (
        "sampling-needs-add-remove",
        lambda c: c.sampling is None or c.neighbours == "add-remove",
        'sampling amplifies for neighbours = "add-remove" only: who is replaced may be drawn either way',
        'Use neighbours = "add-remove", or leave sampling out.',
    ),
    (
        "sampling-is-of-records",
        lambda c: c.sampling is None or (c.unit == "record" and not c.parallel),
        "coins are tossed for records, not for persons, and not in a stream, whose records come up once anyway",
        'Use unit = "record" without [stream], or leave sampling out.',
    ),
    (
        "a-stream-hides-its-batches",
        lambda c: not c.parallel or (c.neighbours == "add-remove" and c.unit == "record"),
        "a stream's batches have no public sizes, and a person's records would be in several of them",
        'Use neighbours = "add-remove" and unit = "record" with [stream].',
    ),
    (
        "person-caps-are-positive",
        lambda c: c.max_records >= 1 and c.max_institutions >= 1,
        "max_records = {max_records}, max_institutions = {max_institutions} must be at least 1",
        "State how many records a person has at most at one institution, and at how many institutions.",
    ),
    (
        "shares-sum-to-one",
        lambda c: all(0 < s <= 1 for s in c.shares) and abs(sum(c.shares) - 1) < 1e-9,
        "the groups' shares {shares} do not sum to 1",
        "Shares are positive and sum to 1.",
    ),
    (
        "no-noise-only-in-simulation",
        lambda c: c.mechanism != "none" or c.allow_not_private,
        'mechanism = "none" publishes exact sums',
        "It is for simulation, or for a study that every client's own configuration allows (allow_not_private = true).",
    ),
)


def epsilon_warning(epsilon: float | None, mechanism: str) -> str | None:
    """What to say of an ε that is allowed and protects hardly anybody: above :data:`WEAK_EPSILON`."""
    if mechanism == "none" or not isinstance(epsilon, numbers.Real) or not epsilon > WEAK_EPSILON:
        return None  # what is no number is refused where the study is made
    try:
        shown = float(epsilon)  # of a fraction too, which has no format of its own
    except OverflowError:
        shown = math.inf
    odds = f"{math.exp(shown):,.0f}" if shown < 16 else f"e^{shown:g}"
    return (
        f"epsilon = {shown:g} allows odds of {odds} to 1: whoever sees the result may be as good as certain about "
        f"somebody. Use a value below {WEAK_EPSILON:g} (1 is a common choice), or say so to whoever approves."
    )


def check_claim(claim: Claim) -> None:
    """Raise for the first rule that does not hold: ``PrivacyRefused`` (exit 3) carrying the rule's name."""
    facts = {name: getattr(claim, name) for name in claim.__dataclass_fields__}
    for name, holds, wrong, remedy in RULES:
        try:
            fine = holds(claim)
        except TypeError as error:
            raise StudyError(f"the study's privacy figures are not numbers: {error}", rule=name) from None
        if not fine and claim.trust.problems and name == "trust-model-holds":
            problem = claim.trust.problems[0]
            raise PrivacyRefused(f"{problem.cause}.", rule=problem.rule, remedy=problem.remedy)
        if not fine:
            raise PrivacyRefused(wrong.format(**facts) + ".", rule=name, remedy=remedy)
