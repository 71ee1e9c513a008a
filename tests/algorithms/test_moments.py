"""Private standardisation: bounds that hold for every encodable record, and the researched formulas."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from block_runs import encodable, mixed, random_records
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.linear.moments import SMALLEST_SCALE, ColumnShapes, moment_vectors, standardise
from tallystick.algorithms.program import Public


def public_of(columns: list[tuple[str, int, int]]) -> Public:
    """From (kind, size, most ones) per declared column."""
    blocks, at = [], 0
    for i, (kind, size, ones) in enumerate(columns):
        blocks.append((f"c{i}", at, at + size, kind, ones))
        at += size
    return Public(features=tuple(f"f{i}" for i in range(at)), records=100, classes=("a", "b"), blocks=tuple(blocks))


kinds = st.one_of(
    st.tuples(st.just("onehot"), st.integers(1, 4), st.just(1)),
    st.tuples(st.just("items"), st.integers(1, 4), st.integers(1, 5)),
    st.tuples(st.just("number"), st.integers(1, 2), st.just(1)),
)
schemas = st.lists(kinds, min_size=1, max_size=3).map(public_of)


@given(schemas, st.booleans())
@settings(deadline=None, max_examples=80)
def test_no_encodable_record_exceeds_the_moment_bound_and_one_attains_it(public: Public, l1: bool) -> None:
    shapes = ColumnShapes.of(public, l1=l1)
    records = np.array(encodable(public, [-1.0, -0.71, -0.5, -0.1, 0.0, 0.3, 0.70710678, 0.9, 1.0]))
    vectors = moment_vectors(records, shapes)
    assert vectors.shape == (len(records), shapes.moment_size)
    norms = np.abs(vectors).sum(axis=1) if l1 else np.sqrt((vectors**2).sum(axis=1))
    assert norms.max() <= shapes.moment_bound * (1 + 1e-12)
    assert norms.max() >= shapes.moment_bound * (1 - 1e-12)


@given(schemas, st.booleans(), st.integers(0, 2**32), st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=80)
def test_the_longest_row_is_the_longest(public: Public, l1: bool, seed: int, intercept: float) -> None:
    shapes = ColumnShapes.of(public, l1=l1)
    rng = np.random.default_rng(seed)
    shift = rng.uniform(-1.5, 1.5, shapes.size)
    scale = np.ones(shapes.size)
    scale[list(shapes.numbers)] = rng.uniform(0.01, 1, len(shapes.numbers))
    records = np.array(encodable(public, [-1.0, -0.5, 0.0, 0.4, 1.0]))
    rows = np.hstack([np.full((len(records), 1), intercept), (records - shift) / scale])
    longest = float(np.sqrt((rows**2).sum(axis=1)).max())
    assert shapes.longest_row(shift, scale, intercept) == pytest.approx(longest, rel=1e-12)


def test_a_layout_without_blocks_is_all_numbers() -> None:
    shapes = ColumnShapes.of(Public(features=("a", "b")), l1=False)
    assert shapes.numbers == (0, 1)
    assert shapes.blocks == ()
    assert shapes.moment_bound == pytest.approx(math.sqrt(2.5))


def test_public_centres() -> None:
    shapes = ColumnShapes.of(mixed(records=9), l1=False)
    assert shapes.centre.tolist() == [1 / 3] * 3 + [0.0] * 4 + [0.5] + [0.0] * 3
    assert not dataclasses.replace(shapes, l1=True).centre.any()
    assert shapes.marks == ((9, 10),)
    assert shapes.spread.tolist() == pytest.approx([2 / 3, 2.0, 0.25])


def researched(
    mean: np.ndarray, noise: float, sizes: list[int], q: int, l1: bool
) -> tuple[np.ndarray, np.ndarray, float]:
    """The rule as it was measured (docs/decisions/0002): one-hot blocks, then numbers. (shift, scale, trace)."""
    dc = sum(sizes)
    d = dc + q
    centre = np.concatenate([*(np.full(k, 1 / k) for k in sizes), np.zeros(q)])
    whole = sum(1 - 1 / k for k in sizes)
    raw = mean[:d].copy()
    if l1:
        raw[:dc] -= centre[:dc]
    mu = np.clip(raw * np.maximum(0, 1 - noise**2 / np.maximum(raw**2, 1e-300)), -1, 1)
    mc, mn = mu[:dc], mu[dc:]
    trace = whole - 2 * raw[:dc] @ mc + mc @ mc + 2 * noise * np.linalg.norm(mc)
    trace = float(np.clip(trace, 0.1 * whole, whole))
    sd = np.ones(d)
    if q:
        var = mean[d:] + 0.5 - 2 * raw[dc:] * mn + mn**2
        e = noise * np.sqrt(1 + 4 * mn**2)
        s2 = np.minimum(1 / 3, np.maximum(var, 0) + e)
        sd[dc:] = np.sqrt(s2)
        trace += float(np.clip((var / s2).sum() + np.linalg.norm(e / s2), 0.1 * q, q))
    return mu + centre, sd, trace


@given(
    st.lists(st.integers(2, 5), max_size=3),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 2**32),
    st.sampled_from([1e-4, 0.01, 0.1, 0.5, 3.0]),
)
@settings(deadline=None, max_examples=150)
def test_standardise_is_the_researched_rule(sizes: list[int], q: int, l1: bool, seed: int, noise: float) -> None:
    if not sizes and not q:
        q = 1
    public = public_of([*(("onehot", k, 1) for k in sizes), *([("number", 1, 1)] * q)])
    shapes = ColumnShapes.of(public, l1=l1)
    rng = np.random.default_rng(seed)
    records, _ = random_records(public, 50, rng)
    mean = moment_vectors(records, shapes).mean(axis=0) + rng.normal(0, noise, shapes.moment_size)
    found = standardise(mean, noise, shapes)
    shift, scale, trace = researched(mean, noise, sizes, q, l1)
    np.testing.assert_allclose(found.shift, shift, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.scale, scale, rtol=1e-12)
    assert found.trace == pytest.approx(trace, rel=1e-12)


@pytest.mark.parametrize("l1", [False, True])
def test_without_noise_it_is_the_standardisation_of_the_data(l1: bool) -> None:
    """Also with marks, items and lone indicators: the trace is then the mean squared row."""
    public = mixed(records=400)
    shapes = ColumnShapes.of(public, l1=l1)
    records, _ = random_records(public, 400, np.random.default_rng(0))
    records[:, :3] = np.eye(3)[np.arange(400) % 3]  # no unknown color: the rule counts one 1 per record there
    records[:, 8] *= 0.3
    records[:, 9] *= 0.5
    found = standardise(moment_vectors(records, shapes).mean(axis=0), 0.0, shapes)
    np.testing.assert_allclose(found.shift, records.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.scale[[8, 9]], records[:, [8, 9]].std(axis=0), rtol=1e-9)
    assert set(np.delete(found.scale, [8, 9])) == {1.0}
    rows = (records - found.shift) / found.scale
    assert found.trace == pytest.approx(float((rows**2).sum(axis=1).mean()), rel=1e-9)


@pytest.mark.parametrize("l1", [False, True])
def test_without_an_intercept_nothing_is_shifted(l1: bool) -> None:
    public = mixed(records=400)
    shapes = ColumnShapes.of(public, l1=l1)
    records, _ = random_records(public, 400, np.random.default_rng(0))
    records[:, :3] = np.eye(3)[np.arange(400) % 3]
    records[:, 7] = 1.0
    found = standardise(moment_vectors(records, shapes).mean(axis=0), 0.0, shapes, centred=False)
    np.testing.assert_allclose(found.shift, 0.0, atol=1e-15)
    np.testing.assert_allclose(found.scale[8], math.sqrt((records[:, 8] ** 2).mean()), rtol=1e-9)
    assert found.trace == pytest.approx(float(((records / found.scale) ** 2).sum(axis=1).mean()), rel=1e-9)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-6, 1.0, 1e6]), st.booleans(), st.booleans(), schemas)
@settings(deadline=None, max_examples=100)
def test_any_release_gives_usable_numbers(seed: int, noise: float, l1: bool, centred: bool, public: Public) -> None:
    """However wild the noise: shifts near the box, scales in [2^-12, 1], a positive trace."""
    shapes = ColumnShapes.of(public, l1=l1)
    rng = np.random.default_rng(seed)
    found = standardise(rng.normal(0, 1 + noise, shapes.moment_size), noise, shapes, centred=centred)
    assert np.abs(found.shift).max() <= 1.5
    assert (found.scale >= SMALLEST_SCALE).all()
    assert (found.scale <= 1).all()
    most = len(shapes.numbers) + len(shapes.marks) + sum(ones for *_, ones in shapes.blocks)
    assert 0 < found.trace <= most
