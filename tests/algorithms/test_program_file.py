"""Program files: the shape that is allowed, the hash that is approved, loading, the examples and check-program."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from tallystick.algorithms.program import Program, Public
from tallystick.algorithms.user_programs.program_file import (
    ProgramFile,
    compile_program,
    inspect_program,
    load_program,
    read_program,
)
from tallystick.algorithms.user_programs.program_text import canonical_text
from tallystick.application.check_program import check_program, describe
from tallystick.core.errors import StudyError
from tallystick.privacy.grid import Grid, Group

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"
GOOD = '''"""Sums."""

import math
from typing import NamedTuple

import numpy as np
import tallystick as ts

LIMIT = 3


class S(NamedTuple):
    """A state."""

    weights: np.ndarray
    step: float


class Sums(ts.Program):
    """Adds."""

    rounds = 2 * LIMIT
    bound = math.sqrt(2) / 2
    EDGES = (0.0, -1.5, 2**10)

    def init(self, public):
        return S(weights=np.zeros(len(public.features)), step=1.0)

    def map_in_client(self, record, state):
        return record * state.step + self.EDGES[1]

    def reduce_in_aggregator(self, total, state):
        w = [x + LIMIT for x in total]
        return state._replace(weights=np.array(w), step=state.step / 2)

    def finished(self, state):
        return state.step < 0.1
'''


def rules(text: str) -> set[str]:
    return {f.rule for f in inspect_program(text)[1]}


def test_a_good_file_is_read_without_running_it():
    program = read_program(GOOD, name="sums.py")
    assert (program.name, program.class_name, program.docstring) == ("sums.py", "Sums", "Sums.")
    assert (program.rounds, program.groups, program.fields) == (6, None, ("step", "weights"))
    assert program.bound == math.sqrt(2) / 2
    assert program.constants["EDGES"] == (0.0, -1.5, 1024)


def test_the_hash_is_sha256_of_the_canonical_text():
    program = read_program(GOOD)
    assert program.hash == "sha256:" + hashlib.sha256(GOOD.encode()).hexdigest()
    for same in (GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD.rstrip("\n"), GOOD + "\n\n"):
        assert read_program(same).hash == program.hash
        assert canonical_text(same) == GOOD
    for other in (GOOD.replace("LIMIT = 3", "LIMIT = 4"), GOOD.replace('"""Adds."""', '"""Adds!"""')):
        assert read_program(other).hash != program.hash


def test_a_loaded_program_runs():
    program = load_program(read_program(GOOD))
    assert isinstance(program, Program)
    assert program.rounds == 6
    state = program.init(Public(features=("a", "b")))
    after = program.reduce_in_aggregator(np.array([1.0, 2.0]), state)
    assert after.weights.tolist() == [4.0, 5.0]
    assert after.step == 0.5
    assert not program.finished(after)


def test_loaded_constants_equal_the_folded_ones():
    for text in (GOOD, *(p.read_text() for p in EXAMPLES.glob("*.py"))):
        file = read_program(text)
        program = load_program(file)
        assert {name: getattr(program, name) for name in file.constants} == dict(file.constants)


def test_a_file_that_is_not_what_it_says_is_not_loaded():
    good = read_program(GOOD)
    forged = {f: getattr(good, f) for f in ("name", "hash", "class_name", "docstring", "constants", "fields")}
    with pytest.raises(StudyError, match="is not the text of"):
        load_program(ProgramFile(**forged, text=GOOD.replace("LIMIT = 3", "LIMIT = 4")))
    with pytest.raises(StudyError, match="import os"):
        load_program(ProgramFile(**forged, text="import os\n" + GOOD))


def replaced(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


HOSTILE = [
    (GOOD + "import os\n", "import"),
    (GOOD + "from os import system\n", "import"),
    (GOOD + "import numpy\n", "import"),
    (GOOD + "import numpy.random as math\n", "import"),
    (GOOD + "from tallystick import *\n", "import"),
    (GOOD + "from tallystick import Program as np\n", "import"),
    (GOOD + "from tallystick.core import errors\n", "import"),
    (GOOD + "print('hello')\n", "file"),
    (GOOD + "__import__('os').system('true')\n", "file"),
    (GOOD + "def helper():\n    return 1\n", "file"),
    (GOOD + "if True:\n    X = 1\n", "file"),
    (GOOD + "for i in (1, 2):\n    X = i\n", "file"),
    (GOOD + "X = open('/etc/passwd')\n", "constant"),
    (GOOD + "X = [1, 2]\n", "constant"),
    (GOOD + "X = np.zeros(3)\n", "constant"),
    (GOOD + "X = 9**9**9\n", "constant"),
    (GOOD + "X = 1 / 0\n", "constant"),
    (GOOD + "X = 1e308 * 10\n", "constant"),
    (GOOD + "X = math.log(0)\n", "constant"),
    (GOOD + "X = (-1) ** 0.5\n", "constant"),
    (GOOD + "X = 'a' * 3\n", "constant"),
    (GOOD + "X = Y = 1\n", "constant"),
    (GOOD + "LIMIT = 4\n", "shadow"),
    (GOOD + "np = 4\n", "shadow"),
    (GOOD + "len = 4\n", "shadow"),
    (GOOD + "__all__ = ('a',)\n", "dunder"),
    (GOOD + "class T(object):\n    pass\n", "class"),
    (GOOD + "class T(NamedTuple, metaclass=S):\n    a: float\n", "class"),
    (GOOD + "@S\nclass T(NamedTuple):\n    a: float\n", "class"),
    (GOOD + "class T(ts.Program):\n    bound = 1\n", "program"),
    (GOOD + "class T(NamedTuple):\n    ctypes: float\n", "state"),
    (GOOD + "class T(NamedTuple):\n    _a: float\n", "state"),
    (GOOD + "class T(NamedTuple):\n    a: float = print(1)\n", "state"),
    (GOOD + "class T(NamedTuple):\n    a: print(1)\n", "annotation"),
    (GOOD + "class T(NamedTuple):\n    def f(self):\n        return 1\n", "state"),
    (replaced("import tallystick as ts\n", ""), "class"),
    (replaced("import math\n", ""), "import"),
    (replaced("    rounds = 2 * LIMIT", "    rounds = 0"), "rounds"),
    (replaced("    rounds = 2 * LIMIT", "    rounds = 2.0"), "rounds"),
    (replaced("    rounds = 2 * LIMIT", "    rounds = print(3)"), "constant"),
    (replaced("    bound = math.sqrt(2) / 2", "    bound = -1"), "bound"),
    (replaced("    bound = math.sqrt(2) / 2\n", ""), "bound"),
    (replaced("    EDGES =", "    query = 1\n    EDGES ="), "shadow"),
    (replaced("    EDGES =", "    compiled_map = 1\n    EDGES ="), "shadow"),
    (replaced("    bound = math.sqrt(2) / 2", "    bound = 1\n    groups = (1,)"), "bound"),
    (replaced("    bound = math.sqrt(2) / 2", "    groups = (ts.Group(name='a', size=0, bound=1),)"), "constant"),
    (replaced("    bound = math.sqrt(2) / 2", "    groups = (ts.Group('a', 1, 1),)"), "constant"),
    (replaced("    bound = math.sqrt(2) / 2", "    groups = (ts.Group(name='a', size='b', bound=1),)"), "constant"),
    (replaced("    def finished(self, state):", "    def __init__(self, state):"), "method"),
    (replaced("    def finished(self, state):", "    def groups_for(self, state):"), "method"),
    (replaced("    def finished(self, state):", "    def init(self, state):"), "method"),
    (replaced("    def finished(self, state):", "    async def finished(self, state):"), "class"),
    (replaced("    def finished(self, state):", "    @property\n    def finished(self, state):"), "decorator"),
    (replaced("    def finished(self, state):", "    def finished(self, state=[]):"), "parameters"),
    (replaced("    def finished(self, state):\n        return state.step < 0.1\n", "    print(1)\n"), "class"),
    (replaced("return state.step < 0.1", "return open('x')"), "call"),
    (replaced("return state.step < 0.1", "return np.load('x')"), "attribute"),
    (replaced("return state.step < 0.1", "return np.random.rand()"), "random"),
    (replaced("return state.step < 0.1", "import os\n        return 1"), "import"),
    (replaced("return state.step < 0.1", "return np.lib.format.open_memmap('x')"), "attribute"),
    (replaced("return state.step < 0.1", "return np.array([1.0]).tofile('x')"), "attribute"),
    (replaced("return state.step < 0.1", "return '{0.__class__}'.format(state)"), "attribute"),
    (replaced("return state.step < 0.1", "return state.__class__"), "dunder"),
    (replaced("return state.step < 0.1", "return state._asdict()"), "dunder"),
    (replaced("return state.step < 0.1", "return [x for x in state if x.__class__]"), "dunder"),
    (replaced("return state.step < 0.1", "return sorted(state, key=print)"), "keyword"),
    (replaced("return state.step < 0.1", "self.x = 1\n        return 1"), "write"),
    (replaced("return state.step < 0.1", "return np.linalg.linalg"), "attribute"),
    (replaced("return state.step < 0.1", "return np.linalg.test()"), "attribute"),
    (replaced("len(public.features)", "public.__dict__"), "dunder"),
    (replaced("len(public.features)", "len(public)"), "name"),
    (replaced("len(public.features)", "public.secret"), "attribute"),
    (replaced("self.EDGES[1]", "LIMIT"), "name"),
    (replaced("self.EDGES[1]", "self.init(record)"), "attribute"),
    ("", "program"),
    ("x = (\n", "syntax"),
    ("break\n", "syntax"),
    (replaced("A state.", "A \u202e state."), "hidden-character"),
    (replaced("A state.", "A \u200b state."), "hidden-character"),
    (replaced("A state.", "A \x08 state."), "hidden-character"),
    (replaced("A state.", "A \x0c state."), "hidden-character"),
    (GOOD.replace("LIMIT", "LIM\u0406T"), "hidden-character"),
    (GOOD.replace("np.zeros", "\uff4ep.zeros"), "hidden-character"),
]


@pytest.mark.parametrize(("text", "rule"), HOSTILE)
def test_a_hostile_file_is_refused_by_its_rule(text, rule):
    assert rule in rules(text)
    with pytest.raises(StudyError, match=r"^program\.py:\d+:\d+: "):
        read_program(text)


def test_all_findings_are_listed_in_order():
    text = GOOD.replace("self.EDGES[1]", "np.random.rand() + open(1)") + "import os\n"
    program, found = inspect_program(text)
    assert program is None
    assert [f.rule for f in found] == ["random", "call", "import"]
    assert [f.line for f in found] == sorted(f.line for f in found)


def test_texts_in_other_languages_are_welcome_in_comments_and_docstrings():
    assert read_program(GOOD.replace("A state.", "Ein Zustand: größer, 状態.")).class_name == "Sums"


def run_in_the_clear(name: str, records: np.ndarray, public: Public):
    """init → total → reduce with the exact integer totals and no noise: what an engine does, minus protection."""
    file = read_program((EXAMPLES / name).read_text(encoding="utf-8"), name=name)
    program, run = load_program(file), compile_program(file)
    state = program.init(public)
    grid = Grid(groups=program.groups_for(run.vector_size(records.shape[1], state)), fraction_bits=24, norm="l2")
    for _ in range(program.rounds):
        split = np.array_split(records, 3)
        sums = [run.total_leaving_out(part, state, grid) for part in split]
        assert not any(left_out for _, left_out in sums)
        total = sum((whole for whole, _ in sums), np.zeros(grid.size, dtype=np.int64))
        assert np.array_equal(total, run.total_leaving_out(records[::-1], state, grid)[0])
        state = program.reduce_in_aggregator(np.ldexp(total.astype(np.float64), -grid.fraction_bits), state)
    return state


def test_example_mean_and_variance_equals_numpy():
    records = np.random.default_rng(3).uniform(-1, 1, size=(500, 6))
    state = run_in_the_clear("mean_and_variance.py", records, Public(features=tuple("abcdef"), records=500))
    np.testing.assert_allclose(state.mean, records.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(state.variance, records.var(axis=0), atol=1e-6)


def test_example_poisson_regression_equals_a_plain_gradient_descent():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, size=(800, 3))
    y = rng.poisson(np.exp(x @ np.array([0.8, -0.5, 0.0]) + 0.2)).astype(np.float64)
    public = Public(features=("a", "b", "c"), records=800, target="visits")
    state = run_in_the_clear("poisson_regression.py", np.column_stack([x, y]), public)
    design, w, v = np.column_stack([x, np.ones(800)]), np.zeros(4), np.zeros(4)
    for _ in range(20):
        gradients = (np.exp(np.clip(design @ w, -4, 4)) - y)[:, None] * design
        gradients *= np.minimum(1.0, 4.0 / np.maximum(np.linalg.norm(gradients, axis=1), 1e-12))[:, None]
        v = 0.7 * v - 0.15 * gradients.sum(axis=0) / 800
        w = w + v
    np.testing.assert_allclose(state.weights, w, atol=1e-5)
    np.testing.assert_allclose(state.weights, [0.8, -0.5, 0.0, 0.2], atol=0.25)


def test_check_program_reports_a_good_file():
    report = check_program(EXAMPLES / "mean_and_variance.py", Public(features=tuple("abcdef"), records=10))
    assert (report["ok"], report["tried"], report["findings"]) == (True, True, [])
    assert (report["class"], report["rounds"]) == ("MeanAndVariance", 1)
    assert [g["name"] for g in report["groups"]] == ["sums", "squares"]
    raw = (EXAMPLES / "mean_and_variance.py").read_bytes()
    assert report["hash"] == "sha256:" + hashlib.sha256(raw).hexdigest()


def test_check_program_reports_findings(tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(GOOD.replace("self.EDGES[1]", "np.random.rand()"))
    report = check_program(path)
    assert (report["ok"], report["hash"]) == (False, None)
    assert [f["rule"] for f in report["findings"]] == ["random"]
    assert set(report["findings"][0]) == {"line", "column", "rule", "cause", "remedy"}


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("record * state.step", "record[len(record)] + record", "index"),
        ("record * state.step + self.EDGES[1]", "record[0]", "return"),
        ("bound = math.sqrt(2) / 2", "groups = (ts.Group(name='a', size=9, bound=1.0),)", "vector-length"),
        ("len(public.features)", "public.index('absent')", "run"),
        ("np.zeros(len(public.features))", "'text'", "run"),
        ("np.array(w)", "np.ones(7)", "state"),
        ("np.array(w)", "np.linalg.solve(total, total)", "run"),
    ],
)
def test_check_program_tries_the_program_out(tmp_path, old, new, rule):
    path = tmp_path / "odd.py"
    path.write_text(replaced(old, new))
    assert check_program(path)["ok"]
    report = check_program(path, ("a", "b"))
    assert not report["ok"]
    assert report["findings"][0]["rule"] == rule, report


STUDY = """[study]
name = "sums"
program = "sums.py"
[data]
records = 100
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
sex = { type = "category", values = ["f", "m"] }
"""


def test_check_program_takes_the_sizes_from_a_study_file(tmp_path):
    (tmp_path / "sums.py").write_text(GOOD)
    (tmp_path / "study.toml").write_text(STUDY)
    report = check_program(tmp_path / "sums.py", tmp_path / "study.toml")
    assert (report["ok"], report["tried"]) == (True, True), report
    said = describe(report)
    assert report["hash"] in said
    assert "made-up" in said
    (tmp_path / "sums.py").write_text(GOOD.replace("self.EDGES[1]", "open(1)"))
    refused = describe(check_program(tmp_path / "sums.py", tmp_path / "study.toml"))
    assert "30:38" in refused
    assert "[call]" in refused


def test_check_program_on_unreadable_files(tmp_path):
    with pytest.raises(StudyError, match="cannot read"):
        check_program(tmp_path / "absent.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    with pytest.raises(StudyError, match="not UTF-8"):
        check_program(tmp_path / "latin.py")


def test_groups_are_folded_to_groups():
    file = read_program((EXAMPLES / "mean_and_variance.py").read_text())
    assert file.groups is not None
    assert file.groups[0] == Group(name="sums", size=6, bound=math.sqrt(6), share=0.5)


@pytest.mark.parametrize(
    "lines",
    [
        ["A0 = (1, 1)", *(f"A{i + 1} = (A{i}, A{i})" for i in range(60))],
        [f"a{i} = 1" for i in range(12_000)],
        ["A = (" + "1, " * 20_000 + ")"],
    ],
    ids=["tuples of tuples", "twelve thousand", "one of twenty thousand"],
)
def test_constants_without_end_are_refused_before_they_are_made(lines):
    """Read by every role before anybody has approved anything: this must not take time or memory."""
    text = "\n".join([*lines, GOOD])
    program, findings = inspect_program(text)
    assert program is None
    assert {"constant", "import"} & {f.rule for f in findings} or findings[0].rule == "size"
