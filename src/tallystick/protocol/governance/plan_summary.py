"""A plan as it is proposed, approved, attested and checked: exact numbers for machines, sentences for stewards.

Every party that has the study derives the same summary from it, so nobody need believe the proposer's. Values by round
are folded: written only where they change (see :mod:`~tallystick.protocol.governance.bodies`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.core.identifiers import canonical, digest, format_hash
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import state_privacy


def fold(values: Sequence[Any]) -> list[list[Any]]:
    """One value per round, written only where it changes."""
    return [[i, v] for i, v in enumerate(values, 1) if i == 1 or v != values[i - 2]]


def unfold(folded: Sequence[Sequence[Any]], rounds: int) -> list[Any]:
    """The value of each of the first ``rounds`` rounds."""
    ends = [entry[0] for entry in folded[1:]] + [rounds + 1]
    return [entry[1] for entry, end in zip(folded, ends) for _ in range(entry[0], min(end, rounds + 1))]


def noise_of(plan: Plan, rounds: int | None = None) -> list[list[Any]]:
    """What each server adds in each of the first ``rounds`` rounds: per group the discrete Gaussian's variance or the
    discrete Laplace's scale, in grid units, as exact fractions; folded."""
    used = plan.rounds if rounds is None else plan.rounds[:rounds]
    return fold([[f"{n.parameter.numerator}/{n.parameter.denominator}" for n in r.noise] for r in used])


def summarise(plan: Plan) -> dict[str, Any]:
    """The summary: rounds, whole cost in zCDP, noise, the privacy statement of a result, and words to show."""
    privacy = state_privacy(plan).as_dict()
    return {
        "rounds": len(plan.rounds),
        "rho": f"{plan.rho.numerator}/{plan.rho.denominator}",
        "noise": noise_of(plan),
        "privacy": privacy,
        "words": [privacy["statement"], *plan.notes, *([plan.hopeless] if plan.hopeless else [])],
    }


def plan_digest(plan: Mapping[str, Any]) -> str:
    """What servers attest to: one hash over the whole summary."""
    return format_hash(digest(b"tallystick/governance/plan/1", canonical(plan)))
