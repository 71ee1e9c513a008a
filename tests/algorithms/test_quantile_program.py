"""The sum program of quantiles: one record in, one bounded vector out, whatever the block; prices within the budget."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.quantile_runs import Case, budget_of, exact_total, program_for
from row_independence import RowsDependError, check_row_independence
from tests.claims import servers_claim

import tallystick as ts
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.program import Public, pack_state, unpack_state
from tallystick.algorithms.quantiles.design import design_quantiles
from tallystick.algorithms.quantiles.grid import value_grid
from tallystick.algorithms.quantiles.program import QuantileProgram, Query, first_edges
from tallystick.algorithms.quantiles.schedule import LEAST_PRICE, MOST_ROUNDS
from tallystick.algorithms.quantiles.settings import QuantileSettings
from tallystick.core.errors import BoundsError
from tallystick.data.encoding import encode
from tallystick.privacy.contribution import Sparse, densify, total
from tallystick.privacy.open_budget import PARTS
from tallystick.privacy.round_plan import RoundPlan

MECHANISMS = ("laplace", "gaussian")
RELATIONS = ("replace-one", "add-remove")


def public(values: int = 6, *, records: int | None = 40, groups: int = 2) -> Public:
    """Two integer columns, one of which may be missing, and a category."""
    half = (values - 1) / 2
    return Public(
        features=("x", "y", "y=?", *(f"g={k}" for k in range(groups))),
        records=records,
        units=(
            ("number", half, half, 0.0),
            ("number", half, half, 0.0),
            ("missing", 0.0, 1.0, 0.0),
            *((("category", 0.0, 1.0, 0.0),) * groups),
        ),
        blocks=(("x", 0, 1, "number", 1), ("y", 1, 3, "number", 1), ("g", 3, 3 + groups, "onehot", 1)),
        integers=(("x", 0, 1, values), ("y", 0, 1, values)),
    )


def all_records(values: int, groups: int = 2) -> np.ndarray:
    """Every record there can be: each value, a missing one, each group and none."""
    levels = np.linspace(-1, 1, values)
    second = [(v, 0.0) for v in levels] + [(0.0, 1.0)]
    category = [tuple(float(k == g) for k in range(groups)) for g in range(-1, groups)]
    return np.array([(x, *y, *g) for x, y, g in itertools.product(levels, second, category)])


def designed(budget: PublicBudget, *, facts: Public | None = None, **settings: Any) -> SumDesign:
    return design_quantiles(facts or public(), budget, QuantileSettings(**{"column": ("x",), **settings}))


def queries(program: QuantileProgram, facts: Public, rng: np.random.Generator, rounds: int = 4) -> list[Query]:
    """Questions of a search on made-up totals, probes among them."""
    state, out = program.init(facts), []
    for _ in range(rounds):
        out.append(program.query(state))
        state = program.reduce_in_aggregator(rng.normal(20, 5, len(program.series) * (program.edges + 1)), state)
    probe = out[-1]._replace(probe=1.0, edges=np.sort(rng.integers(1, 6, out[-1].edges.shape), axis=1).astype(float))
    return [*out, probe]


def priced(design: SumDesign, budget: PublicBudget, query: Query) -> RoundPlan:
    claim = servers_claim(
        epsilon=budget.epsilon,
        delta=0.0 if budget.mechanism == "laplace" else 1e-6,
        neighbours=budget.neighbours,
        mechanism=budget.mechanism,
        rounds=design.rounds,
        records=40,
    )
    return design.plan(claim).round_at(1, pack_state(query))


# -- one record, one vector -------------------------------------------------------------------------------------------

SETTINGS = [
    {"column": ("x",)},
    {"column": ("x", "y"), "q": (0.1, 0.5)},
    {"column": ("x", "y"), "by": "g"},
    {"column": ("y",), "by": "g", "q": (0.0, 0.3, 1.0)},
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_blocks_singletons_and_permutations_give_equal_bits(mechanism: str, settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    budget = budget_of(1.0, mechanism=mechanism)
    design = designed(budget, **settings)
    rows = rng.permutation(all_records(6))[:80]
    rounds = [(q, priced(design, budget, q).grid) for q in queries(design.program, public(), rng)]
    check_row_independence(design.program, rows, None, rounds)


def test_a_planted_block_bug_is_caught() -> None:
    """Cells cut at quantiles of the block itself: each record's vector then depends on the others."""

    class Leaky(QuantileProgram):
        def map_block(self, prepared: Any, state: Query) -> Any:
            index = prepared[0][0]
            moved = np.sort(state.edges + (index.mean() > 2), axis=1)
            return super().map_block(prepared, state._replace(edges=moved))

    rng = np.random.default_rng(3)
    budget = budget_of(1.0)
    design = designed(budget)
    honest = design.program
    leaky = Leaky.__new__(Leaky)
    leaky.__dict__.update(honest.__dict__)
    rounds = [(q, priced(design, budget, q).grid) for q in queries(honest, public(), rng)]
    with pytest.raises(RowsDependError):
        check_row_independence(leaky, rng.permutation(all_records(6))[:80], None, rounds)


def test_missing_values_and_records_of_no_group_add_nothing() -> None:
    budget = budget_of(1.0)
    program: Any = designed(budget, column=("y",), by="g").program
    rows = np.array([[0.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0, 1.0]])
    query = program.query(program.init(public()))
    made = densify(program.map_block(program.prepare(rows, None), query), None)  # type: ignore[arg-type]
    assert np.abs(made).sum(axis=1).tolist() == [0.0, 0.0, 0.5]


def test_the_state_survives_its_bytes() -> None:
    program: Any = designed(budget_of(1.0), column=("x", "y"), q=(0.2, 0.9)).program
    state = program.init(public())
    state = program.reduce_in_aggregator(np.arange(float(len(program.series) * (program.edges + 1))), state)
    again = unpack_state(pack_state(state), program.init(public()))
    assert pack_state(again) == pack_state(state)
    assert pack_state(program.query(state))[:8] == np.float64(state.price).tobytes()  # the price is the first number


def test_sums_read_off_sorted_data_are_the_programs_own() -> None:
    """What benchmarks and accuracy tests use instead of mapping every record."""
    rng = np.random.default_rng(2)
    for mechanism, relation in itertools.product(MECHANISMS, RELATIONS):
        case = Case(name="", data=np.sort(rng.integers(0, 1000, 300)), size=1000)
        budget = budget_of(1.0, mechanism=mechanism, neighbours=relation)
        program = program_for(case, (0.3,), budget)
        encoded = (case.data[:, None] - 499.5) / 499.5
        prepared = program.prepare(encoded, None)
        edges = np.array([[*np.sort(rng.integers(1, 1000, 10)), *([1000] * (program.edges - 10))]], dtype=float)
        for probe in (0.0, 1.0):
            query = Query(price=PARTS / 2, probe=probe, edges=edges)
            summed = densify(program.map_block(prepared, query), None).sum(axis=0)  # type: ignore[arg-type]
            assert summed == pytest.approx(exact_total(program, case.data, query), abs=1e-9)


# -- sensitivity ------------------------------------------------------------------------------------------------------


def moved_most(design: SumDesign, budget: PublicBudget, query: Query, rows: np.ndarray, relation: str) -> list[float]:
    """By brute force: how far one record can move each column's part of the total, in the mechanism's norm."""
    program: Any = design.program
    grid = priced(design, budget, query).grid
    prepared = [program.prepare(rows[i : i + 1], None) for i in range(len(rows))]
    vectors = np.array([total(program.map_block(p, query), grid) for p in prepared])
    l1 = budget.mechanism == "laplace"
    out, start = [], 0
    for group in grid.groups:
        part = vectors[:, start : start + group.size].astype(float)
        start += group.size
        distinct = np.unique(part, axis=0)
        others = np.zeros((1, group.size)) if relation == "add-remove" else np.vstack([distinct, np.zeros(group.size)])
        gaps = distinct[:, None, :] - others[None, :, :]
        out.append(float((np.abs(gaps).sum(axis=2) if l1 else np.sqrt((gaps**2).sum(axis=2))).max()))
    return out


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_no_record_moves_a_total_by_more_than_is_charged(
    settings: dict[str, Any], mechanism: str, relation: str
) -> None:
    budget = budget_of(1.0, mechanism=mechanism, neighbours=relation)
    design = designed(budget, **settings)
    rng = np.random.default_rng(1)
    rows = all_records(6)
    reached = 0.0
    for query in queries(design.program, public(), rng):
        noise = priced(design, budget, query).noise
        for most, charged in zip(moved_most(design, budget, query, rows, relation), noise):
            assert most <= charged.sensitivity
            reached = max(reached, most / charged.sensitivity)
    assert reached > 0.999  # and nothing is charged that nobody can move


def test_in_records_a_cell_costs_two_and_a_lone_prefix_one() -> None:
    """Replace-one, Laplace: the noise of a count is that of sensitivity 2, of a lone prefix that of sensitivity 1."""
    budget = budget_of(1.0)
    design = designed(budget)
    program: Any = design.program
    query = Query(price=float(PARTS), probe=0.0, edges=program.init(public()).edges)
    noise = priced(design, budget, query).noise[0]
    scale = float(noise.parameter) / 2**20  # in grid units; one server's
    assert scale / 0.5 == pytest.approx(2.0, rel=1e-6)  # a record adds ½ to its cell
    assert scale / 1.0 == pytest.approx(1.0, rel=1e-6)  # and moves a prefix from −½ to ½
    assert program.schedule.noise.std(PARTS) == pytest.approx(2 * np.sqrt(4), rel=1e-3)  # two servers, √2·b each


class PrefixesAsOne(QuantileProgram):
    """A planted bug: all prefixes at once, as if several were one of sensitivity 1."""

    def map_block(self, prepared: Any, state: Query) -> Any:
        index = prepared[0][0]
        below = (index[:, None] < state.edges[0][None, :]) - 0.5
        values = np.hstack([below, np.zeros((len(index), 1))])
        n, size = values.shape
        return Sparse(
            indptr=np.arange(n + 1) * size, indices=np.tile(np.arange(size), n), values=values.ravel(), size=size
        )


def test_planted_several_prefixes_at_the_price_of_one_are_cut_to_the_bound() -> None:
    """The platform bounds, not the author: a program that tells all prefixes costs accuracy, never privacy; and the
    brute force sees the lie where nothing is cut."""
    budget = budget_of(1.0)
    design = designed(budget)
    lying = PrefixesAsOne.__new__(PrefixesAsOne)
    lying.__dict__.update(design.program.__dict__)
    query = Query(price=float(PARTS), probe=0.0, edges=design.program.init(public()).edges)
    charged = priced(design, budget, query).noise[0].sensitivity
    bounded = moved_most(replace(design, program=lying), budget, query, all_records(6), "replace-one")
    assert bounded[0] <= charged
    loose = replace(design, program=lying, groups=((replace(design.groups[0][0], bound=20.0),),) * MOST_ROUNDS)
    assert moved_most(loose, budget, query, all_records(6), "replace-one")[0] > charged


def test_groups_under_replace_one_are_charged_twice_and_planted_once_is_seen() -> None:
    """A record may leave one group for another: ½ + ½. Charged once (½) the brute force refutes it."""
    facts = {"column": ("x",), "by": "g"}
    replaced, added = (designed(budget_of(1.0, neighbours=r), **facts) for r in RELATIONS)
    query = queries(replaced.program, public(), np.random.default_rng(1))[0]
    charged = [priced(d, budget_of(1.0, neighbours=r), query).noise[0] for d, r in zip((replaced, added), RELATIONS)]
    assert charged[0].sensitivity == 2 * charged[1].sensitivity
    most = moved_most(replaced, budget_of(1.0), query, all_records(6), "replace-one")[0]
    assert most == charged[0].sensitivity
    assert most > charged[1].sensitivity  # what "once" would charge


# -- prices and edges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_prices_stay_within_the_reservation_whatever_comes_out(mechanism: str, settings: dict[str, Any]) -> None:
    """Totals that are pure noise, of all sizes: the sum of prices never exceeds the whole, nor the rounds 15."""
    for seed, epsilon in itertools.product(range(6), (0.01, 1.0, 50.0)):
        rng = np.random.default_rng(seed)
        facts = public(10**6 if seed % 2 else 6)
        design = designed(budget_of(epsilon, mechanism=mechanism), facts=facts, **settings)
        program: Any = design.program
        state, spent = program.init(facts), 0
        while not state.done:
            assert LEAST_PRICE <= state.price <= PARTS
            assert state.price == int(state.price)
            spent += int(state.price)
            edges = program.query(state).edges
            assert (edges == np.rint(edges)).all()
            assert (np.diff(edges, axis=1) >= 0).all()
            totals = rng.normal(0, 10.0 ** rng.integers(0, 6), len(program.series) * (program.edges + 1))
            state = program.reduce_in_aggregator(totals, state)
        assert spent <= PARTS
        assert state.rounds <= MOST_ROUNDS


def test_the_next_question_depends_on_released_figures_alone() -> None:
    """Two programs of one study, one that has seen records and one that has not, ask the same."""
    budget, rng = budget_of(1.0), np.random.default_rng(5)
    one, other = (designed(budget).program for _ in range(2))
    one.prepare(all_records(6), None)  # type: ignore[attr-defined]
    state_one, state_other = one.init(public()), other.init(public())
    for _ in range(4):
        totals = rng.normal(10, 3, one.edges + 1)  # type: ignore[attr-defined]
        one.map_block(one.prepare(all_records(6), None), one.query(state_one))  # type: ignore[attr-defined]
        state_one = one.reduce_in_aggregator(totals, state_one)
        state_other = other.reduce_in_aggregator(totals, state_other)
        assert pack_state(state_one) == pack_state(state_other)
    fresh: Any = designed(budget).program  # an estimator that has the last state alone
    known: Sequence[Any] = fresh.zooms(state_one)
    assert known[0].ranks.mean.tolist() == one.zooms(state_one)[0].ranks.mean.tolist()  # type: ignore[attr-defined]


def test_the_first_edges_are_public_and_moved_by_the_study() -> None:
    assert first_edges(5, 123).tolist() == [1, 2, 3, 4]
    a, b = first_edges(10**9, 1), first_edges(10**9, 2**31)
    assert len(a) in (15, 16)
    assert (a != b[: len(a)]).any()
    for edges in (a, b):
        assert edges.min() > 0
        assert edges.max() < 10**9
        assert np.diff(edges).min() > 10**9 // 17


# -- the grid of values -----------------------------------------------------------------------------------------------


def test_every_value_of_a_large_integer_column_is_found_again() -> None:
    for lower, step, size in ((0, 1, 10**9), (-(2**40), 2, 2**39), (5, 1000, 2**45), (-3, 7, 2)):
        half = step * (size - 1) / 2
        facts = replace(public(), units=(("number", lower + half, half, 0.0), *public().units[1:]))
        grid = value_grid(replace(facts, integers=(("x", lower, step, size),)), "x")
        index = np.unique([0, 1, size // 3, size // 2, size - 2, size - 1])
        values = np.array([grid.value(int(i)) for i in index], dtype=float)
        encoded = (values - grid.centre) / grid.scale
        assert grid.indices(encoded).tolist() == index.tolist()


@pytest.mark.parametrize(("low", "high"), [(17.0, 90.0), (-1e-3, 1e-3), (0.0, 1e12), (-5.0, 1e6)])
def test_a_numbers_grid_is_a_hundred_million_to_a_billion_steps_and_keeps_plain_values(low: float, high: float) -> None:
    facts = replace(public(), units=(("number", (low + high) / 2, (high - low) / 2, 0.0), *public().units[1:]))
    grid = value_grid(replace(facts, integers=()), "x")
    assert 10**8 <= grid.size <= 10**9 + 1
    for value in (low, high, low + (high - low) / 4):
        encoded = np.array([(value - grid.centre) / grid.scale])
        assert grid.value(int(grid.indices(encoded)[0])) == pytest.approx(value, abs=(high - low) * 1e-8)
    if (low, high) == (17.0, 90.0):
        assert grid.value(int(grid.indices(np.array([(47.25 - grid.centre) / grid.scale]))[0])) == 47.25


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [(2**53 - 101, 2**53, 1), (-(2**53), -(2**53) + 77, 1), (10**15 + 1, 10**15 + 10**9, 7), (-(2**44), 2**44 - 1, 1)],
)
def test_integers_near_the_end_of_exact_float64s_keep_their_places(low: int, high: int, step: int) -> None:
    """A centre half-way between two integers is no float64 there: places must not hang on it."""
    column = ts.Integer(low, high, step=step)
    size, shape = column.last_step + 1, column.shape("x")
    units = (("number", shape.centre, shape.scale, 0.0), *public().units[1:])
    facts = replace(public(), units=units, integers=(("x", low, step, size),))
    places = np.unique(np.concatenate([np.arange(100), size - 1 - np.arange(100), np.linspace(0, size - 1, 500)]))
    places = places[(places >= 0) & (places < size)].astype(np.int64)
    grid = value_grid(facts, "x")
    values = np.array([low + int(k) * step for k in places])
    records = encode({"x": values}, ts.Schema({"x": column}))
    assert grid.indices(records.features[:, 0]).tolist() == places.tolist()
    assert [grid.value(int(k)) for k in places] == values.tolist()


def test_a_very_fine_number_keeps_its_digits() -> None:
    facts = replace(public(), units=(("number", 5e-301, 5e-301, 0.0), *public().units[1:]), integers=())
    grid = value_grid(facts, "x")
    assert grid.value(int(grid.indices(np.array([0.06]))[0])) == pytest.approx(5.3e-301, rel=1e-6, abs=0)


def test_a_logarithmic_column_has_a_grid_on_its_own_scale() -> None:
    half = np.log1p(1e6) / 2
    facts = replace(public(), units=(("log", half, half, 0.0), *public().units[1:]), integers=())
    grid = value_grid(facts, "x")
    encoded = np.array([(np.log1p(1234.0) - half) / half])
    assert grid.value(int(grid.indices(encoded)[0])) == pytest.approx(1234.0, rel=1e-7)


@pytest.mark.parametrize("size", [0, 1, 2**45 + 1])
def test_a_domain_of_no_or_one_value_or_too_many_is_refused(size: int) -> None:
    with pytest.raises(BoundsError, match="possible values"):
        value_grid(replace(public(), integers=(("x", 0, 1, size),)), "x")
