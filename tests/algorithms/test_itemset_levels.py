"""Apriori with noise: without noise it is the exact miner; the candidates, the caps and what the plan says."""

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
from tallystick.algorithms.itemsets.exact import Level, least_count, mine
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.levels import LevelsProgram
from tallystick.algorithms.program import Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Dense, densify

FEATURES = kinds(3000)
MUSHROOM_LIKE = Public(
    features=tuple(f"i{i}" for i in range(117)),
    records=8124,
    blocks=tuple(
        (f"c{j}", *edges, "onehot", 1)
        for j, edges in enumerate(itertools.pairwise(np.linspace(0, 117, 23, dtype=int).tolist()))
    ),
    max_l1=22.0,
    max_l2_squared=22.0,
)


def designed(
    mechanism: str = "none", public: Public = PUBLIC, epsilon: float = 1.0, relation: str = "replace-one", **keys: Any
) -> Any:
    budget = budget_of(mechanism, epsilon, neighbours=relation)
    design = BUILT_IN["frequent_itemsets"].design({"min_support": 0.05, "method": "levels"} | keys, public, budget)
    return design, plan_of(design, budget, public.records or 3000)


def as_dict(levels: list[Level]) -> dict[tuple[int, ...], float]:
    return {tuple(row): count for level in levels for row, count in zip(level.sets.tolist(), level.counts.tolist())}


def truth(least: float = 150.0, longest: int = 4, features: np.ndarray = FEATURES) -> dict[tuple[int, ...], float]:
    layout = ItemLayout.of(PUBLIC)
    return as_dict(mine(layout.present(features), layout.block, least=least, longest=longest))


@pytest.mark.parametrize(
    "keys", [{}, {"singles": False}, {"exclusive": False}, {"consistent": False}, {"max_length": 9}]
)
def test_without_noise_it_is_the_exact_miner(keys: dict[str, Any]) -> None:
    design, plan = designed(**keys)
    state = run(design, plan, PUBLIC, FEATURES, None)  # type: ignore[arg-type]
    expected = truth(longest=keys.get("max_length", 4))
    if not keys.get("singles", True):
        expected = {k: v for k, v in expected.items() if len(k) > 1}
    assert as_dict(design.program.levels(state)) == expected


def test_a_support_of_everyone_and_of_nobody() -> None:
    for features, expected in ((np.ones((3000, 17)), 4), (np.zeros((3000, 17)), 0)):
        features = features * np.array([1, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0])
        design, plan = designed(min_support=1.0, max_length=2)
        found = design.program.levels(run(design, plan, PUBLIC, features, None))  # type: ignore[arg-type]
        assert len(found) == min(expected, 2)


def test_nothing_frequent_ends_the_rounds() -> None:
    design, plan = designed(min_support=1.0)
    states = [after for _, _, after in walk(design, plan, PUBLIC, FEATURES, None)]  # type: ignore[arg-type]
    assert design.program.finished(states[0])
    assert design.program.levels(states[0]) == []


def test_rows_do_not_depend_on_each_other() -> None:
    design, plan = designed(cap=4)
    rounds = [(design.program.query(before), r.grid) for r, before, _ in walk(design, plan, PUBLIC, FEATURES, None)]  # type: ignore[arg-type]
    assert len(rounds) == 4
    check_row_independence(design.program, FEATURES[:60], None, rounds)


def test_a_block_mean_is_caught() -> None:
    class BlockMean(LevelsProgram):
        def map_block(self, prepared: Any, state: Any) -> Any:
            vectors = densify(super().map_block(prepared, state), None)  # type: ignore[arg-type]
            return Dense(values=vectors - vectors.mean(axis=0) if len(vectors) else vectors)

    design, plan = designed()
    program = BlockMean(PUBLIC, budget_of("none"), design.program.settings)
    with pytest.raises(RowsDependError):
        check_row_independence(
            program, FEATURES[:30], None, [(program.query(program.init(PUBLIC)), plan.rounds[0].grid)]
        )


@pytest.mark.parametrize("cap", [1, 3])
def test_a_record_counts_its_first_candidates(cap: int) -> None:
    design, plan = designed(cap=cap)
    program = design.program
    assert all(c <= cap for c in program.caps)
    prepared = program.prepare(FEATURES[:50], None)
    for at, (_, before, _) in enumerate(walk(design, plan, PUBLIC, FEATURES, None)):  # type: ignore[arg-type]
        query = program.query(before)
        vectors = densify(program.map_block(prepared, query), plan.rounds[at].grid)
        order = before.order.astype(int)
        held = program.items.present(FEATURES[:50])[:, order]
        candidates = program._candidates(query)[at]
        for r in range(50):
            own = [i for i, s in enumerate(candidates) if held[r, s].all()][:cap]
            assert np.flatnonzero(vectors[r]).tolist() == own


def test_too_many_candidates_keep_the_most_frequent() -> None:
    design, plan = designed(max_candidates=12)
    sizes = design.program.sizes
    assert sizes == (17, 12, 12, 12)
    states = [after for _, _, after in walk(design, plan, PUBLIC, FEATURES, None)]  # type: ignore[arg-type]
    found = as_dict(design.program.levels(states[-1]))
    assert all(truth()[k] == v for k, v in found.items())  # what is counted is counted right
    singles = sorted((k for k in truth() if len(k) == 1), key=lambda k: -truth()[k])
    used = {(i,) for k in found if len(k) == 2 for i in k}
    assert used <= set(singles[: len(used) + 1])  # the most frequent items went on
    assert 0 < sum(len(k) == 2 for k in found) <= 12
    free = as_dict(designed()[0].program.levels(run(*designed(), PUBLIC, FEATURES, None)))  # type: ignore[arg-type]
    assert len(free) > len(found)
    with pytest.raises(StudyError, match="pairs of items"):
        designed(max_candidates=12, singles=False)


def test_the_model_has_one_size() -> None:
    """Whatever was found, the state that travels has the same bytes: bounded by the public limits."""
    design, plan = designed()
    program = design.program
    sizes = {
        tuple(np.shape(part) for part in program.query(before))
        for _, before, _ in walk(design, plan, PUBLIC, FEATURES, None)
    }  # type: ignore[arg-type]
    assert len(sizes) == 1
    assert program.query(program.init(PUBLIC)).masks.size <= sum(-(-s // 48) for s in program.sizes)


@pytest.mark.parametrize(
    "change",
    [
        {"done": 9.0},
        {"done": -1.0},
        {"done": 0.5},
        {"order": np.zeros(17)},
        {"order": np.arange(17) + 0.5},
        {"masks": -1.0},
        {"masks": 0.5},
        {"masks": 2.0**47},
    ],
)
def test_a_query_no_miner_sends_is_refused(change: dict[str, Any]) -> None:
    design, plan = designed()
    program = design.program
    states = [after for _, _, after in walk(design, plan, PUBLIC, FEATURES, None)]  # type: ignore[arg-type]
    query = program.query(states[1])
    if "masks" in change:
        masks = query.masks.copy()
        masks[0] = change["masks"]
        change = {"masks": masks}
    with pytest.raises(RemoteProtocolError):
        program.map_block(program.prepare(FEATURES[:5], None), query._replace(**change))


def test_a_query_with_too_many_candidates_is_refused() -> None:
    design, plan = designed(max_candidates=12)
    program = design.program
    after = next(after for _, _, after in walk(design, plan, PUBLIC, FEATURES, None))  # type: ignore[arg-type]
    words = np.array([2.0**17 - 1])  # all single items: far more than 12 pairs
    with pytest.raises(RemoteProtocolError):
        program.map_block(
            program.prepare(FEATURES[:5], None),
            program.query(after)._replace(masks=np.concatenate([words, after.masks[1:]])),
        )


# -- noise ----------------------------------------------------------------------------------------------------------


def test_pem_as_written() -> None:
    """T = 3, L_k = 2 C(22, k), Laplace, an even split: the paper's scales T·L_k/ε, to the grid's resolution."""
    keys = {"min_support": 0.01, "singles": False, "split": "uniform", "consistent": False, "exclusive": False}
    design, plan = designed("laplace", MUSHROOM_LIKE, **keys)
    assert design.rounds == 3
    scales = [float(r.noise[0].parameter) / r.grid.scale for r in plan.rounds]
    assert scales == pytest.approx([3 * 462, 3 * 3080, 3 * 14630], rel=1e-6)
    assert [r.grid.size for r in plan.rounds] == [math.comb(117, 2), math.comb(117, 3), 2**18]


@pytest.mark.parametrize(("relation", "moved"), [("replace-one", 2), ("add-remove", 1)])
def test_gaussian_sensitivities(relation: str, moved: int) -> None:
    _, plan = designed("gaussian", MUSHROOM_LIKE, relation=relation)
    found = [r.noise[0].sensitivity / r.grid.scale for r in plan.rounds]
    assert found == pytest.approx([math.sqrt(moved * math.comb(22, k)) for k in (1, 2, 3, 4)], rel=1e-3)


def test_few_candidates_or_a_cap_need_less_noise() -> None:
    """√min(2c, I): by the number of candidates, and by the cap."""
    _, few = designed("gaussian", MUSHROOM_LIKE, max_candidates=100)
    assert few.rounds[3].noise[0].sensitivity / few.rounds[3].grid.scale == pytest.approx(10, rel=1e-3)
    _, capped = designed("gaussian", MUSHROOM_LIKE, cap=50)
    assert capped.rounds[3].noise[0].sensitivity / capped.rounds[3].grid.scale == pytest.approx(10, rel=1e-3)
    _, laplace = designed("laplace", MUSHROOM_LIKE, max_candidates=100)
    assert laplace.rounds[3].noise[0].sensitivity / laplace.rounds[3].grid.scale == pytest.approx(100)


def test_what_the_design_expects_is_what_the_plan_adds() -> None:
    for mechanism in ("gaussian", "laplace"):
        for relation in ("replace-one", "add-remove"):
            design, plan = designed(mechanism, MUSHROOM_LIKE, relation=relation, max_candidates=1000)
            expected = [design.details["noise_of_a_count"][str(k)] for k in (1, 2, 3, 4)]
            assert [r.total_std for r in plan.rounds] == pytest.approx(expected, rel=2e-3)


def test_a_record_is_never_clipped() -> None:
    """The bound is rounded up on the grid: the fullest record passes whole, or supports would be short."""
    full = np.zeros((40, 117))
    full[:, [b[1] for b in MUSHROOM_LIKE.blocks]] = 1.0
    for mechanism in ("gaussian", "laplace"):
        design, plan = designed(mechanism, dataclasses.replace(MUSHROOM_LIKE, records=40), min_support=0.9)
        state = run(design, plan, MUSHROOM_LIKE, full, None)  # type: ignore[arg-type]
        found = as_dict(design.program.levels(state))
        assert len(found) == sum(math.comb(22, k) for k in (1, 2, 3, 4))
        assert set(found.values()) == {40.0}


def test_the_planner_refuses_and_names_the_smallest_useful_support() -> None:
    design, plan = designed("gaussian", MUSHROOM_LIKE, min_support=0.01)
    assert design.hopeless is not None
    assert "smallest useful min_support is" in design.hopeless
    named = float(design.hopeless.split("min_support is ")[1].split()[0])
    assert named == pytest.approx(4 * max(r.total_std for r in plan.rounds) / 8124, rel=0.05)
    assert designed("gaussian", MUSHROOM_LIKE, min_support=min(1.0, named * 1.05))[0].hopeless is None
    lost = designed("gaussian", MUSHROOM_LIKE, epsilon=0.01)[0].hopeless
    assert lost is not None
    assert "no min_support is useful" in lost
    tiny = designed(min_support=1e-5)[0].hopeless
    assert tiny is not None
    assert "less than one of 3,000 records" in tiny
    assert designed()[0].hopeless is None


def test_a_secret_number_of_records_is_counted() -> None:
    unknown = dataclasses.replace(PUBLIC, records=None)
    design, plan = designed("none", unknown)
    state = run(design, plan, unknown, FEATURES, None)  # type: ignore[arg-type]
    assert state.records == 3000.0
    assert as_dict(design.program.levels(state)) == truth()
    assert plan.rounds[0].grid.size == 18
    assert plan.rounds[1].grid.size == plan.rounds[1].noise[0].group.size == design.program.sizes[1]


def test_noisy_supports_are_monotone_unless_asked_otherwise() -> None:
    def noise(number: int, round_plan: Any) -> np.ndarray:
        drawn = np.random.default_rng(number).normal(0, 60, round_plan.grid.size)
        return np.rint(drawn * round_plan.grid.scale).astype(np.int64)

    for consistent in (True, False):
        design, plan = designed("gaussian", consistent=consistent)
        found = as_dict(design.program.levels(run(design, plan, PUBLIC, FEATURES, None, noise)))  # type: ignore[arg-type]
        above = [
            k
            for k, v in found.items()
            for sub in itertools.combinations(k, len(k) - 1)
            if len(k) > 1 and v > found.get(sub, math.inf)
        ]
        assert bool(above) != consistent
        assert min(found.values()) >= least_count(0.05, 3000)


def test_empty_blocks_and_no_records() -> None:
    design, plan = designed()
    state = run(design, plan, PUBLIC, FEATURES[:0], None)  # type: ignore[arg-type]
    assert design.program.levels(state) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"min_support": 0}, "not a share"),
        ({"min_support": 1.5}, "not a share"),
        ({"min_support": -0.1}, "not a share"),
        ({"min_support": math.nan}, "not a number"),
        ({"min_support": "0.1"}, "not a number"),
        ({"min_support": None}, "not a number"),
        ({"min_support": True}, "not a number"),
        ({"max_length": 0}, "out of range"),
        ({"max_length": 17}, "out of range"),
        ({"max_length": 2.5}, "not a whole number"),
        ({"max_length": math.inf}, "not a whole number"),
        ({"max_length": math.nan}, "not a whole number"),
        ({"cap": -math.inf}, "not a whole number"),
        ({"method": "fpgrowth"}, "not known"),
        ({"cap": 0}, "out of range"),
        ({"cap": "all"}, "not a whole number"),
        ({"max_candidates": 2**30}, "out of range"),
        ({"classes": 1000}, "out of range"),
        ({"singles": 1}, "neither true nor false"),
        ({"split": "even"}, "not known"),
    ],
)
def test_keywords_out_of_range_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        designed(**keys)
