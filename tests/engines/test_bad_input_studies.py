"""Odd numbers, wrong shapes, too few clients, hostile models and degenerate data, through a simulated federation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.algorithms.program import pack_state, unpack_state
from tallystick.core.errors import DataError, RemoteProtocolError
from tallystick.engines.client_map import ClientMap
from tallystick.engines.planning import public_facts

pytestmark = [
    pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning"),
    pytest.mark.filterwarnings("ignore::tallystick.DataWarning"),  # odd data on purpose
]
SCHEMA = ts.Schema({"age": ts.Number(0, 100), "sex": ts.Category(["f", "m"]), "ill": ts.Category(["no", "yes"])})


def frame(records: int = 60, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age = rng.uniform(0, 100, records)
    return {"age": age, "sex": rng.choice(["f", "m"], records), "ill": np.where(age > 50, "yes", "no")}


def fit(frames: list[Any], *, seed: int = 1, **settings: Any) -> ts.LogisticRegression:
    fed = ts.Federation.simulate(frames, schema=SCHEMA, seed=seed)
    return ts.LogisticRegression(**{"epsilon": 20.0, "rounds": 4, **settings}).fit(fed, target="ill")


def refused(frames: list[Any], **settings: Any) -> tuple[ts.TallystickError, Any]:
    """The error of a fit, and what the federation has spent (nothing) and kept."""
    names = ["north", "south", "west"][: len(frames)]
    fed = ts.Federation.simulate(frames, schema=SCHEMA, names=names, seed=1, **settings)
    model = ts.LogisticRegression(epsilon=20.0, rounds=2)
    with pytest.raises(ts.TallystickError) as error:
        model.fit(fed, target="ill")
    assert not hasattr(model, "coef_")
    assert fed.spent.fits == 0
    return error.value, fed


# -- NaN, infinities, -0.0, subnormals, 1e308 --------------------------------------------------------------------------


def test_a_missing_number_names_client_and_column_and_spends_nothing() -> None:
    bad = frame()
    bad["age"][7] = math.nan
    error, _ = refused([frame(), bad, frame()])
    assert isinstance(error, DataError)
    assert (error.party, error.exit_code) == ("south", 2)
    assert "'age'" in error.cause
    assert '"age": ts.Number(…, missing="centre")' in str(error.remedy)


@pytest.mark.parametrize("odd, as_if", [(math.inf, 100.0), (-math.inf, 0.0), (1e308, 100.0), (-1e308, 0.0)])
def test_numbers_beyond_the_bounds_are_clamped_to_the_bit(odd: float, as_if: float) -> None:
    wild, tame = frame(), frame()
    wild["age"][3], tame["age"][3] = odd, as_if
    np.testing.assert_array_equal(fit([wild]).coef_, fit([tame]).coef_)


@pytest.mark.parametrize("odd", [-0.0, 5e-324, -5e-324, 2.2e-308])
def test_zeros_and_subnormals_are_ordinary_numbers(odd: float) -> None:
    data = frame()
    data["age"][3] = odd
    assert np.isfinite(fit([data]).coef_).all()


def test_a_missing_policy_is_followed() -> None:
    data = frame(90)
    data["age"][:10] = math.nan
    for policy in ("category", "drop"):
        fed = ts.Federation.simulate([data], schema=SCHEMA, seed=1, missing=ts.Missing(marker="?", policy=policy))
        model = ts.LogisticRegression(epsilon=20.0, rounds=2).fit(fed, target="ill")
        assert np.isfinite(model.coef_).all()
        if policy == "category":
            assert "age=missing" in " ".join(map(str, model.feature_names_in_)) or len(model.feature_names_in_) > 3
    error, _ = refused([data], missing=ts.Missing(marker="?", policy="error"))
    assert "refuses" in error.cause


def test_the_counts_of_odd_values_stay_with_the_client() -> None:
    data = frame()
    data["age"][:7] = 1e6
    model = fit([data])
    shown = f"{model.study_!r}{model.plan_!r}{model.privacy_!r}{vars(model)}"
    assert "clamped" not in shown
    assert "Tallies" not in shown


# -- wrong dimensions --------------------------------------------------------------------------------------------------


def test_an_absent_column_is_named_with_its_client() -> None:
    bad = {k: v for k, v in frame().items() if k != "sex"}
    error, _ = refused([frame(), frame(), bad])
    assert (error.party, error.exit_code) == ("west", 2)
    assert "'sex'" in error.cause


def test_columns_of_different_length() -> None:
    bad = frame() | {"age": np.zeros(59)}
    error, _ = refused([bad])
    assert "differ in length" in error.cause
    assert error.party == "north"


def test_a_cell_that_is_a_matrix() -> None:
    error, _ = refused([frame() | {"age": np.zeros((60, 2))}])
    assert "'age' has 2 dimensions" in error.cause


def test_a_ragged_file(tmp_path: Path) -> None:
    path = tmp_path / "ragged.csv"
    path.write_text("age,sex,ill\n30,f,no\n40,m,yes,extra\n", encoding="utf-8")
    error, _ = refused([path])
    assert "4 cells, but the header names 3 columns" in error.cause


def test_text_where_a_number_is_declared() -> None:
    bad = frame()
    bad["age"] = bad["age"].astype(object)
    bad["age"][5] = "forty and a secret"
    error, _ = refused([bad])
    assert "'age'" in error.cause
    assert "secret" not in str(error)


def test_no_feature_at_all() -> None:
    fed = ts.Federation.simulate([frame()], schema=ts.Schema({"ill": SCHEMA["ill"]}))
    with pytest.raises(ts.StudyError, match="no feature column"):
        ts.LogisticRegression().fit(fed, target="ill")
    with pytest.raises(ts.StudyError, match="no feature column"):
        ts.LogisticRegression().fit(ts.Federation.simulate([frame()], schema=SCHEMA), target="ill", features=[])


def test_a_program_whose_vector_has_another_length() -> None:
    class Longer(ts.Program):
        groups = (ts.Group(name="all", size=2, bound=1.0),)

        def init(self, public: ts.Public) -> Any:
            return np.zeros(2)

        def map_in_client(self, record, state):  # type: ignore[no-untyped-def]
            return np.zeros(3)

        def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
            return total

    fed = ts.Federation.simulate([frame()], schema=SCHEMA, seed=1)
    with pytest.raises(ts.TallystickError, match="returns 3 numbers, the groups declare 2"):
        ts.ProgramEstimator(Longer()).fit(fed, target="ill")


# -- too few clients ---------------------------------------------------------------------------------------------------


def test_fewer_clients_than_the_study_asks_for() -> None:
    error, fed = refused([frame(), frame()], min_clients=3)
    assert isinstance(error, ts.TooFewParties)
    assert (error.exit_code, error.round, error.rule) == (4, 1, "too-few-clients")
    assert "2 client(s) where the study asks for min_clients = 3" in error.cause
    assert fed.ledger.entries == ()


def test_a_sum_of_one_is_refused_when_asked_for() -> None:
    error, _ = refused([frame()], min_clients=1)
    assert (error.exit_code, error.rule) == (3, "a-sum-of-one-hides-nothing")


def _with_drops(seed: int) -> tuple[Any, Exception | None]:
    fed = ts.Federation.simulate([frame(30, s) for s in range(4)], schema=SCHEMA, seed=seed, drop=0.2, min_clients=3)
    try:
        ts.LogisticRegression(epsilon=20.0, rounds=4).fit(fed, target="ill")
    except ts.TooFewParties as error:
        return fed, error
    return fed, None


def test_drop_outs_below_the_minimum_abort_with_nothing_released() -> None:
    """In the first round nothing noised has left, so the reservation is withdrawn; later it stays spent."""
    seen = set()
    for seed in range(40):
        fed, error = _with_drops(seed)
        if error is None:
            seen.add("finished")
            assert (fed.spent.fits, fed.ledger.entries[0].committed) == (1, True)
        elif error.round == 1:
            seen.add("first")
            assert fed.ledger.entries == ()
        else:
            seen.add("later")
            assert (fed.spent.fits, fed.ledger.entries[0].committed) == (1, False)
            assert fed.spent.epsilon > 19
        if seen == {"finished", "first", "later"}:
            return
    raise AssertionError(f"40 seeds gave only {seen}")


def test_a_budget_is_not_eaten_by_a_study_that_never_started() -> None:
    data = ts.Dataset(frame(), budget=20.0, schema=SCHEMA)
    with pytest.raises(ts.StudyError):
        ts.LogisticRegression(epsilon=20.0, rounds=2).fit(data, target="age")
    assert data.spent.fits == 0


# -- hostile models ----------------------------------------------------------------------------------------------------


def _client() -> tuple[ClientMap, Any, Any]:
    model = ts.LogisticRegression(epsilon=20.0, rounds=2)
    fed = ts.Federation.simulate([frame()], schema=SCHEMA, seed=1)
    model.fit(fed, target="ill")
    program, plan = model._program, model.plan_
    template = program.init(public_facts(model.study_, model._layout))
    return ClientMap(program, fed.records(model.study_)[0], template), template, plan


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_model_that_is_not_finite_is_refused_by_the_client(bad: float) -> None:
    client, _, plan = _client()
    honest = pack_state(client._template)
    assert len(client.contribute(honest, plan.rounds[0])) == plan.rounds[0].grid.size
    for place in range(0, len(honest) // 8, 3):
        values = np.frombuffer(honest, "<f8").copy()
        values[place] = bad
        with pytest.raises(RemoteProtocolError, match="NaN or infinity"):
            client.contribute(values.tobytes(), plan.rounds[0])


@pytest.mark.parametrize("change", [lambda m: m[:-8], lambda m: m + bytes(8), lambda m: m[:-1], lambda m: b""])
def test_a_model_of_another_length_is_refused_by_the_client(change: Any) -> None:
    client, _, plan = _client()
    with pytest.raises(RemoteProtocolError, match="bytes where the study's has"):
        client.contribute(change(pack_state(client._template)), plan.rounds[0])


def test_states_survive_their_bytes() -> None:
    state = (np.arange(6.0).reshape(2, 3), 2.5, np.zeros(0))
    again = unpack_state(pack_state(state), state)
    np.testing.assert_array_equal(again[0], state[0])
    assert again[1] == 2.5
    with pytest.raises(ts.StudyError, match="a state holds a str"):
        pack_state(("text", 1.0))


# -- data that divide by zero if anything can --------------------------------------------------------------------------


def constant(value: float = 40.0) -> dict[str, Any]:
    return frame() | {"age": np.full(60, value), "sex": np.array(["f"] * 60)}


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(constant(), id="constant"),
        pytest.param(constant(50.0), id="all-zero-encoded"),
        pytest.param(constant(100.0), id="at-the-bound"),
        pytest.param(frame() | {"ill": np.array(["yes"] * 60)}, id="one-label"),
        pytest.param({k: np.repeat(v[:1], 60) for k, v in frame().items()}, id="duplicates"),
        pytest.param(frame() | {"ill": np.array(["no", "yes"] * 30), "age": np.full(60, 50.0)}, id="ties"),
        pytest.param({k: v[:1] for k, v in frame().items()}, id="one-record"),
        pytest.param(frame() | {"sex": np.array(["other"] * 60)}, id="unknown-category"),
    ],
)
def test_degenerate_data_have_defined_results(data: dict[str, Any], mechanism: str) -> None:
    model = fit([data, {k: v[:0] for k, v in data.items()}], mechanism=mechanism)  # and one client is empty
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    probabilities = model.predict_proba(data)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert set(model.predict(data)) <= {"no", "yes"}
    assert model.contributors_ == ("client-1", "client-2")


def test_without_noise_ties_are_even_and_one_label_wins() -> None:
    ties = frame() | {"ill": np.array(["no", "yes"] * 30), "age": np.full(60, 50.0), "sex": np.array(["f"] * 60)}
    model = fit([ties], mechanism="none", rounds=50)
    np.testing.assert_allclose(model.predict_proba(ties), 0.5, atol=1e-3)
    sure = fit([frame() | {"ill": np.array(["yes"] * 60)}], mechanism="none", rounds=50)
    assert set(sure.predict(frame())) == {"yes"}


def test_nobody_has_a_record() -> None:
    empty = {k: v[:0] for k, v in frame().items()}
    error, _ = refused([empty, empty])
    assert error.exit_code == 2


def test_a_single_declared_class() -> None:
    schema = ts.Schema({"age": ts.Number(0, 100), "ill": ts.Category(["yes"])})
    fed = ts.Federation.simulate([frame() | {"ill": np.array(["yes"] * 60)}], schema=schema, seed=1)
    model = ts.LogisticRegression(epsilon=20.0, rounds=2).fit(fed, target="ill")
    assert set(model.predict(frame())) == {"yes"}
    np.testing.assert_array_equal(model.predict_proba(frame()), np.ones((60, 1)))
