"""Any number anywhere in a study gives a plan whose figures are numbers, or a typed refusal. Nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.core.errors import TallystickError
from tallystick.core.identifiers import canonical
from tallystick.engines.designs import design_of, program_of
from tallystick.engines.planning import layout_of, plan_study
from tallystick.engines.round_vectors import result_limit
from tallystick.privacy.accountant import epsilon_from_rho, rho_from_epsilon
from tallystick.privacy.ledger import charge_of
from tallystick.privacy.plan import Plan
from tallystick.privacy.ranges import MAX_COORDINATES, MIN_DELTA, MIN_EPSILON
from tallystick.protocol.governance.bodies import check_plan
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.study import Study
from tallystick.study.limits import RANGES

COLUMNS: dict[str, Any] = {
    "age": {"type": "number", "lower": 0.0, "upper": 100.0},
    "visits": {"type": "integer", "lower": 0, "upper": 100},
    "sex": {"type": "category", "values": ["f", "m"]},
    "ill": {"type": "category", "values": ["no", "yes"]},
    "bought": {"type": "items", "vocabulary": ["a", "b", "c"], "max_per_record": 2},
}
PROGRAMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "logistic_regression": ({"target": "ill", "features": ["age", "visits", "sex"]}, {"rounds": 2}),
    "linear_svc": ({"target": "ill", "features": ["age", "visits", "sex"]}, {"rounds": 2}),
    "kmeans": ({"features": ["age", "visits"]}, {"n_clusters": 2, "rounds": 2}),
    "summary": ({"features": ["age", "sex"]}, {}),
    "gaussian_nb": ({"target": "ill", "features": ["age", "visits", "sex"]}, {}),
    "gaussian_mixture": ({"features": ["age", "visits"]}, {"n_components": 2, "rounds": 2}),
    "pca": ({"features": ["age", "visits"]}, {"n_components": 2}),
    "ridge": ({"target": "age", "features": ["visits", "sex"]}, {}),
    "frequent_itemsets": ({"features": ["bought"]}, {"min_support": 0.1}),
}
KEYS: list[tuple[str, ...]] = [
    *((*key.split("."),) for key in RANGES),
    ("study", "version"),
    ("privacy", "epsilon"),
    ("privacy", "delta"),
    ("privacy", "sampling"),
    ("privacy", "threshold"),
    ("data", "columns", "age", "lower"),
    ("data", "columns", "age", "upper"),
    ("data", "columns", "visits", "lower"),
    ("data", "columns", "visits", "upper"),
    ("data", "columns", "visits", "step"),
    ("data", "columns", "bought", "max_per_record"),
    ("stream", "ticks"),
    *(("program", key) for key in ("rounds", "clip", "l2", "learning_rate", "alpha", "n_clusters", "seed", "bins")),
    *(("program", key) for key in ("n_components", "top", "shape")),
    *(("program", key) for key in ("max_length", "min_support", "cap", "max_candidates", "classes")),
]
ODD: list[Any] = [
    *(5e-324, 1e-308, 1e-200, 1e-100, 1e-30, 1e-12, 1e-7, 0.5, 1.0, 1e6, 1e18, 1e100, 1e200, 1e308),
    *(math.inf, -math.inf, math.nan, -0.0, -1.0, -5e-324),
    *(0, 1, 2, -1, 255, 256, 1000, 2**31 - 1, 2**31, 2**53, 2**62, 2**63, 2**64, 10**18, 10**30, 10**300, 10**400),
    *(-(2**63), 10**5000, True, False, None, "1", "x", [], [1], {}, {"a": 1}),
]  # fmt: skip


def study(program: str, mechanism: str = "gaussian") -> dict[str, Any]:
    head, keywords = PROGRAMS[program]
    return {
        "study": {"name": "odd", "program": program, **head},
        "program": dict(keywords),
        "privacy": {"epsilon": 0.5, "delta": 1e-6 if mechanism == "gaussian" else None, "mechanism": mechanism},
        "data": {"records": 120, "columns": json.loads(json.dumps(COLUMNS))},
    }


def changed(raw: dict[str, Any], key: tuple[str, ...], value: Any) -> dict[str, Any]:
    """With one number changed, and with what it needs to be looked at at all."""
    if key[:2] in (("privacy", "max_records"), ("privacy", "max_institutions")):
        raw["privacy"] |= {"unit": "person", "person": "id"}
    if key[0] == "stream" or key[:2] == ("privacy", "sampling"):
        raw["privacy"]["neighbours"] = "add-remove"
    if key[0] == "stream":
        raw["stream"] = {"ticks": 4, "tick_seconds": 60, "records_per_tick": 30}
        raw["program"].pop("rounds", None)
    table = raw
    for part in key[:-1]:
        table = table.setdefault(part, {})
    table[key[-1]] = value
    return raw


def plan_of(raw: dict[str, Any]) -> Plan:
    """What every role derives, without the net that is under it there."""
    made = Study.from_dict(raw)
    received = Study.from_canonical(made.canonical())
    assert received.canonical() == made.canonical()
    program_of(received, None)
    design = design_of(received, layout_of(received), None)
    plan = plan_study(received, design, allow_not_private=False)
    assert check_plan(json.loads(canonical(summarise(plan)))) is None
    charge = charge_of(received.hash, plan)
    result_limit(plan, received.data.records or 1)
    assert plan.rho > 0
    assert all(value >= 0 for value in charge.curve)
    assert 0 < (plan.spent_epsilon() or 0) <= plan.claim.epsilon * (1 + 1e-9)
    for round_plan in plan.rounds[:3]:
        assert 0 < round_plan.total_std < math.inf
        assert all(n.parameter > 0 and 0 < n.variance < math.inf for n in round_plan.noise)
    return plan


def plan_or_refusal(raw: dict[str, Any]) -> None:
    try:
        plan_of(raw)
    except TallystickError as error:
        refusal = error
    else:
        return
    assert refusal.exit_code in (2, 3)
    assert refusal.cause
    assert len(refusal.cause) < 2000


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_ordinary_studies_have_a_plan(program: str, mechanism: str) -> None:
    """The negative control of everything below."""
    plan_of(study(program, mechanism))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("value", [5e-324, 1e-200, MIN_EPSILON, 1e308, 10**400], ids=str)
def test_an_epsilon_of_any_size(program: str, mechanism: str, value: float) -> None:
    plan_or_refusal(changed(study(program, mechanism), ("privacy", "epsilon"), value))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("value", [5e-324, 1e-320, MIN_DELTA, 1e-300])
def test_a_delta_of_any_size(program: str, value: float) -> None:
    plan_or_refusal(changed(study(program), ("privacy", "delta"), value))


@pytest.mark.parametrize("delta", [MIN_DELTA, 1e-30, 1e-6])
@pytest.mark.parametrize("epsilon", [MIN_EPSILON, 1e-5, 1e-3])
def test_at_the_smallest_epsilon_and_delta_the_budget_is_still_exact(epsilon: float, delta: float) -> None:
    """Why the limits are where they are: ρ has not begun to round to 0."""
    rho = float(rho_from_epsilon(epsilon, delta))
    assert rho > 0.9 * epsilon**2 / (4 * math.log(1 / delta))  # the simpler conversion [BS16, Prop. 1.3] promises less
    assert epsilon * (1 - 1e-4) < epsilon_from_rho(rho, delta) <= epsilon


def test_a_study_at_the_smallest_delta_has_a_plan() -> None:
    plan_of(changed(study("summary"), ("privacy", "delta"), MIN_DELTA))


@settings(max_examples=600, deadline=None)
@given(
    program=st.sampled_from(sorted(PROGRAMS)),
    mechanism=st.sampled_from(["gaussian", "laplace"]),
    key=st.sampled_from(KEYS),
    value=st.sampled_from(ODD) | st.floats() | st.integers(-(2**70), 2**70),
)
def test_any_number_anywhere(program: str, mechanism: str, key: tuple[str, ...], value: Any) -> None:
    if key == ("program", "rounds") and isinstance(value, (int, float)) and 2000 < value <= 100_000:
        value = 2000  # more of the same take seconds
    plan_or_refusal(changed(study(program, mechanism), key, value))


@settings(max_examples=60, deadline=None)
@given(
    program=st.sampled_from(sorted(PROGRAMS)),
    changes=st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(ODD)), min_size=2, max_size=4),
)
def test_several_numbers_at_once(program: str, changes: list[tuple[tuple[str, ...], Any]]) -> None:
    raw = study(program)
    for key, value in changes:
        if key[0] not in ("stream",) and (key, value) != (("program", "rounds"), 1000):
            raw = changed(raw, key, value)
    plan_or_refusal(raw)


@pytest.mark.parametrize(
    ("program", "key", "value"),
    [
        ("ridge", ("data", "columns", "sex", "values"), [f"v{i}" for i in range(6000)]),
        ("kmeans", ("program", "n_clusters"), 10_000),
        ("summary", ("data", "columns", "age", "bins"), [i / 1000 for i in range(1, 99_000)]),
    ],
    ids=["ridge on 6,000 categories", "10,000 clusters", "99,000 bins"],
)
def test_vectors_that_nobody_could_hold_are_refused_before_they_are_made(
    program: str, key: tuple[str, ...], value: Any
) -> None:
    raw = changed(study(program), key, value)
    raw["data"]["records"] = 10**5
    if program == "kmeans":
        raw["data"]["columns"] |= {f"c{i}": COLUMNS["age"] for i in range(2000)}
        raw["study"]["features"] = [f"c{i}" for i in range(2000)]
    plan_or_refusal(raw)
    if program != "summary":
        with pytest.raises(TallystickError, match=str(MAX_COORDINATES)):
            plan_of(raw)


def test_correlations_of_thousands_of_columns() -> None:
    raw = study("summary")
    raw["data"]["columns"] |= {f"c{i}": COLUMNS["age"] for i in range(3000)}
    raw["study"]["features"] = [f"c{i}" for i in range(3000)]
    with pytest.raises(TallystickError) as refusal:
        plan_of(raw)
    assert refusal.value.rule == "vector-size"
    raw["program"]["correlations"] = False
    plan_of(raw)


@pytest.mark.parametrize("value", [True, "1.0", "0x10", b"1"], ids=str)
@pytest.mark.parametrize("key", [k for k in KEYS if k[0] != "program"], ids=".".join)
def test_what_is_no_number_does_not_stand_for_one(key: tuple[str, ...], value: Any) -> None:
    with pytest.raises(TallystickError) as refusal:
        Study.from_dict(changed(study("logistic_regression"), key, value))
    assert refusal.value.exit_code == 2
