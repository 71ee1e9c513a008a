"""k-means as a program: rows are independent, the noise is the plan's, without noise it is Lloyd's iteration."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, numbers, plan_of, random_records, run, walk
from row_independence import RowsDependError, check_row_independence

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.clustering.kmeans import KMeansProgram, design_kmeans, nearest
from tallystick.algorithms.clustering.rules import KMeansSettings, kmeans_settings
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Dense, GridRows, densify, total

BLOBS = np.array([[-0.6, -0.6, 0.2], [0.6, -0.5, -0.3], [0.1, 0.7, 0.5]])


def blobs(count: int, *, spread: float = 0.1, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(BLOBS[rng.integers(0, 3, count)] + spread * rng.normal(size=(count, 3)), -1, 1)


def one_hot(count: int, sizes: tuple[int, ...] = (3, 5, 4, 4, 3, 2, 3, 3)) -> tuple[np.ndarray, Public]:
    """Independent uniform categories, Nursery's shape."""
    rng = np.random.default_rng(1)
    columns = [np.eye(k)[rng.integers(0, k, count)] for k in sizes]
    edges = np.concatenate([[0], np.cumsum(sizes)])
    blocks = tuple((f"c{i}", int(a), int(b), "onehot", 1) for i, (a, b) in enumerate(itertools.pairwise(edges)))
    public = Public(
        features=tuple(f"f{i}" for i in range(edges[-1])),
        records=count,
        max_l2_squared=float(len(sizes)),
        max_l1=float(len(sizes)),
        blocks=blocks,
    )
    return np.hstack(columns), public


def loss(records: np.ndarray, centres: np.ndarray) -> float:
    return float(((records[:, None, :] - centres[None]) ** 2).sum(axis=2).min(axis=1).mean())


def lloyd(records: np.ndarray, centres: np.ndarray, rounds: int) -> np.ndarray:
    """The oracle: an empty cluster keeps its centre."""
    centres = centres.copy()
    for _ in range(rounds):
        labels = ((records[:, None, :] - centres[None]) ** 2).sum(axis=2).argmin(axis=1)
        for j in range(len(centres)):
            if (labels == j).any():
                centres[j] = records[labels == j].mean(axis=0)
    return centres


def noise_of(seed: int) -> Any:
    """Continuous stand-ins for the servers' noise, as many as there are servers."""
    rng = np.random.default_rng(seed)

    def draw(number: int, round_plan: Any) -> np.ndarray:
        parts = []
        for n in round_plan.noise:
            shape = (round_plan.makers, n.group.size)
            gaussian = round_plan.mechanism == "gaussian"
            each = (
                rng.normal(size=shape) * math.sqrt(n.variance)
                if gaussian
                else rng.laplace(size=shape) * float(n.parameter)
            )
            parts.append(np.rint(each.sum(axis=0)))
        return np.concatenate(parts).astype(np.int64)

    return draw


def fitted(
    records: np.ndarray,
    public: Public,
    mechanism: str = "gaussian",
    epsilon: float = 1.0,
    seed: int = 0,
    **keywords: Any,
) -> Any:
    budget = budget_of(mechanism, epsilon, neighbours=keywords.pop("neighbours", "replace-one"))
    design = design_kmeans(public, budget, kmeans_settings(keywords))
    noise = None if mechanism == "none" else noise_of(seed)
    state = run(design, plan_of(design, budget, len(records)), public, records, np.zeros(len(records)), noise)
    program = design.program
    assert isinstance(program, KMeansProgram)
    centres, counts = program.model(state)
    return state._replace(centres=centres, counts=counts)


# -- row independence ---------------------------------------------------------------------------------------------

CASES = [
    ("gaussian", {}),
    ("laplace", {}),
    ("gaussian", {"start": "random"}),
    ("laplace", {"start": "random", "method": "plain"}),
]


def rounds_of(program: KMeansProgram, plan: Any, public: Public, rng: np.random.Generator) -> list[tuple[Any, Any]]:
    query = program.query(program.init(public))
    centres = rng.uniform(-1, 1, query.centres.shape)
    later = query._replace(stage=1.0, centres=centres, radius=0.7)
    return [(query, plan.rounds[0].grid), (later, plan.rounds[-1].grid)]


@pytest.mark.parametrize(("mechanism", "keywords"), CASES)
def test_blocks_singletons_and_permutations_give_equal_bits(mechanism: str, keywords: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    public = mixed(records=60)
    features, target = random_records(public, 60, rng)
    budget = budget_of(mechanism)
    design = BUILT_IN["kmeans"].design({"n_clusters": 4, "rounds": 3, **keywords}, public, budget)
    program = design.program
    assert isinstance(program, KMeansProgram)
    plan = plan_of(design, budget, 60)
    check_row_independence(program, features, target, rounds_of(program, plan, public, rng))


class _BlockMean(KMeansProgram):
    """The planted bug: differences to the mean of the block's records."""

    def map_block(self, prepared: Any, state: Any) -> Any:
        contribution = super().map_block(prepared, state)
        if isinstance(contribution, Dense) or len(prepared.features) == 0:
            return contribution
        return dataclasses.replace(contribution, values=contribution.values - prepared.features.mean())


class _BlasScores(KMeansProgram):
    """The planted bug: nearest centres from a float product, whose last bit moves with the block's shape."""

    def map_block(self, prepared: Any, state: Any) -> Any:
        centres = state.centres
        distance = (centres**2).sum(axis=1) - 2 * (prepared.features @ centres.T)
        return Dense(values=np.hstack([distance, np.zeros((len(distance), self.clusters * self.shapes.size))]))


@pytest.mark.parametrize("kind", [_BlockMean, _BlasScores])
def test_a_map_that_looks_at_the_block_is_caught(kind: type[KMeansProgram]) -> None:
    rng = np.random.default_rng(3)
    public = numbers(61, records=200)
    features = rng.uniform(-1, 1, (200, 61))
    budget = budget_of("gaussian")
    settings = KMeansSettings(n_clusters=4, rounds=2)
    plan = plan_of(design_kmeans(public, budget, settings), budget, 200)
    program = kind(public, budget, settings)
    with pytest.raises(RowsDependError):
        check_row_independence(program, features, np.zeros(200), rounds_of(program, plan, public, rng)[1:])


def test_the_nearest_centre_is_the_nearest() -> None:
    rng = np.random.default_rng(4)
    rows, centres = rng.uniform(-1, 1, (500, 7)), rng.uniform(-1, 1, (6, 7))
    grid = GridRows.make(rows, bits=20, limit=3.0)
    exact = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
    assert np.allclose(exact[np.arange(500), nearest(grid, centres)], exact.min(axis=1), atol=1e-5)
    twins = np.vstack([centres[0], centres[0], centres[1:]])
    assert (nearest(grid, twins) != 1).all()  # the first of equals


# -- without noise ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "plain"])
def test_without_noise_it_is_lloyds_iteration(method: str) -> None:
    records, public = blobs(400, spread=0.25), numbers(3, records=400)
    start = np.random.default_rng(5).uniform(-1, 1, (5, 3))
    state = fitted(records, public, "none", n_clusters=5, rounds=7, start=start, method=method)
    assert np.allclose(state.centres, lloyd(records, start, 7), atol=1e-6)
    labels = ((records[:, None] - lloyd(records, start, 6)[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert np.allclose(state.counts, np.bincount(labels, minlength=5), atol=1e-6)


def test_fine_clusters_find_what_lloyds_iteration_alone_misses() -> None:
    """Six blobs in a row: from most starts a centre is left between two of them and another two share one."""
    rng = np.random.default_rng(9)
    middles = np.linspace(-0.9, 0.9, 6)
    records = np.clip(middles[rng.integers(0, 6, 4000)] + 0.02 * rng.normal(size=4000), -1, 1)[:, None]
    public = numbers(1, records=4000)
    for seed in range(5):
        state = fitted(records, public, epsilon=4.0, n_clusters=6, seed=seed)
        assert loss(records, state.centres) < 2 * 0.02**2
    design = design_kmeans(public, budget_of("gaussian", 4.0), KMeansSettings(n_clusters=6))
    assert [g[0].one_of for g in design.groups] == [0, 24, 24, *[6] * (design.rounds - 3)]
    noisy = design_kmeans(public, budget_of("gaussian", 0.01), KMeansSettings(n_clusters=6))
    assert noisy.details["fine_clusters"] == 6


def test_one_hot_and_missing_columns_without_noise() -> None:
    rng = np.random.default_rng(6)
    public = mixed(records=500)
    records, _ = random_records(public, 500, rng)
    for start, stop, ones in ((0, 3, 1),):  # every value declared, so that the block sums to one
        empty = records[:, start:stop].sum(axis=1) == 0
        records[empty, start] = float(ones)
    start_at = rng.uniform(0, 1, (3, 11))
    start_at[:, :3] = 1 / 3
    state = fitted(records, public, "none", n_clusters=3, rounds=4, start=start_at)
    assert np.allclose(state.centres, lloyd(records, start_at, 4), atol=1e-6)


def test_blobs_are_found() -> None:
    records, public = blobs(3000), numbers(3, records=3000)
    state = fitted(records, public, epsilon=2.0, n_clusters=3)
    found = np.array([np.abs(BLOBS - c).max(axis=1).min() for c in state.centres])
    assert (found < 0.1).all()
    assert len({int(np.abs(BLOBS - c).sum(axis=1).argmin()) for c in state.centres}) == 3
    assert state.counts.sum() == pytest.approx(3000)


# -- the noise is the plan's --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("person", [1, 3])
def test_the_noise_it_reckons_with_is_the_plans(mechanism: str, neighbours: str, person: int) -> None:
    public = mixed(records=5000)
    if neighbours == "add-remove" or person > 1:
        public = dataclasses.replace(public, records=None)
    budget = budget_of(mechanism, 1.0, neighbours=neighbours, person=person)
    design = design_kmeans(public, budget, KMeansSettings(n_clusters=4, rounds=3))
    program = design.program
    assert isinstance(program, KMeansProgram)
    plan = plan_of(design, budget, 5000, max_records=person)
    assert plan.rounds[-1].std_of("clusters") == pytest.approx(program._noise(program.share / 3), rel=1e-3)


def test_pem_as_written_has_pems_sensitivities() -> None:
    """Nursery: L = 16 for the sums, 2 for the counts, half of epsilon each, fifty rounds."""
    _, public = one_hot(100)
    budget = budget_of("laplace", 1.0)
    keywords = {"n_clusters": 5, "rounds": 50, "method": "plain", "start": "random"}
    plan = plan_of(BUILT_IN["kmeans"].design(keywords, public, budget), budget, 100)
    assert len(plan.rounds) == 50
    sums, counts = plan.rounds[0].noise
    scale = plan.rounds[0].grid.scale
    assert sums.sensitivity == 16 * scale
    assert counts.sensitivity == 2 * scale
    assert float(sums.parameter) / scale == pytest.approx(16 * 50 / 0.5, rel=1e-6)
    assert float(counts.parameter) / scale == pytest.approx(2 * 50 / 0.5, rel=1e-6)


def test_every_record_counts_once_and_in_one_cluster() -> None:
    records, public = blobs(100), numbers(3, records=100)
    budget = budget_of("gaussian")
    design = design_kmeans(public, budget, KMeansSettings(n_clusters=4, rounds=2, start="random"))
    plan = plan_of(design, budget, 100)
    program = design.program
    assert isinstance(program, KMeansProgram)
    grid = plan.rounds[0].grid
    query = program.query(program.init(public))
    each = densify(program.map_block(program.prepare(records, None), query), grid).reshape(100, 4, 4)
    assert ((each != 0).any(axis=2).sum(axis=1) == 1).all()
    summed = total(program.map_block(program.prepare(records, None), query), grid).reshape(4, 4)
    assert summed[:, 0].sum() == 100 * grid.integer_counts[0]


# -- accuracy -----------------------------------------------------------------------------------------------------


def test_accuracy_rises_with_epsilon() -> None:
    records, public = blobs(2000, spread=0.2), numbers(3, records=2000)
    means = [
        np.mean([loss(records, fitted(records, public, epsilon=e, seed=s, n_clusters=3).centres) for s in range(6)])
        for e in (0.02, 0.2, 2.0, 20.0)
    ]
    assert means == sorted(means, reverse=True)
    best = loss(records, lloyd(records, BLOBS, 20))
    assert means[-1] < 1.02 * best
    assert means[0] > 1.5 * best


def test_laplace_accuracy_rises_with_epsilon() -> None:
    records, public = blobs(2000, spread=0.2), numbers(3, records=2000)
    means = [
        np.mean([loss(records, fitted(records, public, "laplace", e, s, n_clusters=3).centres) for s in range(5)])
        for e in (0.1, 1.0, 10.0)
    ]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 1.05 * loss(records, lloyd(records, BLOBS, 20))


def test_on_independent_columns_noise_takes_nothing_away() -> None:
    """Nursery's shape: the start is the answer, and a sum that is all noise moves no centre far."""
    records, public = one_hot(12960)
    one = loss(records, records.mean(axis=0)[None])
    best = loss(records, fitted(records, public, "none", n_clusters=5).centres)
    for epsilon, worst in ((0.05, 0.1), (0.1, 0.25), (1.0, 0.1)):
        found = np.mean(
            [loss(records, fitted(records, public, epsilon=epsilon, seed=s, n_clusters=5).centres) for s in (1, 2, 3)]
        )
        assert (found - best) / (one - best) < worst


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_in_a_very_noisy_round_noise_alone_seldom_moves_a_centre(mechanism: str) -> None:
    """Totals that are pure noise move nothing in nine rounds of ten; a signal of the noise's size always does; and a
    round of little noise is not asked, nor one where the start is a guess too."""
    _, public = one_hot(12960)
    rng = np.random.default_rng(3)

    def moves(epsilon: float, signal: float) -> float:
        budget = budget_of(mechanism, epsilon)
        program = design_kmeans(public, budget, KMeansSettings(n_clusters=5, rounds=3)).program
        assert isinstance(program, KMeansProgram)
        state = program.init(public)
        spread = np.tile(program.public.mean, (5, 1))
        state = state._replace(stage=1.0, centres=spread)
        sigma = program._noise(program.share / program.steps)
        moved = 0
        for _ in range(200):
            noise = rng.normal(size=(5, 28)) if mechanism == "gaussian" else rng.laplace(size=(5, 28)) / math.sqrt(2)
            total = sigma * (noise + signal * rng.normal(size=(5, 28)))
            total[:, 0] += program.count * 12960 / 5
            moved += not np.array_equal(program.reduce_in_aggregator(total.ravel(), state).centres, spread)
        return moved / 200

    noisy = 0.05 if mechanism == "gaussian" else 0.1
    assert moves(noisy, 0.0) < 0.1
    assert moves(noisy, 1.0) > 0.95
    assert moves(100.0, 0.0) > 0.9
    lost = design_kmeans(public, budget_of(mechanism, noisy / 10), KMeansSettings(n_clusters=5)).program
    assert isinstance(lost, KMeansProgram)
    assert lost._signal(np.zeros(5), 1.0)


def test_pem_as_written_is_far_worse() -> None:
    records, public = one_hot(2000)
    pem = fitted(records, public, "laplace", 1.0, n_clusters=5, rounds=50, method="plain", start="random")
    assert loss(records, np.clip(pem.centres, 0, 1)) > 1.2 * loss(
        records, fitted(records, public, n_clusters=5).centres
    )


# -- rules from public facts --------------------------------------------------------------------------------------


def test_rounds_follow_from_public_facts() -> None:
    def steps(epsilon: float, records: int | None, **more: Any) -> int:
        public = dataclasses.replace(numbers(5, records=1), records=records)
        return design_kmeans(public, budget_of("gaussian", epsilon), KMeansSettings(n_clusters=4, **more)).rounds - 1

    chosen = [steps(e, 5000) for e in (0.01, 0.1, 1, 10)]
    assert chosen == sorted(chosen)
    assert chosen[0] == 4
    assert chosen[-1] == 20
    assert steps(1, None) == 8
    assert steps(1, 5000, rounds=3) == 3


def test_the_planner_says_when_nothing_can_be_found() -> None:
    budget = budget_of("gaussian", 0.05)
    hopeless = design_kmeans(numbers(30, records=100), budget, KMeansSettings(n_clusters=4))
    assert hopeless.hopeless
    assert "times their spread" in hopeless.hopeless
    fine = design_kmeans(numbers(30, records=100_000), budget, KMeansSettings(n_clusters=4))
    assert fine.hopeless is None
    assert fine.notes == ()
    drowned = design_kmeans(numbers(30, records=3000), budget, KMeansSettings(n_clusters=40))
    assert drowned.hopeless is None
    assert "tell little" in drowned.notes[0]


@pytest.mark.parametrize(
    "keywords",
    [
        {"n_clusters": 0},
        {"n_clusters": 2.5},
        {"n_clusters": "five"},
        {"n_clusters": True},
        {"rounds": 0},
        {"rounds": "many"},
        {"method": "fast"},
        {"method": "plain"},
        {"start": "kmeans++"},
        {"start": []},
        {"start": [[0.0, 1.0], [0.0]]},
        {"start": [[0.0, float("nan"), 0.0]] * 8},
        {"start": [[0.0, 1.0]] * 8},
        {"start": 3},
        {"seed": 0.5},
        {"n_clusters": 101},
    ],
)
def test_wrong_keywords_are_refused(keywords: dict[str, Any]) -> None:
    public = numbers(3, records=100)
    with pytest.raises(StudyError) as refused:
        BUILT_IN["kmeans"].design(keywords, public, budget_of("gaussian")).program.init(public)
    assert refused.value.remedy


def test_k_larger_than_records_is_refused_where_they_are_public() -> None:
    with pytest.raises(StudyError, match="9 clusters for 8 records"):
        design_kmeans(numbers(2, records=8), budget_of("gaussian"), KMeansSettings(n_clusters=9))
    secret = dataclasses.replace(numbers(2, records=8), records=None)
    records = np.random.default_rng(7).uniform(-1, 1, (3, 2))
    state = fitted(records, secret, n_clusters=9, neighbours="add-remove")
    assert np.isfinite(state.centres).all()
    assert (np.abs(state.centres) <= 1).all()


@pytest.mark.parametrize("where", [0.5, -1.0, 1.0])
def test_constant_columns_and_duplicates_give_defined_centres(where: float) -> None:
    records, public = np.full((300, 2), where), numbers(2, records=300)
    for mechanism in ("gaussian", "laplace", "none"):
        state = fitted(records, public, mechanism, epsilon=5.0, n_clusters=3)
        assert np.isfinite(state.centres).all()
        assert (np.abs(state.centres) <= 1).all()
    assert np.abs(state.centres[state.counts > 0] - where).max() < 1e-3


def test_an_empty_cluster_keeps_its_centre() -> None:
    records, public = np.full((200, 2), 0.5), numbers(2, records=200)
    start = [[0.5, 0.4], [-1.0, -1.0]]
    for mechanism in ("none", "gaussian"):
        state = fitted(records, public, mechanism, epsilon=5.0, n_clusters=2, start=start, rounds=4)
        assert np.array_equal(state.centres[1], [-1.0, -1.0]) or mechanism == "gaussian"
        assert np.abs(state.centres[0] - 0.5).max() < 0.2
    assert np.abs(state.centres[1] + 1).max() < 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"centres": np.full((3, 2), 1.5)},
        {"centres": np.full((3, 2), -1e300)},
        {"radius": 0.0},
        {"radius": 1e-300},
        {"radius": 1e300},
    ],
)
def test_a_query_no_honest_aggregator_sends_is_refused(change: dict[str, Any]) -> None:
    public = numbers(2, records=50)
    program = design_kmeans(public, budget_of("gaussian"), KMeansSettings(n_clusters=3)).program
    assert isinstance(program, KMeansProgram)
    query = program.query(program.init(public))._replace(stage=1.0, **change)
    for records in (np.zeros((0, 2)), np.ones((5, 2))):  # whatever the records are
        with pytest.raises(RemoteProtocolError):
            program.map_block(program.prepare(records, None), query)


def test_centres_stay_within_the_bounds_whatever_the_noise() -> None:
    public = mixed(records=50)
    records, _ = random_records(public, 50, np.random.default_rng(8))
    budget = budget_of("gaussian", 0.01)
    design = design_kmeans(public, budget, KMeansSettings(n_clusters=4))
    for _, _, state in walk(design, plan_of(design, budget, 50), public, records, np.zeros(50), noise_of(1)):
        assert np.all(state.centres[:, :8] >= 0)
        assert np.all(np.abs(state.centres) <= 1)
        assert np.allclose(state.centres[:, :3].sum(axis=1), 1)
