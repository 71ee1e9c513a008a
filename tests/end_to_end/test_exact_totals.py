"""The same records give the same bits: however split, shuffled, or formed; with and without seeded noise.

All through :class:`Federation.simulate`, the protocol and the estimator, and through the command's own function.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tallystick as ts
from tallystick.algorithms.program import BlockProgram
from tallystick.application.simulation import simulate
from tallystick.crypto.prg import AesStream
from tallystick.data.examples import census, census_schema
from tallystick.engines.client_map import ClientMap
from tallystick.privacy.contribution import Dense, Factored, GridRows, Sparse, densify
from tallystick.privacy.grid import Grid, Group
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.transport.rounds import MemoryRounds

ROOT = Path(__file__).resolve().parents[2]
STEPS = 5


def shuffled(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    return frame[np.random.default_rng(seed).permutation(frame.height)]


def split(frame: pl.DataFrame, clients: int) -> list[pl.DataFrame]:
    """Uneven pieces; with more clients than records some have none."""
    cuts = np.sort(np.random.default_rng(clients).integers(0, frame.height + 1, clients - 1))
    edges = [0, *cuts.tolist(), frame.height]
    return [frame[a:b] for a, b in itertools.pairwise(edges)]


def fitted(frame: pl.DataFrame, clients: int, *, schema=None, target="income", **params):
    fed = ts.Federation.simulate(split(frame, clients), schema=schema or census_study().schema_of_data(), seed=11)
    return ts.LogisticRegression(rounds=STEPS, delta=params.pop("delta", 1e-6), **params).fit(fed, target=target)


def census_study() -> ts.Study:
    return ts.Study.parse((ROOT / "examples" / "adult.toml").read_text(encoding="utf-8"))


def bits(model) -> bytes:
    history = b"".join(np.asarray(part, dtype=np.float64).tobytes() for state in model.history_ for part in state)
    return model.coef_.tobytes() + model.intercept_.tobytes() + history


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_exact_sums_do_not_know_how_records_are_split() -> None:
    frame = census(records=700)
    one = fitted(frame, 1, mechanism="none", delta=None)
    for clients, order in ((7, 1), (100, 2), (1000, 3)):
        again = fitted(shuffled(frame, order), clients, mechanism="none", delta=None)
        assert bits(again) == bits(one)
        assert len(again.contributors_) == clients
    assert bits(fitted(frame[:-1], 7, mechanism="none", delta=None)) != bits(one)  # one record fewer is seen


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_seeded_noise_does_not_know_it_either(mechanism: str) -> None:
    frame = census(records=700)
    params = {"mechanism": mechanism, "delta": 1e-6 if mechanism == "gaussian" else None, "epsilon": 5.0}
    one = fitted(frame, 1, **params)
    for clients, order in ((10, 1), (1000, 2)):
        assert bits(fitted(shuffled(frame, order), clients, **params)) == bits(one)
    exact = fitted(frame, 10, mechanism="none", delta=None)
    assert bits(one) != bits(exact)


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_five_classes_and_numbers_too() -> None:
    frame, params = (
        census(records=500),
        {"schema": census_schema(), "target": "race", "mechanism": "none", "delta": None},
    )
    one = fitted(frame, 1, **params)
    assert one.coef_.shape[0] == 5
    for clients in (7, 100):
        assert bits(fitted(shuffled(frame, clients), clients, **params)) == bits(one)


# ---- one program in three forms -----------------------------------------------------------------------------------
BITS, COLUMNS, CLASSES = 10, 9, 2
GRID = Grid(groups=(Group(name="g", size=CLASSES * COLUMNS, bound=1.0),), fraction_bits=2 * BITS, norm="l2")


class ThreeForms(BlockProgram):
    """Coefficient × row, returned as it is, or written out dense, or sparse."""

    def __init__(self, form: str) -> None:
        self.form = form

    def init(self, public):
        return np.zeros(1)

    def prepare(self, features, target):
        return GridRows.make(features, bits=BITS, limit=8.0), target

    def map_block(self, prepared, state):
        rows, target = prepared
        factored = Factored(coefficients=np.column_stack([0.5 - target, target]) * 0.6, rows=rows)
        if self.form == "factored":
            return factored
        values = densify(factored, GRID)
        if self.form == "dense":
            return Dense(values=values)
        i, j = np.nonzero(values)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(i, minlength=len(values)))]).astype(np.int64)
        return Sparse(indptr=indptr, indices=j.astype(np.int64), values=values[i, j], size=GRID.size)


class NoNoise(NoiseSource):
    def draw(self, round: int) -> np.ndarray:
        return np.zeros(GRID.size, dtype=np.int64)


class _Round:
    grid = GRID


class _Records:
    def __init__(self, features, target) -> None:
        self.features, self.target = features, target


@pytest.mark.parametrize("clients", [1, 7, 100])
def test_dense_sparse_and_factored_contributions_give_one_total(clients: int) -> None:
    generator = np.random.default_rng(5)
    features = generator.normal(size=(500, COLUMNS)) * (generator.random((500, COLUMNS)) < 0.5)  # some beyond the bound
    target = generator.integers(0, 2, 500).astype(float)
    totals = {}
    for order, form in enumerate(("dense", "sparse", "factored")):
        program = ThreeForms(form)
        rows = np.random.default_rng(order).permutation(500)
        parts = np.array_split(rows, clients)
        maps = {
            f"c{i}": ClientMap(program, _Records(features[part], target[part]), np.zeros(1))
            for i, part in enumerate(parts)
        }
        rounds = MemoryRounds.create(
            study_hash=bytes(32),
            size=GRID.size,
            clients=list(maps),
            servers=["s1", "s2", "s3"],
            noise=[NoNoise()] * 3,
            source=AesStream(order.to_bytes(32, "little")),
            honest=1,
            min_clients=min(2, clients),
            result_limit=2**50,
            simulation_of_one=clients == 1,
        )
        given = {name: (lambda model, m=m: m.contribute(model, _Round)) for name, m in maps.items()}
        totals[form] = rounds.run_round(1, np.zeros(1).tobytes(), given).total
    assert np.abs(totals["dense"]).max() > 0
    np.testing.assert_array_equal(totals["dense"], totals["sparse"])
    np.testing.assert_array_equal(totals["dense"], totals["factored"])


# ---- the command --------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
@pytest.mark.parametrize("mechanism", ["none", "gaussian"])
def test_the_command_gives_the_same_model_for_any_number_of_clients(tmp_path: Path, mechanism: str) -> None:
    data = tmp_path / "census.csv"
    census(records=600).write_csv(data)
    settings = [f"privacy.mechanism={mechanism}", f"program.rounds={STEPS}", "study.accept_noise=true"]

    def run(clients: int, seed: int = 1) -> dict:
        return simulate(
            ROOT / "examples" / "adult.toml",
            data=(data,),
            clients=clients,
            settings=tuple(settings),
            seed=seed,
            holdout=0.1,
        )

    one = run(1)
    for clients in (10, 1000) if mechanism == "gaussian" else (10, 200):
        again = run(clients)
        assert again["model"] == one["model"]
        assert again["simulation"] == one["simulation"]
        assert again["participants"]["clients"] == clients
    assert run(10, seed=2)["model"] != one["model"]
