"""Programs in locked children: the bits they have elsewhere, one child per program, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sandbox_programs import GRID, PUBLIC, ROOT, program_text

import tallystick as ts
from tallystick.algorithms.program import pack_state
from tallystick.algorithms.user_programs import program_file
from tallystick.algorithms.user_programs.program_file import ProgramFile, compile_program, load_program, read_program
from tallystick.core.errors import DataError, RoundAborted, StudyError
from tallystick.engines.designs import design_of, program_of
from tallystick.engines.planning import layout_of
from tallystick.engines.sandbox import messages
from tallystick.engines.sandbox.children import Child, Children
from tallystick.engines.sandbox.program import SandboxedProgram
from tallystick.engines.setup import set_up
from tallystick.privacy.grid import Grid, Group
from tallystick.study import Study

RNG = np.random.default_rng(11)
RECORDS = RNG.uniform(-1, 1, (5000, 3))
FILE = read_program(
    program_text(
        more="from typing import NamedTuple\n\n\nclass S(NamedTuple):\n    w: np.ndarray\n    n: float\n",
        init="return S(w=np.zeros(2), n=float(public.records))",
        map="""
        if record[2] > 0.9:
            return np.array([math.log(-record[2]), 1.0])
        return np.array([record[0] * math.tanh(state.w[0] + record[1]), record[1] + state.n])
        """,
        reduce="return S(w=state.w + np.sqrt(np.abs(total)) / state.n, n=state.n)",
    )
)


@pytest.fixture
def program(children: Children) -> SandboxedProgram:
    return SandboxedProgram(FILE, children=children)


def living(of: Children) -> list[Child]:
    return [child for child in of._living if not child.ended]


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


# -- the same bits ----------------------------------------------------------------------------------------------------


def test_totals_vectors_and_states_have_the_bits_of_the_unlocked_program(program: SandboxedProgram) -> None:
    here, compiled = load_program(FILE), compile_program(FILE)
    state, other = here.init(PUBLIC), program.init(PUBLIC)
    for _ in range(3):
        assert pack_state(state) == pack_state(other)
        assert other._fields == ("w", "n")
        total, left_out = compiled.total_leaving_out(RECORDS, state, GRID)
        theirs, also = program.compiled_map.total_leaving_out(RECORDS, other, GRID)
        assert total.tobytes() == theirs.tobytes()
        assert left_out == also > 0
        vectors = compiled.vectors_leaving_out(RECORDS[:100], state, 2)[0]
        assert vectors.tobytes() == program.compiled_map.vectors_leaving_out(RECORDS[:100], other, 2)[0].tobytes()
        real = total / 2.0**20
        state, other = here.reduce_in_aggregator(real, state), program.reduce_in_aggregator(real, other)
        assert here.finished(state) == program.finished(other)
    assert program.compiled_map.vector_size(3, other) == compiled.vector_size(3, state) == 2
    assert (program.rounds, program.bound, program.groups) == (here.rounds, here.bound, here.groups)


def test_blocks_do_not_show(program: SandboxedProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    state = program.init(PUBLIC)
    whole = program.compiled_map.total_leaving_out(RECORDS, state, GRID)
    monkeypatch.setattr("tallystick.engines.sandbox.program._BLOCK_BYTES", 8 * 3 * 700)
    parts = program.compiled_map.total_leaving_out(RECORDS[::-1], state, GRID)
    assert whole[0].tobytes() == parts[0].tobytes()
    assert whole[1] == parts[1]
    none = program.compiled_map.total_leaving_out(RECORDS[:0], state, GRID)
    assert (none[0].tolist(), none[1]) == ([0, 0], 0)
    assert program.compiled_map.vectors_leaving_out(RECORDS[:0], state, 2)[0].shape == (0, 2)


STUDY = """
[study]
name = "visits"
program = "poisson_regression.py"
target = "visits"
[privacy]
epsilon = 5.0
UNIT
[data]
records = 300
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
visits = { type = "number", lower = 0, upper = 20 }
"""


@pytest.mark.parametrize("unit", ["", 'unit = "person"\nmax_records = 2\nperson = "who"'])
def test_a_whole_study_has_the_bits_of_the_unlocked_one(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every role sets it up (through the process's own children), against the program run here."""
    text = (ROOT / "examples/programs/poisson_regression.py").read_text(encoding="utf-8").replace("= 20", "= 3")
    study = Study.parse(STUDY.replace("UNIT", unit))
    plain, study = program_of(study, lambda _: text)
    layout = layout_of(study)
    for run_here in ("load_program", "compile_program"):  # a role must not: not even for the class body
        monkeypatch.setattr(f"tallystick.engines.designs.{run_here}", None)
        monkeypatch.setattr(program_file, run_here, None)
    setup = set_up(study.canonical(), text)
    locked = setup.design.program
    assert isinstance(locked, SandboxedProgram)
    assert set_up(study.canonical(), text) is setup  # one set-up a study and process
    age = RNG.uniform(0, 100, 300)
    frame = {"age": age, "visits": RNG.poisson(1 + age / 50), "who": np.arange(300) // 2}
    frames = [{name: cells[i::3] for name, cells in frame.items()} for i in range(3)]
    states = []
    for design in (design_of(study, layout, plain), setup.design):
        fed = ts.Federation.simulate(frames, schema=study.schema_of_data(), seed=5)
        states.append(fed.run(study, design).outcome.history)
    assert [pack_state(s) for s in states[0]] == [pack_state(s) for s in states[1]]
    assert len(states[0]) == 3
    setup.close()


class Parts(NamedTuple):
    floats: Any
    ints: Any
    flag: Any
    number: Any
    whole: Any


@pytest.mark.parametrize(
    "state",
    [
        np.linspace(0, 1, 6).reshape(2, 3).T,
        1.5,
        (1, 2.5, True, np.float64(0.1), np.int64(7), np.bool_(True)),
        Parts(np.zeros((0, 4)), np.arange(3), np.array([True, False]), np.array(2.0), -(2**63)),
        (),
    ],
)
def test_a_state_travels_exactly(state: Any) -> None:
    told, packed = messages.encode_state(state)
    back = messages.decode_state(told, packed)
    parts = list(state) if isinstance(state, tuple) else [state]
    found = list(back) if isinstance(state, tuple) else [back]
    assert getattr(back, "_fields", None) == getattr(state, "_fields", None)
    for a, b in zip(parts, found, strict=True):
        assert type(a) is type(b)
        assert np.array_equal(a, b)
        assert np.shape(a) == np.shape(b)
        assert getattr(a, "dtype", None) == getattr(b, "dtype", None)


@pytest.mark.parametrize("state", ["text", (1.0, None), [1.0], 2**63, np.zeros(2, dtype=complex)])
def test_what_is_no_state_is_refused(state: Any) -> None:
    with pytest.raises(StudyError, match="a state holds a"):
        messages.encode_state(state)


def test_a_state_of_another_shape_ends_the_study(children: Children) -> None:
    program = SandboxedProgram(read_program(program_text(reduce="return np.zeros(3)")), children=children)
    with pytest.raises(RoundAborted, match="another shape"):
        program.reduce_in_aggregator(np.zeros(2), program.init(PUBLIC))
    program.close()


# -- one child of each kind per program, whoever asks -----------------------------------------------------------------


def test_a_program_has_two_children_however_often_it_is_set_up(children: Children) -> None:
    for child in living(children):
        child.close()
    first, second = (SandboxedProgram(FILE, children=children) for _ in range(2))
    state = first.init(PUBLIC)
    sizes = {first.compiled_map.vector_size(3, state), second.compiled_map.vector_size(3, second.init(PUBLIC))}
    assert sizes == {2}
    assert len(living(children)) == 2
    first.close()
    assert living(children) == []
    assert second.finished(state) is False  # it comes back when it is needed
    assert len(living(children)) == 1
    second.close()


def test_many_threads_ask_at_once(program: SandboxedProgram) -> None:
    state = program.init(PUBLIC)
    states = [program.reduce_in_aggregator(np.full(2, float(i)), state) for i in range(4)]
    expected = [program.compiled_map.total_leaving_out(RECORDS, s, GRID)[0].tobytes() for s in states]
    found: dict[int, bytes] = {}

    def work(i: int) -> None:
        for _ in range(3):
            found[i] = program.compiled_map.total_leaving_out(RECORDS, states[i], GRID)[0].tobytes()
            program.finished(states[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[i] for i in range(4)] == expected


def test_the_oldest_children_make_room(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallystick.engines.sandbox.children._MOST_CHILDREN", 3)
    programs = [
        SandboxedProgram(read_program(program_text(init=f"return np.ones({i})")), children=children)
        for i in range(1, 6)
    ]
    for _ in range(2):
        assert [len(p.init(PUBLIC)) for p in programs] == [1, 2, 3, 4, 5]
        for p in programs:
            p._starts.clear()
        assert len(living(children)) <= 3
    for p in programs:
        p.close()


def test_a_child_is_replaced_before_its_processor_time_is_used_up(program: SandboxedProgram) -> None:
    state = program.init(PUBLIC)
    program.finished(state)
    locked = program._locked
    assert locked._child is not None
    before, locked._child.busy_seconds = locked._child, 1e9
    assert program.finished(state) is False
    assert locked._child is not before
    assert before.ended


def test_a_state_of_another_kind_is_compiled_anew(program: SandboxedProgram) -> None:
    program.compiled_map.vector_size(3, program.init(PUBLIC))
    locked = program.compiled_map._locked
    before = locked._child
    with pytest.raises(StudyError, match="an array of 2 has no `w`"):
        program.compiled_map.vector_size(3, np.zeros(2))  # the program asks for .w
    assert locked._child is None
    assert program.compiled_map.vector_size(3, program.init(PUBLIC)) == 2
    assert locked._child is not before


# -- deaths -----------------------------------------------------------------------------------------------------------


def test_a_child_killed_between_two_calls_is_replaced_and_gives_the_same_bits(program: SandboxedProgram) -> None:
    state = program.init(PUBLIC)
    whole = program.compiled_map.total_leaving_out(RECORDS, state, GRID)[0].tobytes()
    for locked in (program._locked, program.compiled_map._locked):
        assert locked._child is not None or program.finished(state) is False
        os.kill(locked._child.pid, signal.SIGKILL)  # type: ignore[union-attr]
    assert program.finished(state) is False
    assert program.compiled_map.total_leaving_out(RECORDS, state, GRID)[0].tobytes() == whole


def test_a_child_killed_during_a_call_is_replaced_and_gives_the_same_bits(children: Children) -> None:
    slow = """
        s = record[0]
        for i in range(20000):
            s = math.sin(s + i)
        return np.array([s, 1.0])
    """
    program = SandboxedProgram(read_program(program_text(map=slow)), children=children)
    state = program.init(PUBLIC)
    expected = program.compiled_map.total_leaving_out(RECORDS[:1000], state, GRID)[0].tobytes()
    locked, found = program.compiled_map._locked, []
    work = threading.Thread(
        target=lambda: found.append(program.compiled_map.total_leaving_out(RECORDS[:1000], state, GRID))
    )
    assert locked._child is not None
    first = locked._child.pid
    work.start()
    wait_until(lambda: locked._child is not None and locked._child.lock.locked())
    os.kill(first, signal.SIGKILL)
    work.join()
    assert found[0][0].tobytes() == expected
    assert locked._child.pid != first
    program.close()


def test_a_child_that_is_killed_again_and_again_is_a_typed_abort_and_not_for_ever(
    program: SandboxedProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = program.init(PUBLIC)
    whole = program.compiled_map.total_leaving_out(RECORDS, state, GRID)[0].tobytes()

    def kill_first(child: Child, *rest: Any, **more: Any) -> Any:
        os.kill(child.pid, signal.SIGKILL)
        return call(child, *rest, **more)

    call = Child.call
    with monkeypatch.context() as patch:
        patch.setattr(Child, "call", kill_first)
        with pytest.raises(DataError, match="killed from outside"):
            program.compiled_map.total_leaving_out(RECORDS, state, GRID)
        with pytest.raises(RoundAborted, match="killed from outside"):
            program.finished(state)
    assert program.compiled_map.total_leaving_out(RECORDS, state, GRID)[0].tobytes() == whole


def test_very_long_vectors_fit_into_a_child() -> None:
    """Millions of numbers for a record: the sample that is mapped together is no larger than a child can hold."""
    size = 1_400_000
    file = read_program(program_text(map=f"return np.full({size}, record[0])"))
    grid = Grid(groups=(Group(name="all", size=size, bound=float(size)),), fraction_bits=4, norm="l2")
    with closing(Children()) as own:
        compiled = SandboxedProgram(file, children=own).compiled_map
        assert compiled.vector_size(3, np.zeros(2)) == size
        total, left_out = compiled.total_leaving_out(np.ones((20, 3)), np.zeros(2), grid)
    assert (np.unique(total).tolist(), left_out) == ([20 * 2**4], 0)


def test_a_killed_fork_server_is_started_again() -> None:
    with closing(Children()) as own:
        program = SandboxedProgram(FILE, children=own)
        state = program.init(PUBLIC)
        assert program.finished(state) is False
        (child,) = living(own)
        assert own._server is not None
        before = own._server.pid
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: not alive(child.pid))  # its children go with it
        assert program.finished(state) is False
        assert own._server.pid != before
        pids = [own._server.pid, *(c.pid for c in living(own))]
    wait_until(lambda: not any(map(alive, pids)))
    own.close()  # twice is fine


def test_nothing_is_left_of_a_role_that_is_killed(tmp_path: Path) -> None:
    """kill -9 of the role while a program loops for ever: the kernel ends its server and its children."""
    script = tmp_path / "role.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys, threading, time
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from sandbox_programs import PUBLIC, program_text
            from tallystick.algorithms.user_programs.program_file import read_program
            from tallystick.engines.sandbox.children import shared_children
            from tallystick.engines.sandbox.program import SandboxedProgram

            endless = "for i in range(2**60):\\n    x = i\\nreturn np.zeros(2)"
            program = SandboxedProgram(read_program(program_text(init=endless)))
            threading.Thread(target=program.init, args=(PUBLIC,), daemon=True).start()
            own = shared_children()
            while not any(child.lock.locked() and program._locked._child is child for child in list(own._living)):
                time.sleep(0.01)
            time.sleep(0.2)
            print(own._server.pid, *(child.pid for child in own._living), flush=True)
            time.sleep(1000)
            """
        )
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as role:
        assert role.stdout is not None
        pids = [int(word) for word in role.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(alive, pids))
        role.kill()
    wait_until(lambda: not any(map(alive, pids)))


def test_a_forked_role_has_children_of_its_own(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.engines.sandbox import children as module

    mine = module.shared_children()
    assert module.shared_children() is mine
    monkeypatch.setattr(module, "_shared", (os.getpid() + 1, children))  # as a fork would find it
    assert module.shared_children() is not children
    monkeypatch.setattr(children, "_owner", os.getpid() + 1)
    server = children._server
    monkeypatch.setattr(children, "_control", None)  # what a fork closes is its own copy of the line
    children._shut()
    assert server is None or alive(server.pid)
    children._server = server


def test_a_program_file_is_what_its_hash_says(children: Children) -> None:
    """The child checks the text again: a file that nobody checked does not run there."""
    forged = ProgramFile(
        name="forged.py",
        hash=FILE.hash,
        text="import os\n" + FILE.text,
        class_name="P",
        docstring="",
        constants=dict(FILE.constants),
        fields=FILE.fields,
    )
    program = SandboxedProgram(forged, children=children)
    with pytest.raises(StudyError, match="`import os` is not allowed"):
        program.init(PUBLIC)
    with pytest.raises(StudyError, match="`import os` is not allowed"):
        program.compiled_map.vector_size(3, np.zeros(2))
