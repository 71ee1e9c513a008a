"""Trust model ``parties``: planned, refused where it does not fit, simulated, charged; bugs that would matter."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.trust.parties_deployment import COLUMNS, frames, study

import tallystick as ts
from tallystick.application import planning
from tallystick.core.errors import DataError, PrivacyRefused
from tallystick.data.encoding import study_records
from tallystick.engines.planning import layout_of, plan_study, public_budget, public_facts
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.rounds import answer_of
from tallystick.privacy.draws import DrawRound, draw_rho
from tallystick.privacy.selection_plan import CountStep, DrawStep, SelectionPlan, make_selection_plan
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.roles.processes import client_session
from tallystick.roles.processes.client_session import check_stated
from tallystick.study import Study
from tallystick.trust.parties import simulation as simulated_parties


def federation(data: Any = None, *, columns: Any = None, seed: int | None = 3, **options: Any) -> ts.Federation:
    options = {"trust": "parties", "parties": 3, **options}
    return ts.Federation.simulate(
        frames() if data is None else data, schema=ts.Schema(columns or COLUMNS), seed=seed, **options
    )


def mode(**options: Any) -> ts.Mode:
    return ts.Mode(**{"column": "blood", "epsilon": 1.0, **options})


def median(**options: Any) -> ts.Quantiles:
    return ts.Quantiles(**{"column": "age", "method": "exponential", "epsilon": 1.0, **options})


def selection_plan(asked: Study) -> SelectionPlan:
    from tallystick.engines.designs import design_of

    made = plan_study(asked, design_of(asked, layout_of(asked), None), allow_not_private=False)
    assert isinstance(made, SelectionPlan)
    return made


# -- planned and refused -----------------------------------------------------------------------------------------------


def test_the_plan_shows_what_each_step_costs_and_all_together(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    made = study("blood", "mode", 'column = "blood"')
    file.write_text(
        '[study]\nname="b"\nprogram="mode"\n[program]\ncolumn="blood"\n[privacy]\nmechanism="exponential"\n'
        '[trust]\nmodel="parties"\n[data]\nrecords=90\n[data.columns]\n'
        'blood={type="category",values=["0","A","B","AB"]}\n'
    )
    shown = planning.describe(planning.plan(file))
    assert "step 1 draws one of 4 places and costs epsilon = 0.99" in shown
    assert "3 computing parties, semi-honest" in shown
    assert "in the middle of a draw" in shown
    summary = summarise(selection_plan(made))
    (drawn,) = summary["draws"]
    assert Fraction(drawn["epsilon"]) <= 1
    assert drawn["weights"].startswith("sha256:")
    assert Fraction(summary["rho"]) == draw_rho(Fraction(drawn["epsilon"]))


def test_every_quantile_is_a_draw_and_a_wide_domain_is_counted_first() -> None:
    asked = study("age", "quantiles", 'q = [0.25, 0.5]\ncolumn = ["age"]\nmethod = "exponential"')
    assert [r.choice.cells for _, r in selection_plan(asked).draws] == [121, 121]
    raw = asked.model_dump()
    raw["data"] |= {"records": 50_000}
    raw["data"]["columns"]["age"]["upper"] = 10**9
    wide = selection_plan(Study.from_dict(raw))
    kinds = [isinstance(r, DrawRound) for r in wide.rounds]
    assert kinds == sorted(kinds)  # counts, then draws
    assert kinds.count(True) == 2
    counted = sum((r.epsilon for r in wide.rounds if not isinstance(r, DrawRound)), Fraction(0))
    assert counted <= Fraction(1, 10)
    assert wide.pure_epsilon <= 1
    assert wide.pure_epsilon > Fraction(98, 100)
    assert wide.noise_std["per_party"] > 0


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"parties": 2}, "three-parties-at-least"),
        ({"parties": 0}, "three-parties-at-least"),
        ({"parties": 11}, "three-parties-at-least"),
        ({"parties": 4, "colluding": 2}, "honest-majority"),
        ({"parties": 3, "colluding": 3}, "honest-majority"),
        ({"parties": 5, "colluding": -1}, "honest-majority"),
    ],
)
def test_too_few_parties_and_a_coalition_of_half_are_refused(options: dict[str, int], rule: str) -> None:
    with pytest.raises(PrivacyRefused) as refused:
        mode().fit(federation(**options))
    assert refused.value.rule == rule


def test_a_sum_does_not_run_there_nor_a_selection_among_servers() -> None:
    with pytest.raises(ts.TrustModelError, match="servers"):
        ts.Summary(epsilon=1.0).fit(federation())
    with pytest.raises(ts.TrustModelError, match="servers"):
        ts.Quantiles(column="age").fit(federation())
    servers = ts.Federation.simulate(frames(), schema=ts.Schema(COLUMNS))
    for estimator in (mode(), median()):
        with pytest.raises(ts.TrustModelError, match="parties"):
            estimator.fit(servers)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "none"])
def test_a_draw_is_by_the_exponential_mechanism(mechanism: str) -> None:
    with pytest.raises(PrivacyRefused) as refused:
        mode(mechanism=mechanism).fit(federation())
    assert refused.value.rule == "a-draw-is-exponential"
    with pytest.raises(PrivacyRefused, match="sums"):
        ts.Summary(epsilon=1.0, mechanism="exponential").fit(
            ts.Federation.simulate(frames(), schema=ts.Schema(COLUMNS))
        )


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan"), "half"])
def test_a_quantile_is_a_share(q: Any) -> None:
    with pytest.raises(ts.StudyError):
        median(q=q).fit(federation())


def test_columns_that_have_no_mode_or_no_ranks() -> None:
    with pytest.raises(ts.StudyError, match="no such column"):
        mode(column="shoe").fit(federation())
    with pytest.raises(ts.StudyError, match="no ranks"):
        median(column="blood").fit(federation())
    number = {"x": ts.Number(0, 1)}
    assert (
        mode(column="age", epsilon=5.0).fit(federation([{"age": np.full(9, 40), "blood": ["A"] * 9}] * 3)).mode_ == 40
    )
    with pytest.raises(ts.StudyError, match="no values to choose from"):
        mode(column="x").fit(federation([{"x": np.zeros(4)}] * 3, columns=number))
    with pytest.raises(ts.StudyError, match="groups"):
        median(by="blood", method="subranges").fit(federation())
    with pytest.raises(ts.BoundsError):
        federation([{"x": np.zeros(4)}] * 3, columns={"x": ts.Integer(3, 3)})
    one = {"y": ts.Category(["only"])}
    with pytest.raises(ts.TallystickError):
        mode(column="y").fit(federation([{"y": np.array(["only"] * 4)}] * 3, columns=one))


# -- simulated ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_it_is_simulated_charged_and_released(neighbours: str) -> None:
    fed = federation()
    assert mode(epsilon=3.0, neighbours=neighbours).fit(fed).mode_ == "0"  # 45 of 90, the next one 30
    found = median(epsilon=1.0, neighbours=neighbours, q=(0.25, 0.5)).fit(fed)
    assert set(found.quantiles_) == {0.25, 0.5}
    assert found.interval_ == {0.25: None, 0.5: None}
    assert "No interval" in found.answer().notes[-1]
    assert 20 <= found.quantiles_[0.5] <= 90  # the median is 55, 2/ε = 2 ranks one way or the other
    assert 3.9 < fed.spent.epsilon <= 4
    assert found.privacy_.mechanism == "exponential"


def test_the_number_of_clients_changes_no_bit() -> None:
    whole = {k: np.concatenate([f[k] for f in frames()]) for k in ("age", "blood")}
    parts = [{k: v[i::7] for k, v in whole.items()} for i in range(7)]
    for estimator in (mode, median):
        few, many = estimator().fit(federation()), estimator().fit(federation(parts))
        assert [s.tobytes() if hasattr(s, "tobytes") else repr(s) for s in few.history_] == [
            s.tobytes() if hasattr(s, "tobytes") else repr(s) for s in many.history_
        ]


@pytest.mark.parametrize(("parties", "colluding"), [(4, 1), (5, 2), (10, 4)])
def test_more_parties_select_as_well(parties: int, colluding: int) -> None:
    found = mode(epsilon=4.0).fit(federation(parties=parties, colluding=colluding))
    assert found.mode_ == "0"
    assert found.privacy_.trust == {
        "model": "parties", "parties": parties, "colluding": colluding, "honest": parties - max(1, colluding)
    }  # fmt: skip


def test_all_values_equal_one_record_and_none() -> None:
    same = median(epsilon=5.0).fit(federation([{"age": np.full(30, 40), "blood": np.full(30, "A")}] * 3))
    assert same.quantiles_[0.5] == 40
    one = [{"age": np.array([50]), "blood": np.array(["A"])}] + [
        {"age": np.array([], dtype=int), "blood": np.array([], dtype=str)}
    ] * 2
    for data in (one, one[1:] + one[1:2]):
        found = median(neighbours="add-remove").fit(federation(data, seed=1))
        assert 0 <= found.quantiles_[0.5] <= 120


def test_min_and_max_are_in_their_dp_sense() -> None:
    found = median(q=(0, 1), epsilon=2.0).fit(federation())
    assert 0 <= found.quantiles_[0.0] < found.quantiles_[1.0] <= 120
    assert any("records beyond them" in note for note in found.plan_.notes)


def test_persons_and_several_columns() -> None:
    columns = {**COLUMNS, "years": ts.Integer(0, 50)}
    data = [{**f, "years": f["age"] // 3} for f in frames()]
    both = median(column=["age", "years"], epsilon=4.0).fit(federation(data, columns=columns))
    assert set(both.quantiles_) == {"age", "years"}
    one = selection_plan(study("one", "mode", 'column = "blood"'))
    raw = study("persons", "mode", 'column = "blood"').model_dump()
    raw["privacy"] |= {"unit": "person", "person": "age", "max_records": 3, "max_institutions": 2}
    many = selection_plan(Study.from_dict(raw))
    assert many.draws[0][1].choice.moves == 6 * one.draws[0][1].choice.moves
    assert many.rounds[0].grid.integer_ceilings == (3,)


# -- bugs that would matter --------------------------------------------------------------------------------------------


def drawn_plan() -> tuple[SelectionPlan, DrawRound]:
    made = selection_plan(study("blood", "mode", 'column = "blood"'))
    (_, drawn), *_ = made.draws
    return made, drawn


@pytest.mark.parametrize("said", [[2, 2, 3], [2, 2, 0], [5, 5, 5], [0, 0, 0], [-1, -1, -1], [2, 2, 2, 1]])
def test_places_that_do_not_agree_are_no_answer(said: list[int]) -> None:
    _, drawn = drawn_plan()
    total = np.zeros(6, dtype=np.int64)
    total[: len(said)] = said
    with pytest.raises(ts.RoundAborted) as refused:
        answer_of(drawn, total, 1)
    assert refused.value.rule == "draw-disagreement"
    agreed = np.array([2, 2, 2, 0, 0, 0], dtype=np.int64)
    assert answer_of(drawn, agreed, 1).tolist() == [1]


def test_a_draw_that_fails_stays_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise ts.RoundAborted("a party is silent", rule="silent-party", round=1, remedy="")

    monkeypatch.setattr(simulated_parties, "select_in_memory", fails)
    fed = federation()
    with pytest.raises(ts.RoundAborted):
        mode().fit(fed)
    assert fed.spent.epsilon > 0.9


def test_a_draw_whose_price_is_not_charged_is_seen_in_plan_and_ledger() -> None:
    made, drawn = drawn_plan()
    free = replace(drawn, noise=tuple(replace(n, rho=Fraction(0), epsilon=Fraction(0)) for n in drawn.noise))
    bug = replace(made, rounds=(free,))
    assert bug.pure_epsilon == 0  # the planted bug
    assert summarise(bug)["rho"] != summarise(made)["rho"]  # which no receipt lets pass: it is derived anew
    assert made.pure_epsilon == drawn.choice.epsilon > Fraction(99, 100)


def test_the_steps_of_a_plan_never_cost_more_than_the_whole() -> None:
    claim = study("blood", "mode", 'column = "blood"').claim(rounds=2)
    half = Fraction(1, 2)
    made = make_selection_plan(
        claim, [CountStep(cells=5, share=half), DrawStep(kind="ranks", cells=9, share=half, rank=(1, 2))]
    )
    assert made.pure_epsilon <= 1
    assert made.rho == made.rounds[0].rho + draw_rho(made.rounds[1].choice.epsilon)  # type: ignore[attr-defined]
    with pytest.raises(PrivacyRefused):
        make_selection_plan(claim, [CountStep(cells=5, share=half), CountStep(cells=5, share=half + half / 99)])
    with pytest.raises(PrivacyRefused) as refused:
        make_selection_plan(replace(claim, rounds=1), [DrawStep(kind="scores", cells=200_000, share=half)])
    assert refused.value.rule == "draw-has-places"


def test_a_word_is_drawn_once_a_round_and_party() -> None:
    made, _ = drawn_plan()
    from tallystick.crypto.prg import AesStream, derive

    def stream(*labels: bytes) -> AesStream:
        return AesStream(derive(bytes(32), *labels))

    words = [RoundNoise(made, made.size, name, stream).draw(1)[:4].tobytes() for name in ("party-1", "party-2")]
    assert words[0] != words[1]
    assert len(set(words)) == 2
    assert RoundNoise(made, made.size, "party-1", stream).ends_in_a_draw(1)


def test_public_facts_alone_decide() -> None:
    asked = study("age", "quantiles", 'q = [0.5]\ncolumn = ["age"]\nmethod = "exponential"')
    assert public_facts(asked, layout_of(asked)).records == 90
    assert public_budget(asked).epsilon == 1.0


def test_a_quantile_that_is_drawn_elsewhere_is_said() -> None:
    from tallystick.algorithms.design import PublicBudget
    from tallystick.algorithms.quantiles.settings import QuantileSettings
    from tallystick.algorithms.selection.quantile_design import _ends, _rank

    budget = PublicBudget(mechanism="exponential", rho=1.0, epsilon=0.1, neighbours="replace-one", variance_factor=3.0)
    a, b = _rank(0.05, 100, budget)
    assert a / b > 0.06
    settings = QuantileSettings.__new__(QuantileSettings)
    object.__setattr__(settings, "q", (0.05, 0.5))
    (note,) = _ends(settings, 100, budget)
    assert note.startswith("q = 0.05 is drawn as")


# -- widths and counts -------------------------------------------------------------------------------------------------


def test_totals_wider_than_the_circuits_are_refused_before_anybody_approves() -> None:
    raw = study("wide", "quantiles", 'q = [0.0123]\ncolumn = ["age"]\nmethod = "exponential"').model_dump()
    raw["data"]["records"] = 10**8
    raw["privacy"] |= {"unit": "person", "person": "age", "max_records": 2}
    assert selection_plan(Study.from_dict(raw)).rounds
    raw["privacy"]["max_records"] = 2000  # 2^30 records, times 2,000, times the denominator: more than 52 bits
    with pytest.raises(ts.StudyError) as refused:
        selection_plan(Study.from_dict(raw))
    assert refused.value.rule == "bad-question"
    assert "bits are more than the computing parties can compare" in refused.value.cause


def test_a_record_that_is_left_out_counts_among_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else replacing a good record by a bad one would decide whether a client takes part [found while it was built]."""
    asked = study("many", "mode", 'column = "blood"')
    told: list[int] = []
    monkeypatch.setattr(client_session, "check_stated", lambda _, own: told.append(own))
    for last in ("A", "no such type", ""):
        session = client_session.ClientSession.__new__(client_session.ClientSession)
        frame = {"age": np.full(91, 40), "blood": np.array(["A"] * 90 + [last])}
        session._map, session._untold = None, None
        session.setup = SimpleNamespace(study=asked)  # type: ignore[assignment]
        session.part = SimpleNamespace(prepare=lambda records: records)  # type: ignore[assignment]
        session.process = SimpleNamespace(  # type: ignore[assignment]
            source=lambda: "beside",
            open_records=lambda asked, frame=frame: study_records(asked, frame, party="client-1", lenient=True),
        )
        session._records()
    assert told == [91, 91, 91]


@pytest.mark.parametrize(
    ("privacy", "refuses"),
    [({}, True), ({"neighbours": "add-remove"}, False),
     ({"unit": "person", "person": "age", "max_records": 2, "max_institutions": 1}, False)],
)  # fmt: skip
def test_a_client_with_more_records_than_are_stated_for_all(privacy: dict[str, Any], refuses: bool) -> None:
    """Only where no neighbour has another number of records: elsewhere staying away would tell of one."""
    raw = study("many", "mode", 'column = "blood"').model_dump()
    raw["privacy"] |= privacy
    asked = Study.from_dict(raw)
    check_stated(asked, 90)
    if not refuses:
        check_stated(asked, 91)
        return
    with pytest.raises(DataError) as refused:
        check_stated(asked, 91)
    assert refused.value.rule == "records-as-stated"
