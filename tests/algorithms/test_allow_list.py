"""The allow-list: what is refused, by which rule, where; and that ordinary programs pass."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit, types
from numba.core.errors import NumbaError

from tallystick.algorithms.user_programs import allow_list, allow_list_check
from tallystick.algorithms.user_programs.allow_list import MAP_NUMPY, map_scope
from tallystick.algorithms.user_programs.allow_list_check import check_function, check_signature
from tallystick.algorithms.user_programs.findings import Finding
from tallystick.algorithms.user_programs.program_file import inspect_program, read_program
from tallystick.core.errors import StudyError

HEAD = "def map_in_client(self, record, state):\n"


def findings(body: str, *, head: str = HEAD) -> list[Finding]:
    text = head + "".join(f"    {line}\n" for line in body.split("\n"))
    function = ast.parse(text).body[-1]
    assert isinstance(function, ast.FunctionDef)
    found = check_signature(function, parameters=2)
    if any(f.rule == "parameters" for f in found):
        return found
    return found + check_function(function, map_scope(function, constants={"K", "bound"}, fields={"weights", "bias"}))


ALLOWED = [
    "return record",
    "return record * state.weights + state.bias",
    "x = np.zeros(self.K)\nfor i in range(len(record)):\n    x[i] += record[i] ** 2\nreturn x",
    "if record[0] > 0 and not record[1] < 1:\n    return np.ones(2)\nelse:\n    return np.zeros(2)",
    "a, b = record[0], record[-1]\nreturn np.array([a, b, math.exp(-a), 1.0 if a > b else 0.0])",
    "i = int(record[0])\nx = np.zeros(4)\nx[i:i + 2] = 1\nreturn x",
    "x = np.outer(record, record)\nreturn np.sum(x, axis=0)",
    "'''A docstring.'''\ny = record @ state.weights\nreturn np.full(2, y * math.pi)",
    "x = np.zeros(record.shape[0], dtype=np.float64)\nx[0] = record.size\nreturn x",
    "for i in range(3):\n    if i == 2:\n        break\nreturn record",
    "return state[0] + state[1]",
]

HOSTILE = [
    # Ways out of the language
    ("return ().__class__.__bases__", "dunder"),
    ("return record.__class__", "dunder"),
    ("return np.__loader__", "dunder"),
    ("return math.__loader__", "dunder"),
    ("return __import__('os')", "dunder"),
    ("return __builtins__", "dunder"),
    ("x = np.__dict__\nreturn x", "dunder"),
    ("return self.__class__", "dunder"),
    ("return self._private", "dunder"),
    ("return map_in_client(record, state)", "call"),
    ("return eval('1')", "call"),
    ("exec('x = 1')\nreturn record", "statement"),
    ("return getattr(record, 'base')", "call"),
    ("return open('/etc/passwd')", "call"),
    ("print(record)\nreturn record", "statement"),
    ("x = print(record)\nreturn record", "call"),
    ("return globals()", "call"),
    ("return type(record)", "call"),
    ("return vars", "name"),
    ("import os\nreturn record", "import"),
    ("from numpy import random\nreturn record", "import"),
    ("x = np\nreturn x", "module"),
    ("return ts.Program", "attribute"),
    ("f = np.sum\nreturn f(record)", "attribute"),
    ("return (lambda x: x)(record)", "lambda"),
    ("return [np.sum][0](record)", "attribute"),
    # NumPy corners
    ("return np.lib.format.read_array(record)", "attribute"),
    ("return np.random.rand(3)", "random"),
    ("return np.random.default_rng().normal()", "random"),
    ("x = np.random\nreturn record", "random"),
    ("return np.empty(3)", "uninitialised"),
    ("return np.empty_like(record)", "uninitialised"),
    ("return np.frombuffer(record)", "attribute"),
    ("return np.load('x')", "attribute"),
    ("return np.ctypeslib.as_array(record)", "attribute"),
    ("return np.linalg.norm(record)", "attribute"),
    ("return np.lib.stride_tricks.as_strided(record, (99,))", "attribute"),
    ("return np.array([1], dtype=object)", "keyword"),
    ("return np.zeros(3, dtype=np.int64)", "keyword"),
    ("return np.sum(record, out=state)", "keyword"),
    ("return np.zeros(**record)", "starred"),
    # Attributes of records and states
    ("return record.base", "attribute"),
    ("return record.ctypes", "attribute"),
    ("return record.ctypes.data", "attribute"),
    ("return record.flat", "attribute"),
    ("return record.data", "attribute"),
    ("return record.tobytes()", "attribute"),
    ("return record.copy()", "attribute"),
    ("return state.ctypes", "attribute"),
    ("return state._replace(weights=record)", "dunder"),
    ("return state.weights.base", "attribute"),
    ("return record.shape.count(3)", "attribute"),
    ("return self.helper(record)", "attribute"),
    ("return self.UNKNOWN", "attribute"),
    ("return self", "name"),
    # Memory from one record to the next
    ("record[0] = 1\nreturn record", "write"),
    ("state.weights[0] = 1\nreturn record", "write"),
    ("state[0] += 1\nreturn record", "write"),
    ("self.total = record\nreturn record", "write"),
    ("self.seen[0] = 1\nreturn record", "write"),
    ("record.shape = 3\nreturn record", "write"),
    ("global seen\nseen = 1\nreturn record", "global"),
    ("nonlocal seen\nreturn record", "global"),
    ("return SEEN", "name"),
    ("if record[0] > 0:\n    x = 1.0\nreturn np.array([x])", "unassigned"),
    ("for i in range(len(record)):\n    x = record[i]\nreturn np.array([x])", "unassigned"),
    ("for i in range(3):\n    pass\nreturn np.array([i])", "unassigned"),
    ("x += 1\nreturn record", "unassigned"),
    ("y = x\nx = 1\nreturn record", "unassigned"),
    # Constructs
    ("while True:\n    pass\nreturn record", "while"),
    ("for x in record:\n    pass\nreturn record", "for"),
    ("for i in range(3):\n    pass\nelse:\n    pass\nreturn record", "for"),
    ("try:\n    x = 1\nexcept Exception:\n    x = 2\nreturn record", "try"),
    ("with record:\n    pass\nreturn record", "with"),
    ("with objmode(x='float64'):\n    pass\nreturn record", "with"),
    ("def f(x):\n    return x\nreturn record", "nested-function"),
    ("class A:\n    pass\nreturn record", "nested-class"),
    ("yield record\nreturn record", "statement"),
    ("x = yield record\nreturn record", "generator"),
    ("return (x := record)", "walrus"),
    ("return np.array([v for v in record])", "comprehension"),
    ("return np.array([(lambda: i) for i in range(3)])", "comprehension"),
    ("return np.sum(v for v in record)", "comprehension"),
    ("return {1: record}", "container"),
    ("return {1, 2}", "container"),
    ("return np.array([*record])", "starred"),
    ("a, *b = record\nreturn b", "starred"),
    ("return f'{record}'", "f-string"),
    ("return 'text'", "constant"),
    ("return b'bytes'", "constant"),
    ("return None", "constant"),
    ("return 1j", "constant"),
    ("return ...", "constant"),
    ("return 1e999", "constant"),
    ("return 99999999999999999999", "constant"),
    ("raise ValueError\nreturn record", "raise"),
    ("assert record[0]\nreturn record", "raise"),
    ("del record\nreturn record", "delete"),
    ("x: float = 1.0\nreturn record", "annotation"),
    ("match record:\n    case _:\n        return record", "match"),
    ("return record[0] << 70", "operator"),
    ("return record is state", "operator"),
    ("return 1 in record", "operator"),
    ("x = record\nx @= state\nreturn x", "operator"),
    ("range = 3\nreturn record", "shadow"),
    ("np = 3\nreturn record", "shadow"),
    ("record = 3\nreturn record", "shadow"),
    ("_x = 3\nreturn record", "dunder"),
    ("x = range\nreturn record", "name"),
    ("return math.floor(record[0])", "attribute"),
    ("return round(record[0])", "call"),
    ("pass", "return"),
    ("return", "return"),
    ("if record[0] > 0:\n    return record", "return"),
    ("for i in range(3):\n    return record", "return"),
]

SIGNATURES = [
    ("def map_in_client(self, record, state, seen=[]):\n", "parameters"),
    ("def map_in_client(self, record, state=None):\n", "parameters"),
    ("def map_in_client(self, *rows):\n", "parameters"),
    ("def map_in_client(self, record, state, **more):\n", "parameters"),
    ("def map_in_client(self, record, state, *, seen={}):\n", "parameters"),
    ("def map_in_client(self, record, /, state):\n", "parameters"),
    ("def map_in_client(record, state):\n", "parameters"),
    ("@staticmethod\ndef map_in_client(self, record, state):\n", "decorator"),
    ("@numba.jit(forceobj=True)\ndef map_in_client(self, record, state):\n", "decorator"),
    ("def map_in_client(self, np, state):\n", "shadow"),
    ("def map_in_client(self, _r, state):\n", "dunder"),
    ("def map_in_client(self, record: print('hello'), state):\n", "annotation"),
    ("def map_in_client(self, record, state) -> __import__('os'):\n", "annotation"),
]


@pytest.mark.parametrize("body", ALLOWED)
def test_ordinary_code_passes(body):
    assert findings(body) == []


@pytest.mark.parametrize(("body", "rule"), HOSTILE)
def test_hostile_code_is_refused_by_its_rule(body, rule):
    found = findings(body)
    assert rule in {f.rule for f in found}, found
    assert all(f.cause and f.remedy and f.line >= 1 and f.column >= 1 for f in found)


@pytest.mark.parametrize(("head", "rule"), SIGNATURES)
def test_hostile_signatures_are_refused_by_their_rule(head, rule):
    assert rule in {f.rule for f in findings("return record", head=head)}


@pytest.mark.parametrize(
    "body, words",
    [
        ("return np.array([max(record)])", "np.max(x)"),
        ("return np.array([record.sum()])", "np.sum(x)"),
        ("return record.copy()", "1.0 * x"),
        ("return np.outer(record, record).ravel()", "np.concatenate"),
        ("return np.sum(np.outer(record, record), 0)", "axis=0"),
        ("return np.maximum(record, 0.0, record)", "output array"),
    ],
)
def test_what_people_write_out_of_habit_is_answered_by_what_to_write(body: str, words: str) -> None:
    (found,) = findings(body)
    assert words in found.remedy


def test_a_finding_names_the_place_and_the_remedy():
    (found,) = findings("x = 1.0\ny = np.empty(3)\nreturn y")
    assert (found.line, found.column, found.rule) == (3, 9, "uninitialised")
    error = found.error("visits.py")
    assert isinstance(error, StudyError)
    assert str(error).startswith("visits.py:3:9: in map_in_client: np.empty")
    assert "np.zeros" in str(error)


def test_every_kind_of_node_is_refused_unless_listed():
    """Refusal is the default: an expression or statement of a kind in no list is a finding, future kinds included."""
    checker = allow_list_check._Checker(
        map_scope(ast.parse(HEAD + "    return 1").body[0], constants=(), fields=()),
        ast.parse(HEAD + " return 1").body[0],
    )
    for kind in ast.expr.__subclasses__():
        if kind not in allow_list.EXPRESSIONS:
            checker.findings.clear()
            checker.expression(kind())
            assert len(checker.findings) == 1, kind
    for kind in ast.stmt.__subclasses__():
        if kind not in allow_list.STATEMENTS:
            checker.findings.clear()
            checker.block([kind()])
            assert len(checker.findings) == 1, kind
    for parent in (ast.operator, ast.unaryop, ast.boolop, ast.cmpop):
        for kind in parent.__subclasses__():
            checker.findings.clear()
            checker.operator(kind(), ast.Pass())
            assert bool(checker.findings) == (kind not in allow_list.OPERATORS), kind


def test_definite_assignment_follows_branches():
    assert findings("if record[0] > 0:\n    x = 1.0\nelse:\n    x = 2.0\nreturn np.array([x])") == []
    assert findings("if record[0] > 0:\n    return record\nelse:\n    x = 2.0\nreturn np.array([x])") == []
    assert findings("x = 0.0\nfor i in range(3):\n    x += i\nreturn np.array([x])") == []
    late = "for i in range(3):\n    if i > 0:\n        y = x\n    x = 1.0\nreturn record"
    assert [f.rule for f in findings(late)] == ["unassigned"]


# NumPy functions that return an array and are no ufuncs (which always allocate); "v" is a read-only vector.
ALIASES = {
    "array": ["v", "[v[0], v[1]]"],
    "zeros_like": ["v"],
    "ones_like": ["v"],
    "full_like": ["v, 1.0"],
    "concatenate": ["(v,)", "(v, v)"],
    "cumsum": ["v"],
    "where": ["v > 0, v, v"],
    "clip": ["v, -9.0, 9.0"],
    "outer": ["v, v"],
}
SCALARS = {"sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin", "dot", "searchsorted"}
FROM_NUMBERS = {"zeros", "ones", "full", "eye"}


def test_every_listed_numpy_function_is_of_a_known_kind():
    ufuncs = {name for name in MAP_NUMPY if isinstance(getattr(np, name), np.ufunc)}
    assert ufuncs | SCALARS | FROM_NUMBERS | ALIASES.keys() == MAP_NUMPY


@pytest.mark.parametrize(("name", "call"), [(n, c) for n, calls in ALIASES.items() for c in calls])
def test_no_listed_numpy_function_gives_a_writable_alias_of_its_read_only_argument(name, call):
    """Otherwise a program could write into the state through it and remember a record."""
    vector = np.arange(4.0) / 4
    vector.setflags(write=False)
    space = {"np": np}
    exec(f"def call(v):\n    return np.{name}({call})", space)
    try:
        result = njit(space["call"])(vector)
    except NumbaError:
        return  # what does not compile cannot alias
    assert not (isinstance(result, np.ndarray) and result.flags.writeable and np.shares_memory(result, vector))


def test_the_read_only_type_is_kept_by_slices():
    @njit
    def part(x):
        return x[1:]

    x = np.arange(3.0)
    x.setflags(write=False)
    part(x)
    (signature,) = part.signatures
    assert isinstance(part.overloads[signature].signature.return_type, types.Array)
    assert not part.overloads[signature].signature.return_type.mutable


PIECES = [line for body, _ in HOSTILE for line in body.split("\n")] + [line for b in ALLOWED for line in b.split("\n")]
TEMPLATE = """import numpy as np
import math
import tallystick as ts
class P(ts.Program):
    rounds = 1
    bound = 1.0
    def init(self, public):
        return np.zeros(1)
    def map_in_client(self, record, state):
{body}
    def reduce_in_aggregator(self, total, state):
        return total
"""


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6), st.integers(0, 4))
def test_the_checker_raises_nothing_but_study_errors_on_mixed_lines(lines, indent):
    body = "".join(f"        {' ' * indent * (i % 2)}{line}\n" for i, line in enumerate(lines))
    try:
        read_program(TEMPLATE.format(body=body))
    except StudyError as error:
        complete = bool(error.remedy and error.rule)
    else:
        complete = True
    assert complete


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.text(max_size=200), st.text(alphabet="()[]{}:=@*.,'\"\\\n\t #abnp019_", max_size=300)))
def test_the_checker_raises_nothing_but_study_errors_on_any_text(text):
    with pytest.raises(StudyError):
        read_program(text)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(TEMPLATE)), st.integers(0, 20), st.text(max_size=8))
def test_the_checker_survives_damaged_programs(at, cut, patch):
    whole = inspect.cleandoc(TEMPLATE.format(body="        return record"))
    program, found = inspect_program(whole[:at] + patch + whole[at + cut :])
    assert (program is None) == bool(found)


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 500 + "1" + ")" * 500,
        "x = " + "+".join("1" * 3000),
        "x = " + "-" * 5000 + "1",
        "a" * 200_000,
        "x = 9**9**9**9",
        "x = " + "9" * 5000,
        "\x00",
        "\ud800",
        "[" * 150,
        "if 1:\n" * 90,
    ],
)
def test_texts_made_to_exhaust_the_checker_are_refused(text):
    with pytest.raises(StudyError):
        read_program(text)
