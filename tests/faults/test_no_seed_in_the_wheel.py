"""Nothing that ships can seed, silence or replay noise, or end a process at a crash point.

The syntax trees of the wheel are searched for whoever would read the environment, install a crash handler or take a
seed on the way to a role; and real processes, started by the shipped command with everything one might try, still
draw from the operating system.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from consortium_fixture import SEED, Parties, bits, wait_for

import tallystick
from tallystick.bench.measuring import RoundNoise
from tallystick.core.errors import StudyError
from tallystick.engines.sandbox.children import _PASSED_ON
from tallystick.roles.identity.role_config import load_role_config

PACKAGE = Path(tallystick.__file__).parent
TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
ROLE_TREES = {path: tree for path, tree in TREES.items() if "roles" in path.relative_to(PACKAGE).parts}
# Where a seed is a word of the interface: simulation, never a bench or a role.
SEEDABLE = {"simulation.py", "main.py", "synthetic_records.py"}
# What silent_noise, below, asks of a draw, and what it finds there.
SAMPLERS = {"draw_noise", "sample"}
ARRAYS = {"arange", "array", "asarray", "empty", "empty_like", "frombuffer", "full", "ones", "zeros", "zeros_like"}
SEEDED = {"AesStream", "default_rng", "derive", "expand", "RandomState", "seed_bytes"}
NOISELESS = re.compile(r"(?i)no_?noise|noise_?(less|free)|(without|zero|silent|null|fake|known)_?noise")
# Silencing gRPC's own log, and handing the environment on to the processes of the demonstration.
# What a locked child is handed on of it is a fixed list of paths and words for the C library (checked below).
HARMLESS = (
    "os.environ.setdefault('GRPC_VERBOSITY', 'NONE')",
    "os.environ | _THREADS",
    "os.environ.get(_SETTING)",  # NUMBA_CACHE_DIR: where compiled code is kept
    "os.environ.pop(_SETTING, None)",
    "os.environ[_SETTING]",
    "os.environ.get('XDG_CACHE_HOME')",
    "os.environ.setdefault('PYSPARK_PYTHON', sys.executable)",  # for the executors of a session of one's own
    "'JAVA_HOME' not in os.environ",  # whether there is a Java for Spark
    "name not in os.environ",  # a client's own database: ${NAME} in its address, filled in for the driver alone
    "os.environ[found[1]]",
    "{key: os.environ[key] for key in _PASSED_ON if key in os.environ}",  # to a steward's own command
    "{name: os.environ[name] for name in _PASSED_ON if name in os.environ}",
)
LURES = ("seed", "TALLYSTICK_SEED", "PYTHONHASHSEED", "TALLYSTICK_NO_NOISE", "TALLYSTICK_TEST", "NOISE", "SEED")


def names_in(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def test_the_package_reads_no_environment() -> None:
    for path, tree in TREES.items():
        text = ast.unparse(tree)
        for harmless in HARMLESS:
            text = text.replace(harmless, "_")
        assert not names_in(ast.parse(text)) & {"environ", "environb", "getenv", "getenvb"}, path


def test_what_a_locked_child_is_handed_on_cannot_seed_it() -> None:
    assert set(_PASSED_ON) == {"HOME", "LANG", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"}


def test_nobody_in_the_wheel_installs_a_crash_handler() -> None:
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute):
                target = ast.unparse(called)
                assert target != "crash_points.install", path
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("crash_points"):
                assert not {alias.name for alias in node.names} & {"install", "_handler"}, path
            if isinstance(node, ast.Assign) and path.name != "crash_points.py":
                assert "_handler" not in {ast.unparse(t).rpartition(".")[2] for t in node.targets}, path


def test_a_role_has_one_source_of_randomness() -> None:
    """``streams=`` is given once, in roles/processes/start.py, and it is the system's."""
    given = []
    for path, tree in ROLE_TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "streams":
                given.append((path.name, ast.unparse(node.value)))
            if isinstance(node, (ast.arg, ast.keyword)) and node.arg in ("seed", "seeded", "rng", "random_state"):
                pytest.fail(f"{path.name} takes a {node.arg}")
        assert not names_in(tree) & {"derive", "seed_bytes", "default_rng", "RandomState"}, path
    assert given == [("start.py", "_system_streams")]


def test_seeds_are_words_of_the_simulation_only() -> None:
    for path, tree in TREES.items():
        if path.relative_to(PACKAGE).parts[0] not in ("cli", "application", "bench") or path.name in SEEDABLE:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                assert "seed" not in node.arg, path


def silent_noise(tree: ast.AST) -> list[str]:
    """What in a module could stand where a machine's noise is drawn, and be silent, scaled down or seeded.

    A machine's noise is an object with ``draw(round)``. Every such method must give back what an exact sampler drew:
    it makes no array and no stream of its own, and scales nothing. No such object comes about in another way: ``draw``
    is not assigned, set or handed over by keyword, and nothing is called noiseless.
    """
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and NOISELESS.search(node.name):
            found.append(f"{node.name} is called noiseless")
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found += ["draw is assigned"] * (ast.unparse(node).rpartition(".")[2] == "draw")
        if isinstance(node, ast.keyword) and node.arg == "draw":
            found.append("draw is handed over")
        if isinstance(node, ast.Constant) and node.value == "draw":
            found.append("draw is named in a text, as setattr and type need it")
        if isinstance(node, ast.ClassDef) and "Protocol" not in {ast.unparse(base) for base in node.bases}:
            found += [f"{node.name}: {wrong}" for method in node.body for wrong in _silences(method)]
    return found


def _silences(method: ast.stmt) -> list[str]:
    """What is wrong with a ``draw(self, round)``; nothing is with anything else."""
    if not isinstance(method, ast.FunctionDef) or method.name != "draw":
        return []
    parameters = method.args
    if len([*parameters.posonlyargs, *parameters.args]) < 2 and parameters.vararg is None:
        return []  # not of a round
    found = [f"draw names {name}" for name in sorted(names_in(method) & (ARRAYS | SEEDED))]
    scaled = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.LShift, ast.RShift, ast.Pow, ast.MatMult)
    if any(isinstance(node, scaled) for node in ast.walk(method)):
        found.append("draw scales")
    drawn = set(SAMPLERS)
    for node in ast.walk(method):
        if isinstance(node, ast.Assign) and names_in(node.value) & drawn:
            drawn |= {name for target in node.targets for name in names_in(target)}
    returned = [node.value for node in ast.walk(method) if isinstance(node, ast.Return)]
    if not returned or any(value is None or not names_in(value) & drawn for value in returned):
        found.append("draw gives back what no sampler drew")
    return found


def test_nothing_in_the_wheel_silences_noise() -> None:
    """Not the benches either. The one branch without noise is ``mechanism = "none"``, in privacy/noise.py."""
    drawing = []
    for path, tree in TREES.items():
        assert silent_noise(tree) == [], path
        drawing += [path.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "draw"]
        if path.relative_to(PACKAGE).parts[0] == "bench":
            assert not names_in(tree) & SEEDED, path
    assert "measuring.py" in drawing  # the search sees those there are


PLANTED = {
    "the bench's own, as it was": """
        class _NoNoise:
            def draw(self, round: int):
                return np.zeros(self._size, dtype=np.int64)
        """,
    "in a function": """
        def upload(size):
            class Quiet:
                def draw(self, _number):
                    return np.zeros(size, dtype=np.int64)
        """,
    "a constant kept from elsewhere": "class Still(ServerNoise):\n    def draw(self, round): return self._kept",
    "drawn and not given back": """
        class Decoy:
            def draw(self, *rounds):
                discrete_gaussian.sample(self._variance, self._size, system_stream())
                return self._kept
        """,
    "nothing given back": "class Mute:\n    def draw(self, round): draw_noise(self._plan, self._source)",
    "scaled to nothing": "class Low:\n    def draw(self, round): return 0 * draw_noise(self._plan, self._source)",
    "seeded": "class Same:\n    def draw(self, round): return draw_noise(self._plan, AesStream(bytes(32)))",
    "only one of two": """
        class Sometimes:
            def draw(self, round):
                if round > 1:
                    return self._zeros
                return draw_noise(self._plan, self._source)
        """,
    "a name": "class NoiselessServer(ServerMachine): ...",
    "a lambda": "noise = SimpleNamespace(draw=lambda round: zeros)",
    "put over a method": "ServerNoise.draw = quiet",
    "set": "setattr(noise, 'draw', quiet)",
    "made by type": "Quiet = type('Quiet', (), {'draw': quiet})",
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_silence_is_found(planted: str) -> None:
    assert silent_noise(ast.parse(textwrap.dedent(PLANTED[planted])))


def test_the_search_lets_honest_noise_be() -> None:
    honest = """
        class ServerNoise:
            def draw(self, round):
                source = self._stream(b"noise", round.to_bytes(8, "little"))
                noise = draw_noise(self._plan.rounds[round - 1], source)
                return padded(noise, self._size)

        class Outbound:
            def draw(self):
                return self._pieces.popleft()
        """
    assert silent_noise(ast.parse(textwrap.dedent(honest))) == []


def test_the_benches_draw_from_the_system() -> None:
    noise, other = RoundNoise(1000), RoundNoise(1000)
    draws = [noise.draw(1), noise.draw(1), noise.draw(2), other.draw(1)]
    assert all(np.count_nonzero(drawn) > 990 for drawn in draws)  # a standard deviation of a million
    assert len({drawn.tobytes() for drawn in draws}) == len(draws)


@pytest.mark.parametrize("role", ["server", "client", "aggregator"])
@pytest.mark.parametrize(
    "flag", ["--seed", "--noise", "--no-noise", "--test", "--simulate", "--crash", "--deterministic"]
)
def test_no_flag(parties_once: Parties, role: str, flag: str) -> None:
    """The shipped command refuses every such option before it starts anything."""
    from tallystick.cli.main import main

    name = {"server": "server-1", "client": "client-1", "aggregator": "aggregator"}[role]
    try:
        code: object = main([role, "start", "--config", str(parties_once.configs[name][1]), flag, "1"])
    except SystemExit as ended:
        code = ended.code
    assert code not in (0, None)
    assert not parties_once.state(name).exists()  # nothing was started


@pytest.mark.parametrize("section", ["role", "policy", "data", "metrics", "noise", "test"])
@pytest.mark.parametrize("key", ["seed", "noise", "noise_scale", "no_noise", "randomness", "streams", "crash_points"])
def test_no_config_key(parties_once: Parties, tmp_path: Path, section: str, key: str) -> None:
    text = parties_once.configs["client-1"][1].read_text()
    head = f"[{section}]"
    if head in text:
        start = text.index(head)
        end = text.index("\n", start) + 1
        text = text[:end] + f"{key} = 1\n" + text[end:]
    else:
        text += f"\n{head}\n{key} = 1\n"
    file = tmp_path / "role.toml"
    file.write_text(text)
    with pytest.raises(StudyError):
        load_role_config(file, role="client")


@pytest.fixture(scope="module")
def parties_once(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    """A consortium that is never started."""
    return Parties(tmp_path_factory.mktemp("unstarted"))


def test_shipped_processes_draw_from_the_system(parties: Parties) -> None:
    """``tallystick ROLE start`` under every lure: not the simulation's bits, and never the same bits twice."""
    lured = {**os.environ, **dict.fromkeys(LURES, str(SEED)), "OMP_NUM_THREADS": "1"}
    lured["PYTHONHASHSEED"] = "1"
    running = []
    for name, (role, config) in parties.configs.items():
        command = [sys.executable, "-m", "tallystick.cli.main", role, "start", "--config", str(config)]
        with parties.log_file(name).open("w") as log:
            running.append(subprocess.Popen(command, stderr=log, env=lured))
    try:
        wait_for(lambda: all("is up" in parties.log(name) for name in parties.configs))
        study = parties.study(name="once", connect_timeout_s=120)
        other = parties.study(name="another", connect_timeout_s=120)
        models = [parties.fit(s) for s in (study, other)]
        simulated = [parties.simulated(s) for s in (study, other)]
    finally:
        for process in running:
            process.terminate()
        codes = [process.wait(30) for process in running]
    assert codes == [0] * len(codes), parties.logs()  # and they stop when they are told to
    for real, same in zip(models, simulated):
        assert bits(real) != bits(same)
        assert not np.allclose(real.coef_, same.coef_)  # noise, not rounding
    assert not np.allclose(models[0].coef_, models[1].coef_)
