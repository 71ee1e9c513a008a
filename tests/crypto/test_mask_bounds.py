"""The degree and threshold of the mask graph: figures, small circles by enumeration, larger ones by Monte Carlo."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import comb, sqrt
from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import digest
from tallystick.crypto import mask_bounds
from tallystick.crypto.mask_bounds import (
    RECOVERY,
    SECRECY,
    GraphPlan,
    circle_plan,
    complete_plan,
    disconnection,
    plan_graph,
    regular_plan,
    tail,
)
from tallystick.crypto.mask_graph import MaskGraph


def some_plan(clients: int, degree: int, *, threshold: int = 2, dropping: int = 0, window: int = 0) -> GraphPlan:
    return GraphPlan(
        clients=clients,
        colluding=1,
        dropping=dropping,
        degree=degree,
        threshold=threshold,
        window=window,
        secrecy_failure=Fraction(0),
        recovery_failure=Fraction(0),
    )


def parts(left: set[int], n: int, half: int) -> int:
    """How many parts the circulant graph falls into, by walking through it."""
    count, unseen = 0, set(left)
    while unseen:
        count += 1
        walk = [unseen.pop()]
        while walk:
            at = walk.pop()
            for step in range(1, half + 1):
                for near in ((at + step) % n, (at - step) % n):
                    if near in unseen:
                        unseen.remove(near)
                        walk.append(near)
    return count


@pytest.mark.parametrize(("n", "degree"), [(7, 2), (8, 2), (8, 4), (9, 4), (11, 4), (12, 6)])
def test_disconnection_is_exact(n: int, degree: int) -> None:
    """Against the walk through every possible rest of a small circle."""
    for removed in range(n - 1):
        rests = list(itertools.combinations(range(n), n - removed))
        apart = sum(parts(set(rest), n, degree // 2) > 1 for rest in rests)
        assert disconnection(n, removed, degree) == Fraction(apart, len(rests))
    assert disconnection(n, n - 1, degree) == 0


@pytest.mark.parametrize(("population", "marked", "drawn"), [(6, 2, 3), (7, 4, 4), (8, 1, 5), (5, 5, 2), (6, 0, 3)])
def test_tails_are_exact(population: int, marked: int, drawn: int) -> None:
    draws = list(itertools.combinations(range(population), drawn))
    for count in range(-1, drawn + 2):
        hit = sum(sum(item < marked for item in draw) >= count for draw in draws)
        assert tail(population, marked, drawn, count) == Fraction(hit, len(draws))


@pytest.mark.parametrize(("n", "degree", "colluding"), [(8, 4, 3), (9, 4, 4), (10, 6, 4)])
def test_the_union_bound_holds(n: int, degree: int, colluding: int) -> None:
    """(S1) over all places of the colluders on a small circle: some honest client has t of them around it."""
    half = degree // 2
    for threshold in range(2, degree + 1):
        bad = 0
        for group in itertools.combinations(range(n), colluding):
            near = [
                sum((at + step) % n in group for step in range(-half, half + 1)) for at in range(n) if at not in group
            ]
            bad += max(near) >= threshold
        exact = Fraction(bad, comb(n, colluding))
        assert exact <= (n - colluding) * tail(n - 1, colluding, degree, threshold)


def cut_by_choice(n: int, degree: int, window: int) -> bool:
    """Whether survivors whom the windows accept, less colluders who fill no window, can be in two parts."""
    half = degree // 2
    subsets = [set(s) for size in range(n + 1) for s in itertools.combinations(range(n), size)]

    def in_windows(group: set[int]) -> list[int]:
        return [sum((at + i) % n in group for i in range(half)) for at in range(n)]

    accepted = [s for s in subsets if min(in_windows(s)) >= window]
    harmless = [s for s in subsets if max(in_windows(s)) < max(window, 1)]
    return any(parts(s - c, n, half) > 1 for s in accepted for c in harmless)


def test_no_choice_of_dropouts_cuts_a_circle_with_windows() -> None:
    assert not cut_by_choice(8, 4, 1)
    assert not cut_by_choice(8, 4, 2)
    assert not cut_by_choice(9, 6, 2)
    assert not cut_by_choice(10, 8, 3)
    assert cut_by_choice(8, 4, 0)  # without the rule on windows there are such choices: the test can fail


def test_the_figures_of_the_issue() -> None:
    """At 10 % drop-outs, exactly so many of n in a round: 46 and 102 neighbours at n = 1,000, 22 and 42 at n = 100.

    (Where each client drops out with a chance of 10 % of its own, 24 take the place of 22.)
    """
    found = {}
    for n, c in ((100, 10), (100, 33), (1000, 100), (1000, 333)):
        plan = regular_plan(clients=n, colluding=c, dropping=n // 10, chosen_dropouts=False)
        assert plan is not None
        found[n, c] = plan.degree, plan.threshold
        assert plan.secrecy_failure <= SECRECY
        assert plan.recovery_failure <= RECOVERY
    assert found == {(100, 10): (22, 11), (100, 33): (42, 32), (1000, 100): (46, 26), (1000, 333): (102, 72)}


def test_chosen_dropouts_cost_about_twice_the_degree() -> None:
    plan = regular_plan(clients=1000, colluding=100, dropping=100, chosen_dropouts=True)
    assert plan is not None
    assert (plan.degree, plan.threshold, plan.window) == (90, 37, 26)
    assert 1000 * tail(1000, 100, 45, 26) <= SECRECY / 2
    assert plan.secrecy_failure <= SECRECY


def test_seeds_that_can_be_tried_out_cost_neighbours() -> None:
    facts = {"clients": 1000, "colluding": 100, "dropping": 100}
    for chosen, degree in ((False, 74), (True, 146)):
        plan = regular_plan(**facts, chosen_dropouts=chosen, secrecy=SECRECY / 2**64)
        assert plan is not None
        assert plan.degree == degree
        assert 2**64 * plan.secrecy_failure <= SECRECY


def test_a_given_degree() -> None:
    facts = {"clients": 1000, "colluding": 100, "dropping": 100}
    assert circle_plan(**facts, degree=44, chosen_dropouts=False) is None
    assert circle_plan(**facts, degree=46, chosen_dropouts=True) is None
    wide = circle_plan(**facts, degree=60, chosen_dropouts=False)
    assert wide is not None
    assert 900 * tail(999, 100, 60, wide.threshold) <= SECRECY / 2 < 900 * tail(999, 100, 60, wide.threshold - 1)
    assert wide.recovery_failure < RECOVERY / 1000


@pytest.mark.parametrize("chosen", [False, True])
def test_one_neighbour_pair_less_breaks_a_bound(chosen: bool) -> None:
    """The degree is the smallest: with two less no threshold and no window keeps all bounds."""
    n, c, d = 300, 60, 30
    plan = regular_plan(clients=n, colluding=c, dropping=d, chosen_dropouts=chosen)
    assert plan is not None
    degree = plan.degree - 2
    half = degree // 2
    for threshold in range(2, degree + 1):
        for window in range(1, half + 1) if chosen else [0]:
            crowded = (n - c) * tail(n - 1, c, degree, threshold)
            lost = n * tail(n - 1, d, degree, degree - threshold + 1)
            if chosen:
                parted = n * tail(n, c, half, window)
                lost += n * tail(n, d, half, half - window + 1)
            else:
                parted = disconnection(n, c + d, degree)
            assert crowded > SECRECY / 2 or parted > SECRECY / 2 or lost > RECOVERY


@pytest.mark.parametrize(("n", "c", "d"), [(120, 5, 12), (150, 40, 30), (200, 1, 20), (240, 60, 24), (300, 30, 90)])
@pytest.mark.parametrize("chosen", [False, True])
def test_the_degree_is_the_one_that_trying_all_would_find(n: int, c: int, d: int, chosen: bool) -> None:
    facts: dict[str, Any] = {"clients": n, "colluding": c, "dropping": d, "chosen_dropouts": chosen}
    tried = (circle_plan(**facts, degree=k) for k in range(4, n - 1, 2))
    assert regular_plan(**facts) == next((plan for plan in tried if plan is not None), None)


def test_a_study_of_many_colluders_is_planned_with_few_degrees_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody who is asked to take part plans: no study may keep them busy."""
    tried, plan = [], mask_bounds.circle_plan
    monkeypatch.setattr(mask_bounds, "circle_plan", lambda **facts: tried.append(facts["degree"]) or plan(**facts))
    found = regular_plan(clients=10_000, colluding=3_300, dropping=3_000, chosen_dropouts=True)
    assert found is not None
    assert len(tried) < 40


def test_complete_up_to_a_hundred() -> None:
    for n, c, d in ((3, 1, 0), (4, 1, 1), (10, 3, 2), (100, 33, 10)):
        plan = plan_graph(clients=n, colluding=c, dropping=d, chosen_dropouts=False)
        assert plan.complete
        assert plan.degree == n - 1
        assert c < plan.threshold <= plan.degree - d
        assert 2 * plan.signatures > n + c
        assert plan.secrecy_failure == plan.recovery_failure == 0
        assert "every other client" in plan.describe()
    assert complete_plan(clients=100, colluding=33, dropping=10).threshold == 67  # above (99 + 33)/2
    plan = plan_graph(clients=101, colluding=10, dropping=10, chosen_dropouts=False)
    assert plan.degree < 100
    assert f"{plan.degree} neighbours on a random circle" in plan.describe()
    few = plan_graph(clients=120, colluding=50, dropping=30, chosen_dropouts=True)
    assert few.complete  # no circle keeps the bounds with so many, everybody with everybody does


@pytest.mark.parametrize(
    ("clients", "colluding", "dropping", "rule"),
    [
        (2, 0, 0, "mask-clients"),
        (3, 2, 0, "mask-colluders"),
        (3, -1, 0, "mask-colluders"),
        (5, 1, 3, "mask-colluders"),
        (10, 6, 2, "mask-dropouts"),
        (3, 0, 1, "mask-dropouts"),
        (1000, 500, 260, "mask-dropouts"),
    ],
)
def test_what_cannot_be_planned(clients: int, colluding: int, dropping: int, rule: str) -> None:
    with pytest.raises(StudyError) as refusal:
        plan_graph(clients=clients, colluding=colluding, dropping=dropping, chosen_dropouts=False)
    assert refusal.value.rule == rule
    assert refusal.value.remedy


def frequencies(permuted: bool, turns: int = 400) -> tuple[float, float]:
    """How often 60 clients of degree 8 fall apart without 15 colluders and 8 drop-outs, or crowd an honest one with 5.

    Not permuted, colluders and drop-outs know their places and stand beside each other.
    """
    n, degree = 60, 8
    names = [f"client {i:02}" for i in range(n)]
    apart = crowded = 0
    for turn in range(turns):
        graph = MaskGraph(names, some_plan(n, degree), digest(b"monte carlo", turn.to_bytes(4, "little")))
        by_name = names if permuted else list(graph.circle)
        colluding = set(by_name[:15])
        gone = colluding | set(by_name[15:19] + by_name[40:44])
        left = {at for at, name in enumerate(graph.circle) if name not in gone}
        apart += parts(left, n, degree // 2) > 1
        crowded += sum(
            sum(near in colluding for near in graph.neighbours(name)) >= 5 for name in names if name not in colluding
        )
    return apart / turns, crowded / turns / (n - 15)


def test_the_random_circle_keeps_the_exact_chances() -> None:
    apart, crowded = frequencies(permuted=True)
    want_apart = float(disconnection(60, 23, 8))
    want_crowded = float(tail(59, 15, 8, 5))
    assert abs(apart - want_apart) < 5 * sqrt(want_apart * (1 - want_apart) / 400)
    assert abs(crowded - want_crowded) < 0.2 * want_crowded
    chosen, _ = frequencies(permuted=False, turns=5)
    assert chosen == 1.0  # who knows the circle cuts it: the chances are those of a random order only


def test_neighbours_are_mutual_and_of_the_degree() -> None:
    names = [f"client {i}" for i in range(31)]
    for degree in (2, 8, 28, 30):
        graph = MaskGraph(names, some_plan(31, degree), bytes(32))
        for name in names:
            near = graph.neighbours(name)
            assert len(near) == len(set(near)) == degree
            assert name not in near
            assert all(name in graph.neighbours(other) for other in near)
            assert [graph.point(name, other) for other in near] == list(range(1, degree + 1))


@pytest.mark.parametrize("degree", [4, 10, 20, 22])
def test_neighbours_left_are_counted_as_listed(degree: int) -> None:
    names = [f"client {i:02}" for i in range(23)]
    random = np.random.default_rng(degree)
    for threshold in (2, degree // 2, degree):
        graph = MaskGraph(names, some_plan(23, degree, threshold=threshold, dropping=20), bytes(32))
        for _ in range(40):
            left = {names[i] for i in random.choice(23, size=random.integers(3, 24), replace=False)}
            short = any(sum(near in left for near in graph.neighbours(name)) < threshold for name in names)
            assert ("rebuild" in str(graph.refusal(left))) == short


def test_gaps_on_a_random_circle_agree_with_a_walk() -> None:
    """``refusal`` judges parts by gaps; here by walking, over random survivor sets."""
    names = [f"client {i:02}" for i in range(24)]
    graph = MaskGraph(names, some_plan(24, 6, threshold=0, dropping=20), bytes(32))
    random = np.random.default_rng(5)
    verdicts = set()
    for _ in range(300):
        left = {int(i) for i in random.choice(24, size=random.integers(4, 24), replace=False)}
        refused = graph.refusal([graph.circle[i] for i in left])
        assert (refused is not None) == (parts(left, 24, 3) > 1)
        verdicts.add(refused is None)
    assert verdicts == {True, False}
