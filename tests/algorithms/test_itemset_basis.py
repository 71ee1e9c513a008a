"""Sets from a model: the fit against its own gradient and a known mixture, the maps against oracles, the rules."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, plan_of, run, walk
from itemset_data import PUBLIC, kinds
from row_independence import RowsDependError, check_row_independence

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.algorithms.itemsets.basis import BasisProgram, choose_classes, class_counts, pair_counts
from tallystick.algorithms.itemsets.contained import rows_of
from tallystick.algorithms.itemsets.exact import itemset_loss, mine
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.profiles import (
    ClassCounts,
    PairCounts,
    ProfileShape,
    _Problem,
    classes_that_show,
    fit,
    independent,
)
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError
from tallystick.privacy.contribution import Dense, densify

FEATURES = kinds(3000)
LAYOUT = ItemLayout.of(PUBLIC)
TRUTH = mine(LAYOUT.present(FEATURES), LAYOUT.block, least=150.0, longest=4)


def designed(
    mechanism: str = "gaussian",
    epsilon: float = 1.0,
    public: Public = PUBLIC,
    relation: str = "replace-one",
    **keys: Any,
) -> Any:
    budget = budget_of(mechanism, epsilon, neighbours=relation)
    design = BUILT_IN["frequent_itemsets"].design({"min_support": 0.05, "method": "basis"} | keys, public, budget)
    return design, plan_of(design, budget, public.records or 3000)


def noise_of(seed: int) -> Any:
    """Two servers' Gaussian noise at the plan's variance."""

    def noise(number: int, round_plan: Any) -> np.ndarray:
        rng = np.random.default_rng((seed, number))
        drawn = [rng.normal(0, math.sqrt(2 * n.variance), n.group.size) for n in round_plan.noise]
        return np.rint(np.concatenate(drawn)).astype(np.int64)

    return noise


def loss_at(epsilon: float, seed: int, **keys: Any) -> float:
    design, plan = designed("gaussian", epsilon, **keys)
    state = run(design, plan, PUBLIC, FEATURES, None, noise_of(seed))  # type: ignore[arg-type]
    return itemset_loss(design.program.levels(state)[0], TRUTH)


# -- the model --------------------------------------------------------------------------------------------------------


def mixture(rng: np.random.Generator, shape: ProfileShape, classes: int) -> tuple[np.ndarray, np.ndarray]:
    logits = rng.normal(0, 2, (shape.rows, classes))
    return rng.dirichlet(np.full(classes, 5.0)), shape.softmax(logits)


def totals(
    shape: ProfileShape, w: np.ndarray, p: np.ndarray, block: np.ndarray, noise: float
) -> tuple[np.ndarray, PairCounts]:
    own = p[shape.item]
    known = block[:, None] != block[None, :]
    pairs = PairCounts(items=np.arange(len(block)), frequencies=((own * w) @ own.T) * known, known=known, noise=noise)
    return own @ w, pairs


def test_the_shape_of_profiles() -> None:
    shape = ProfileShape.of(np.array([0, 0, 1, 2, 2, 2]))
    assert shape.item.tolist() == [0, 1, 3, 5, 6, 7]
    assert shape.none.tolist() == [2, 4, 8]
    p = shape.softmax(np.random.default_rng(0).normal(size=(9, 2)))
    assert np.allclose([p[0:3].sum(axis=0), p[3:5].sum(axis=0), p[5:9].sum(axis=0)], 1)


def test_gradients_are_those_of_the_misfit() -> None:
    rng = np.random.default_rng(3)
    block = LAYOUT.block
    shape = ProfileShape.of(block)
    w, p = mixture(rng, shape, 3)
    singles, pairs = totals(shape, *mixture(rng, shape, 3), block, 0.02)
    counted = ClassCounts(frequencies=rng.random((17, 3)), sizes=rng.random(3), noise=0.03)

    def misfit(w: np.ndarray, p: np.ndarray) -> float:
        own = p[shape.item]
        apart = ((own * w) @ own.T - pairs.frequencies)[np.triu(pairs.known)] / pairs.noise
        single = (own @ w - singles) / 0.01
        cells = np.append((own * w - counted.frequencies).ravel(), w - counted.sizes) / counted.noise
        return 0.5 * float(apart @ apart + single @ single + cells @ cells)

    by_p, by_w = _Problem(shape, singles, 0.01, pairs, counted).gradient(p, w)
    step = 1e-6
    for k in range(3):
        up = w + step * (np.arange(3) == k)
        assert by_w[k] == pytest.approx((misfit(up, p) - misfit(w, p)) / step, rel=1e-3, abs=1e-2)
    for row, k in itertools.product(range(shape.rows), range(3)):
        q = p.copy()
        q[row, k] += step
        assert by_p[row, k] == pytest.approx((misfit(w, q) - misfit(w, p)) / step, rel=1e-3, abs=1e-2)
    # and the softmax's own gradient, in one direction
    logits = np.log(p)
    direction = rng.normal(size=p.shape)
    slope = (shape.softmax(logits + step * direction) - p) / step
    assert float((shape.through_softmax(p, by_p) * direction).sum()) == pytest.approx(
        float((by_p * slope).sum()), rel=1e-3
    )


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_a_mixture_is_recovered_from_its_pairs(classes: int) -> None:
    rng = np.random.default_rng(classes)
    shape = ProfileShape.of(LAYOUT.block)
    w, p = mixture(rng, shape, classes)
    singles, pairs = totals(shape, w, p, LAYOUT.block, 1e-4)
    model = fit(shape, classes=classes, singles=singles, noise=1e-4, pairs=pairs)
    found, again = totals(shape, model.weights, model.probabilities, LAYOUT.block, 1.0)
    assert np.abs(found - singles).max() < 0.01
    assert np.abs(again.frequencies - pairs.frequencies).max() < 0.01
    assert np.isclose(model.weights.sum(), 1)


def test_one_class_is_the_nearest_probabilities() -> None:
    shape = ProfileShape.of(np.array([0, 0, 0, 1, 2, 2]))
    p = independent(shape, np.array([0.7, 0.5, -0.2, 1.3, 0.1, 0.1]), 0.01).probabilities[:, 0]
    assert p == pytest.approx([0.6, 0.4, 0, 0, 1, 0, 0.1, 0.1, 0.8])  # the last column leaves clearly less than a whole
    p = independent(shape, np.array([0.7, 0.5, -0.2, -0.3, 0.4, 0.4]), 0.1).probabilities[:, 0]
    assert p == pytest.approx([0.6, 0.4, 0, 0, 0, 1, 0.5, 0.5, 0])  # here it may be noise


def test_classes_show_only_above_the_noise() -> None:
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(20), 3)
    shape = ProfileShape.of(block)
    w, p = mixture(rng, shape, 3)
    for truth_p, truth_w, expected in ((p, w, True), (p[:, :1], np.ones(1), False)):
        for noise in (1e-3, 10.0):
            singles, pairs = totals(shape, truth_w, truth_p, block, noise)
            drawn = np.triu(rng.normal(0, noise, pairs.known.shape), 1)
            noisy = dataclasses.replace(pairs, frequencies=(pairs.frequencies + drawn + drawn.T) * pairs.known)
            found = classes_that_show(shape, singles, noise / 10, noisy, 64)
            assert (found > 1) == (expected and noise < 1)
            assert classes_that_show(shape, singles, noise / 10, noisy, 2) <= 2


# -- the maps ---------------------------------------------------------------------------------------------------------


def test_pairs_and_classes_by_hand() -> None:
    rng = np.random.default_rng(1)
    present = rng.random((40, 6)) < 0.5
    starts, items = rows_of(present)
    indptr, indices = pair_counts(starts, items, 6)
    numbers = {pair: i for i, pair in enumerate(itertools.combinations(range(6), 2))}
    for r in range(40):
        held = np.flatnonzero(present[r])
        assert indices[indptr[r] : indptr[r + 1]].tolist() == [
            numbers[p] for p in itertools.combinations(held.tolist(), 2)
        ]
    scores = rng.integers(-1000, 1000, (6, 4))
    offsets = rng.integers(-1000, 1000, 4)
    scores[:, 3], offsets[3] = scores[:, 1], offsets[1]  # a tie: the first wins
    indptr, indices = class_counts(starts, items, scores, offsets)
    for r in range(40):
        k = int((offsets + scores[present[r]].sum(axis=0)).argmax())
        assert k != 3
        expected = [k * 7 + i for i in np.flatnonzero(present[r])] + [k * 7 + 6]
        assert indices[indptr[r] : indptr[r + 1]].tolist() == expected


def test_rows_do_not_depend_on_each_other() -> None:
    design, plan = designed()
    assert design.rounds == 3
    rounds = [
        (design.program.query(before), r.grid)
        for r, before, _ in walk(design, plan, PUBLIC, FEATURES, None, noise_of(1))
    ]  # type: ignore[arg-type]
    check_row_independence(design.program, FEATURES[:60], None, rounds)


def test_a_block_mean_is_caught() -> None:
    class BlockMean(BasisProgram):
        def map_block(self, prepared: Any, state: Any) -> Any:
            vectors = densify(super().map_block(prepared, state), None)  # type: ignore[arg-type]
            return Dense(values=vectors - vectors.mean(axis=0) if len(vectors) else vectors)

    design, plan = designed()
    program = BlockMean(PUBLIC, budget_of("gaussian"), design.program.settings)
    with pytest.raises(RowsDependError):
        check_row_independence(
            program, FEATURES[:30], None, [(program.query(program.init(PUBLIC)), plan.rounds[0].grid)]
        )


def test_nothing_is_clipped_and_nothing_is_lost() -> None:
    design, plan = designed()
    for round_plan, before, after in walk(design, plan, PUBLIC, FEATURES, None):  # type: ignore[arg-type]
        contribution = design.program.map_block(design.program.prepare(FEATURES, None), design.program.query(before))
        vectors = densify(contribution, round_plan.grid)
        ones = vectors.sum(axis=1).max()
        assert ones <= round_plan.noise[0].group.bound ** 2
        assert (
            round_plan.noise[0].sensitivity / round_plan.grid.scale
            <= math.sqrt(2 * design.program.ones[int(before.stage)]) * 1.001
        )
        if before.stage == 0:
            assert after.singles == pytest.approx(LAYOUT.present(FEATURES).mean(axis=0))
        if before.stage == 1:
            present = LAYOUT.present(FEATURES).astype(float)
            assert after.pairs == pytest.approx(((present.T @ present) / 3000)[np.triu_indices(17, 1)])


@pytest.mark.parametrize(
    "change",
    [
        {"stage": 3.0},
        {"stage": 0.5},
        {"paired": np.arange(17)[::-1].astype(float)},
        {"paired": np.arange(17) + 1.0},
        {"paired": np.arange(17) + 0.5},
        {"scores": 2.0**60},
        {"offsets": -(2.0**60)},
    ],
)
def test_a_query_no_miner_sends_is_refused(change: dict[str, Any]) -> None:
    design, _ = designed()
    program = design.program
    query = program.query(program.init(PUBLIC))._replace(stage=1.0)
    values = {k: np.full_like(getattr(query, k), v) if k in ("scores", "offsets") else v for k, v in change.items()}
    with pytest.raises(RemoteProtocolError):
        program.map_block(program.prepare(FEATURES[:5], None), query._replace(**values))


# -- the rules --------------------------------------------------------------------------------------------------------


def test_without_noise_the_model_is_close() -> None:
    assert loss_at(1e5, 0) < 0.02


def test_the_loss_falls_with_epsilon() -> None:
    means = [np.mean([loss_at(epsilon, seed) for seed in range(3)]) for epsilon in (0.02, 0.2, 2.0, 20.0)]
    assert all(a > b for a, b in itertools.pairwise(means))
    assert means[0] > 0.2
    assert means[-1] < 0.05


def test_classes_tell_more_than_independence() -> None:
    assert loss_at(5.0, 1) < 0.7 * loss_at(5.0, 1, classes=1)


def test_noise_decides_how_many_classes() -> None:
    found = [choose_classes(LAYOUT, budget_of("gaussian", e), 3000) for e in (0.01, 0.1, 1, 10, 100)]
    assert found == sorted(found)
    assert found[0] == 1
    assert found[-1] == 64
    assert choose_classes(LAYOUT, budget_of("none"), 3000) == 64
    assert choose_classes(LAYOUT, budget_of("gaussian"), None) == 8
    assert choose_classes(ItemLayout.of(Public(features=("x",))), budget_of("none"), 10) == 1
    only = designed("gaussian", 0.05)[0]
    assert only.rounds == 1
    assert "single items alone" in only.notes[0]


def test_many_items_are_paired_up_to_a_public_limit() -> None:
    public = Public(features=tuple(f"i{i}" for i in range(700)), records=3000, blocks=(("b", 0, 700, "items", 5),))
    design, plan = designed(public=public, classes=4)
    assert "the 512 most frequent items are paired: a public limit" in design.notes
    features = np.zeros((60, 700))
    features[:, [100, 650]] = 1.0
    state = run(design, plan, dataclasses.replace(public, records=60), features, None)  # type: ignore[arg-type]
    assert {100.0, 650.0} <= set(state.paired)
    assert len(state.paired) == 512


def test_a_secret_number_of_records_is_counted() -> None:
    unknown = dataclasses.replace(PUBLIC, records=None)
    design, plan = designed("gaussian", 1.0, unknown, relation="add-remove")
    state = run(design, plan, unknown, FEATURES, None)  # type: ignore[arg-type]
    assert state.records == pytest.approx(3000)
    assert itemset_loss(design.program.levels(state)[0], TRUTH) < 0.1


def test_the_plan_adds_what_the_program_reckons_with() -> None:
    for mechanism in ("gaussian", "laplace"):
        for relation in ("replace-one", "add-remove"):
            design, plan = designed(mechanism, relation=relation, classes=5)
            program = design.program
            assert [r.total_std for r in plan.rounds] == pytest.approx([program.noise(at) for at in range(3)], rel=2e-3)


def test_the_planner_refuses_what_is_drowned() -> None:
    few = dataclasses.replace(PUBLIC, records=60)
    hopeless = designed("gaussian", 0.05, few)[0].hopeless
    assert hopeless is not None
    assert "no support can be told from none" in hopeless
    assert designed("gaussian", 1.0)[0].hopeless is None
    tiny = designed("gaussian", 1.0, min_support=1e-4)[0].hopeless
    assert tiny is not None
    assert "smallest useful min_support is 0.00033" in tiny


def test_auto_counts_sets_only_where_noise_is_tiny() -> None:
    assert designed("gaussian", 1.0, method="auto")[0].details["method"] == "basis"
    assert designed("none", method="auto")[0].details["method"] == "levels"
    many = dataclasses.replace(PUBLIC, records=900_000)
    clear = designed("gaussian", 1.0, many, method="auto")[0]
    assert clear.details["method"] == "levels"
    assert 32 * max(clear.details["noise_of_a_count"].values()) <= 0.05 * many.records  # type: ignore[operator]


def test_unknown_values_are_a_value_of_their_own() -> None:
    """A third of the records has no declared colour: the model does not share their mass among the declared ones."""
    features = FEATURES.copy()
    features[::3, 0:4] = 0.0
    design, plan = designed("gaussian", 50.0)
    state = run(design, plan, PUBLIC, features, None, noise_of(2))  # type: ignore[arg-type]
    singles = {
        row[0]: c
        for row, c in zip(design.program.levels(state)[0][0].sets.tolist(), design.program.levels(state)[0][0].counts)
    }
    exact = LAYOUT.present(features).sum(axis=0)
    assert all(abs(singles[i] - exact[i]) < 120 for i in range(4) if i in singles)
    assert sum(singles.get(i, 0.0) for i in range(4)) < 2200


def test_no_records_is_a_result() -> None:
    design, plan = designed()
    state = run(design, plan, PUBLIC, FEATURES[:0], None, noise_of(3))  # type: ignore[arg-type]
    levels, least = design.program.levels(state)
    assert least >= 0.05 * (1 - 1e-9)
    assert all(np.isfinite(level.counts).all() for level in levels)
