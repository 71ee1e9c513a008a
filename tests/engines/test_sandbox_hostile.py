"""Hostile programs: refused by the allow-list; and, had they got past it, contained by the lock (issue 4, item 4)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sandbox_programs import GRID, IN_COMPILED_CODE, IN_PYTHON, PUBLIC, STATE, Hostile, program_text, unchecked

from tallystick.algorithms.user_programs.program_file import inspect_program, read_program
from tallystick.core.errors import DataError, RoundAborted, StudyError, TallystickError
from tallystick.engines.sandbox.children import Children
from tallystick.engines.sandbox.program import RULE, SandboxedProgram, _blocks

RECORDS = np.random.default_rng(4).uniform(-1, 1, (200, 3))
BY_THE_ALLOW_LIST = [case for case in (*IN_PYTHON, *IN_COMPILED_CODE) if case.rule]


@pytest.mark.parametrize("case", BY_THE_ALLOW_LIST, ids=str)
def test_the_allow_list_refuses(case: Hostile) -> None:
    program, findings = inspect_program(case.text)
    assert program is None
    assert case.rule in {f.rule for f in findings}


@pytest.mark.parametrize("case", IN_PYTHON, ids=str)
def test_the_lock_contains_python(case: Hostile, unchecked_children: Children, limited: Callable[..., None]) -> None:
    if "did not answer" in case.contained:
        limited(unchecked_children, call_seconds=1.0)
    program = SandboxedProgram(unchecked(case.text), children=unchecked_children)
    with pytest.raises(StudyError, match=case.contained):
        program.init(PUBLIC)
    assert not Path("/tmp/tallystick-was-here").exists()
    program.close()


@pytest.mark.parametrize("case", IN_COMPILED_CODE, ids=str)
def test_the_lock_contains_compiled_code(case: Hostile, unchecked_children: Children) -> None:
    """On records: zeros, or unavailable for the rest of the study, and with no word of what the child said."""
    program = SandboxedProgram(unchecked(case.text), children=unchecked_children)
    if case.contained.startswith("adds zeros"):  # every record, not a sample, and nobody outside sees it
        try:
            total, left_out = program.compiled_map.total_leaving_out(RECORDS, STATE, GRID)
        except DataError:
            if not case.contained.endswith("or is stopped by the sample"):
                raise
            return
        assert (total.tolist(), left_out) == ([0, 0], len(RECORDS))
        program.close()
        return
    with pytest.raises(DataError, match=case.contained) as first:
        program.compiled_map.total_leaving_out(RECORDS, STATE, GRID)
    assert first.value.rule == RULE
    pids = set(map(id, unchecked_children._living))
    with pytest.raises(DataError, match=case.contained):
        program.compiled_map.total_leaving_out(RECORDS, STATE, GRID)
    assert set(map(id, unchecked_children._living)) == pids  # it was not even tried
    program.close()


def test_a_hostile_reduce_ends_the_study(unchecked_children: Children) -> None:
    program = SandboxedProgram(unchecked(program_text(reduce="import os\nos.fork()")), children=unchecked_children)
    with pytest.raises(RoundAborted, match="asked the system") as caught:
        program.reduce_in_aggregator(np.zeros(2), program.init(PUBLIC))
    assert caught.value.rule == RULE
    program.close()


# -- what the allow-list lets through, since it cannot know --------------------------------------------------------


ENDLESS = """
    s = 0.0
    for i in range(LOOPS):
        s = math.sin(s + i)
    return np.array([s, 1.0])
"""


@pytest.mark.parametrize("loops", ["2**60", "10**7", "int(max(record[0], 2.0) * 2**40 - 2**41)", "int(state[0])"])
def test_a_loop_without_a_bound_is_refused_before_any_record(children: Children, loops: str) -> None:
    """A loop that is endless for one record would withdraw the client: one bit about that record."""
    program = SandboxedProgram(read_program(program_text(map=ENDLESS.replace("LOOPS", loops))), children=children)
    with pytest.raises(StudyError, match=r"how often this loop runs|may cost") as caught:
        program.compiled_map.vector_size(3, STATE)
    assert caught.value.rule == "loop-bound"
    program.close()


def test_a_bounded_loop_may_depend_on_the_record_and_never_runs_into_the_time_limit(children: Children) -> None:
    """As slow as a program may be: a block of such records is as small as the time of a call allows."""
    text = program_text(map=ENDLESS.replace("LOOPS", "min(int(record[0]), 500_000)"))
    program = SandboxedProgram(read_program(text), children=children)
    assert program.compiled_map.vector_size(3, STATE) == 2
    most = max(len(block) for block in _blocks(np.zeros((5000, 3)), 0, program.compiled_map._steps[3]))
    assert 1 <= most * program.compiled_map._steps[3] <= 2 * 10**8
    odd = np.zeros((5, 3))
    odd[3, 0] = 1e9
    total, left_out = program.compiled_map.total_leaving_out(odd, STATE, GRID)
    assert (total[1], left_out) == (5 * 2**20, 0)
    program.close()


def test_records_that_fail_leave_nothing_behind(children: Children) -> None:
    """However many fail: memory is laid out once, and a record's failing zeroes no neighbour."""
    text = program_text(
        map="""
        large = np.ones(2**17)
        small = np.ones(3)
        if record[0] > 0.5:
            small[0] = large[int(record[1])]
        return np.array([small[0], large[0]])
        """
    )
    program = SandboxedProgram(read_program(text), children=children)
    records = np.zeros((300, 3))
    records[::2] = 1e9  # an index out of range
    total, left_out = program.compiled_map.total_leaving_out(records, STATE, GRID)
    assert (total.tolist(), left_out) == ([150 * 2**20] * 2, 150)
    program.close()


def test_arrays_that_are_too_large_are_refused(children: Children) -> None:
    text = program_text(map="large = np.ones(2**23)\nreturn large[:2]")
    program = SandboxedProgram(read_program(text), children=children)
    with pytest.raises(StudyError, match="too long") as caught:
        program.compiled_map.vector_size(3, STATE)
    assert caught.value.rule == "array-size"
    program.close()


def test_nan_adds_zeros(children: Children) -> None:
    text = program_text(map="return np.array([np.log(record[0]), 1.0])")
    program = SandboxedProgram(read_program(text), children=children)
    records = np.array([[1.0, 0, 0], [-1.0, 0, 0], [0.0, 0, 0], [1.0, 0, 0]])
    total, left_out = program.compiled_map.total_leaving_out(records, STATE, GRID)
    assert (total.tolist(), left_out) == ([0, 2 * 2**20], 2)
    vectors, left_out = program.compiled_map.vectors_leaving_out(records, STATE, 2)
    assert (vectors.tolist(), left_out) == ([[0, 1], [0, 0], [0, 0], [0, 1]], 2)
    program.close()


# -- the lock itself ---------------------------------------------------------------------------------------------------


def test_a_child_has_nothing_of_the_roles(unchecked_children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment, no arguments, no descriptor: what a program could look at in its own process."""
    look = """
        import os, sys
        import tallystick
        found = [bool(os.environ.get('SECRET_OF_THE_ROLE')), len(sys.argv) > 2]
        for number in range(3, 64):
            try:
                os.lseek(number, 0, 1)
                found.append(True)
            except OSError as error:
                found.append(error.errno == 29 and number > 4)
        return np.array(found, dtype=float)
    """
    program = SandboxedProgram(unchecked(program_text(init=look)), children=unchecked_children)
    assert not program.init(PUBLIC).any()
    program.close()


def test_the_kernel_says_that_children_are_locked(children: Children) -> None:
    program = SandboxedProgram(read_program(program_text()), children=children)
    program.compiled_map.vector_size(3, program.init(PUBLIC))
    assert len(children._living) >= 2
    for child in children._living:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{child.pid}/status").read_text().splitlines())
        assert status["Seccomp"].strip() == "2"
        assert status["NoNewPrivs"].strip() == "1"
        assert status["Threads"].strip() == "1"
        limits = Path(f"/proc/{child.pid}/limits").read_text()
        assert "Max core file size        0                    0" in limits
        assert "Max file size             0                    0" in limits
        if os.geteuid() == 0:
            assert sorted(os.listdir(f"/proc/{child.pid}/fd")) == ["3", "4"]  # noqa: PTH208
    program.close()


def test_every_function_on_the_allow_list_works_behind_the_lock(children: Children) -> None:
    """Nothing that a program may say needs a file, a module or new code at the moment it is said."""
    public = """
        m = np.array([[2.0, 1.0], [1.0, 3.0]])
        v = np.array([1.0, 2.0])
        a = np.linalg.solve(m, v) + np.linalg.inv(m)[0] + np.linalg.pinv(m)[0] + np.linalg.lstsq(m, v)[0]
        e, q = np.linalg.eigh(m)
        s = np.linalg.svd(m)[1] + np.linalg.eigvalsh(m) + np.linalg.qr(m)[0][0] + np.linalg.cholesky(m)[0]
        d = np.linalg.det(m) + np.linalg.slogdet(m)[1] + np.linalg.norm(v)
        n = np.median(v) + np.quantile(v, 0.5) + np.average(v) + np.trace(m) + np.vdot(v, v) + np.inner(v, v)
        u = np.unique(np.sort(np.tile(v, 2))) + np.diff(np.linspace(0.0, 1.0, 3)) + np.cumprod(v) + np.flip(v)
        w = np.matmul(m, v) + np.diag(m) + np.diagonal(m) + np.tril(m)[0] + np.triu(m)[0] + np.identity(2)[0]
        h = np.hstack([v, v])[:2] + np.vstack([v, v])[0] + np.stack([v, v])[0] + np.column_stack([v, v])[0]
        b = np.bincount(np.argsort(v)) + np.count_nonzero(v) + np.nonzero(v)[0] + np.split(v, 2)[0] + np.ravel(m)[:2]
        r = np.repeat(v, 2)[:2] + np.squeeze(m)[0] + np.transpose(m)[0] + np.reshape(m, 4)[:2] + np.nan_to_num(v)
        o = np.atleast_1d(v) + np.atleast_2d(v)[0] + np.asarray(v) + np.arange(2) + np.searchsorted(v, 1.5)
        if np.isclose(1.0, 1.0) and np.allclose(v, v):
            o = o + 1.0
        return a + e + q[0] + s + d + n + u + w + h + b + r + o + math.erf(0.5) + math.gamma(2.5) + math.floor(1.5)
    """
    mapped = """
        x = np.abs(record) + 0.5
        r = x[0]
        y = np.where(np.logical_and(np.isfinite(x), np.logical_not(np.isnan(x))), np.maximum(np.exp(x), 1.0), 0.0)
        u = np.expm1(r) + np.log(r) + np.log1p(r) + np.log2(r) + np.log10(r) + np.sqrt(r) + np.square(r) + np.sign(r)
        u += np.power(r, 2.0) + np.sin(r) + np.cos(r) + np.tan(r) + np.arcsin(r / 9) + np.arccos(r / 9) + np.arctan(r)
        u += np.arctan2(r, r) + np.sinh(r) + np.cosh(r) + np.tanh(r) + np.floor(r) + np.ceil(r) + np.trunc(r)
        u += np.rint(r) + np.minimum(r, 1.0) + np.hypot(r, r) + np.cumsum(x)[0] + np.clip(x, 0.0, 1.0)[0]
        t = np.sum(x) + np.prod(x) + np.max(x) + np.min(x) + np.mean(x) + np.var(x) + np.std(x) + np.dot(x, x)
        t += np.any(np.logical_or(np.isinf(x), x > 1.0)) + np.all(x > 0.0) + np.argmax(x) + np.argmin(x)
        t += np.searchsorted(np.cumsum(x), 1.0) + np.outer(x, x)[0, 0] + np.eye(3)[1, 1] + np.full(3, 2.0)[0]
        t += np.concatenate((x, np.ones_like(x), np.zeros_like(x), np.full_like(x, 2.0)))[3] + (x @ x)
        t += math.erf(x[0]) + math.erfc(x[0]) + math.gamma(x[0]) + math.lgamma(x[0]) + math.atan2(x[0], 1.0)
        t += math.pow(x[0], 2.0) + math.hypot(x[0], 1.0) + math.copysign(1.0, x[0]) + int(x[0]) + state[0]
        return np.array([y[0] / 1000.0, (t + u) / 1000.0])
    """
    file = read_program(program_text(init=public, map=mapped))
    program = SandboxedProgram(file, children=children)
    state = program.init(PUBLIC)
    assert np.isfinite(state).all()
    assert program.compiled_map.vector_size(3, state) == 2
    assert program.compiled_map.total_leaving_out(RECORDS, state, GRID)[1] == 0
    program.close()


def test_no_sandbox_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a child cannot be locked in, a role refuses program files and says what to do."""
    monkeypatch.setattr("tallystick.engines.sandbox.children.architecture_here", lambda: None)
    program = SandboxedProgram(read_program(program_text()), children=Children())
    with pytest.raises(StudyError, match="program files cannot be run here") as caught:
        program.init(PUBLIC)
    assert caught.value.rule == "sandbox-unavailable"
    assert "Linux" in str(caught.value.remedy)
    assert isinstance(caught.value, TallystickError)


@pytest.mark.parametrize("command", ["/bin/false", "/nowhere/python"])
def test_a_fork_server_that_does_not_start_is_said(command: str) -> None:
    with closing(Children(command=(command,))) as none:
        program = SandboxedProgram(read_program(program_text()), children=none)
        with pytest.raises(StudyError, match="does not start"):
            program.init(PUBLIC)
        with pytest.raises(DataError, match="does not start"):
            program.compiled_map.total_leaving_out(RECORDS, STATE, GRID)
