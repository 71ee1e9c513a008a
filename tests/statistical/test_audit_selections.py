"""What a draw really costs, from records to the place that comes out: exactly, on all small data sets; and by runs.

The exact half goes through a study's own plan and program: every data set of a few records is mapped and summed as at
the clients, weighed as the parties do, and compared with each of its neighbours; the largest log-ratio of any place
must stay below what the plan charges. The planted bugs show that it would be seen otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.trust.parties_deployment import study

import tallystick as ts
from tallystick.algorithms.built_in import BUILT_IN
from tallystick.data.encoding import encode
from tallystick.engines.planning import layout_of, public_budget, public_facts
from tallystick.privacy.contribution import total
from tallystick.privacy.draws import DrawRound
from tallystick.privacy.selection_plan import SelectionPlan
from tallystick.protocol.selection.ideal import weights
from tallystick.protocol.selection.question import Question
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of

MOST = 4  # records
Weigh = Callable[[Question, Sequence[int]], list[int]]


class Selection:
    """A study with one draw on a domain of a few values."""

    def __init__(self, program: str, section: dict[str, Any], neighbours: str, epsilon: float) -> None:
        raw = study("audit", program, "").model_dump()
        raw["program"] = section
        raw["privacy"] |= {"neighbours": neighbours, "epsilon": epsilon}
        raw["data"] |= {
            "records": MOST if neighbours == "replace-one" else None,
            "columns": {"x": {"type": "integer", "lower": 0, "upper": 3}},
        }
        self.study = Study.from_dict(raw)
        self.layout = layout_of(self.study)
        public = public_facts(self.study, self.layout)
        design = BUILT_IN[program].design(self.study.program, public, public_budget(self.study))
        plan = design.plan(self.study.claim(rounds=design.rounds))
        assert isinstance(plan, SelectionPlan)
        self.plan, self.program = plan, design.program
        self.state = self.program.query(self.program.init(public))
        (_, self.round), *_ = plan.draws
        self.question = question_of(self.study, plan, 1)

    def totals(self, records: Sequence[int | None]) -> list[int]:
        """The exact total of these records, None being an incomplete one, as the clients make it."""
        there = [r for r in records if r is not None]
        if not there:
            return [0] * self.round.grid.size
        features = encode({"x": np.array(there)}, self.study.schema_of_data(), features=["x"]).features
        mapped = self.program.map_block(self.program.prepare(features, None), self.state)
        return [int(v) for v in total(mapped, self.round.grid)]

    def worst(self, weigh: Weigh = weights) -> float:
        """The largest log-ratio over all neighbours and places."""
        values = (None, 0, 1, 2, 3)
        size = MOST if self.study.privacy.neighbours == "replace-one" else None
        sets = [s for n in range(MOST + 1) for s in itertools.combinations_with_replacement(range(5), n)]
        law = {}
        for chosen in sets:
            found = weigh(self.question, self.totals([values[i] for i in chosen]))
            law[chosen] = np.log(np.array(found, dtype=np.float64)) - math.log(sum(found))
        worst = 0.0
        for chosen in sets:
            if size is not None and len(chosen) != size:
                continue
            for at in range(len(chosen)):
                less = chosen[:at] + chosen[at + 1 :]
                others = [less] if size is None else [tuple(sorted((*less, i))) for i in range(5)]
                for other in others:
                    worst = max(worst, float(np.abs(law[chosen] - law[other]).max()))
        return worst


PROGRAMS = [
    ("mode", {"column": "x"}),
    ("risk_minimizer", {"column": "x", "loss": "absolute"}),
    ("quantiles", {"q": [0.5], "column": ["x"], "method": "exponential"}),
    ("quantiles", {"q": [0.25], "column": ["x"], "method": "exponential"}),
    ("quantiles", {"q": [0.5], "column": ["x"], "method": "subranges", "weights": "ln2/2^d"}),
]


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
@pytest.mark.parametrize(("program", "section"), PROGRAMS)
def test_no_place_is_more_likely_than_what_is_charged_allows(program: str, section: Any, neighbours: str) -> None:
    made = Selection(program, section, neighbours, 1.0)
    cost = float(made.plan.pure_epsilon)
    assert cost <= 1.0
    found = made.worst()
    assert found <= cost + 1e-12
    if program != "risk_minimizer" and neighbours == "add-remove":
        assert found > 0.4 * cost  # the audit is not blind


def test_weights_that_are_not_charged_are_seen() -> None:
    """The planted bug: the table of a third more ε than the plan charges."""
    asked = Selection("quantiles", PROGRAMS[2][1], "add-remove", 1.0)
    more = Selection("quantiles", PROGRAMS[2][1], "add-remove", 3.0)
    assert asked.worst(lambda _, totals: weights(more.question, totals)) > float(asked.plan.pure_epsilon)


def test_a_table_for_the_other_relation_is_seen() -> None:
    """The planted bug: calibrated for add-remove, and claimed for replace-one."""
    claimed = Selection("mode", {"column": "x"}, "replace-one", 1.0)
    other = Selection("mode", {"column": "x"}, "add-remove", 1.0)
    assert claimed.worst(lambda _, totals: weights(other.question, totals)) > float(claimed.plan.pure_epsilon)


def test_scores_that_are_not_bounded_are_seen() -> None:
    """The planted bug: a record that counts three times over."""
    made = Selection("mode", {"column": "x"}, "add-remove", 1.0)
    assert made.worst(lambda q, totals: weights(q, [3 * t for t in totals])) > float(made.plan.pure_epsilon)


def _simulated(runs: int, *, split: int = 3) -> np.ndarray:
    """How often each value is selected, by whole simulated studies with fresh randomness."""
    values = ["a"] * 6 + ["b"] * 4 + ["c"] * 2
    frames = [{"y": np.array(values[i::split])} for i in range(split)]
    schema = ts.Schema({"y": ts.Category(["a", "b", "c"])})
    fed = ts.Federation.simulate(frames, schema=schema, trust="parties")
    found = [ts.Mode(column="y", epsilon=1.0).fit(fed).mode_ for _ in range(runs)]
    return np.array([found.count(v) for v in "abc"])


def _expected() -> np.ndarray:
    raw = study("law", "mode", 'column = "y"').model_dump()
    raw["data"] |= {"records": 12, "columns": {"y": {"type": "category", "values": ["a", "b", "c"]}}}
    asked = Study.from_dict(raw)
    design = BUILT_IN["mode"].design(asked.program, public_facts(asked, layout_of(asked)), public_budget(asked))
    plan = design.plan(asked.claim(rounds=1))
    assert isinstance(plan, SelectionPlan)
    assert isinstance(plan.rounds[0], DrawRound)
    found = weights(question_of(asked, plan, 1), [6, 4, 2])
    return np.array([w / sum(found) for w in found])


def _chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    expected = counts.sum() * law
    return float(((counts - expected) ** 2 / expected).sum())


def test_whole_studies_follow_the_law_that_is_charged() -> None:
    law = _expected()
    counts = _simulated(150)
    assert _chi_square(counts, law) < 20.7  # 3 places: one in 30,000 by chance
    assert _chi_square(counts, law[::-1]) > 20.7  # the control


@pytest.mark.audit
def test_whole_studies_follow_the_law_that_is_charged_in_many_runs() -> None:
    law, counts = _expected(), _simulated(4000)
    assert _chi_square(counts, law) < 20.7
    tilted = law**1.2 / (law**1.2).sum()  # a fifth more ε than is charged
    assert _chi_square(counts, tilted) > 20.7
