"""Thresholding of noisy totals: what becomes 0, that it costs nothing, what travels, and bad input."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.simulated_servers import simulated_servers

import tallystick as ts
from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import BlockProgram, Public, pack_state
from tallystick.core.errors import StudyError
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.examples import census
from tallystick.engines import rounds as loop
from tallystick.engines.client_map import ClientMap
from tallystick.engines.engine import run_paid
from tallystick.engines.planning import layout_of, plan_study
from tallystick.engines.thresholding import StateBytes, state_bytes, thresholded
from tallystick.engines.totals import NoisyTotal
from tallystick.estimators.from_study import estimator_for
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.protocol.secure_sum import codec
from tallystick.protocol.secure_sum.messages import RoundOpen
from tallystick.study import Study
from tallystick.trust.servers.simulation import SimulatedServers

BASE: dict[str, Any] = {
    "study": {"name": "counts", "program": "counts"},
    "privacy": {"epsilon": 2.0, "delta": 1e-6, "neighbours": "add-remove"},
}
SIZE = 10_000


class Counts(BlockProgram):
    """Rows (item,): how often each of 10,000 items was seen, better known with each of three rounds."""

    rounds = 3
    groups = (Group(name="items", size=SIZE, bound=1.0),)

    def init(self, public: Any) -> np.ndarray:
        return np.zeros(SIZE)

    def prepare(self, features: np.ndarray, target: Any) -> np.ndarray:
        return features

    def map_block(self, prepared: np.ndarray, state: Any) -> Contribution:
        n = len(prepared)
        return Sparse(
            indptr=np.arange(n + 1, dtype=np.int64), indices=prepared[:, 0].astype(np.int64), values=np.ones(n),
            size=SIZE,
        )  # fmt: skip

    def reduce_in_aggregator(self, total: np.ndarray, state: np.ndarray) -> np.ndarray:
        return state + total / self.rounds


def study_of(threshold: float | None, **privacy: Any) -> Study:
    return Study.from_dict({**BASE, "privacy": {**BASE["privacy"], **privacy, "threshold": threshold}})


class Rows:
    def __init__(self, features: np.ndarray) -> None:
        self.features, self.target = features, None


def executed(threshold: float | None, rows: np.ndarray, *, seed: int = 1, program: Any = None, **privacy: Any) -> Any:
    """A whole simulated study of the program: (outcome, plan, servers, what every client was sent)."""
    program = program or Counts()
    study = study_of(threshold, **privacy)
    plan = plan_study(
        study, SumDesign(program=program, groups=(program.groups,) * program.rounds), allow_not_private=True
    )
    start = program.init(None)
    clients = {f"client-{i}": ClientMap(program, Rows(rows[i::3]), start) for i in range(3)}
    servers = simulated_servers(
        study=study, plan=plan, program=program, template=start, clients=clients, min_clients=3, records=len(rows),
        stream=lambda *labels: AesStream(derive(seed.to_bytes(32, "little"), *labels)),
    )  # fmt: skip
    sent: list[bytes] = []
    plain = codec.encode

    def listening(message: Any) -> bytes:
        raw = plain(message)
        if isinstance(message, RoundOpen):
            sent.append(raw)
        return raw

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick.transport.rounds.encode", listening)
        outcome = run_paid(servers, plan, study=study.hash, ledger=Ledger())
    return outcome, plan, servers, sent


def few_large(records: int = 6000) -> np.ndarray:
    """20 of the 10,000 items, each 300 times."""
    return np.repeat(np.arange(20) * 499, records // 20)[:, None].astype(np.float64)


# -- what becomes 0 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_each_group_is_measured_by_its_own_noise(mechanism: str) -> None:
    """Against the definition in real units: all servers' noise, the group's own standard deviation."""
    groups = (Group(name="a", size=400, bound=1.0, share=0.9), Group(name="b", size=600, bound=50.0, share=0.1))
    given = {"epsilon": 1.0, "mechanism": mechanism, "delta": 0.0 if mechanism == "laplace" else 1e-6}
    study = study_of(2.0, **given)
    plan = plan_study(study, SumDesign(program=Counts(), groups=(groups,)), allow_not_private=True).rounds[0]
    std = [plan.std_of("a"), plan.std_of("b")]
    assert std[1] > 20 * std[0]
    rng = np.random.default_rng(1)
    real = np.concatenate([rng.normal(0, 3 * std[0], 400), rng.normal(0, 3 * std[1], 600)])
    values = np.rint(real * plan.grid.scale).astype(np.int64)
    before = values.copy()
    out = thresholded(NoisyTotal(values=values, participants=("c",), dropped=("d",)), plan, 2.0)
    cut = np.repeat([2 * s for s in std], [400, 600])
    expected = np.where(np.abs(values) / plan.grid.scale < cut, 0, values)
    assert (out.values == expected).all()
    assert (values == before).all()  # the total that is kept is the total
    assert (out.participants, out.dropped) == (("c",), ("d",))
    for part in (out.values[:400], out.values[400:]):
        assert 0.3 < np.mean(part == 0) < 0.7  # one σ for both groups would clear none of one, or all of the other


def test_the_edge_stays_and_the_largest_threshold_clears_everything() -> None:
    plan = plan_study(study_of(1.0), SumDesign(program=Counts(), groups=((Group(name="a", size=5, bound=1.0),),)),
                      allow_not_private=True).rounds[0]  # fmt: skip
    sigma = math.sqrt(plan.noise[0].variance * plan.makers)
    edge = math.ceil(1.5 * sigma)
    values = np.array([edge, -edge, edge - 1, 1 - edge, 0])
    total = NoisyTotal(values=values, participants=(), dropped=())
    assert thresholded(total, plan, 1.5).values.tolist() == [edge, -edge, 0, 0, 0]
    assert thresholded(total, plan, 0.0).values.tolist() == values.tolist()
    largest = NoisyTotal(values=np.array([2**63 - 2**31, -(2**63 - 2**31), 1, 0, 0]), participants=(), dropped=())
    assert not thresholded(largest, plan, 1.7e308).values.any()
    silent = replace(plan, noise=tuple(replace(n, variance=0.0) for n in plan.noise))
    assert (thresholded(total, silent, 1e300).values == values).all()  # no noise: nothing is below it


def seen_by_the_program(threshold: float | None, bug: Any = None) -> tuple[list[np.ndarray], Any, list[NoisyTotal]]:
    """The totals that ``reduce_in_aggregator`` was given, and the noisy ones that came from the servers."""
    seen: list[np.ndarray] = []
    noisy: list[NoisyTotal] = []

    class Watched(Counts):
        def reduce_in_aggregator(self, total: np.ndarray, state: np.ndarray) -> np.ndarray:
            seen.append(total)
            return super().reduce_in_aggregator(total, state)

    plain = SimulatedServers.noisy_total

    def listening(self: Any, request: Any) -> NoisyTotal:
        noisy.append(plain(self, request))
        return noisy[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedServers, "noisy_total", listening)
        if bug is not None:
            patch.setattr(loop, "thresholded", bug)
        _, plan, _, _ = executed(threshold, few_large(), program=Watched())
    return seen, plan, noisy


def check_the_noisy_total_is_thresholded(bug: Any = None) -> None:
    """What the program sees is a function of the noisy total: of pure noise, 2·Φ(−1.5) of it stands above 1.5σ.

    9,980 coordinates a round have the exact total 0; ±6 standard deviations, three rounds: odds of a false alarm are
    below 1e-8, and the seed is fixed.
    """
    seen, plan, noisy = seen_by_the_program(1.5, bug)
    items = np.arange(20) * 499
    for total, raw, planned in zip(seen, noisy, plan.rounds):
        scale = planned.grid.scale
        cut = 1.5 * planned.std_of("items")
        assert (total == np.where(np.abs(raw.values / scale) < cut, 0, raw.values / scale)).all()
        rest = np.delete(total, items)
        expected = math.erfc(1.5 / math.sqrt(2))
        assert abs(np.mean(rest != 0) - expected) < 6 * math.sqrt(expected * (1 - expected) / len(rest))


def test_it_is_the_noisy_total_that_is_thresholded() -> None:
    check_the_noisy_total_is_thresholded()


def test_thresholding_the_exact_total_is_caught() -> None:
    """Planted: which coordinates stay is decided by the exact total. Where there is nothing, nothing would show."""
    exact = np.zeros(SIZE)
    exact[np.arange(20) * 499] = 300

    def by_the_exact_total(noisy: NoisyTotal, plan: Any, threshold: float) -> NoisyTotal:
        keep = exact >= threshold * plan.std_of("items")
        return replace(noisy, values=np.where(keep, noisy.values, 0))

    with pytest.raises(AssertionError):
        check_the_noisy_total_is_thresholded(by_the_exact_total)


# -- what it costs: nothing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"mechanism": "laplace", "delta": 0.0}, {"sampling": 0.1}], ids=str)
def test_the_plan_and_the_charge_are_those_without(given: dict[str, Any]) -> None:
    design = SumDesign(program=Counts(), groups=(Counts.groups,) * 3, notes=("a note",))
    without = plan_study(study_of(None, **given), design, allow_not_private=True)
    with_it = plan_study(study_of(3.0, **given), design, allow_not_private=True)
    assert with_it.rounds == without.rounds
    assert (with_it.rho, with_it.pure_epsilon) == (without.rho, without.pure_epsilon)
    assert with_it.claim == without.claim
    assert charge_of(b"s" * 32, with_it) == charge_of(b"s" * 32, without)
    (note,) = set(with_it.notes) - set(without.notes)
    assert set(without.notes) <= set(with_it.notes)
    assert "below 3 standard deviations" in note
    assert "costs no budget" in note


# -- what travels ------------------------------------------------------------------------------------------------------


def test_where_few_coordinates_are_large_the_state_travels_at_a_fraction() -> None:
    outcome, plan, servers, sent = executed(4.0, few_large())
    state = outcome.release.value
    large = np.arange(20) * 499
    assert np.abs(state[large] - 300).max() < 6 * plan.rounds[0].total_std
    told = state_bytes(Counts(), Public(features=()), outcome.history)
    assert told.dense == 3 * 8 * SIZE
    assert told.saved > 0.99
    assert len(sent) == 3
    head = len(codec.encode(RoundOpen(study_hash=bytes(32), round=1, deadline_ms=1, model_hash=bytes(32), model=b"")))
    assert told.sent == sum(len(raw) - head for raw in sent)  # what is told is what travelled
    _, _, dense, more = executed(None, few_large())
    assert sum(map(len, more)) - 3 * head == 2 * 8 * SIZE + 4  # a start of zeros is short in any study
    (up, down), (dense_up, dense_down) = servers.bytes_per_client(), dense.bytes_per_client()
    assert down < 0.05 * dense_down
    assert up == dense_up


def test_nothing_saved_is_said_so() -> None:
    ones = [np.ones(4)] * 3
    told = state_bytes(type("Ones", (Counts,), {"init": lambda *_: np.ones(4)})(), Public(features=()), ones)
    assert told == StateBytes(sent=96, dense=96)
    assert told.saved == 0.0
    assert StateBytes(sent=0, dense=0).saved == 0.0


def test_a_sampled_total_is_thresholded_before_it_is_scaled() -> None:
    """Dividing by the rate first would compare scaled values with unscaled noise: ten times as many would stay."""
    seen: list[np.ndarray] = []

    class Watched(Counts):
        rounds = 1

        def reduce_in_aggregator(self, total: np.ndarray, state: np.ndarray) -> np.ndarray:
            seen.append(total)
            return state + total

    _, plan, _, _ = executed(2.0, few_large(60), program=Watched(), sampling=0.1)
    rest = np.delete(seen[0], np.arange(20) * 499)
    assert abs(np.mean(rest != 0) - math.erfc(2 / math.sqrt(2))) < 0.02
    assert np.abs(rest[rest != 0]).min() >= 2 * plan.rounds[0].std_of("items") / 0.1


# -- every algorithm ---------------------------------------------------------------------------------------------------

NUMBERS = {"x": {"type": "number", "lower": -1, "upper": 1}, "z": {"type": "number", "lower": 0, "upper": 2}}
LABEL = {"y": {"type": "category", "values": ["no", "yes"]}}
SETS = {"b": {"type": "items", "vocabulary": list("abcdef"), "max_per_record": 4}}
EVERY: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "logistic_regression": ({"rounds": 3}, {**NUMBERS, **LABEL}, "y"),
    "linear_svc": ({"rounds": 3}, {**NUMBERS, **LABEL}, "y"),
    "ridge": ({"alpha": 1.0}, NUMBERS, "z"),
    "kmeans": ({"n_clusters": 3}, NUMBERS, None),
    "gaussian_nb": ({}, {**NUMBERS, **LABEL}, "y"),
    "gaussian_mixture": ({"n_components": 2, "rounds": 3}, NUMBERS, None),
    "pca": ({"n_components": 2}, NUMBERS, None),
    "truncated_svd": ({"n_components": 1}, NUMBERS, None),
    "pipeline": ({"steps": [{"program": "pca"}, {"program": "linear_svc", "rounds": 3}]}, {**NUMBERS, **LABEL}, "y"),
    "frequent_itemsets": ({"min_support": 0.3, "max_length": 2}, SETS, None),
    "summary": ({}, {**NUMBERS, **LABEL}, None),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("threshold", [1.0, 1e9])
def test_every_algorithm_takes_a_threshold(name: str, threshold: float) -> None:
    """Also one that leaves nothing but zeros: a defined result, finite, at the price of the study without."""
    settings, columns, target = EVERY[name]
    rng = np.random.default_rng(2)
    n = 600
    frame: dict[str, Any] = {"x": rng.uniform(-1, 1, n), "z": rng.uniform(0, 2, n)}
    frame["y"] = np.where(frame["x"] > 0, "yes", "no")
    frame["b"] = [list(rng.choice(list("abcdef"), 3, replace=False)) for _ in range(n)]
    raw = {
        "study": {"name": name, "program": name, "target": target, "accept_noise": True},
        "program": settings,
        "privacy": {"epsilon": 5.0, "delta": 1e-5, "threshold": threshold},
        "data": {"records": n, "columns": columns},
    }
    estimator, study = estimator_for(Study.from_dict(raw))
    fed = ts.Federation.simulate(
        [{k: v[i::3] for k, v in frame.items()} for i in range(3)], schema=study.schema_of_data(), seed=4
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit_study(fed, study)
    assert all(np.isfinite(np.frombuffer(pack_state(state))).all() for state in estimator.history_)
    assert 0 <= estimator.cost_["bytes_state_per_client"] <= estimator.cost_["bytes_state_dense_per_client"]
    plain = estimator.plan_.rounds
    without = plan_study(
        study.replace("privacy", threshold=None), estimator.design_for(study, layout_of(study)),
        allow_not_private=True,
    )  # fmt: skip
    assert plain == without.rounds
    assert estimator.model_document()
    if name == "summary":
        assert all(row["lower"] is None and row["standard_error"] is None for row in estimator.table_)


def test_an_evaluation_is_refused_a_threshold() -> None:
    study = Study.from_dict({**BASE, "study": {"name": "e", "program": "evaluation"}, "privacy": {"threshold": 1}})
    with pytest.raises(StudyError) as refusal:
        plan_study(study, SumDesign(program=Counts(), groups=(Counts.groups,)), allow_not_private=True)
    assert refusal.value.rule == "threshold-spoils-intervals"


# -- the key in the study ----------------------------------------------------------------------------------------------


def test_studies_without_it_keep_their_hash() -> None:
    study = Study.from_dict({"study": {"name": "s", "program": "summary"}})
    assert study.printed_hash == "sha256:7e83be06e5c51d1e32ad34d8824a3f9f9bf8e570cdcf854310dffed1e7ba1dfb"
    assert b"threshold" not in study.canonical()
    assert study.replace("privacy", threshold=None).hash == study.hash
    hashes = {study.replace("privacy", threshold=t).hash for t in (0, 1, 1.5)}
    assert len(hashes | {study.hash}) == 4
    assert study.replace("privacy", threshold=-0.0).hash == study.replace("privacy", threshold=0).hash
    assert study.replace("privacy", threshold=2).hash == study.replace("privacy", threshold=2.0).hash


@pytest.mark.parametrize(
    "bad", [-1, -1e-300, math.nan, math.inf, -math.inf, True, False, "2", "", [], [1], {}, 10**400]
)
def test_bad_thresholds_are_refused(bad: Any) -> None:
    with pytest.raises(StudyError) as refusal:
        study_of(bad)
    assert "privacy.threshold" in refusal.value.cause


def test_a_result_without_a_threshold_says_nothing_of_states() -> None:
    """Results of older releases stay verifiable: their cost has no such key."""
    table = census(120)
    model = ts.Summary(epsilon=1.0, columns=["age"], schema=ts.Schema({"age": ts.Number(17, 90)}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(ts.Federation.simulate([table], seed=1))
    assert list(model.cost_) == ["rounds", "bytes_up_per_client", "bytes_down_per_client"]
