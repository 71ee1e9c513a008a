"""What draws for the groups of a category cost together, exactly: every data set of a few records and its neighbours.

Through a study's own plan and program, as ``test_audit_selections`` has it for all records together: mapped and summed
as at the clients, weighed as the parties do. The draws of the groups are independent, so the law of all places together
is the product of theirs, and its largest log-ratio the sum of each group's largest.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.trust.parties_deployment import study

from tallystick.algorithms.built_in import BUILT_IN
from tallystick.data.encoding import encode
from tallystick.engines.planning import layout_of, public_budget, public_facts
from tallystick.privacy.contribution import total
from tallystick.privacy.draws import GroupedChoice
from tallystick.privacy.selection_plan import SelectionPlan
from tallystick.protocol.selection import GroupedQuestion
from tallystick.protocol.selection.ideal import weights
from tallystick.study import Study
from tallystick.trust.parties.questions import question_of

MOST = 3
RECORDS = [(group, value) for group in ("a", "b") for value in (0, 6, 7)]


class Grouped:
    """One draw for each of two groups of an integer column with eight values."""

    def __init__(self, neighbours: str, q: float, **privacy: Any) -> None:
        raw = study("audit", "quantiles", "").model_dump()
        raw["program"] = {"q": [q], "column": ["x"], "by": "g", "method": "exponential"}
        raw["privacy"] |= {"neighbours": neighbours, **privacy}
        raw["data"] |= {
            "records": MOST if neighbours == "replace-one" else None,
            "columns": {
                "x": {"type": "integer", "lower": 0, "upper": 7},
                "g": {"type": "category", "values": ["a", "b"]},
            },
        }
        self.study = Study.from_dict(raw)
        public = public_facts(self.study, layout_of(self.study))
        design = BUILT_IN["quantiles"].design(self.study.program, public, public_budget(self.study))
        plan = design.plan(self.study.claim(rounds=design.rounds))
        assert isinstance(plan, SelectionPlan)
        self.plan, self.program = plan, design.program
        ((number, self.round),) = plan.draws
        question = question_of(self.study, plan, number)
        assert isinstance(question, GroupedQuestion)
        assert isinstance(self.round.choice, GroupedChoice)
        self.question, self.choice = question, self.round.choice
        state = self.program.init(public)
        while int(state.round) < number - 1:  # what groups have is counted first; here all say that there are some
            state = self.program.reduce_in_aggregator(np.full(self.program.edges * 9, 50.0), state)
        self.query = self.program.query(state)

    def law(self, records: tuple[tuple[str, int], ...]) -> list[np.ndarray]:
        """Logarithms of every group's probabilities."""
        if not records:
            totals = [0] * self.question.values
        else:
            groups, values = zip(*records)
            frame = {"x": np.array(values), "g": np.array(groups)}
            features = encode(frame, self.study.schema_of_data(), features=["x", "g"]).features
            mapped = self.program.map_block(self.program.prepare(features, None), self.query)
            totals = [int(v) for v in total(mapped, self.round.grid)]
        out = []
        for at in range(self.question.groups):
            own = totals[at * self.question.each.values :][: self.question.each.values]
            found = np.array(weights(self.question.each, own), dtype=np.float64)
            out.append(np.log(found) - math.log(found.sum()))
        return out

    def worst(self) -> float:
        """Over all data sets of three records (up to two for add-remove) and all their neighbours."""
        replaced = self.study.privacy.neighbours == "replace-one"
        sets = [
            s
            for n in ((MOST,) if replaced else range(MOST))
            for s in itertools.combinations_with_replacement(RECORDS, n)
        ]
        laws: dict[tuple[tuple[str, int], ...], list[np.ndarray]] = {}
        worst = 0.0
        for chosen in sets:
            for at in range(max(1, len(chosen))):
                rest = chosen[:at] + chosen[at + 1 :] if replaced else chosen
                for more in RECORDS:
                    other = tuple(sorted((*rest, more)))
                    one, two = (laws.setdefault(s, self.law(s)) for s in (chosen, other))
                    for sign in (1, -1):
                        worst = max(worst, sum(float((sign * (a - b)).max()) for a, b in zip(one, two)))
        return worst


@pytest.mark.parametrize("q", [0.5, 0.25])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_all_groups_together_cost_what_is_charged(neighbours: str, q: float) -> None:
    made = Grouped(neighbours, q)
    cost = float(made.choice.epsilon)
    assert cost <= 0.9  # a tenth buys the sizes of the groups
    assert made.choice.times == (1 if neighbours == "add-remove" else 2)
    assert float(made.plan.pure_epsilon) <= 1
    found = made.worst()
    assert found <= cost + 1e-12
    assert found > 0.4 * cost  # the search is not blind


def test_groups_under_replace_one_that_are_charged_once_are_seen() -> None:
    """The planted bug: each group has the whole of ε, as add-remove allows, and a record moves from one to another."""
    free = Grouped("add-remove", 0.5)
    claimed = Grouped("replace-one", 0.5)
    claimed.question = replace(claimed.question, each=free.question.each)
    assert claimed.worst() > float(claimed.choice.epsilon)


def test_a_record_that_counts_in_every_group_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: the map forgets the group."""
    made = Grouped("add-remove", 0.5)
    original = made.law

    def everywhere(records: tuple[tuple[str, int], ...]) -> list[np.ndarray]:
        return [original(tuple(sorted((g, v) for _, v in records)))[at] for at, g in enumerate(("a", "b"))]

    monkeypatch.setattr(made, "law", everywhere)
    assert made.worst() > float(made.choice.epsilon)


def test_a_person_with_records_in_several_groups() -> None:
    made = Grouped("replace-one", 0.5, unit="person", person="x", max_records=2, max_institutions=1)
    assert made.choice.times == 4
    one, both = made.law((("a", 6), ("a", 6), ("b", 7))), made.law((("a", 7), ("b", 7), ("b", 6)))  # two replaced
    worst = max(sum(float((s * (a - b)).max()) for a, b in zip(one, both)) for s in (1, -1))
    assert worst <= float(made.choice.epsilon)
