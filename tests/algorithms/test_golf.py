"""Golf compiled equals the plain loop bit for bit, for any number of threads, and refuses what is not a model."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tallystick.algorithms.gossip.golf.examples import Examples, predicted
from tallystick.algorithms.gossip.golf.lanes import dot, plain_dot
from tallystick.algorithms.gossip.golf.network import GolfNetwork
from tallystick.algorithms.gossip.golf.plain import exact, straightforward
from tallystick.algorithms.gossip.golf.schedule import LOST, Schedule
from tallystick.algorithms.gossip.golf.settings import GolfSettings
from tallystick.core.errors import DataError, StudyError

_EVERY_RULE = [
    {},
    {"learner": "logistic"},
    {"merging": "merge-update"},
    {"learner": "logistic", "merging": "merge-update", "merge_weight": 0.2},
    {"norm_cap": 30.0, "age_lead": 2},
    {"merging": "merge-update", "norm_cap": 30.0, "lambda_": 1e-3},
]


def _examples(peers: int = 60, columns: int = 11, classes: int = 2, *, dtype: type = np.float64) -> Examples:
    rng = np.random.default_rng(peers + columns + classes)
    labels = rng.integers(0, classes, peers)
    rows = rng.normal(size=(peers, columns)) + 2 * np.eye(classes, columns)[labels]
    rows /= np.abs(rows).sum(axis=1, keepdims=True)
    return Examples.labelled(rows.astype(dtype), labels, classes)


def _looped(examples: Examples, settings: GolfSettings, *, seed: int, cycles: int, dtype: type, loss: float = 0.0):
    models = np.zeros((examples.problems, examples.peers, examples.columns), dtype)
    ages = np.zeros((examples.problems, examples.peers), np.int64)
    senders, receivers = Schedule(examples.peers, seed, loss=loss).cycles(cycles)
    cap = settings.longest(examples.longest())
    for problem in range(examples.problems):
        rows, signs = examples.rows_of(problem).astype(dtype), examples.signs[problem]
        exact(models[problem], ages[problem], rows, signs, senders, receivers, settings, cap=cap)
    return models, ages


@pytest.mark.parametrize("rules", _EVERY_RULE, ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_steps_equal_the_plain_loop_bit_for_bit(rules: dict, dtype: type) -> None:
    examples, settings = _examples(classes=3, dtype=dtype), GolfSettings(**rules)
    network = GolfNetwork(examples, settings, seed=4, dtype=dtype, loss=0.2)
    network.run(5)
    network.run(4)  # cycles in two calls are the same cycles
    models, ages = _looped(examples, settings, seed=4, cycles=9, dtype=dtype, loss=0.2)
    assert network.models.tobytes() == models.tobytes()
    assert np.array_equal(network.ages, ages)
    assert np.abs(models).max() > 1  # something was learned


@pytest.mark.parametrize("columns", [1, 7, 8, 57, 784])
def test_scalar_products_eight_at_a_time(columns: int) -> None:
    rng = np.random.default_rng(columns)
    a, b = rng.normal(size=(2, columns))
    for left, right in ((a, b), (a.astype(np.float32), b.astype(np.float32)), (a, (1e5 * b).astype(np.int32))):
        assert float(dot(left, right)) == plain_dot(left, right)
    assert columns < 57 or float(dot(a, b)) != float(sum(a * b))  # the order shows


@pytest.mark.parametrize(
    "wrong", [{"learner": "logistic"}, {"merging": "merge-update"}, {"merge_weight": 0.4}], ids=str
)
def test_another_rule_gives_other_bits(wrong: dict) -> None:
    examples = _examples()
    network = GolfNetwork(examples, GolfSettings(), seed=4)
    network.run(9)
    models, _ = _looped(examples, GolfSettings(**wrong), seed=4, cycles=9, dtype=np.float64)
    assert network.models.tobytes() != models.tobytes()


@pytest.mark.parametrize("learner", ["pegasos", "logistic"])
def test_the_loop_one_would_write_agrees_but_for_rounding(learner: str) -> None:
    examples, settings = _examples(), GolfSettings(learner=learner)  # type: ignore[arg-type]
    network = GolfNetwork(examples, settings, seed=4)
    network.run(9)
    models, ages = np.zeros_like(network.models[0]), np.zeros_like(network.ages[0])
    straightforward(models, ages, examples.rows_of(0), examples.signs[0], *Schedule(60, 4).cycles(9), settings)
    assert np.array_equal(ages, network.ages[0])
    np.testing.assert_allclose(network.models[0], models, rtol=0, atol=1e-9 * np.abs(models).max())


def test_the_same_bits_for_any_number_of_threads() -> None:
    examples, found = _examples(peers=80, classes=5), []
    for threads in (1, 2, 5):
        network = GolfNetwork(examples, GolfSettings(), seed=9)
        with ThreadPoolExecutor(threads) as pool:
            network.run(6, over=pool.map)
        found.append((network.models.tobytes(), network.sampled(10).tolist()))
    assert found[0] == found[1] == found[2]
    alone = GolfNetwork(Examples(rows=examples.rows, signs=examples.signs[2:3]), GolfSettings(), seed=9)
    alone.run(6)
    assert alone.models[0].tobytes() == network.models[2].tobytes()  # a class learns the same whoever is beside it


def test_another_seed_is_another_network() -> None:
    first, second = (Schedule(50, seed).cycles(2) for seed in (1, 2))
    assert not np.array_equal(first[1], second[1])
    assert not np.array_equal(first[0], second[0])


def test_everyone_sends_once_a_cycle_to_another_peer() -> None:
    senders, receivers = Schedule(37, 3).cycles(400)
    for cycle in senders.reshape(400, 37):
        assert sorted(cycle) == list(range(37))
    assert (senders != receivers).all()
    counts = np.bincount(receivers * 37 + senders, minlength=37 * 37).reshape(37, 37)[~np.eye(37, dtype=bool)]
    expected = 400 / 36
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert statistic < 37 * 36 + 5 * np.sqrt(2 * 37 * 36)  # chi-square, five standard deviations


def test_lost_messages_and_an_isolated_peer() -> None:
    senders, receivers = Schedule(40, 3, loss=0.25, isolated=[7]).cycles(200)
    assert abs(float((receivers == LOST).mean()) - 0.25 - 0.75 * 2 / 40) < 0.02
    assert not (receivers == 7).any()
    assert (receivers[senders == 7] == LOST).all()
    network = GolfNetwork(_examples(peers=40), GolfSettings(), seed=3, isolated=[7])
    network.run(5)
    assert (network.models[0, 7] == 0).all()
    assert network.ages[0, 7] == 0
    assert (np.delete(network.ages[0], 7) > 0).all()


def test_peers_learn_what_can_be_learned() -> None:
    examples = _examples(peers=300, columns=6, classes=3)
    for learner in ("pegasos", "logistic"):
        for merging in ("update-merge", "merge-update"):
            network = GolfNetwork(examples, GolfSettings(learner=learner, merging=merging), seed=1)  # type: ignore[arg-type]
            network.run(60)
            labels = examples.signs.argmax(axis=0)
            right = [(predicted(network.model_of(i), examples.rows[0]) == labels).mean() for i in network.sampled(20)]
            assert np.mean(right) > 0.75  # a third by chance
            assert np.min(right) > 0.65


def test_models_that_are_not_numbers_are_refused_and_do_not_spread() -> None:
    examples = _examples()
    clean = GolfNetwork(examples, GolfSettings(), seed=2)
    clean.run(20)
    for poison in (np.nan, np.inf, -np.inf, 1e200):
        initial = np.zeros_like(clean.models)
        initial[0, 5, 3] = poison
        network = GolfNetwork(examples, GolfSettings(), seed=2, initial=initial, fixed=[5])
        network.run(20)
        honest = np.delete(network.models[0], 5, axis=0)
        assert np.isfinite(honest).all()
        assert np.abs(honest).max() <= examples.longest() / 1e-4
        assert network.refused == 20  # the poisoner's message of every cycle


def test_huge_models_are_shortened_to_the_cap() -> None:
    examples = _examples()
    initial = np.zeros((1, 60, 11))
    initial[0, 5] = 1e12
    for cap in (None, 50.0):
        settings = GolfSettings(norm_cap=cap)
        network = GolfNetwork(examples, settings, seed=2, initial=initial, fixed=[5])
        network.run(10)
        norms = np.linalg.norm(np.delete(network.models[0], 5, axis=0), axis=1)
        assert norms.max() <= settings.longest(examples.longest()) * (1 + 1e-12)
        assert network.refused == 0


def test_a_cap_and_a_small_merge_weight_hold_off_a_poisoner() -> None:
    """One of 300 peers sends the opposite of what was learned, as long as it may; without a cap nobody learns."""
    examples = _examples(peers=300, columns=6)
    clean = GolfNetwork(examples, GolfSettings(), seed=5)
    clean.run(80)
    initial = np.zeros_like(clean.models)
    initial[0, 0] = -1e9 * clean.models[0, 1]
    old = np.full(clean.ages.shape, 1000)  # at age 0 a model would be forgotten in its first update

    def accuracy(settings: GolfSettings) -> float:
        network = GolfNetwork(examples, settings, seed=5, initial=initial, ages=old, fixed=[0])
        network.run(80)
        return float(
            np.mean(
                [
                    (predicted(network.model_of(i), examples.rows[0]) == (examples.signs[0] > 0)).mean()
                    for i in range(1, 300, 7)
                ]
            )
        )

    assert accuracy(GolfSettings(norm_cap=1e30)) < 0.5
    assert accuracy(GolfSettings(norm_cap=100.0, merge_weight=0.1)) > 0.8


def test_a_claimed_age_does_not_end_learning() -> None:
    examples = _examples(peers=100)
    ages = np.zeros((1, 100), np.int64)
    ages[0, 0] = 2**40
    free, led = (GolfNetwork(examples, GolfSettings(age_lead=lead), seed=5, ages=ages, fixed=[0]) for lead in (None, 8))
    for network in (free, led):
        network.run(10)
    assert np.median(free.ages) > 2**39
    assert np.delete(led.ages[0], 0).max() < 10 * 2.72 * 9 + 9


def test_the_norm_of_honest_models_stays_within_the_longest_example_over_lambda() -> None:
    examples = _examples()
    for merging in ("update-merge", "merge-update"):
        network = GolfNetwork(examples, GolfSettings(merging=merging, norm_cap=1e30), seed=2)  # type: ignore[arg-type]
        for _ in range(12):
            network.run(1)
            assert np.linalg.norm(network.models[0], axis=1).max() <= examples.longest() / 1e-4


def test_a_class_nobody_has_and_only_one_class_present() -> None:
    rows = np.random.default_rng(0).uniform(size=(30, 4))
    examples = Examples.labelled(rows, np.full(30, 2), 3)
    network = GolfNetwork(examples, GolfSettings(), seed=1)
    network.run(10)
    assert (predicted(network.model_of(3), rows) == 2).all()


def test_bad_input_is_refused_in_words() -> None:
    rows = np.ones((4, 3))
    with pytest.raises(StudyError, match="two classes"):
        Examples.labelled(rows, np.zeros(4, int), 1)
    with pytest.raises(StudyError, match="at least two peers"):
        Examples.labelled(rows[:1], np.zeros(1, int), 2)
    with pytest.raises(StudyError, match="label is not one"):
        Examples.labelled(rows, np.array([0, 1, 2, 0]), 2)
    with pytest.raises(StudyError, match="belong together"):
        Examples.labelled(rows, np.zeros(3, int), 2)
    with pytest.raises(DataError, match="NaN"):
        Examples.signed(np.where(np.eye(4, 3) > 0, np.nan, 1.0))
    for wrong in (
        {"learner": "ridge"},
        {"merging": "never"},
        {"lambda_": 0.0},
        {"lambda_": float("nan")},
        {"merge_weight": 0.7},
        {"norm_cap": -1.0},
        {"age_lead": 0},
    ):
        with pytest.raises(StudyError, match=next(iter(wrong))):
            GolfSettings(**wrong)  # type: ignore[arg-type]
    examples = Examples.signed(rows)
    with pytest.raises(StudyError, match="begins with NaN"):
        GolfNetwork(examples, GolfSettings(), seed=1, initial=np.full((1, 4, 3), np.nan))
    with pytest.raises(StudyError, match="cycles"):
        GolfNetwork(examples, GolfSettings(), seed=1).run(-1)
