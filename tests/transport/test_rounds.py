"""The motor of the simulated federation: exact for any split, drop-outs, aborts with names, flat memory."""

from __future__ import annotations

import gc
import resource
import tracemalloc

import numpy as np
import pytest

from tallystick.core.errors import DataError, LocalProtocolError, RoundAborted, TooFewParties
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.transport.rounds import MemoryRounds

STUDY = bytes(range(32))
MODEL = np.zeros(3).tobytes()


class Zero(NoiseSource):
    def __init__(self, size: int) -> None:
        self.size = size

    def draw(self, round: int) -> np.ndarray:
        return np.zeros(self.size, dtype=np.int64)


class Counted(NoiseSource):
    """Noise that says which draw it is."""

    def __init__(self, size: int) -> None:
        self.size, self.draws = size, 0

    def draw(self, round: int) -> np.ndarray:
        self.draws += 1
        return np.full(self.size, 1000 * round, dtype=np.int64)


def federation(clients: int, size: int = 4, servers: int = 2, noise=None, **options) -> MemoryRounds:
    given = {
        "study_hash": STUDY,
        "size": size,
        "clients": [f"client {i}" for i in range(clients)],
        "servers": [f"server {j}" for j in range(servers)],
        "noise": noise or [Zero(size)] * servers,
        "source": AesStream(derive(STUDY, b"test")),
        "honest": 1,
        "min_clients": min(2, clients),
        "result_limit": 10**12,
        "simulation_of_one": clients == 1,
    }
    return MemoryRounds.create(**{**given, **options})


def constant(rounds: MemoryRounds, values) -> dict:
    return {
        name: (lambda model, v=v: np.asarray(v, dtype=np.int64)) for name, v in zip(rounds.parameters.clients, values)
    }


@pytest.mark.parametrize("servers", [2, 3, 5])
@pytest.mark.parametrize("clients", [1, 2, 7, 60])
def test_the_same_records_give_the_same_bits_however_split(clients: int, servers: int) -> None:
    records = np.arange(-100, 140, dtype=np.int64).reshape(60, 4)
    rounds = federation(clients, servers=servers)
    parts = [part.sum(axis=0) for part in np.array_split(records, clients)]
    result = rounds.run_round(1, MODEL, constant(rounds, parts))
    assert result.total.dtype == np.int64
    assert result.total.tolist() == records.sum(axis=0).tolist()
    assert result.participants == rounds.parameters.clients


def test_clients_get_the_model_and_rounds_go_on() -> None:
    rounds = federation(3)
    seen = []

    def contribute(model: bytes) -> np.ndarray:
        seen.append(model)
        return np.ones(4, dtype=np.int64)

    for round in (1, 2, 3):
        model = np.full(3, float(round)).tobytes()
        rounds.run_round(round, model, dict.fromkeys(rounds.parameters.clients, contribute))
        assert seen[-3:] == [model] * 3
    assert len(seen) == 9


def test_absent_clients_cost_only_their_own_data() -> None:
    rounds = federation(5)
    given = constant(rounds, np.eye(5, 4))
    result = rounds.run_round(1, MODEL, given, frozenset({"client 1"}))
    assert result.total.tolist() == [1, 0, 1, 1]
    assert result.dropped == ("client 1",)
    result = rounds.run_round(2, MODEL, {name: given[name] for name in list(given)[:3]})
    assert result.dropped == ("client 3", "client 4")
    assert rounds.run_round(3, MODEL, given).dropped == ()


def test_too_few_clients_release_nothing_and_the_next_round_runs() -> None:
    noise = [Counted(4), Counted(4)]
    rounds = federation(4, noise=noise, min_clients=3)
    given = constant(rounds, np.ones((4, 4)))
    with pytest.raises(TooFewParties) as failure:
        rounds.run_round(1, MODEL, given, frozenset({"client 0", "client 2"}))
    assert failure.value.round == 1
    assert failure.value.party
    assert failure.value.cause
    assert failure.value.remedy
    assert failure.value.exit_code == 4
    assert rounds.run_round(2, MODEL, given).total.tolist() == [4 + 4000] * 4
    assert [source.draws for source in noise] == [2, 2]


def test_a_result_out_of_range_is_withheld() -> None:
    rounds = federation(3, result_limit=100)
    with pytest.raises(RoundAborted) as failure:
        rounds.run_round(1, MODEL, constant(rounds, [[0, 0, 0, 500], [0] * 4, [0] * 4]))
    assert failure.value.rule == "out-of-range"


def test_a_client_whose_map_fails_raises_and_leaves_the_study_usable() -> None:
    rounds = federation(3)
    given = constant(rounds, np.ones((3, 4)))

    def broken(model: bytes) -> np.ndarray:
        raise DataError("column age is missing")

    with pytest.raises(DataError):
        rounds.run_round(1, MODEL, {**given, "client 1": broken})
    assert rounds.run_round(2, MODEL, given).total.tolist() == [3] * 4


def test_a_round_number_is_used_once() -> None:
    rounds = federation(2)
    given = constant(rounds, np.ones((2, 4)))
    rounds.run_round(3, MODEL, given)
    for number in (3, 2, 0):
        with pytest.raises(LocalProtocolError):
            rounds.run_round(number, MODEL, given)


def test_a_model_that_is_not_finite_does_not_leave() -> None:
    rounds = federation(2)
    with pytest.raises(LocalProtocolError, match="NaN"):
        rounds.run_round(1, np.array([np.nan]).tobytes(), constant(rounds, np.ones((2, 4))))


def test_upload_is_close_to_the_plain_vector() -> None:
    rounds = federation(4, size=50_000, servers=3)
    rounds.run_round(1, MODEL, constant(rounds, np.ones((4, 50_000))))
    plain = 8 * 50_000
    assert all(plain < sent <= 1.05 * plain for sent in rounds.bytes_up.values())
    assert all(0 < got < 2000 for got in rounds.bytes_down.values())


def test_memory_does_not_grow_with_rounds() -> None:
    rounds = federation(20, size=200)
    given = constant(rounds, np.ones((20, 200)))
    tracemalloc.start()
    for round in (1, 2, 3):
        rounds.run_round(round, MODEL, given)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for round in range(4, 24):
        rounds.run_round(round, MODEL, given)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 40_000
    assert all(len(store) == 0 for store in rounds._stores.values())


def test_a_run_is_a_function_of_its_sources() -> None:
    results = []
    for _ in range(2):
        rounds = federation(3)
        result = rounds.run_round(1, MODEL, constant(rounds, np.ones((3, 4))))
        results.append((result.agreement, rounds.records["server 0"]["partial"]))
    assert results[0] == results[1]


@pytest.mark.audit
def test_a_thousand_clients_a_hundred_rounds() -> None:
    rounds = federation(1000, size=100)
    given = constant(rounds, np.ones((1000, 100)))
    for round in range(1, 101):
        assert rounds.run_round(round, MODEL, given).total.tolist() == [1000] * 100
        if round == 10:
            early = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - early < 5000  # KB: the peak does not move
