"""The 29 program files of a hostile review, by name: each is refused, or adds what its own record says and no more.

On the version that was reviewed, 01 to 06 read or wrote beyond their record with every check passed.
"""

from __future__ import annotations

import textwrap
from contextlib import closing

import numpy as np
import pytest

from tallystick.algorithms.program import Public
from tallystick.algorithms.user_programs.program_file import compile_program, inspect_program
from tallystick.core.errors import StudyError
from tallystick.engines.sandbox.children import Children, Limits
from tallystick.engines.sandbox.program import SandboxedProgram
from tallystick.privacy.grid import Grid, Group

GRID = Grid(groups=(Group(name="all", size=2, bound=2.0),), fraction_bits=20, norm="l2")
STATE = np.zeros(2)
RECORDS = np.arange(1, 301).reshape(100, 3) / 300.0
FINE, ZEROS, SOME_ZEROS = "runs", "every record adds zeros", "some records add zeros"

REVIEW = {
    "01 z += record (longer z)": ("z = np.zeros(6)\nz += record\nreturn z[3:5]", "shape"),
    "02 ufunc positional out": ("z = np.zeros(9)\nx = np.maximum(record, 0.0, z)\nreturn z[6:8]", "arity"),
    "03 z[:] *= record": ("z = np.ones(9)\nz[:] *= record\nreturn z[3:5]", "shape"),
    "04 np.outer out 3rd arg": ("z = np.zeros((9, 9))\nx = np.outer(record, record, z)\nreturn z[8][3:5]", "arity"),
    "05 clip array bounds: heap write": (
        "x = np.clip(record[:1], np.full(4000, 1e300), np.full(4000, 1e300))\nreturn np.array([x[0], 1.0])",
        "shape",
    ),
    "06 z += 2d: heap pointers": (
        "z = np.zeros(9)\nz += np.outer(record, record)\nreturn np.array([z[7] * 1e308, z[8]])",
        "shape",
    ),
    "07 range(float)": ("s = 0.0\nfor i in range(1e300):\n    s += 1.0\nreturn np.array([s, 1.0])", "types"),
    "08 slice by float": (
        "return np.array([1.0 * len(record[:1e300]), 1.0 * len(record[: 1e300 * record[2] / record[2]])])",
        "index",
    ),
    "09 full_like int <- float": (
        "i = np.full_like((record > 0.0) * 1, 1e300)\nreturn np.array([i[0] * 1e-19, 1.0])",
        "types",
    ),
    "10 ufunc out = state": ("x = np.exp(record[:2], state)\nreturn np.array([state[0], 1.0])", "arity"),
    "11 fancy index past end": ("return record[np.full(2, 4)]", ZEROS),
    "12 mask longer than record": ("return record[np.ones(9) > 0.0][3:5]", "shape"),
    "13 2-D row past end": ("m = np.outer(record, record)\nreturn m[int(3.0 + record[0]), :][:2]", ZEROS),
    "14 negative list size": ("t = [1.0, 2.0] * (2**62)\nreturn np.array([t[5], 1.0])", "types"),
    "15 NFKC identifier": ("\uff4e\uff50 = record\nreturn record[:2]", "hidden-character"),
    "16 walrus": ("if (n := 1) > 0:\n    n = 2\nreturn record[:2]", "walrus"),
    "17 f-string format spec": ("x = f'{record.__class__:>10}'\nreturn record[:2]", "f-string"),
    "18 class_getitem": ("x = list[int]\nreturn record[:2]", "name"),
    "19 annotation executed": ("x: print(1) = 2.0\nreturn record[:2]", "annotation"),
    "20 np.array dtype by position": ("return np.array([1.0, 2.0], 'O')", "arity"),
    "21 fail on one record": ("if record[0] > 0.5:\n    x = record[99]\nreturn record[:2]", "index"),
    "21b fail on one record, by its own index": (
        "x = 0.0\nif record[0] > 0.5:\n    x = record[int(record[0] * 99.0)]\nreturn record[:2] + 0.0 * x",
        SOME_ZEROS,
    ),
    "22 int min // -1": (
        "i = int(-2.0**61) * 4\nreturn np.array([1.0 * (i // (-1 + int(record[0]))), 1.0])",
        ZEROS,
    ),
    "23 deep expression": (f"return record[:2] + {'(1.0 + ' * 70}1.0{')' * 70}", "depth"),
    "24 huge constant": ("return record[:2] + 2**63 * 1.0 + 1000000000000000000000000000000", "constant"),
    "25 NaN payload": ("x = np.zeros(2)\nx[0] = np.log(-1.0)\nreturn x", ZEROS),
    "26 return view of state": ("return state", FINE),
    "28 np.sum positional out": ("return np.array([np.sum(record, 0, np.float64, state), 1.0])", "arity"),
    "29 endless for one record": (
        "s = 0.0\nfor i in range(int(max(record[0] - 0.99, 0.0) * 2**60)):\n    s = math.sin(s + i)\n"
        "return np.array([s, 1.0])",
        "loop-bound",
    ),
}


def text_of(body: str, init: str = "return np.zeros(2)") -> str:
    return (
        "import math\nimport numpy as np\nimport tallystick as ts\n\n\nclass P(ts.Program):\n    bound = 2.0\n\n"
        f"    def init(self, public):\n        {init}\n\n"
        f"    def map_in_client(self, record, state):\n{textwrap.indent(body, ' ' * 8)}\n\n"
        "    def reduce_in_aggregator(self, total, state):\n        return total\n"
    )


@pytest.mark.parametrize("name", REVIEW)
def test_a_program_of_the_review(name: str) -> None:
    body, expected = REVIEW[name]
    file, findings = inspect_program(text_of(body))
    if file is None:
        assert expected in {f.rule for f in findings}
        return
    compiled = compile_program(file)
    if expected not in (FINE, ZEROS, SOME_ZEROS):
        with pytest.raises(StudyError) as caught:
            compiled.vector_size(3, STATE)
        assert caught.value.rule == expected, caught.value
        return
    total, left_out = compiled.total_leaving_out(RECORDS, STATE, GRID)
    assert {FINE: left_out == 0, ZEROS: left_out == 100, SOME_ZEROS: 0 < left_out < 100}[expected]
    alone = [compiled.total_leaving_out(RECORDS[i : i + 1], STATE, GRID)[0] for i in reversed(range(100))]
    assert np.sum(alone, axis=0).tolist() == total.tolist()


def test_27_a_billion_characters_in_init_are_contained() -> None:
    """Text is allowed in init, which never sees a record and runs in a locked child with a limit on its memory."""
    file, _ = inspect_program(text_of("return record[:2]", init="return np.zeros(len('%1000000000d' % 1))"))
    assert file is not None
    with (
        closing(Children(limits=Limits(memory_bytes=256 << 20))) as few,
        pytest.raises(StudyError, match="more memory"),
    ):
        SandboxedProgram(file, children=few).init(Public(features=("a",), records=10))


READS_ITS_NEIGHBOURS = """near = np.zeros(3 * 200)
near += record
out = np.zeros(1)
for k in range(1, 200):
    if abs(near[3 * k] - 0.37) < 1e-6:
        if abs(near[3 * k + 1] - 0.81) < 1e-6:
            out[0] = 2.0 * near[3 * k + 2] - 1.0
return out"""
BY_AN_INDEX = READS_ITS_NEIGHBOURS.replace(
    "near += record", "for j in range(600):\n    near[j] = record[j + int(0.0 * record[0])]"
)


def test_the_attack_that_released_one_persons_bit_is_refused() -> None:
    """At epsilon = 1 it released +388.7 for a secret bit 1 and -392.3 for 0, with noise of 12.8."""
    file, _ = inspect_program(text_of(READS_ITS_NEIGHBOURS))
    assert file is not None  # the allow-list knows no lengths
    with pytest.raises(StudyError, match="an array of 3 does not fit an array of 600") as caught:
        compile_program(file).vector_size(3, np.zeros(1))
    assert caught.value.rule == "shape"


def test_the_same_attack_by_a_computed_index_reads_nothing() -> None:
    file, _ = inspect_program(text_of(BY_AN_INDEX))
    assert file is not None
    compiled = compile_program(file)
    grid = Grid(groups=(Group(name="all", size=1, bound=1.0),), fraction_bits=20, norm="l2")
    records = np.random.default_rng(1).uniform(0, 1, (500, 3))
    for secret in (0.0, 1.0):
        records[300] = [0.37, 0.81, secret]
        total, left_out = compiled.total_leaving_out(records, np.zeros(1), grid)
        assert (total.tolist(), left_out) == ([0], 500)
