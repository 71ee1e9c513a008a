"""The planted bugs: each breaks the claim in one of the ways that real libraries did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tallystick.engines.round_vectors import RoundNoise
from tallystick.privacy.plan import Plan

__all__ = [
    "CountWithoutNoise",
    "Float32Noise",
    "NoNoise",
    "OneHonestServerForgets",
    "ReusedNoise",
    "clip_in_the_wrong_norm",
    "float_noise_of",
    "negative_passes",
    "scaled_noise",
]


def scaled_noise(factor: Fraction) -> Callable[[Plan], Plan]:
    """All noise times ``factor`` (its standard deviation): the claim is kept, the calibration is not.

    1/2: half noise, or replace-one charged as add-remove is. For variance s²/m instead of s²/h pass √(h/m).
    """

    def tamper(plan: Plan) -> Plan:
        power = 1 if plan.claim.mechanism == "laplace" else 2
        rounds = []
        for round_plan in plan.rounds:
            noise = tuple(
                replace(n, parameter=(n.parameter * factor**power).limit_denominator(2**20)) for n in round_plan.noise
            )
            rounds.append(replace(round_plan, noise=noise))
        return replace(plan, rounds=tuple(rounds))

    return tamper


def clip_in_the_wrong_norm(plan: Plan) -> Plan:
    """Clients clip in L2 what is charged in L1: a record spread over k coordinates moves √k times what was planned."""
    return replace(plan, rounds=tuple(replace(r, grid=replace(r.grid, norm="l2")) for r in plan.rounds))


def negative_passes(plan: Plan) -> Plan:
    """Clients do not clip at zero what is charged as non-negative: a record may be replaced by its opposite."""
    rounds = []
    for r in plan.rounds:
        groups = tuple(replace(g, nonnegative=False) for g in r.grid.groups)
        rounds.append(replace(r, grid=replace(r.grid, groups=groups)))
    return replace(plan, rounds=tuple(rounds))


class ReusedNoise(RoundNoise):
    """The stream's key forgets the round: every round has the noise of the odd or even first one, say round 1's.

    Repeats of a plan must stay independent, so the key is the number of the pair of rounds.
    """

    def draw(self, round: int) -> np.ndarray:
        return super().draw(round - (round + 1) % 2)


class OneHonestServerForgets(RoundNoise):
    """All servers but the first and the colluding last one send their sums bare."""

    def draw(self, round: int) -> np.ndarray:
        noise = super().draw(round)
        keep = self._maker == "server-1" or self._maker == f"server-{self._plan.claim.trust.makers.count}"
        return noise if keep else np.zeros_like(noise)


class Float32Noise(RoundNoise):
    """Noise of the right scale from a float generator of single precision: large values have zero low bits."""

    def draw(self, round: int) -> np.ndarray:
        exact = super().draw(round)
        generator = np.random.default_rng(np.abs(exact).astype(np.uint64)[:4])
        scale = np.sqrt(self._plan.rounds[round - 1].noise[0].variance / 2)
        return generator.laplace(0.0, scale, self._size).astype(np.float32).astype(np.int64)


class NoNoise(RoundNoise):
    """Servers that add nothing."""

    def draw(self, round: int) -> np.ndarray:
        return np.zeros(self._size, dtype=np.int64)


class CountWithoutNoise(RoundNoise):
    """n leaked: the count's group is sent as it is."""

    def draw(self, round: int) -> np.ndarray:
        noise = super().draw(round)
        noise[self._plan.rounds[round - 1].noise[0].group.size :] = 0
        return noise


def float_noise_of(scale: float, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """An aggregator that adds NumPy's Laplace noise to the real total; its low bits tell that total."""
    generator = np.random.default_rng(seed)
    return lambda total: total + generator.laplace(0.0, scale, len(total))
