"""Sums of u·uᵀ: exact, bounded by construction, moved as far as the registry says, noised together on the triangle."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.claims import servers_claim

from tallystick.core.errors import BoundsError, DataError, PrivacyRefused
from tallystick.core.randomness import SystemSource
from tallystick.privacy.contribution import Dense, densify, total, total_by_person
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.grid import Grid, Group, outer_groups_for
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.outer_products import OuterProducts, matrix_of
from tallystick.privacy.sensitivity import outer_sensitivity
from tallystick.privacy.sum_plan import make_plan

RELATIONS = ("add-remove", "replace-one")
VALUES = (-7.0, -0.6, 0.0, 0.5, 1.0)
DOMAIN = [np.array(row) for row in itertools.product(VALUES, repeat=3)]


def grid_of(columns: int = 3, norm: Any = "l2", bits: int = 12, bound: float = 1.0) -> Grid:
    return Grid(groups=tuple(outer_groups_for("s", columns, bound)), fraction_bits=bits, norm=norm)


def products(rows: Any, grid: Grid) -> NDArray[np.int64]:
    return total(OuterProducts(rows=np.atleast_2d(np.array(rows, dtype=float))), grid)


def size(triangle: NDArray[np.int64], columns: int, norm: str) -> float:
    """‖D‖_F of the symmetric matrix; in L1 the sum over the triangle."""
    if norm == "l1":
        return float(np.abs(triangle).sum())
    return float(np.linalg.norm(matrix_of(triangle.astype(float), columns)))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_row_of_the_registry_by_brute_force(norm: str) -> None:
    grid = grid_of(norm=norm)
    bound = grid.integer_bounds[0]
    each = [products(row, grid) for row in DOMAIN]
    allowed = {r: outer_sensitivity(bound, r, l1=norm == "l1") for r in RELATIONS}  # type: ignore[arg-type]
    added = max(size(v, 3, norm) for v in each)
    moved = max(size(a - b, 3, norm) for a, b in itertools.combinations(each, 2))
    assert 0.95 * allowed["add-remove"] < added <= allowed["add-remove"]
    assert 0.95 * allowed["replace-one"] < moved <= allowed["replace-one"]


def test_the_spectral_norm_would_be_short_by_root_two() -> None:
    """Planted: the paper's Δ = 1 is the spectral norm of x xᵀ − y yᵀ; Gaussian noise needs the Frobenius norm."""
    grid = grid_of()
    moved = matrix_of((products([1, 0, 0], grid) - products([0, 1, 0], grid)).astype(float), 3)
    spectral, frobenius = np.linalg.norm(moved, 2), np.linalg.norm(moved)
    assert spectral <= grid.integer_bounds[0] < frobenius
    assert frobenius <= outer_sensitivity(grid.integer_bounds[0], "replace-one", l1=False)


def test_a_dense_vector_is_no_product_and_is_refused() -> None:
    """(−1, 0, …) is no x xᵀ: from 1 to −1 a sum would move by 2B, beyond √2·B. Only rows are taken."""
    grid = grid_of()
    with pytest.raises(BoundsError, match="is given vectors"):
        total(Dense(values=np.array([[-1.0, 0, 0, 0, 0, 0]])), grid)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(-4, 4), min_size=3, max_size=3), min_size=1, max_size=6))
def test_sums_are_those_of_exact_integers(rows: list[list[float]]) -> None:
    grid = grid_of(bits=24)
    expected = [0] * 6
    for row in rows:
        u = [round(x * 2**12) for x in row]
        if sum(x * x for x in u) > math.isqrt(grid.integer_bounds[0]) ** 2:
            return  # clipped rows have their own test
        pairs = [u[i] * u[j] for i in range(3) for j in range(i + 1, 3)]
        expected = [a + b for a, b in zip(expected, [*(x * x for x in u), *pairs])]
    assert products(rows, grid).tolist() == expected
    assert np.array_equal(np.ldexp(densify(OuterProducts(rows=np.array(rows)), grid).sum(axis=0), 24), expected)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e200, 1e200), min_size=3, max_size=3), st.sampled_from(["l1", "l2"]))
def test_no_row_exceeds_the_bound(row: list[float], norm: str) -> None:
    grid = grid_of(norm=norm)
    assert size(products(row, grid), 3, norm) <= grid.integer_bounds[0]


def test_blocks_and_orders_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    rows, grid = rng.normal(0, 0.3, (200, 7)), grid_of(7, bits=30)
    whole = products(rows, grid)
    assert np.array_equal(whole, products(rows[::-1], grid))
    assert np.array_equal(whole, sum(products(row, grid) for row in rows))


def test_a_persons_rows_are_shortened_together_and_stay_semidefinite() -> None:
    """tr S ≤ B bounds ‖S‖_F, also with far more records than max_records; and no other person's sum changes."""
    rng = np.random.default_rng(2)
    for norm in ("l2", "l1"):
        grid = grid_of(norm=norm, bits=20)
        rows, codes = rng.normal(0, 1, (60, 3)), np.repeat([0, 1, 2], [50, 9, 1])
        sums = [total_by_person(OuterProducts(rows=rows[codes == p]), grid, np.zeros(k, int)) for p, k in
                enumerate((50, 9, 1))]  # fmt: skip
        assert np.array_equal(sum(sums), total_by_person(OuterProducts(rows=rows), grid, codes))
        for one in sums:
            assert size(one, 3, norm) <= grid.integer_bounds[0]
            assert np.linalg.eigvalsh(matrix_of(one.astype(float), 3))[0] >= -1e-6 * grid.integer_bounds[0]


def test_other_groups_come_first() -> None:
    groups = (Group(name="n", size=2, bound=1.0, share=0.5), *outer_groups_for("s", 2, 1.0, share=0.5))
    grid = Grid(groups=groups, fraction_bits=10, norm="l2")
    got = total(OuterProducts(rows=np.array([[1.0, 0.0]]), others=np.array([[3.0, 4.0]])), grid)
    assert got.tolist() == [614, 819, 1024, 0, 0]
    people = total_by_person(OuterProducts(rows=np.eye(2), others=np.ones((2, 2))), grid, np.array([0, 0]))
    assert people[2] + people[3] <= 1024


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    for one in (lambda c: total(c, grid_of()), lambda c: total_by_person(c, grid_of(), np.zeros(1, int))):
        with pytest.raises(DataError):
            one(OuterProducts(rows=np.array([[0.0, bad, 0.0]])))


def test_what_does_not_fit_is_refused() -> None:
    d, b = outer_groups_for("s", 3, 1.0)
    for groups in (
        (b,),
        (b, d),
        (d, replace(b, size=4)),
        (d, replace(b, bound=2.0)),
        (d, Group(name="x", size=1, bound=1)),
    ):
        with pytest.raises(BoundsError):
            Grid(groups=groups, fraction_bits=12, norm="l2")
    with pytest.raises(BoundsError):
        grid_of(bits=13)
    with pytest.raises(BoundsError):
        Group(name="s", size=3, bound=1.0, outer="diagonal", nonnegative=True)
    for wrong in (OuterProducts(rows=np.ones((1, 4))), OuterProducts(rows=np.ones((1, 3)), others=np.ones((1, 1)))):
        with pytest.raises(BoundsError):
            total(wrong, grid_of())


# -- the noise ---------------------------------------------------------------------------------------------------------


def plan_of(columns: int = 3, *, equal: bool = False, servers: int = 2, **facts: Any) -> Any:
    claim = servers_claim(
        servers=servers, colluding=1, **{"epsilon": 1.0, "delta": 1e-6, "neighbours": "replace-one",
        "mechanism": "gaussian", "rounds": 1, "records": 99} | facts
    )  # fmt: skip
    return make_plan(claim, [outer_groups_for("s", columns, 1.0, equal=equal)])


def cost(plan: Any, honest: int = 1) -> float:
    """The largest ½ Σ D_j²/σ_j² over neighbours of a small domain: what the noise really costs, without any theorem."""
    r = plan.rounds[0]
    d = r.grid.outer_groups[0].size
    unit = np.eye(d)
    rows = [*unit, -unit[0], *([(unit[0] + unit[1]) / 2**0.5, (unit[0] - unit[1]) / 2**0.5] if d > 1 else [])]
    each = [products(row, r.grid).astype(float) for row in rows]
    variances = np.concatenate([np.full(n.group.size, float(n.parameter) * honest) for n in r.noise])
    pairs = itertools.combinations(each, 2) if plan.claim.neighbours == "replace-one" else [(v, 0 * v) for v in each]
    return max(float(((a - b) ** 2 / variances).sum()) / 2 for a, b in pairs)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize(("servers", "honest"), [(2, 1), (4, 3)])
@pytest.mark.parametrize("columns", [1, 2, 3, 5])
def test_the_charge_covers_what_the_noise_costs_and_is_tight(
    columns: int, servers: int, honest: int, neighbours: str
) -> None:
    plan = plan_of(columns, servers=servers, neighbours=neighbours)
    budget = float(gaussian_rho(1.0, 1e-6))
    assert cost(plan, honest) <= float(plan.rho) * (1 + 1e-12)
    assert float(plan.rho) <= budget
    if columns > 1 or neighbours == "add-remove":
        assert cost(plan, honest) > 0.999 * budget
    noise = plan.rounds[0].noise
    if columns > 1:
        assert float(noise[1].parameter) == pytest.approx(float(noise[0].parameter) / 2, rel=1e-6)


def test_equal_variances_are_private_too_and_cost_twice_the_noise_beside_the_diagonal() -> None:
    plan, ours = plan_of(equal=True), plan_of()
    assert cost(plan) <= float(plan.rho)
    assert plan.rounds[0].noise[0].parameter == plan.rounds[0].noise[1].parameter == ours.rounds[0].noise[0].parameter


def test_planted_equal_variance_read_as_the_calibrated_one() -> None:
    """Whoever takes s²/2 everywhere, because the matrix beside the diagonal has it, is short on the diagonal."""
    plan = plan_of()
    first = plan.rounds[0]
    low = first.noise[1].parameter
    wrong = replace(plan, rounds=(replace(first, noise=tuple(replace(n, parameter=low) for n in first.noise)),))
    assert cost(wrong) > 1.9 * float(plan.rho)


def test_planted_spectral_calibration_is_caught() -> None:
    plan = plan_of()
    first = plan.rounds[0]
    spectral = tuple(replace(n, parameter=n.parameter / 2) for n in first.noise)  # Δ = 1 instead of √2
    assert cost(replace(plan, rounds=(replace(first, noise=spectral),))) > 1.9 * float(plan.rho)


def test_a_person_multiplies() -> None:
    one, many = plan_of(), plan_of(unit="person", max_records=3, max_institutions=2)
    sizes = [p.rounds[0].noise[0].sensitivity / p.rounds[0].grid.scale for p in (one, many)]
    assert sizes[1] == pytest.approx(6 * sizes[0], rel=1e-6)


def test_what_is_drawn_has_the_variances_of_the_plan() -> None:
    r = plan_of(200).rounds[0]
    drawn = draw_noise(r, SystemSource()).astype(float)
    assert drawn[:200].var() == pytest.approx(r.noise[0].variance, rel=0.6)
    assert drawn[200:].var() == pytest.approx(r.noise[1].variance, rel=0.08)


def test_open_prices_are_refused_for_products() -> None:
    claim = servers_claim(epsilon=1.0, delta=1e-6, neighbours="replace-one", mechanism="gaussian", rounds=2, records=99)
    with pytest.raises(PrivacyRefused, match="prices can be left open"):
        make_plan(claim, [outer_groups_for("s", 2, 1.0)] * 2, least_price=5)


def test_laplace_has_one_scale_on_the_triangle() -> None:
    plan = plan_of(mechanism="laplace", delta=0.0)
    assert {n.parameter for n in plan.rounds[0].noise} == {plan.rounds[0].noise[0].parameter}
    grid, scale = plan.rounds[0].grid, plan.rounds[0].noise[0].parameter
    moved = max(
        int(np.abs(products(a, grid) - products(b, grid)).sum()) for a, b in itertools.combinations(DOMAIN[::3], 2)
    )
    assert 0.95 < Fraction(moved) / scale <= plan.pure_epsilon <= 1
