"""The private descent on features of a map: one record at a time, kept or made anew, and how many are worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from block_runs import budget_of, mixed, plan_of, random_records, walk
from row_independence import RowsDependError, check_row_independence

from tallystick.algorithms.evaluation.public_classifiers import linear_table, predictor_of
from tallystick.algorithms.feature_maps.settings import MapSettings
from tallystick.algorithms.linear import gradient_rows
from tallystick.algorithms.linear.descent import DescentSettings
from tallystick.algorithms.linear.losses import HingeProgram, LogisticProgram
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Chunked, Factored, total, total_by_person

MAPS = {
    "rbf": MapSettings(kernel="rbf", n_features=20),
    "poly": MapSettings(kernel="poly", degree=2, n_features=20),
    "landmarks": MapSettings(kernel="sigmoid", landmarks=12),
}
CLASSES = {2: ("a", "b"), 3: ("a", "b", "c")}


def rounds_of(program: type[Any], mechanism: str, chosen: MapSettings, classes: int = 2) -> Any:
    public, budget = mixed(records=60, classes=CLASSES[classes]), budget_of(mechanism)
    design = program.design(public, budget, DescentSettings(rounds=4, feature_map=chosen))
    features, target = random_records(public, 60, np.random.default_rng(1))
    noise = np.random.default_rng(2)

    def noisy(_: Any, plan: Any) -> Any:
        return np.rint(noise.normal(0, plan.total_std, plan.grid.size) * plan.grid.scale).astype(np.int64)

    states = list(walk(design, plan_of(design, budget, 60), public, features, target, noisy))
    return design, features, target, [(design.program.query(before), plan.grid) for plan, before, _ in states]


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", MAPS)
def test_rows_are_independent_to_the_bit(mechanism: str, name: str) -> None:
    design, features, target, rounds = rounds_of(HingeProgram, mechanism, MAPS[name])
    check_row_independence(design.program, features, target, rounds[::3])


def test_rows_of_several_classes_are_independent_to_the_bit() -> None:
    design, features, target, rounds = rounds_of(LogisticProgram, "gaussian", MAPS["rbf"], classes=3)
    check_row_independence(design.program, features, target, rounds[::3])


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")
def test_a_planted_mean_of_the_block_is_caught() -> None:
    class CentredByItsBlock(HingeProgram):
        def prepare(self, features: Any, target: Any) -> Any:
            return super().prepare(features - features.mean(axis=0), target)

    _, features, target, rounds = rounds_of(HingeProgram, "gaussian", MAPS["rbf"])
    planted = CentredByItsBlock(mixed(records=60), budget_of("gaussian"), DescentSettings(feature_map=MAPS["rbf"]))
    with pytest.raises(RowsDependError):
        check_row_independence(planted, features, target, rounds[::3])


def test_features_that_are_not_kept_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some records at a time, mapped anew in every round: what memory forces must not show in a sum."""
    design, features, target, rounds = rounds_of(HingeProgram, "gaussian", MAPS["rbf"])
    features, target = np.vstack([features] * 4), np.tile(target, 4)
    persons = np.arange(len(target), dtype=np.int64) // 3
    found = []
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(gradient_rows, "_KEPT_NUMBERS", 0)
            monkeypatch.setattr(gradient_rows, "_PART_NUMBERS", 1)  # 64 records at a time
        prepared = design.program.prepare(features, target)
        contributions = [design.program.map_block(prepared, query) for query, _ in rounds]
        assert all(isinstance(c, Factored if kept else Chunked) for c in contributions)
        sums = [total(c, grid) for c, (_, grid) in zip(contributions, rounds)]
        sums += [total_by_person(c, grid, persons) for c, (_, grid) in zip(contributions, rounds)]
        found.append([s.tobytes() for s in sums])
    assert found[0] == found[1]


def test_no_round_is_spent_on_moments_and_no_row_is_clipped() -> None:
    design, features, target, rounds = rounds_of(HingeProgram, "gaussian", MAPS["rbf"])
    assert design.rounds == 4
    assert [g.size for round_groups in design.groups for g in round_groups] == [21] * 4
    query, _ = rounds[0]
    part = next(design.program.prepare(features, target).parts(design.program._row_rule(query)))
    assert part.weights.min() > 1 - 2.0**-9  # every row has the length that R was set to
    assert query.row_limit == pytest.approx((1 + 1 / 16) ** 0.5)


def test_the_number_of_features_follows_from_records_and_budget() -> None:
    def size(records: int, epsilon: float, program: type[Any] = HingeProgram) -> int:
        settings = DescentSettings(feature_map=MapSettings(kernel="rbf"))
        design = program.design(mixed(records=records), budget_of("gaussian", epsilon), settings)
        return int(design.program.feature_map.size)

    assert size(500, 0.1) == 256
    assert 256 < size(4000, 1.0) < size(8000, 1.0) < 1600
    assert size(10**6, 1.0) == 1600
    assert size(4000, 1.0) == size(
        4000, 1.0, LogisticProgram
    )  # the count of directions is the kernel's, not the loss's


def test_the_model_is_in_the_features_own_units() -> None:
    """Descent works on features in units of the map's norm; the model that it gives out multiplies the features."""
    design, features, _, _ = rounds_of(HingeProgram, "gaussian", MAPS["poly"])
    program = design.program
    state = program.init(mixed(records=60))
    weights = np.linspace(-1, 1, 21)[None, :]
    state = state._replace(iterate=weights, tail_sum=weights * state.tail, stage=5.0)
    intercept, found = program.model(state)
    scores = program.feature_map.rows(features) @ found.T + intercept
    units = program.feature_map.rows(features) / program.feature_map.norm
    assert np.allclose(scores[:, 0], weights[0, 0] / 4 + units @ weights[0, 1:])
    table = linear_table(intercept, found, feature_map=program.feature_map)
    predicted = predictor_of(table, mixed(records=60)).predict(features)
    assert np.mean(predicted == (scores[:, 0] > 0)) > 0.99


@pytest.mark.parametrize(
    "facts",
    [
        None,
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 1.0, "seed": 0},
        {"kernel": "rbf", "gamma": 1.0, "seed": 0, "n_features": 20, "colour": 1},
        {"kernel": "rbf", "gamma": -1.0, "seed": 0, "n_features": 20},
    ],
)
def test_a_classifier_whose_map_is_not_known_is_refused(facts: Any) -> None:
    table = {"kind": "linear", "weights": [[0.0] * 20], "intercept": [0.0], "feature_map": facts}
    with pytest.raises(StudyError, match=r"feature_map|gamma"):
        predictor_of(table, mixed(records=60))


def test_a_study_without_a_number_of_records_is_told_to_state_it() -> None:
    public = mixed(records=60).__class__(**{**vars(mixed(records=60)), "records": None})
    with pytest.raises(StudyError, match="does not state it") as refused:
        HingeProgram.design(public, budget_of("gaussian"), DescentSettings(feature_map=MAPS["rbf"]))
    assert "standardise" not in str(refused.value)
