"""Stream studies in simulation: one batch per tick of a public clock, one charge per record, a model that improves."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.application.planning import plan
from tallystick.application.result_document import result_document
from tallystick.application.simulation import simulate
from tallystick.core.errors import DataError, PrivacyRefused, RoundAborted, StudyError
from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream
from tallystick.data.encoding import Records, encode
from tallystick.engines.designs import design_of
from tallystick.engines.engine import Computation, Computed, Outcome, run_paid
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.engines.rounds import run_rounds
from tallystick.engines.stream import Batches, simulated_ticks, ticks_of_times, times_of
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.study import Study
from tallystick.study.sections import StreamSection

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "z": ts.Number(0, 2), "y": ts.Category(["no", "yes"])})


def people(n: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(-1, 1, n), rng.uniform(0, 2, n)
    return {"x": x, "z": z, "y": np.where(x + 0.3 * rng.normal(size=n) > 0, "yes", "no")}


def raw_study(**stream: Any) -> dict[str, Any]:
    return {
        "study": {"name": "a stream", "program": "logistic_regression", "target": "y", "accept_noise": True},
        "privacy": {"epsilon": 1.0, "neighbours": "add-remove"},
        "data": {"columns": SCHEMA.to_dict()},
        "stream": {"ticks": 12, "tick_seconds": 60.0, "records_per_tick": 100, **stream},
    }


def study_of(**stream: Any) -> Study:
    return Study.from_dict(raw_study(**stream))


# -- the section ---------------------------------------------------------------------------------------------------


def test_a_study_without_a_stream_keeps_its_hash() -> None:
    raw = raw_study()
    del raw["stream"]
    assert b'stream":{' not in Study.from_dict(raw).canonical()
    assert json.loads(Study.from_dict(raw).canonical()).keys().isdisjoint({"stream"})
    assert Study.from_dict(json.loads(study_of().canonical())) == study_of()


@pytest.mark.parametrize(
    "start", [1_800_000_000, "2027-01-15T08:00:00Z", "2027-01-15 09:00:00+01:00", datetime(2027, 1, 15, 8, tzinfo=UTC)]
)
def test_a_start_is_unix_seconds_however_it_is_written(start: object) -> None:
    assert study_of(start=start, time="when").hash == study_of(start=1_800_000_000.0, time="when").hash


@pytest.mark.parametrize(
    "stream",
    [
        {"ticks": 0},
        {"ticks": 100_001},
        {"tick_seconds": 0},
        {"tick_seconds": float("nan")},
        {"tick_seconds": float("inf")},
        {"records_per_tick": 0},
        {"time": "when"},
        {"start": "soon"},
        {"start": float("nan")},
        {"size": 10},
    ],
)
def test_a_stream_that_means_nothing_is_refused(stream: dict[str, Any]) -> None:
    with pytest.raises(StudyError):
        study_of(**stream)


def test_a_program_that_cannot_learn_step_by_step_is_refused_by_name() -> None:
    raw = raw_study()
    raw["study"] |= {"program": "summary", "target": None}
    study = Study.from_dict(raw)
    with pytest.raises(StudyError, match="summary takes 1 round") as refused:
        design_of(study, layout_of(study), None)
    assert refused.value.rule == "stream-rounds-are-ticks"
    raw = raw_study()
    raw["program"] = {"rounds": 5}
    study = Study.from_dict(raw)
    with pytest.raises(StudyError, match="rounds = 5 in a stream of 12 ticks"):
        design_of(study, layout_of(study), None)


@pytest.mark.parametrize("privacy", [{"neighbours": "replace-one"}, {"unit": "person", "person": "x"}])
def test_batches_are_hidden_by_add_remove_of_records_only(privacy: dict[str, Any]) -> None:
    raw = raw_study()
    raw["privacy"] |= privacy
    study = Study.from_dict(raw | {"data": raw["data"] | {"records": 1200}})
    with pytest.raises(PrivacyRefused) as refused:
        design_of(study, layout_of(study), None)
    assert refused.value.rule == "a-stream-hides-its-batches"


# -- plan and ledger -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", [{}, {"standardise": False}, {"rounds": 200}])
def test_two_hundred_ticks_cost_one(program: dict[str, Any]) -> None:
    """Each record is in one batch, so each tick has the whole budget and the ledger is charged once."""
    charges = []
    for ticks in (2, 200):
        study = Study.from_dict(raw_study(ticks=ticks) | {"program": {} if "rounds" in program else program})
        if "rounds" in program:
            study = study.replace("program", rounds=ticks)
        plan = plan_study(study, design_of(study, layout_of(study), None), allow_not_private=False)
        assert len(plan.rounds) == ticks
        assert len({r.rho for r in plan.rounds}) <= 2  # the round of moments has a grid of its own
        charges.append(charge_of(study.hash, plan))
        assert plan.spent_epsilon() <= 1.0
    assert charges[0].rho == charges[1].rho
    assert charges[0].curve == charges[1].curve


def test_pure_epsilon_has_the_whole_budget_in_every_tick_too() -> None:
    raw = raw_study(ticks=50)
    raw["privacy"] |= {"mechanism": "laplace"}
    study = Study.from_dict(raw)
    plan = plan_study(study, design_of(study, layout_of(study), None), allow_not_private=False)
    assert [float(r.epsilon or 0) for r in plan.rounds] == pytest.approx([1.0] * 50, rel=1e-6)
    assert float(plan.pure_epsilon or 0) == pytest.approx(1.0, rel=1e-6)


def test_the_model_improves_as_batches_arrive_and_each_stream_is_charged_once() -> None:
    ticks, clients = 40, 4
    fed = ts.Federation.simulate([people(1500, i) for i in range(clients)], schema=SCHEMA, seed=5)
    model = ts.LogisticRegression(epsilon=2.0, neighbours="add-remove")
    study = model.study_for(fed, target="y", features=None, name="stream")
    study = study.replace("stream", ticks=ticks, tick_seconds=60, records_per_tick=clients * 1500 // ticks)
    model.fit_study(fed, study)
    assert model.n_iter_ == ticks
    assert fed.spent.fits == 1
    assert fed.spent.epsilon == pytest.approx(2.0, rel=1e-6)
    test = encode(people(4000, 99), SCHEMA, target="y")

    def accuracy(state: Any) -> float:
        intercept, weights = model._program.model(state)
        guess = test.features @ weights[0] + intercept[0] > 0
        return float(np.mean(guess == (test.target == 1)))

    early = np.mean([accuracy(s) for s in model.history_[1:4]])
    assert accuracy(model.history_[-1]) > 0.85
    assert accuracy(model.history_[-1]) > early


def test_kmeans_runs_as_a_stream() -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[-0.7, -0.7], [0.7, 0.7]])
    points = centres[rng.integers(2, size=3000)] + 0.1 * rng.normal(size=(3000, 2))
    frame = {"a": points[:, 0], "b": points[:, 1]}
    schema = ts.Schema({"a": ts.Number(-1, 1), "b": ts.Number(-1, 1)})
    fed = ts.Federation.simulate([{k: v[i::3] for k, v in frame.items()} for i in range(3)], schema=schema, seed=1)
    model = ts.KMeans(2, epsilon=2.0, neighbours="add-remove")
    study = model.study_for(fed, target=None, features=None, name="stream")
    model.fit_study(fed, study.replace("stream", ticks=8, tick_seconds=1, records_per_tick=375))
    found = np.sort(model.cluster_centers_[:, 0])
    assert found == pytest.approx([-0.7, 0.7], abs=0.25)


# -- lost ticks ------------------------------------------------------------------------------------------------------


class SomeLost:
    """Totals of ones, but for the ticks that are given up, and why."""

    def __init__(self, why: dict[int, str]) -> None:
        self.why = why

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        if request.round in self.why:
            raise RoundAborted("the round was given up", rule=self.why[request.round], round=request.round)
        ones = np.full(request.plan.grid.size, 1 << request.plan.grid.fraction_bits, dtype=np.int64)
        return NoisyTotal(values=ones, participants=("a", "b"), dropped=())


def outcome_with(study: Study, why: dict[int, str], ledger: Ledger) -> Outcome:
    layout = layout_of(study)
    design = design_of(study, layout, None)
    plan = plan_study(study, design, allow_not_private=True)
    public = public_facts(study, layout)

    class Rounds(Computation):
        def compute(self, *, progress: Any = None, released: Any = None) -> Computed:
            return run_rounds(design.program, public, plan, SomeLost(why))

    return run_paid(Rounds(), plan, study=study.hash, ledger=ledger)


def plain_stream() -> Study:
    return Study.from_dict(raw_study() | {"program": {"standardise": False}})


def test_a_lost_tick_leaves_the_state_and_the_charge_as_they_are() -> None:
    ledger, whole = Ledger(), Ledger()
    lost = outcome_with(plain_stream(), {1: "too-few-clients", 5: "missing-server", 12: "missing-server"}, ledger)
    assert lost.lost == (1, 5, 12)
    packed = [pack_state(s) for s in lost.history]
    assert len(packed) == 12
    assert packed[4] == packed[3] != packed[5]
    assert packed[11] == packed[10]
    assert lost.contributors[3:6] == (("a", "b"), (), ("a", "b"))
    others = outcome_with(plain_stream(), {}, whole)
    assert others.lost == ()
    assert [pack_state(s) for s in others.history[:9]] == [p for i, p in enumerate(packed, 1) if i not in (1, 5, 12)]
    assert ledger.spent() == whole.spent()


@pytest.mark.parametrize(
    ("why", "program"),
    [
        ({4: "set-disagreement"}, {"standardise": False}),
        ({4: "out-of-range"}, {"standardise": False}),
        ({4: "storage-full"}, {"standardise": False}),
        ({1: "missing-server"}, {"standardise": True}),  # tick 1 has the moments, which no other tick can make up for
        (dict.fromkeys(range(1, 13), "too-few-clients"), {"standardise": False}),
    ],
    ids=["disagreement", "range", "storage", "moments", "every tick"],
)
def test_a_stream_ends_where_it_cannot_go_on_and_stays_charged(why: dict[int, str], program: dict[str, Any]) -> None:
    ledger = Ledger()
    with pytest.raises(RoundAborted):
        outcome_with(Study.from_dict(raw_study() | {"program": program}), why, ledger)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_study_that_is_no_stream_ends_with_its_first_lost_round() -> None:
    raw = raw_study() | {"program": {"standardise": False, "rounds": 12}}
    del raw["stream"]
    raw["data"] |= {"records": 1200}
    with pytest.raises(RoundAborted):
        outcome_with(Study.from_dict(raw), {5: "missing-server"}, Ledger())


def test_clients_that_stay_away_cost_a_simulated_stream_ticks_not_its_life() -> None:
    fed = ts.Federation.simulate([people(200, i) for i in range(4)], schema=SCHEMA, seed=3, drop=0.3, min_clients=3)
    model = ts.LogisticRegression(epsilon=2.0, neighbours="add-remove", standardise=False)
    study = model.study_for(fed, target="y", features=None, name="stream")
    model.fit_study(fed, study.replace("stream", ticks=20, tick_seconds=1, records_per_tick=40))
    assert 0 < len(model.lost_ticks_) < 20
    assert len(model.history_) == 20
    assert len(model.contributors_) >= 3
    assert result_document(model, 1.0, kind="study")["stream"] == {"ticks": 20, "lost": list(model.lost_ticks_)}


# -- neighbours ------------------------------------------------------------------------------------------------------


class Totals(ts.Program):
    """Each tick's own total: how many records, and their sum."""

    bound = 2.0

    def init(self, public: Any) -> Any:
        return np.zeros(2)

    def map_in_client(self, record: Any, state: Any) -> Any:
        out = np.zeros(2)
        out[0] = 1.0
        out[1] = record[0]
        return out

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return total


def batch_totals(frames: list[dict[str, Any]], **stream: Any) -> NDArray[np.float64]:
    schema = ts.Schema({"x": ts.Number(-1, 1)})
    fed = ts.Federation.simulate(frames, schema=schema, seed=11)
    model = ts.ProgramEstimator(Totals(), mechanism="none", neighbours="add-remove")
    study = model.study_for(fed, target=None, features=["x"], name="totals")
    settings = {"ticks": 10, "tick_seconds": 1.0, "records_per_tick": 10, **stream}
    return np.array(model.fit_study(fed, study.replace("stream", **settings)).history_)


def check_neighbours(**stream: Any) -> None:
    """One record more at one institution changes the total of one tick, and by that record."""
    rng = np.random.default_rng(2)
    times = rng.uniform(0, 10, 120)
    frames = [{"x": rng.uniform(-1, 1, 40), "when": times[i::3]} for i in range(3)]
    larger = [*frames[:2], {"x": np.append(frames[2]["x"], 0.5), "when": np.append(frames[2]["when"], 6.5)}]
    there, here = batch_totals(larger, **stream), batch_totals(frames, **stream)
    assert here[:, 0].sum() == 120
    differ = np.flatnonzero((there != here).any(axis=1))
    assert len(differ) == 1, f"one record changed the batches of ticks {differ + 1}"
    assert (there - here)[differ[0]] == pytest.approx([1, 0.5], abs=1e-6)
    if "time" in stream:
        assert differ[0] + 1 == 7


@pytest.mark.parametrize("stream", [{}, {"time": "when", "start": 0.0}], ids=["arrival", "time"])
def test_a_record_more_is_in_one_batch_and_moves_no_other(stream: dict[str, Any]) -> None:
    check_neighbours(**stream)


def test_batches_that_close_at_a_size_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: PEM's mini-batches of equal size, in which one record shifts all that come after."""

    def by_size(
        stream: StreamSection, frame: Any, records: Records, source: WordSource, *, party: str
    ) -> NDArray[np.int64]:
        n = len(records)
        return np.arange(n) * stream.ticks // n + 1

    monkeypatch.setattr("tallystick.engines.client_map.simulated_ticks", by_size)
    with pytest.raises(AssertionError, match="one record changed the batches of ticks"):
        check_neighbours()


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(0, 60),
    ticks=st.integers(1, 30),
    dropped=st.sets(st.integers(0, 59)),
    seed=st.binary(min_size=32, max_size=32),
)
def test_every_record_is_in_one_batch_and_stays_there(n: int, ticks: int, dropped: set[int], seed: bytes) -> None:
    """Whatever other records there are, and whichever of them cannot be used."""
    stream = StreamSection(ticks=ticks, tick_seconds=1, records_per_tick=1)
    schema = ts.Schema({"x": ts.Number(0, 100)})
    policy = ts.Missing(marker="?", policy="drop")

    def placed(rows: int, gone: set[int]) -> dict[int, int]:
        frame = {"x": np.array([np.nan if i in gone else float(i) for i in range(rows)])}
        records = encode(frame, schema, missing=policy)
        batches = Batches(simulated_ticks(stream, frame, records, AesStream(seed), party="a"))
        taken = [(int(records.rows[i]), t) for t in range(1, ticks + 1) for i in batches.rows(t)]
        assert sorted(row for row, _ in taken) == [int(r) for r in records.rows]
        return dict(taken)

    one, more = placed(n, dropped), placed(n + 1, dropped - {3})
    assert all(more[row] == tick for row, tick in one.items())


def test_times_are_read_cell_by_cell() -> None:
    stream = StreamSection(ticks=3, tick_seconds=10, records_per_tick=1, time="t", start=100.0)
    texts = ["100", "109.9", "110", "1970-01-01T00:02:09Z", "130", "99.9", "1970-01-01 01:01:50+01:00"]
    assert ticks_of_times(stream, times_of({"t": texts}, "t")).tolist() == [1, 1, 2, 3, 0, 0, 2]
    assert times_of({"t": np.array([5, 6])}, "t").tolist() == [5, 6]
    for wrong in (["", "1"], ["soon"], [None, 3.0], ["nan"]):
        with pytest.raises(DataError, match="no time"):
            times_of({"t": wrong}, "t")


def test_the_groups_of_a_users_program_are_those_of_every_tick() -> None:
    model = ts.ProgramEstimator(Totals(), neighbours="add-remove", epsilon=1.0)
    fed = ts.Federation.simulate([{"x": np.zeros(3)}], schema=ts.Schema({"x": ts.Number(-1, 1)}), seed=1)
    study = model.study_for(fed, target=None, features=["x"], name="t")
    study = study.replace("stream", ticks=7, tick_seconds=1, records_per_tick=3)
    design = model.design_for(study, layout_of(study))
    assert design.groups == ((Group(name="all", size=2, bound=2.0),),) * 7


def test_a_study_file_with_times_is_simulated(tmp_path: Path) -> None:
    """The column of times need not be declared: it says when, and is nothing to learn from."""
    frame = people(600) | {"when": np.random.default_rng(4).uniform(0, 360, 600)}
    names = list(frame)
    rows = [",".join(map(str, row)) for row in zip(*(frame[n].tolist() for n in names))]
    (tmp_path / "records.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    study = tmp_path / "study.toml"
    study.write_text(
        """
        [study]
        name = "s"
        program = "logistic_regression"
        target = "y"
        accept_noise = true
        [stream]
        ticks = 6
        tick_seconds = 60
        records_per_tick = 100
        time = "when"
        start = 1970-01-01T00:00:00Z
        [privacy]
        epsilon = 5.0
        neighbours = "add-remove"
        [data.columns]
        x = { type = "number", lower = -1, upper = 1 }
        z = { type = "number", lower = 0, upper = 2 }
        y = { type = "category", values = ["no", "yes"] }
        """
    )
    made = simulate(study, data=(tmp_path / "records.csv",), clients=3, seed=1, holdout=0.2)
    assert made["cost"]["rounds"] == 6
    assert made["privacy"]["epsilon"] == 5.0
    assert made["simulation"]["evaluation"]["accuracy"] > 0.7
    shown = plan(study)
    assert [r["rounds"] for r in shown["rounds"]] == [[1, 1], [2, 6]]
    assert any("a stream of 6 ticks" in note for note in shown["notes"])
