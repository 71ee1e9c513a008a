"""Joint moments: the same bits as on the joined table, bounded as declared, and models as scikit-learn has them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

import tallystick as ts
from tallystick.algorithms.joint_moments.program import JointMoments, joint_groups
from tallystick.algorithms.joint_moments.rows import JointRows, own_products
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.crypto.field import decode_signed, sum_vectors
from tallystick.engines import joint_map
from tallystick.engines.client_map import ClientMap
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.privacy.contribution import total
from tallystick.privacy.grid import Grid
from tallystick.privacy.sensitivity import outer_sensitivity

SCHEMA = ts.Schema(
    {
        "age": ts.Number(0, 100),
        "sex": ts.Category(["f", "m"]),
        "dose": ts.Number(-5, 5),
        "ward": ts.Category(["a", "b", "c"]),
        "weight": ts.Number(30, 150),
        "ill": ts.Category(["no", "yes"]),
        "stage": ts.Category(["one", "two", "three"]),
        "cost": ts.Number(0, 10),
    }
)
HELD = {"bank": ["age", "sex", "cost"], "hospital": ["dose", "ward", "ill", "stage"], "school": ["weight"]}


def table(records: int = 400, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 100, records), rng.uniform(-5, 5, records)
    sex, ward = rng.choice(["f", "m"], records), rng.choice(["a", "b", "c"], records)
    weight = rng.uniform(30, 150, records)
    score = (age - 50) / 25 + dose / 3 + (ward == "b") + 0.5 * rng.normal(size=records)
    stage = np.where(score < -0.7, "one", np.where(score < 0.7, "two", "three"))
    cost = np.clip(5 + score + (sex == "f"), 0, 10)
    return pl.DataFrame(
        {"id": np.arange(records), "age": age, "sex": sex, "dose": dose, "ward": ward, "weight": weight}
        | {"ill": np.where(score > 0, "yes", "no"), "stage": stage, "cost": cost}
    )


def federation(frame: pl.DataFrame, **options: Any) -> Any:
    frames = []
    for at, columns in enumerate(HELD.values()):
        own = frame.select(["id", *columns])
        frames.append(own.sample(fraction=1.0, shuffle=True, seed=at))
    made = {"schema": SCHEMA, "vertical": True, "names": list(HELD), "seed": 1, "identifier": "id"}
    return ts.Federation.simulate(frames, **{**made, **options})


def norms(value: float) -> dict[str, float]:
    return dict.fromkeys(HELD, value)


FEATURES = ["age", "sex", "dose", "ward", "weight"]


@pytest.mark.parametrize("declared", [None, 0.4])
@pytest.mark.parametrize(
    ("model", "target"),
    [(ts.VerticalClassifier, "ill"), (ts.VerticalClassifier, "stage"), (ts.VerticalRidge, "cost"), (ts.PCA, None)],
)
def test_the_bits_are_those_of_the_joined_table(model: Any, target: str | None, declared: float | None) -> None:
    """Noise off: what institutions with different columns sum is what one with all of them would."""
    frame = table(150)
    fed = federation(frame, **({} if declared is None else {"norms": norms(declared)}))
    made = model(mechanism="none")
    study = made.study_for(fed, target=target, features=FEATURES).replace("data", records=150)
    layout = layout_of(study)
    design = design_of(study, layout, None)
    plan = plan_study(study, design, allow_not_private=True)
    public = public_facts(study, layout)
    simulated = fed._simulated(study, design, plan, public)
    maps, _ = joint_map.simulated_joint_maps(simulated)
    apart = decode_signed(sum_vectors([m.contribute(b"", plan.rounds[0]) for m in maps.values()]))

    whole = ts.Federation.simulate([frame], schema=SCHEMA).records(study.model_copy(update={
        "data": study.data.model_copy(update={"holders": None, "identifier": None})}))[0]  # fmt: skip
    one = ClientMap(design.program, whole, simulated.template)
    joined = one.contribute(np.zeros(1).tobytes(), plan.rounds[0])
    assert (apart == joined).all()
    assert np.abs(joined).max() > 0
    fitted = made.fit(fed, target=target, features=FEATURES)
    assert fitted.privacy_.as_dict()["differentially_private"] is False


def test_one_institutions_vector_tells_nothing_of_the_others() -> None:
    """Where it holds a share, its numbers are uniform in the field; only the sum of all is small."""
    fed = federation(table(150))
    model = ts.VerticalRidge(mechanism="none")
    study = model.study_for(fed, target="cost", features=FEATURES).replace("data", records=150)
    design = design_of(study, layout_of(study), None)
    plan = plan_study(study, design, allow_not_private=True)
    public = public_facts(study, layout_of(study))
    maps, _ = joint_map.simulated_joint_maps(fed._simulated(study, design, plan, public))
    rows = design.program.rows
    for name, own in maps.items():
        mine = own_products(rows, name, np.ones((1, len(rows.places(name)))))
        values = own.contribute(b"", plan.rounds[0])[mine == 0]
        shared = values[values != 0].astype(float)
        assert len(shared) > 5
        assert (shared > 2.0**40).mean() > 0.95
        assert (shared < 2.0**64 - 2.0**40).mean() > 0.95


def public_of(widths: dict[str, int], bound: float, **more: Any) -> Public:
    names = tuple(f"x{i}" for i in range(sum(widths.values())))
    holders, at = [], 0
    for name, width in widths.items():
        holders.append((name, tuple(range(at, at + width)), bound))
        at += width
    return Public(features=names, records=10, holders=tuple(holders), label_holder=next(iter(widths)), **more)


@pytest.mark.parametrize("targets", [0, 1, 3])
def test_no_record_exceeds_what_is_declared_and_no_two_differ_by_more(targets: int) -> None:
    """Brute force over the corners of a small domain, far beyond the norm too; the bound is nearly attained."""
    rows = JointRows.of(public_of({"a": 2, "b": 2}, 0.7), targets=targets)
    grid = Grid(groups=joint_groups(rows), fraction_bits=2 * rows.bits, norm="l2")
    sensitivity = outer_sensitivity(grid.integer_bounds[0], "replace-one", l1=False)
    corners = np.array(list(itertools.product([-50.0, -0.6, 0.0, 0.6, 50.0], repeat=4)))
    labels = [0.0, 1.0, 2.0] if targets == 3 else [-1.0, 0.3, 1.0] if targets else [0.0]
    moved, longest = 0.0, 0.0
    everything = []
    for label in labels:
        units = rows.joined(corners, np.full(len(corners), label))
        longest = max(longest, float((units**2).sum(axis=1).max()))
        everything.append(units)
    assert longest <= rows.row_bound**2 == grid.integer_bounds[0]
    whole = np.unique(np.vstack(everything), axis=0)
    inner = whole @ whole.T
    square = np.diag(inner)
    frobenius = square[:, None] ** 2 + square[None, :] ** 2 - 2 * inner**2
    moved = float(np.sqrt(frobenius.max()))
    assert moved <= sensitivity
    # √(B² − 1) of √2·B: the constant is the same in every row, so that no two are at right angles
    assert moved >= 0.55 * sensitivity
    # Planted: a norm that is declared and not enforced.
    long = np.hstack([rows.units("a", corners[:, :2], np.zeros(len(corners))), np.rint(corners[:, 2:] * rows.unit)])
    assert (long**2).sum(axis=1).max() > rows.row_bound**2


def test_blocks_and_single_records_give_the_same_bits() -> None:
    program = JointMoments(public_of({"a": 2, "b": 3}, 0.9), targets=1)
    rng = np.random.default_rng(0)
    features, target = rng.normal(size=(40, 5)), rng.uniform(-1, 1, 40)
    grid = Grid(groups=joint_groups(program.rows), fraction_bits=2 * program.rows.bits, norm="l2")

    def summed(rows: Any) -> np.ndarray:
        return total(program.map_block(program.prepare(features[rows], target[rows]), 0.0), grid)

    whole = summed(np.arange(40))
    assert (sum(summed(np.array([i])) for i in range(40)) == whole).all()
    assert (summed(rng.permutation(40)) == whole).all()


def test_models_without_noise_are_scikit_learns() -> None:
    frame = table(2000)
    fed = federation(frame, norms=norms(10.0))  # nobody is shortened
    ridge = ts.VerticalRidge(alpha=1.0, mechanism="none").fit(fed, target="cost", features=FEATURES)
    encoded = ridge._encode(frame)
    assert ridge.coef_ @ encoded.T + ridge.intercept_ == pytest.approx(
        Ridge(alpha=1.0).fit(encoded, frame["cost"].to_numpy()).predict(encoded), abs=2e-2
    )
    model = ts.VerticalClassifier(alpha=0.0, mechanism="none").fit(fed, target="ill", features=FEATURES)
    truth = frame["ill"].to_numpy()
    fisher = LinearDiscriminantAnalysis().fit(encoded, truth)
    assert np.mean(model.predict(frame) == fisher.predict(encoded)) > 0.995
    assert model.predict_proba(frame)[:, 1] == pytest.approx(fisher.predict_proba(encoded)[:, 1], abs=0.02)
    three = ts.VerticalClassifier(alpha=0.0, mechanism="none").fit(fed, target="stage", features=FEATURES)
    stages = frame["stage"].to_numpy()
    best = LinearDiscriminantAnalysis().fit(encoded, stages).score(encoded, stages)
    assert np.mean(three.predict(frame) == stages) > best - 0.05
    assert three.predict_proba(frame).sum(axis=1) == pytest.approx(1.0)
    pca = ts.PCA(2, mechanism="none").fit(fed, features=FEATURES)
    centred = encoded - encoded.mean(axis=0)
    values = np.linalg.eigvalsh(centred.T @ centred / len(centred))[::-1]
    assert pca.explained_variance_ == pytest.approx(values[:2], abs=1e-3)
    assert pca.mean_[0] == pytest.approx(frame["age"].mean(), abs=0.05)


def test_noise_is_small_where_there_is_much_budget() -> None:
    frame = table(4000, seed=2)
    model = ts.VerticalClassifier(epsilon=3.0, delta=1e-6).fit(federation(frame), target="ill", features=FEATURES)
    assert np.mean(model.predict(frame) == frame["ill"].to_numpy()) > 0.85
    assert model.contributors_ == ("bank", "hospital", "school")
    assert "semi" not in model.privacy_.statement  # words of the house, not of the field
    for said in ("follow the protocol", "dealer together with any institution", "in common", "how many"):
        assert said in model.privacy_.statement


def test_components_of_split_records_take_no_basis() -> None:
    with pytest.raises(StudyError, match="split by columns"):
        ts.PCA(1, basis="dct").fit(federation(table(50)), features=["age", "dose", "weight"])
