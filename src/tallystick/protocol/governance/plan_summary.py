"""A plan as it is proposed, approved, attested and checked: exact numbers for machines, sentences for stewards.

Every party that has the study derives the same summary from it, so nobody need believe the proposer's. Values by round
are folded: written only where they change (see :mod:`~tallystick.protocol.governance.bodies`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from tallystick.core.identifiers import canonical, digest, format_hash
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import state_privacy
from tallystick.privacy.selection_plan import SelectionPlan
from tallystick.privacy.sum_plan import SumPlan

_LARGEST = 1 << 160  # a noise parameter or its cost is written with smaller numbers, or no sampler would take it


def fold(values: Sequence[Any]) -> list[list[Any]]:
    """One value per round, written only where it changes."""
    return [[i, v] for i, v in enumerate(values, 1) if i == 1 or v != values[i - 2]]


def unfold(folded: Sequence[Sequence[Any]], rounds: int) -> list[Any]:
    """The value of each of the first ``rounds`` rounds."""
    ends = [entry[0] for entry in folded[1:]] + [rounds + 1]
    return [entry[1] for entry, end in zip(folded, ends) for _ in range(entry[0], min(end, rounds + 1))]


def noise_of(parameters: Sequence[Sequence[Fraction]]) -> list[list[Any]]:
    """What each noise maker adds in each round (:meth:`Plan.noise_parameters`), as exact fractions; folded."""
    return fold([[_written(p) for p in of_round] for of_round in parameters])


def _written(value: Fraction) -> str:
    return f"{value.numerator}/{value.denominator}"


def summarise(plan: Plan) -> dict[str, Any]:
    """The summary: rounds, whole cost in zCDP, noise, the privacy statement of a result, and words to show."""
    privacy = state_privacy(plan).as_dict()
    return {
        "rounds": plan.claim.rounds,
        "rho": _written(plan.rho),
        "noise": noise_of(plan.noise_parameters()),
        **_on_curve(plan),
        **_left_open(plan),
        **_draws(plan),
        "privacy": privacy,
        "words": [privacy["statement"], *plan.notes, *([plan.hopeless] if plan.hopeless else [])],
    }


def _on_curve(plan: Plan) -> dict[str, Any]:
    """Where the promise is the exact Gaussian curve's: the noise's total variation from rounded Gaussians."""
    return {} if plan.gaussian_distance is None else {"gaussian_distance": _written(plan.gaussian_distance)}


def _draws(plan: Plan) -> dict[str, Any]:
    """Of a selection: what each round draws that draws, by which weights, and what that costs, exactly."""
    if not isinstance(plan, SelectionPlan):
        return {}
    return {"draws": [{"round": number, **r.choice.as_dict()} for number, r in plan.draws]}


def _left_open(plan: Plan) -> dict[str, Any]:
    """What rounds whose prices are left open may cost together, what a noise parameter p costs (c/p, per group), and
    the least that p may be. With a ``rounding`` r, on the exact Gaussian curve, c/(p − r)."""
    if not isinstance(plan, SumPlan) or plan.open is None or not plan.differentially_private:
        return {}
    costs, least = plan.open.costs(plan.rounds[0]), plan.open.least_parameter(plan.rounds[0].mechanism)
    told = {"whole": _written(plan.open.whole), "costs": [_written(c) for c in costs], "least": _written(least)}
    return {"open": told | ({"rounding": _written(plan.open.rounding)} if plan.open.on_curve else {})}


def within_reservation(left_open: Mapping[str, Any], noise: Sequence[Sequence[Any]], rounds: int) -> bool:
    """Whether noise that was attested to, round by round, costs no more than was reserved: exact."""
    costs, least = [Fraction(c) for c in left_open["costs"]], Fraction(left_open["least"])
    rounding = Fraction(left_open.get("rounding", 0))
    terms = [(0, 1)]
    for parameters, times in Counter(map(tuple, unfold(noise, rounds))).items():
        added = [Fraction(p) for p in parameters]
        if len(added) != len(costs) or any(p <= rounding or p < least for p in added):
            return False
        if any(max(x.numerator, x.denominator) > _LARGEST for x in (*added, *costs, rounding)):
            return False
        added = [p - rounding for p in added]
        terms += [(times * c.numerator * p.denominator, c.denominator * p.numerator) for c, p in zip(costs, added)]
    while len(terms) > 1:  # by halves and unreduced: one after the other, a stranger's fractions would take hours
        halves = [(a * d + c * b, b * d) for (a, b), (c, d) in zip(terms[::2], terms[1::2])]
        terms = halves + terms[2 * len(halves) :]
    return Fraction(*terms[0]) <= Fraction(left_open["whole"])


def plan_digest(plan: Mapping[str, Any]) -> str:
    """What servers attest to: one hash over the whole summary."""
    return format_hash(digest(b"tallystick/governance/plan/1", canonical(plan)))
