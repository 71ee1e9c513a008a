"""Programs with a memory: kept before anything leaves, started from after a crash, and never summed beyond the room."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tallystick.algorithms.local_program import LocalDesign, LocalProgram, check_learners, grid_values
from tallystick.algorithms.program import pack_state
from tallystick.core.errors import DataError, PrivacyRefused, RoundAborted, StudyError
from tallystick.engines.local_map import LocalMap
from tallystick.engines.round_vectors import result_limit
from tallystick.engines.rounds import is_lost_tick
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.client_vectors import CLIENTS, LARGEST_TOTAL, ClientGrid, client_group, client_plan
from tallystick.privacy.rules import Claim
from tallystick.study.trust import trust_model


class Counting(LocalProgram):
    """Adds up the states it has seen; its vector is what it remembers."""

    def init(self, public: Any) -> Any:
        return np.zeros(1)

    def prepare(self, features: Any, target: Any) -> Any:
        return features

    def start_in_client(self, prepared: Any) -> Any:
        return np.zeros(2)

    def step_in_client(self, prepared: Any, state: Any, memory: Any) -> Any:
        after = memory + np.array([1.0, float(state[0])])
        return grid_values(after, 40), after


class Records:
    """As much of a client's records as a map reads."""

    features, target = np.zeros((3, 1)), None

    def __len__(self) -> int:
        return 3


def claim(mechanism: str = "none", rounds: int = 3, **more: Any) -> Claim:
    section = trust_model("servers")
    trust = section.trust(section.load(section.section)(servers=2))
    facts: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace-one", "records": 100}
    return Claim(mechanism=mechanism, rounds=rounds, trust=trust, allow_not_private=True, **{**facts, **more})


PLAN = client_plan(claim(), (2, 2, 2))


def made(memories: Any) -> LocalMap:
    return LocalMap(Counting(), Records(), np.zeros(1), memories)  # type: ignore[arg-type]


def at(value: float) -> bytes:
    return pack_state(np.array([value]))


def test_a_restarted_client_makes_the_same_bits_from_what_it_kept() -> None:
    memories: dict[int, bytes] = {}
    client = made(memories)
    first, second = client.contribute(at(5), PLAN.rounds[0], 1), client.contribute(at(7), PLAN.rounds[1], 2)
    assert second.tolist() == grid_values(np.array([2.0, 12.0]), 40).tolist()
    again = made(dict(memories))  # killed, and all that is left is what was kept
    assert np.array_equal(again.contribute(at(7), PLAN.rounds[1], 2), second)
    assert np.array_equal(made(dict(memories)).contribute(at(5), PLAN.rounds[0], 1), first)
    client.contribute(at(1), PLAN.rounds[2], 3)
    assert sorted(memories) == [2, 3]  # the last two, no more


def test_a_client_that_was_away_cannot_go_on() -> None:
    client = made({})
    with pytest.raises(RoundAborted, match="has not taken part in round 1") as away:
        client.contribute(at(5), PLAN.rounds[1], 2)
    assert away.value.rule == "a-learner-dropped-out"


def test_a_memory_of_other_records_is_the_clients_own_trouble_and_not_the_aggregators() -> None:
    """Its file got a record more between a crash and the restart: the client sits the round out, and blames nobody."""
    with pytest.raises(DataError, match="the records have changed since round 1"):
        made({1: pack_state(np.zeros(3))}).contribute(at(5), PLAN.rounds[1], 2)


def test_numbers_that_could_wrap_around_never_leave_and_nothing_is_kept() -> None:
    memories: dict[int, bytes] = {}
    client = made(memories)
    with pytest.raises(DataError, match="too large to be summed exactly"):
        client.contribute(at(2.0**20), PLAN.rounds[0], 1)
    assert memories == {}
    assert client.contribute(at(2.0**9), PLAN.rounds[0], 1)[1] == 2**49
    assert CLIENTS * ClientGrid(groups=(client_group(2),), fraction_bits=40, norm="l2").limit <= LARGEST_TOTAL
    assert result_limit(PLAN, 10**12) == LARGEST_TOTAL


def test_a_memory_that_is_no_number_stops_the_client() -> None:
    client = made({1: pack_state(np.array([np.finfo(float).max, 0.0])), 0: b""})
    client._program.step_in_client = lambda *a: (np.zeros(2, np.int64), np.array([math.inf, 0.0]))  # type: ignore[method-assign]
    with pytest.raises(DataError, match="no numbers any more"):
        client.contribute(at(1), PLAN.rounds[1], 2)


def test_no_spent_round_is_skipped_and_learners_are_counted() -> None:
    assert not is_lost_tick(PLAN, RoundAborted("spent", rule="round-spent", round=1))
    assert check_learners(4.0, 0.0) == 4
    for counted, expected in ((3.0, 4.0), (5.0, 4.0), (0.0, 0.0), (2.5, 0.0), (CLIENTS + 1.0, 0.0)):
        with pytest.raises(RoundAborted):
            check_learners(counted, expected)


def test_a_design_without_a_theorem_promises_nothing() -> None:
    exact = LocalDesign(program=Counting(), sizes=(2, 2, 2))
    assert not exact.plan(claim()).differentially_private
    assert exact.plan(claim()).rho == 0
    for mechanism in ("gaussian", "laplace"):
        with pytest.raises(PrivacyRefused, match="no bound is known") as refused:
            exact.plan(claim(mechanism, delta=0.0 if mechanism == "laplace" else 1e-6))
        assert refused.value.rule == "exact-sums-are-not-private"
    with pytest.raises(StudyError, match="threshold is for sums of records"):
        exact.plan(claim(), threshold=2.0)


def test_with_a_theorem_noise_covers_the_stated_distance_in_every_round() -> None:
    """Distances that grow: the whole stays within ρ, and each round's share costs what it says.

    Planted: a plan that charged the first round's distance every time would have too little noise.
    """
    distances, bits = (1.0, 2.0, 3.0), 20
    design = LocalDesign(program=Counting(), sizes=(4, 4, 4), sensitivities=distances, fraction_bits=bits)
    plan = design.plan(claim("gaussian"))
    assert plan.rho <= rho_from_epsilon(1.0, 1e-6)
    for number, distance in enumerate(distances):
        noise = plan.rounds[number].noise[0]
        honest = noise.parameter * plan.honest  # variance of the honest shares together
        assert Fraction(distance * 2**bits) ** 2 / (2 * honest) <= noise.rho
        assert noise.sensitivity >= distance * 2**bits + 2  # √4 more, for rounding four coordinates
    flat = LocalDesign(program=Counting(), sizes=(4, 4, 4), sensitivities=(1.0,) * 3, fraction_bits=bits)
    last = flat.plan(claim("gaussian")).rounds[2].noise[0]
    assert Fraction(3 * 2**bits) ** 2 / (2 * last.parameter * plan.honest) > last.rho
