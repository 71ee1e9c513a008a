"""What the samplers are asked for, as exact fractions: (D²/(2ρ) + 1/12)/h (Gaussian) and D/ε (Laplace).

From the study's claim to the call of the sampler, by way of the very object that a server draws from; nothing here is
statistical. The audits (tests/statistical) look at what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.claims import servers_claim

from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.round_vectors import RoundNoise
from tallystick.privacy import noise as noises
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.plan import Plan
from tallystick.privacy.sum_plan import make_plan
from tallystick.trust import servers as trusted

BITS, SHARES, WEIGHTS = 20, (Fraction(1, 4), Fraction(3, 4)), (1, 2, 5)
GROUPS = (Group(name="counts", size=3, bound=1.0, share=0.25), Group(name="sums", size=5, bound=7.0, share=0.75))
SETTINGS = [(2, 1), (2, 0), (3, 1), (3, 2), (5, 3), (7, 2)]  # servers, colluding


def plan_of(mechanism: str, servers: int, colluding: int, neighbours: str = "replace-one") -> Plan:
    claim = servers_claim(
        epsilon=1.0, delta=0.0 if mechanism == "laplace" else 1e-6, neighbours=neighbours, mechanism=mechanism,
        rounds=len(WEIGHTS), servers=servers, colluding=colluding, records=1000,
    )  # fmt: skip
    return make_plan(claim, [GROUPS] * len(WEIGHTS), fraction_bits=BITS, weights=WEIGHTS)


def asked_of_the_samplers(plan: Plan, mechanism: str) -> list[list[tuple[Fraction, int]]]:
    """By round: the parameter and the number of draws of every call that a server's noise makes."""
    asked: list[list[tuple[Fraction, int]]] = []

    def sample(parameter: Fraction, size: int, source: Any) -> np.ndarray:
        asked[-1].append((parameter, size))
        return np.zeros(size, dtype=np.int64)

    def stream(*labels: bytes) -> AesStream:
        return AesStream(derive(bytes(32), *labels))

    module = {"gaussian": noises.discrete_gaussian, "laplace": noises.discrete_laplace}[mechanism]
    with patch.object(module, "sample", sample):
        server = RoundNoise(plan, sum(g.size for g in GROUPS), "server-1", stream)
        for number in range(1, len(plan.rounds) + 1):
            asked.append([])
            server.draw(number)
    return asked


def check(mechanism: str, servers: int, colluding: int, neighbours: str) -> None:
    honest = servers - max(1, colluding)
    whole = Fraction(1) if mechanism == "laplace" else gaussian_rho(1.0, Fraction(1e-6) * (1 - Fraction(1, 10**6)))
    asked = asked_of_the_samplers(plan_of(mechanism, servers, colluding, neighbours), mechanism)
    assert [[size for _, size in calls] for calls in asked] == [[3, 5]] * len(WEIGHTS)
    for weight, calls in zip(WEIGHTS, asked):
        for group, share, (parameter, _) in zip(GROUPS, SHARES, calls):
            bound = Fraction(int(group.bound)) * 2**BITS
            moved = 2 * bound if neighbours == "replace-one" else bound
            part = whole * share * Fraction(weight, sum(WEIGHTS))
            needed = moved / part if mechanism == "laplace" else (moved**2 / (2 * part) + Fraction(1, 12)) / honest
            assert needed <= parameter <= needed * (1 + Fraction(1, 2**31)), (mechanism, servers, colluding, group.name)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("servers", "colluding"), SETTINGS)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_the_sampler_is_asked_for_exactly_what_the_claim_needs(
    mechanism: str, servers: int, colluding: int, neighbours: str
) -> None:
    check(mechanism, servers, colluding, neighbours)


def scaled(factor: Fraction) -> Callable[..., Any]:
    real = noises.draw_noise

    def draw(plan: Any, source: Any) -> Any:
        return real(replace(plan, noise=tuple(replace(n, parameter=n.parameter * factor) for n in plan.noise)), source)

    return draw


def first_round(real: Callable[..., Any]) -> Callable[..., Any]:
    kept: list[Any] = []

    def draw(plan: Any, source: Any) -> Any:
        kept.append(plan)
        return real(kept[0], source)

    return draw


BUGS: dict[str, tuple[str, Any]] = {
    "a thousandth less": ("tallystick.engines.round_vectors.draw_noise", scaled(Fraction(999, 1000))),
    "a millionth more": ("tallystick.engines.round_vectors.draw_noise", scaled(Fraction(10**6 + 1, 10**6))),
    "every round as the first": ("tallystick.engines.round_vectors.draw_noise", first_round(noises.draw_noise)),
    "all servers counted as honest": ("tallystick.trust.servers.honest_servers", lambda m, t: m),
    "a curious server forgotten": ("tallystick.trust.servers.honest_servers", lambda m, t: m - t),
    "sensitivity of add-remove": ("tallystick.privacy.round_plan.vector_sensitivity", lambda bound, neighbours: bound),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug: str) -> None:
    where, wrong = BUGS[bug]
    caught = 0
    with patch(where, wrong):
        for servers, colluding in SETTINGS:
            try:
                check("gaussian", servers, colluding, "replace-one")
            except (AssertionError, ZeroDivisionError):
                caught += 1
    assert caught
    assert trusted.honest_servers(2, 0) == 1  # and the bug is gone again
