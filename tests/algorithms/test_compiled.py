"""Compiled maps: row-independent to the bit, exact against a plain-Python oracle, refusing what could break either."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.algorithms.program import Program
from tallystick.algorithms.user_programs.compiled import CompiledMap, frozen_state
from tallystick.algorithms.user_programs.map_compiler.kernel import FAILED, NOT_FINITE
from tallystick.algorithms.user_programs.program_file import (
    compile_live_program,
    compile_program,
    load_program,
    read_program,
)
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Dense
from tallystick.privacy.contribution import total as exact_total
from tallystick.privacy.grid import Grid, Group

TEMPLATE = """import math
from typing import NamedTuple
import numpy as np
import tallystick as ts

class S(NamedTuple):
    weights: np.ndarray
    bias: float

class P(ts.Program):
    bound = 1.0
    K = 3
    EDGES = (0.0, 0.5, 2.0)
    def init(self, public):
        return S(weights=np.ones(3), bias=0.5)
    def map_in_client(self, record, state):
{body}
    def reduce_in_aggregator(self, total, state):
        return state
"""
FIRST_LINE = TEMPLATE[: TEMPLATE.index("{body}")].count("\n") + 1


class State(NamedTuple):
    weights: np.ndarray
    bias: float


STATE = State(weights=np.array([0.3, -1.7, 0.9]), bias=0.25)
GRID = Grid(
    groups=(Group(name="a", size=2, bound=1.5), Group(name="b", size=3, bound=0.7)), fraction_bits=20, norm="l2"
)

RICH = """score = record @ state.weights + state.bias
p = 1.0 / (1.0 + math.exp(-score))
out = np.zeros(2 + self.K)
out[0] = p * (1.0 - p)
out[1] = np.log1p(abs(score)) - np.sum(np.exp(-record * record))
for i in range(len(self.EDGES)):
    if record[0] > self.EDGES[i]:
        out[2 + i] += p * record[i % 3]
x = np.tanh(record)
x *= np.dot(record, record)
out[2:] += x
return out"""


def file_of(body: str):
    return read_program(TEMPLATE.format(body="".join(f"        {line}\n" for line in body.split("\n"))))


def map_of(body: str):
    return compile_program(file_of(body))


def a_grid(size: int) -> Grid:
    return Grid(groups=(Group(name="all", size=size, bound=2.0),), fraction_bits=20, norm="l2")


def total_of(run: CompiledMap, records: np.ndarray, state: object, grid: Grid) -> np.ndarray:
    """The sum over records of which none fails."""
    whole, left_out = run.total_leaving_out(records, state, grid)
    assert left_out == 0
    return whole


def vectors_of(run: CompiledMap, records: np.ndarray, state: object, size: int) -> np.ndarray:
    """The vectors of records of which none fails."""
    vectors, left_out = run.vectors_leaving_out(records, state, size)
    assert left_out == 0
    return vectors


def check_row_independence(total, records: np.ndarray) -> bool:
    """Whole block, singletons, two blocks and reversed order give the same integers."""
    whole = total(records)
    singles = sum((total(records[i : i + 1]) for i in range(len(records))), np.zeros_like(whole))
    halves = total(records[: len(records) // 2]) + total(records[len(records) // 2 :])
    return all(np.array_equal(whole, other) for other in (singles, halves, total(records[::-1])))


matrices = st.lists(
    st.lists(st.floats(-8, 8, allow_subnormal=True), min_size=3, max_size=3), min_size=0, max_size=17
).map(lambda rows: np.array(rows, dtype=np.float64).reshape(-1, 3))


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_blocks_singletons_and_permutations_give_equal_bits(records):
    run = map_of(RICH)
    assert check_row_independence(lambda block: total_of(run, block, STATE, GRID), records)


def test_a_planted_block_mean_is_caught():
    run = map_of(RICH)
    records = np.linspace(-2, 2, 24).reshape(8, 3)
    planted = lambda block: total_of(run, block - block.mean(axis=0), STATE, GRID)  # noqa: E731
    assert not check_row_independence(planted, records)


@settings(deadline=None, max_examples=40)
@given(matrices)
def test_the_kernel_equals_plain_python(records):
    """Oracle: the user's method as Python runs it, then the exact total of its dense vectors. Libm may differ by an ulp
    between the interpreter and LLVM, so vectors are compared closely and the sums of OUR vectors exactly."""
    file = file_of(RICH)
    run, program = compile_program(file), load_program(file)
    ours = vectors_of(run, records, STATE, GRID.size)
    for row, vector in zip(records, ours):
        np.testing.assert_allclose(vector, program.map_in_client(row, STATE), rtol=1e-13, atol=1e-13)
    assert np.array_equal(total_of(run, records, STATE, GRID), exact_total(Dense(values=ours), GRID))


def test_exact_arithmetic_equals_plain_python_to_the_bit():
    file = file_of("return np.array([record[0] * 0.1 + 0.2, record[1] / 3.0, record @ state.weights])")
    records = np.random.default_rng(1).normal(size=(50, 3))
    dot = [((r[0] * 0.3 + r[1] * -1.7) + r[2] * 0.9) for r in records]  # in index order, never through BLAS
    expected = np.array([[r[0] * 0.1 + 0.2, r[1] / 3.0, d] for r, d in zip(records, dot)])
    assert np.array_equal(vectors_of(compile_program(file), records, STATE, 3), expected)


def test_each_record_is_clipped_whatever_the_author_returns():
    run = map_of("return np.full(5, 1e300) * record[0]")
    one = total_of(run, np.array([[1.0, 0, 0]]), STATE, GRID)
    bounds = GRID.integer_bounds
    assert math.isqrt(int((one[:2].astype(object) ** 2).sum())) <= bounds[0]
    assert math.isqrt(int((one[2:].astype(object) ** 2).sum())) <= bounds[1]
    assert np.array_equal(total_of(run, np.ones((7, 3)), STATE, GRID), 7 * one)


def test_no_records_and_awkward_layouts():
    run = map_of("return record")
    assert np.array_equal(total_of(run, np.zeros((0, 3)), STATE, a_grid(3)), np.zeros(3))
    wide = np.arange(24.0).reshape(4, 6) / 50
    expected = total_of(run, np.ascontiguousarray(wide[:, ::2]), STATE, a_grid(3))
    assert np.array_equal(total_of(run, wide[:, ::2], STATE, a_grid(3)), expected)
    assert wide.flags.writeable
    with pytest.raises(StudyError, match="matrix"):
        total_of(run, np.zeros(3), STATE, a_grid(3))


# One program with many faults, chosen by state.bias.
FAULTS = {
    "computed index": ("np.array([record[int(record[1]) + 100]])", FAILED),
    "computed index below": ("np.array([record[int(record[1]) - 100]])", FAILED),
    "beside the state": ("np.array([state.weights[int(record[1])]])", FAILED),
    "beside a matrix": ("np.array([np.outer(record, record)[0, int(record[1])]])", FAILED),
    "beside a constant": ("np.array([self.EDGES[int(record[1])]])", FAILED),
    "beside by an index array": ("record[np.searchsorted(record, record * 0.0 + 9.0)][:1]", FAILED),
    "division by zero": ("np.array([1.0 / record[0]])", FAILED),
    "whole division by zero": ("np.array([7 // int(record[0])]) * 1.0", FAILED),
    "int of a huge number": ("np.array([1.0 * int(1e300 * record[1])])", FAILED),
    "int of a NaN": ("np.array([1.0 * int(np.log(-record[1]))])", FAILED),
    "logarithm of zero": ("np.array([np.log(record[0])])", NOT_FINITE),
    "overflow": ("np.array([np.exp(1e3 * record[1])])", NOT_FINITE),
    "infinity less infinity": ("np.array([np.exp(1e3 * record[1]) - np.exp(1e3 * record[1])])", NOT_FINITE),
}
FAULTY = (
    "".join(f"if state.bias == {i}:\n    return {f}\n" for i, (f, _) in enumerate(FAULTS.values()))
    + "return record[:1]"
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_record_is_left_out(fault):
    """Without a check the first of these would read beyond the record."""
    run = map_of(FAULTY)
    state = STATE._replace(bias=list(FAULTS).index(fault))
    records = np.array([[9.0, 9.0, 9.0], [0.0, 7.25, 1.0], [9.0, 9.0, 9.0]])[1:2]
    vectors, codes = run.kernel(3, state).rows(records, frozen_state(state)[1])
    assert (vectors.tolist(), codes.tolist()) == ([[0.0]], [FAULTS[fault][1]])
    totals, left_out = run.total_leaving_out(records, state, a_grid(1))
    assert (totals.tolist(), left_out) == ([0], 1)


def test_a_record_left_out_changes_nothing_for_the_others():
    run = map_of(FAULTY)
    state = STATE._replace(bias=list(FAULTS).index("division by zero"))
    records = np.array([[1.0, 0, 0], [0.0, 0, 0], [4.0, 0, 0]])
    totals, left_out = run.total_leaving_out(records, state, a_grid(1))
    assert left_out == 1
    assert np.array_equal(totals, total_of(run, records[[0, 2]], state, a_grid(1)))
    vectors, left_out = run.vectors_leaving_out(records, state, 1)
    assert (vectors.tolist(), left_out) == ([[1.0], [0.0], [0.25]], 1)


def test_a_vector_of_another_length_is_named():
    with pytest.raises(StudyError, match="returned 3 numbers where 5 are expected") as caught:
        total_of(map_of("return record"), np.ones((1, 3)), STATE, GRID)
    assert caught.value.rule == "vector-length"


def test_the_vector_size_is_known_without_running_anything():
    assert map_of("return np.zeros(len(record) * self.K + len(state.weights))").vector_size(4, STATE) == 15
    with pytest.raises(StudyError, match="empty vector"):
        map_of("return record[3:]").vector_size(3, STATE)


def test_states_of_every_kind():
    records = np.array([[1.0, 2.0, 0.5]])
    assert vectors_of(map_of("return record * state"), records, 2, 3).tolist() == [[2.0, 4.0, 1.0]]
    pair = (np.array([[1.0, 0, 0], [0, 1, 0]]), 10.0)
    assert vectors_of(map_of("return state[0] @ record + state[1]"), records, pair, 2).tolist() == [[11.0, 12.0]]
    with pytest.raises(StudyError, match="a state holds a str"):
        frozen_state(("text",))


def test_compiling_again_is_free_and_loading_again_does_not_recompile():
    first, again = map_of(RICH), map_of(RICH)
    assert first.kernel(3, STATE) is again.kernel(3, STATE)
    assert first.source_hash == again.source_hash
    assert map_of("return record").source_hash != first.source_hash

    class Other(NamedTuple):
        weights: np.ndarray
        bias: float

    assert again.kernel(3, Other(weights=np.ones(3), bias=1)) is first.kernel(3, STATE)


def test_constants_are_part_of_what_is_compiled():
    text = file_of("return np.full(2, self.K)").text
    three = compile_program(read_program(text))
    four = compile_program(read_program(text.replace("K = 3", "K = 4")))
    assert three.source_hash != four.source_hash
    assert vectors_of(four, np.zeros((1, 3)), STATE, 2).tolist() == [[4.0, 4.0]]


class Session(Program):
    bound = 1.0

    def __init__(self, power: float) -> None:
        self.power = power

    def init(self, public):
        return STATE

    def map_in_client(self, record: np.ndarray, state: State) -> np.ndarray:
        return record**self.power + state.bias

    def reduce_in_aggregator(self, total, state):
        return state


def test_a_class_written_in_a_session_is_checked_and_compiled_too():
    import inspect

    lines, first = inspect.getsourcelines(Session)
    run = compile_live_program(Session(2.0), STATE, source="".join(lines), name="here", first_line=first)
    assert vectors_of(run, np.array([[1.0, 2.0, 3.0]]), STATE, 3).tolist() == [[1.25, 4.25, 9.25]]
    hostile = "".join(lines).replace("state.bias", "np.random.rand()")
    with pytest.raises(StudyError, match=rf"here:{first + 10}:\d+: in map_in_client: np.random"):
        compile_live_program(Session(2.0), STATE, source=hostile, name="here", first_line=first)
    with pytest.raises(StudyError, match="does not define map_in_client once"):
        compile_live_program(Session(2.0), STATE, source="class A:\n    pass\n")
