"""Thousands of random programs: whatever the compiler accepts depends on its record alone and stays within its bound.

300 here; 10,000 under ``make audit``. A failure prints the program, which then becomes a named test.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from map_generator import STATE_SIZE, WIDTH, Generator
from map_interpreter import bits, interpret

from tallystick.algorithms.user_programs.compiled import CompiledMap
from tallystick.algorithms.user_programs.map_compiler.kernel import DEPENDS, OK
from tallystick.algorithms.user_programs.program_file import compile_program, read_program
from tallystick.core.errors import StudyError
from tallystick.privacy.grid import Grid, Group

TEMPLATE = """import math
import numpy as np
import tallystick as ts

class P(ts.Program):
    bound = 1.0
    K = 3
    HALF = 0.5
    EDGES = (0.0, 0.5, 2.0)
    def init(self, public):
        return np.zeros(2)
    def map_in_client(self, record, state):
{body}
    def reduce_in_aggregator(self, total, state):
        return state
"""
STATE = (np.array([0.3, -1.7, 0.9])[:STATE_SIZE], 0.25)
RNG = np.random.default_rng(20)
RECORDS = np.vstack([RNG.uniform(-2, 2, (6, WIDTH)), np.zeros((1, WIDTH)), RNG.normal(size=(1, WIDTH)) * 1e6])
OTHER = RNG.uniform(-2, 2, (4, WIDTH))
BLOCK = 75


def accepted(body: str) -> CompiledMap | None:
    text = TEMPLATE.format(body="".join(f"        {line}\n" for line in body.split("\n")))
    compiled = compile_program(read_program(text))  # the generator writes nothing that the allow-list refuses
    try:
        compiled.vector_size(WIDTH, STATE)
    except StudyError as refused:
        if not (refused.remedy and refused.cause.startswith("program.py:")):
            raise
        return None
    return compiled


def check(compiled: CompiledMap, body: str) -> Counter[str]:
    kernel = compiled.kernel(WIDTH, STATE)
    state = [np.asarray(part) for part in STATE]
    size = kernel.program.size
    vectors, codes = kernel.rows(RECORDS, state)
    # 1. No guard was touched, and no result depends on what stands in one.
    assert DEPENDS not in codes, body
    # 2. The same bits whatever the neighbours, guards and place are.
    for i in (0, len(RECORDS) - 1):
        among = np.vstack([OTHER[:2], RECORDS[i : i + 1], OTHER[2:]])
        again, other = kernel.rows(among, state, seeds=(3 + i, 1 << 40), place=lambda n: np.full(n, -1, dtype=np.int64))
        assert (other[2], again[2].tobytes()) == (codes[i], vectors[i].tobytes()), body
    # 3. One record replaced moves the clipped total by at most twice the bound.
    grid = Grid(groups=(Group(name="all", size=size, bound=1.0),), fraction_bits=20, norm="l2")
    before, _ = compiled.total_leaving_out(RECORDS, STATE, grid)
    for replacement in OTHER[:2]:
        changed = RECORDS.copy()
        changed[3] = replacement
        after, _ = compiled.total_leaving_out(changed, STATE, grid)
        moved = [int(x) for x in after - before]
        assert math.isqrt(sum(x * x for x in moved)) <= 2 * grid.integer_bounds[0], body
    # 4. The machine code does what its scalar form says, to the bit.
    for record, vector, code in zip(RECORDS[[0, 6, 7]], vectors[[0, 6, 7]], codes[[0, 6, 7]]):
        expected = interpret(kernel.program, record, state)
        fine = expected is not None and bool(np.isfinite(expected).all())
        assert fine == (code == OK), body
        if expected is not None and fine:
            assert bits(expected) == bits(vector), body
    # 5. And what Python and NumPy make of the text, but for the last bits, which a comparison or int() may enlarge.
    found = [_as_python(body, record, vector) for record, vector in zip(RECORDS[:6], vectors) if vector.any()]
    compared = [same for same in found if same is not None]
    return Counter(
        ok=int((codes == OK).sum()), failed=int((codes != OK).sum()), same=sum(compared), compared=len(compared)
    )


def _as_python(body: str, record: np.ndarray, vector: np.ndarray) -> bool | None:
    """Whether Python gives this vector; None where it raises (math.sqrt(-1.0), which is NaN here)."""
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    space: dict[str, object] = {"np": np, "math": math}
    exec(f"def f(self, record, state):\n{lines}", space)
    me = type("Me", (), {"K": 3, "HALF": 0.5, "EDGES": (0.0, 0.5, 2.0)})()
    try:
        with np.errstate(all="ignore"):
            found = space["f"](me, record.copy(), (STATE[0].copy(), STATE[1]))  # type: ignore[operator]
        return bool(np.allclose(np.asarray(found, dtype=float), vector, rtol=1e-9, atol=1e-12))
    except (ArithmeticError, ValueError):
        return None


def run(first: int, count: int) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(first, first + count):
        body = Generator(seed).body()
        compiled = accepted(body)
        seen["accepted" if compiled else "refused"] += 1
        if compiled is not None:
            seen += check(compiled, body)
    return seen


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_whatever_is_accepted_depends_on_its_record_alone(first: int) -> None:
    seen = run(first, BLOCK)
    # The test means something: programs of both kinds, records that work and records that fail.
    assert seen["accepted"] > 0.3 * BLOCK
    assert seen["refused"] > 0.1 * BLOCK
    assert seen["ok"] > seen["accepted"]
    assert seen["failed"] > 0
    assert seen["same"] > 0.99 * seen["compared"] > 0


@pytest.mark.audit
@pytest.mark.parametrize("first", range(1000, 11000, 500))
def test_ten_thousand_programs(first: int) -> None:
    seen = run(first, 500)
    assert seen["accepted"] > 150
    assert seen["same"] > 0.99 * seen["compared"] > 0
