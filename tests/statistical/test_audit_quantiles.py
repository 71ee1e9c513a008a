"""The ε audit of quantiles: whole adaptive searches on neighbouring databases, as one honest server's noise hides them.

Seen is what the aggregator and the other server know together: every round's exact total with the honest server's noise
alone, drawn by the product from the plan at the price that the round's public state begins with. The next question is
asked after both servers' noise, as in a study.

Two checks. *Exact*: the privacy loss of every transcript, Σ over rounds ln P₁(y)/P₀(y), is at most ε for Laplace, and
the zCDP cost Σ‖μ₁ − μ₀‖²/(2s²) at most ρ for the Gaussian; tens of runs suffice, and planted bugs exceed it. It counts
on the noise having the law that the plan says, which the samplers' own audits test. *Statistical* (slow, marked
``audit``): a lower bound on ε from many runs, which counts on nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from audit_bounds import Outputs, find_bound
from audit_bugs import scaled_noise

from tallystick.algorithms.program import pack_state
from tallystick.algorithms.quantiles.program import QuantileProgram, Query
from tallystick.core.errors import PrivacyRefused
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.privacy.contribution import Sparse, total
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.open_budget import PARTS, Prices
from tallystick.study import Study

EPSILON, ALPHA, VALUES, RECORDS = 2.0, 1e-4, 8, 24
Make = Callable[[QuantileProgram], QuantileProgram]


@dataclass(frozen=True, kw_only=True)
class Case:
    mechanism: str
    neighbours: str
    by: bool = False
    q: tuple[float, ...] = (0.5,)

    def study(self) -> Study:
        columns = {"x": {"type": "integer", "lower": 0, "upper": VALUES - 1}}
        groups = {"g": {"type": "category", "values": ["a", "b", "c"]}} if self.by else {}
        return Study.from_dict(
            {
                "study": {"name": "audit", "program": "quantiles", "accept_noise": True},
                "program": {"q": list(self.q), "column": "x"} | ({"by": "g"} if self.by else {}),
                "privacy": {
                    "epsilon": EPSILON,
                    "delta": 0.0 if self.mechanism == "laplace" else 0.03,
                    "neighbours": self.neighbours,
                    "mechanism": self.mechanism,
                },
                "trust": {"servers": 2, "colluding": 1},
                "data": {"records": RECORDS, "columns": {**columns, **groups}},
            }
        )

    def databases(self) -> tuple[np.ndarray, np.ndarray]:
        """The last record is the largest of the last group, or another's smallest (add-remove: not there)."""
        rng = np.random.default_rng(7)
        index = rng.integers(0, VALUES, RECORDS - 1)
        group = np.eye(3)[np.arange(RECORDS - 1) % 3] if self.by else np.zeros((RECORDS - 1, 0))
        rest = np.column_stack([2 * index / (VALUES - 1) - 1, group])
        last = np.array([[1.0, *([0.0, 0.0, 1.0] if self.by else [])]])
        first = np.array([[-1.0, *([1.0, 0.0, 0.0] if self.by else [])]])
        return np.vstack([rest, first]) if self.neighbours == "replace-one" else rest, np.vstack([rest, last])


@dataclass(frozen=True, kw_only=True)
class Transcript:
    loss: float
    """ln P₁/P₀ of all that was seen (Laplace), under the noise that was drawn."""
    rho: float
    answer: float
    price: int
    low: int


@cache
def planned(case: Case) -> tuple[Any, Any, Any]:
    """The product's program, plan and public facts of the case."""
    study = case.study()
    design = design_of(study, layout_of(study), None)
    plan = plan_study(study, design, allow_not_private=False)
    return design.program, plan, public_facts(study, layout_of(study))


def search(
    case: Case,
    *,
    which: int,
    seed: int,
    program: Make | None = None,
    tamper: Callable[[Any], Any] | None = None,
    unfiltered: float | None = None,
    loose: bool = False,
) -> Transcript:
    """One whole search. ``unfiltered``: a server that draws every round's noise as if it had this price."""
    honest, plan, public = planned(case)
    used: Any = honest if program is None else program(honest)
    prepared = [used.prepare(rows, None) for rows in case.databases()]
    state, prices, loss, rho, low = used.init(public), Prices(), 0.0, 0.0, 0
    sources = [AesStream(derive(seed.to_bytes(32, "little"), bytes([which, s]))) for s in (1, 2)]
    for number in range(1, len(plan.rounds) + 1):
        query = used.query(state)
        at = plan.round_at(number, pack_state(query))
        prices = prices.admit(number, int(query.price))  # every server's own filter
        if unfiltered is not None:
            at = plan.open.priced(plan.rounds[0], int(unfiltered * PARTS))
        if tamper is not None:
            at = tamper(replace(plan, rounds=(at,))).rounds[0]
        grid = at.grid
        if loose:
            grid = replace(grid, groups=tuple(replace(g, bound=64 * g.bound) for g in grid.groups))
        sums = [total(used.map_block(p, query), grid) for p in prepared]
        drawn = [draw_noise(at, source) for source in sources]
        seen = sums[which] + drawn[0]
        parameter = float(at.noise[0].parameter)
        y, step = (seen - sums[0]).astype(float), (sums[1] - sums[0]).astype(float)
        if case.mechanism == "laplace":
            loss += float((np.abs(y) - np.abs(y - step)).sum() / parameter)
        else:
            loss += float((y * step - step**2 / 2).sum() / parameter)
            rho += float((step**2).sum() / (2 * parameter))
        low = int(seen[0] % 64)
        state = used.reduce_in_aggregator((seen + drawn[1]) / 2.0**grid.fraction_bits, state)
        if used.finished(state):
            break
    answer = float(honest.zooms(state)[-1].answer())
    return Transcript(loss=loss, rho=rho, answer=answer, price=sum(prices.by_round.values()), low=low)


def worst(case: Case, runs: int = 8, **how: Any) -> float:
    """The largest privacy loss of a transcript over what was claimed; at most 1 if the claim holds."""
    made = [search(case, which=w, seed=s, **how) for s in range(runs) for w in (0, 1)]
    assert all(t.price <= PARTS for t in made)
    if case.mechanism == "laplace":
        return max(abs(t.loss) for t in made) / EPSILON
    return max(t.rho for t in made) / float(planned(case)[1].rho)


CASES = {
    "laplace replace-one": Case(mechanism="laplace", neighbours="replace-one"),
    "laplace add-remove": Case(mechanism="laplace", neighbours="add-remove"),
    "laplace groups replace-one": Case(mechanism="laplace", neighbours="replace-one", by=True),
    "laplace groups add-remove": Case(mechanism="laplace", neighbours="add-remove", by=True),
    "laplace two quantiles": Case(mechanism="laplace", neighbours="replace-one", q=(0.2, 0.7)),
    "gaussian replace-one": Case(mechanism="gaussian", neighbours="replace-one"),
    "gaussian groups replace-one": Case(mechanism="gaussian", neighbours="replace-one", by=True),
    "gaussian add-remove": Case(mechanism="gaussian", neighbours="add-remove"),
}


@pytest.mark.parametrize("name", CASES)
def test_no_transcript_loses_more_than_is_claimed(name: str) -> None:
    ratio = worst(CASES[name])
    assert ratio <= 1 + 1e-9
    assert ratio > 0.3  # and much of what is paid is used


# -- planted bugs -----------------------------------------------------------------------------------------------------


def planted(kind: type[QuantileProgram]) -> Make:
    def make(honest: QuantileProgram) -> QuantileProgram:
        made = kind.__new__(kind)
        made.__dict__.update(honest.__dict__)
        return made

    return make


class AllPrefixes(QuantileProgram):
    """Tells every prefix, each as if it were the only one of sensitivity 1."""

    def map_block(self, prepared: Any, state: Query) -> Any:
        index = prepared[0][0]
        values = np.hstack([(index[:, None] < state.edges[0]) - 0.5, np.zeros((len(index), 1))])
        n, size = values.shape
        return Sparse(
            indptr=np.arange(n + 1) * size, indices=np.tile(np.arange(size), n), values=values.ravel(), size=size
        )


def test_planted_several_prefixes_at_the_price_of_one() -> None:
    case = CASES["laplace replace-one"]
    assert worst(case, program=planted(AllPrefixes), loose=True) > 1.5
    assert worst(case, program=planted(AllPrefixes)) <= 1 + 1e-9  # the platform cuts it to the bound


def test_planted_groups_under_replace_one_charged_once() -> None:
    """Half of the noise: the sensitivity of one group where a record may leave one and enter another."""
    assert worst(CASES["laplace groups replace-one"], tamper=scaled_noise(Fraction(1, 2))) > 1.3


def test_planted_a_price_that_is_not_charged() -> None:
    """A server that draws as if each round had half of the budget: together they cost more than the whole."""
    assert worst(CASES["laplace replace-one"], unfiltered=0.5) > 1.2


def test_planted_a_program_that_asks_beyond_the_reservation_is_refused() -> None:
    class Greedy(QuantileProgram):
        def query(self, state: Any) -> Query:
            return super().query(state)._replace(price=float(PARTS // 2))

        def finished(self, state: Any) -> bool:
            return False

    with pytest.raises(PrivacyRefused, match="more than is left"):
        search(CASES["laplace replace-one"], which=0, seed=1, program=planted(Greedy))


def questions(case: Case, program: Make | None, seed: int) -> list[bytes]:
    """The questions a coordinator asks if the same totals come out of either database."""
    study = case.study()
    design = design_of(study, layout_of(study), None)
    out = []
    for rows in case.databases():
        honest: Any = design_of(study, layout_of(study), None).program
        used: Any = honest if program is None else program(honest)
        used.prepare(rows, None)
        state = used.init(public_facts(study, layout_of(study)))
        rng, asked = np.random.default_rng(seed), b""
        for _ in range(3):
            asked += pack_state(used.query(state))
            state = used.reduce_in_aggregator(rng.normal(1, 1, sum(g.size for g in design.groups[0])), state)  # type: ignore[attr-defined]
        out.append(asked)
    return out


class Peeking(QuantileProgram):
    """Edges from figures that were never released: the mean of the records themselves."""

    peeked = 0.0

    def prepare(self, features: Any, target: Any) -> Any:
        made = super().prepare(features, target)
        self.peeked = float(made[0][0].mean())
        return made

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        after = super().reduce_in_aggregator(total, state)
        return after._replace(edges=np.sort(after.edges + self.peeked, axis=1))


def test_questions_depend_on_released_figures_alone_and_planted_peeking_is_caught() -> None:
    case = CASES["laplace replace-one"]
    zero, one = questions(case, None, 3)
    assert zero == one
    zero, one = questions(case, planted(Peeking), 3)
    assert zero != one


# -- the statistical audit --------------------------------------------------------------------------------------------


def bound(case: Case, runs: int, **how: Any) -> float:
    outputs = []
    for which in (0, 1):
        made = [search(case, which=which, seed=s, **how) for s in range(runs)]
        outputs.append(
            Outputs(
                statistics=np.array([[t.loss, t.answer] for t in made]),
                low=np.array([t.low for t in made]),
                off_grid=np.zeros(runs, dtype=bool),
            )
        )
    found = find_bound(*outputs, delta=0.0 if case.mechanism == "laplace" else 0.03, alpha=ALPHA)
    print(f"eps >= {found.epsilon:.3f} (claim {EPSILON:g}) by {found.event}, {found.hits} of {found.runs}")
    return found.epsilon


@pytest.mark.audit
@pytest.mark.parametrize("name", CASES)
def test_the_claim_is_not_refuted(name: str) -> None:
    found = bound(CASES[name], 2000)
    assert found < EPSILON
    assert found > 0.2


@pytest.mark.audit
@pytest.mark.parametrize("name", ["laplace replace-one", "laplace groups replace-one"])
def test_a_third_of_the_noise_is_caught(name: str) -> None:
    assert bound(CASES[name], 2000, tamper=scaled_noise(Fraction(1, 3))) > EPSILON


@pytest.mark.audit
def test_several_prefixes_at_the_price_of_one_are_caught() -> None:
    assert bound(CASES["laplace replace-one"], 2000, program=planted(AllPrefixes), loose=True) > EPSILON
