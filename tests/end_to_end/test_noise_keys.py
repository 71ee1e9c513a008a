"""Whose noise is it? Keyed by study, round and server; never by client; fresh without a seed.

Read from what each server persisted before it spoke. Correlations are tested at six standard errors, so a sound stream
with fresh seeds fails one of the comparisons with probability below 1e-7; planted equal streams correlate fully.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import BlockProgram, pack_state
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.engines.planning import plan_study
from tallystick.engines.totals import SumRequest
from tallystick.privacy.grid import Group
from tallystick.study import Study

SIZE = 4000
ROUNDS = 3


class Zeros:
    """A client of no records."""

    def contribute(self, model: bytes, plan, round: int) -> np.ndarray:
        return np.zeros(plan.grid.size, dtype=np.int64)


class Nothing(BlockProgram):
    def init(self, public):
        return np.zeros(1)


def draws(*, seed: int | None = 1, name: str = "keys", clients: int = 3, servers: int = 3, mechanism="gaussian"):
    """(rounds, servers, SIZE): every server's noise of every round, and the released totals (rounds, SIZE)."""
    study = Study.from_dict(
        {
            "study": {"name": name, "program": "none"},
            "privacy": {"epsilon": 1.0, "neighbours": "add-remove", "mechanism": mechanism},
            "trust": {"servers": servers},
        }
    )
    program = Nothing()
    groups = ((Group(name="all", size=SIZE, bound=1.0),),) * ROUNDS
    plan = plan_study(study, SumDesign(program=program, groups=groups, fraction_bits=20), allow_not_private=False)

    def stream(*labels: bytes):
        return system_stream() if seed is None else AesStream(derive(seed.to_bytes(32, "little"), *labels))

    totals = simulated_servers(
        study=study,
        plan=plan,
        program=program,
        template=np.zeros(1),
        clients={f"client-{i}": Zeros() for i in range(clients)},
        min_clients=clients,
        records=clients,
        stream=stream,
    )
    drawn: dict[tuple[str, int], np.ndarray] = {}
    for name in totals._rounds.parameters.servers:  # a server erases its noise with the round: it is noted as drawn
        machine = totals._rounds._machines[name]

        def noted(round: int, name=name, draw=machine._noise.draw) -> np.ndarray:
            return drawn.setdefault((name, round), draw(round))

        machine._noise.draw = noted
    noise, released = [], []
    for number, round_plan in enumerate(plan.rounds, start=1):
        request = SumRequest(round=number, model=pack_state(np.zeros(1)), plan=round_plan)
        released.append(totals.noisy_total(request).values)
        noise.append([drawn[f"server-{i}", number] for i in range(1, servers + 1)])
    return np.array(noise), np.array(released)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.astype(float), b.astype(float))[0, 1])


def unrelated(a: np.ndarray, b: np.ndarray) -> bool:
    return abs(correlation(a, b)) < 6 / np.sqrt(len(a)) and (a == b).mean() < 0.01


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_rounds_and_servers_have_noise_of_their_own(mechanism: str) -> None:
    noise, released = draws(mechanism=mechanism)
    streams = noise.reshape(-1, SIZE)
    for a, b in itertools.combinations(streams, 2):
        assert unrelated(a, b)
        assert unrelated(a, b[::-1])  # nor mirrored
        assert unrelated(a[1:], b[:-1])  # nor one stream read on from another's place
    for a in streams:
        assert unrelated(a[1:], a[:-1])  # coordinates among themselves: the audit's experiments are independent
        assert unrelated(a[: SIZE // 2], a[SIZE // 2 :])
    np.testing.assert_array_equal(released, noise.sum(axis=1))  # the clients sent zeros: nothing else is in the total


def test_the_seed_and_the_study_key_the_noise() -> None:
    noise, _ = draws()
    np.testing.assert_array_equal(noise, draws()[0])
    for other in (draws(seed=2)[0], draws(name="another study")[0]):
        for a, b in zip(noise.reshape(-1, SIZE), other.reshape(-1, SIZE)):
            assert unrelated(a, b)


def test_the_number_of_clients_does_not() -> None:
    noise, released = draws(clients=1)
    for clients in (2, 50):
        other, total = draws(clients=clients)
        np.testing.assert_array_equal(noise, other)
        np.testing.assert_array_equal(released, total)


def test_without_a_seed_no_two_runs_agree() -> None:
    noise, other = draws(seed=None)[0], draws(seed=None)[0]
    for a, b in itertools.combinations([*noise.reshape(-1, SIZE), *other.reshape(-1, SIZE)], 2):
        assert unrelated(a, b)


def test_a_shared_key_would_be_seen() -> None:
    """Controls: the same draw, its mirror image and a shifted reading are all told."""
    noise = draws()[0][0, 0]
    for copy in (noise, -noise, 2 * noise, noise + 5):
        assert not unrelated(noise, copy)
    half = noise + draws(seed=2)[0][0, 0]
    assert not unrelated(noise, half)
