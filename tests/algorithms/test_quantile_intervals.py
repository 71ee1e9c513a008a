"""Intervals hold whatever the records are: they rest on the noise alone, whose tails are not underrated."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.quantile_accuracy import measure
from benchmarks.quantile_data import case_of
from benchmarks.quantile_runs import Case, budget_of, exact_total, program_for, public_of

from tallystick.algorithms.quantiles.answers import quantile_answers
from tallystick.algorithms.quantiles.posterior import Target
from tallystick.algorithms.quantiles.sightings import Round, Sightings, _errors, tail_quantiles
from tallystick.algorithms.quantiles.sparse_counts import expected_counts

N = 4_000


def hostile() -> dict[str, Case]:
    """Laws under which an interval that believes in smooth densities fails."""
    rng = np.random.default_rng(21)
    values = {
        "37 spikes": rng.integers(0, 37, N) * 27_000_001,
        "two values": np.where(rng.random(N) < 0.5, 3, 900_000_000),
        "gap at the median": np.where(np.arange(N) % 2, rng.normal(1e8, 1e6, N), rng.normal(9e8, 1e6, N)),
        "rounded": np.round(np.exp(rng.normal(10, 0.7, N)), -3),
        "hundred records": np.exp(rng.normal(10, 1, 100)),
    }
    return {name: case_of(name, v, 10**9) for name, v in values.items()}


CASES = hostile()


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("name", CASES)
def test_intervals_hold_under_every_law(name: str, epsilon: float) -> None:
    cell = measure(CASES[name], (0.5,), epsilon, runs=25)
    assert not cell.coverage < 0.93


@pytest.mark.parametrize("terms", [1, 2, 4, 12])
@pytest.mark.parametrize("p", [1e-2, 1e-3])
def test_tails_of_sums_of_laplace_noise_are_not_underrated(terms: int, p: float) -> None:
    """Against two million draws: beyond the quantile lie at most p of them."""
    rng = np.random.default_rng(terms)
    # A sum of m Laplace variables is the difference of two gamma variables of shape m.
    drawn = (rng.gamma(terms, 1, 2_000_000) - rng.gamma(terms, 1, 2_000_000)) / math.sqrt(2 * terms)
    reach = float(tail_quantiles(p, np.array([3.0 / terms]))[0])
    share = float((drawn > reach).mean())
    assert share <= p + 3 * math.sqrt(p / len(drawn))
    assert share > p / 8  # and not absurdly wide
    normal = float(tail_quantiles(p, np.array([0.0]))[0])
    assert terms > 2 or (drawn > normal).mean() > 1.1 * p  # the normal quantile would underrate them


@pytest.mark.parametrize("public", [True, False])
def test_a_sighting_is_unbiased_and_as_uncertain_as_it_says(public: bool) -> None:
    rng = np.random.default_rng(3)
    counts, target = np.array([5.0, 0.0, 40.0, 55.0]), Target(share=0.3, shift=2.0)
    edges = np.array([10, 20, 30])
    drawn, variance = [], 9.0
    for _ in range(4000):
        noisy = counts + rng.normal(0, 3.0, 4)
        seen = Sightings().with_cells(
            edges, noisy, variance, target=target, records=100.0 if public else None, laplace=False
        )
        drawn.append(seen.rounds[0].mean)
    wanted = np.cumsum(counts)[:-1] - 0.3 * 100 - 2.0
    assert np.mean(drawn, axis=0) == pytest.approx(wanted, abs=0.25)
    assert np.var(drawn, axis=0) == pytest.approx(seen.rounds[0].variance, rel=0.1)


def test_ends_are_the_last_sure_edges_of_a_round_and_rounds_add_up() -> None:
    edges = np.array([10, 20, 30, 40])
    one = Round(edges=edges, mean=np.array([-40.0, -2, 2, 50]), variance=np.full(4, 4.0), kurtosis=np.zeros(4))
    assert Sightings(rounds=(one,)).between(0.95, 100) == (10, 40)
    assert Sightings(rounds=(one,) * 16).between(0.95, 100) == (20, 30)  # counted again and again
    assert Sightings(rounds=(one,)).with_rank(25, 30.0, 4.0, laplace=True).between(0.95, 100) == (10, 25)
    broken = replace(one, mean=np.array([5.0, -40, -30, 50]))  # the first from the left is not sure: nothing is said
    assert Sightings(rounds=(broken,)).between(0.95, 100) == (0, 40)
    assert Sightings().between(0.95, 100) == (0, 100)


def test_what_is_promised_is_sure_enough_for_every_round_that_there_may_be() -> None:
    """Planted bug: with the rounds it had, a search that ends early has errors to give away that it may yet make."""
    mean = tail_quantiles(0.05 / 4, np.zeros(1)) + 0.1  # sure by itself after one round, not if 15 may come
    told = Round(edges=np.array([10]), mean=-mean, variance=np.ones(1), kurtosis=np.zeros(1))
    seen = Sightings(rounds=(told,))
    assert seen.between(0.95, 100) == (10, 100)
    assert seen.between(0.95, 100, most=15) == (0, 100)
    whole = Sightings(rounds=(told,) * 15)
    for few in range(1, 16):  # both sides of all rounds that there may be, and of the means, share what is left of 1
        assert 2 * sum(_errors(0.95, few, 15)) <= 0.05 + 1e-12
    assert 2 * sum(_errors(0.95, 15, 15)) == pytest.approx(0.05)
    assert whole.between(0.95, 100, most=15) == (10, 100)


def simulated_misses(understated: float) -> int:
    """Of 400 made-up searches, each round's edges around where the noise of the round before put the answer."""
    rng, misses, answer = np.random.default_rng(5), 0, 500.5
    for _ in range(400):
        seen, around = Sightings(), 500.0
        for spread in (300.0, 100.0, 30.0, 10.0):
            edges = np.unique(np.clip(np.linspace(around - spread, around + spread, 9), 1, 999).astype(np.int64))
            noise = rng.laplace(0, spread / 4, len(edges)) + rng.laplace(0, spread / 4, len(edges))
            told = Round(
                edges=edges,
                mean=edges - answer + noise,
                variance=np.full(len(edges), 4 * (spread / 4) ** 2 / understated),
                kurtosis=np.full(len(edges), 1.5),
            )
            seen = Sightings(rounds=(*seen.rounds, told))
            around = float(edges[np.argmin(np.abs(told.mean))])
        low, high = seen.between(0.95, 1000)
        misses += not low <= answer <= high
    return misses


def test_adaptive_searches_miss_as_seldom_as_promised_and_planted_understated_noise_is_seen() -> None:
    assert simulated_misses(1.0) <= 20
    assert simulated_misses(16.0) > 40


def test_an_answer_lies_within_its_interval() -> None:
    for name, case in CASES.items():
        program = program_for(case, (0.2, 0.5), budget_of(0.3))
        rng = np.random.default_rng(len(name))
        state = program.init(public_of(case))
        while not state.done:
            std = program.schedule.noise.std(int(state.price)) / 2
            total = exact_total(program, case.data, program.query(state))
            state = program.reduce_in_aggregator(total + rng.normal(0, std, len(total)), state)
        for answer in quantile_answers(program, state, level=0.95):
            assert answer.interval is None or answer.interval[0] <= (answer.value or 0) <= answer.interval[1]


@pytest.mark.parametrize("laplace", [True, False])
def test_of_many_cells_the_empty_ones_are_taken_for_empty(laplace: bool) -> None:
    rng = np.random.default_rng(6)
    true = np.zeros(64)
    true[[7, 40]] = 800, 500
    noise = rng.laplace(0, 50, 64) + rng.laplace(0, 50, 64) if laplace else rng.normal(0, 100, 64)
    mean, variance = expected_counts(true + noise, 100.0, laplace=laplace)
    assert mean[[7, 40]] == pytest.approx(true[[7, 40]] + noise[[7, 40]], abs=80)
    assert abs(mean[true == 0]).sum() < 0.25 * abs(noise[true == 0]).sum()
    assert (variance > 0).all()
    assert variance[true == 0].mean() < 0.5 * 100**2


def test_without_noise_counts_are_what_they_are() -> None:
    counts = np.array([0.0, 3.0, 5.0])
    assert expected_counts(counts, 0.0, laplace=True)[0] is counts
