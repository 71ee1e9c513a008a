"""``plan``, ``check-program``, ``schema``, ``--help`` and the console script itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import jsonschema
import numpy as np
import pytest
from cli_runs import STUDY, Run, clinic, study_file
from typer.models import OptionInfo

import tallystick as ts
from tallystick.algorithms.built_in import BUILT_IN
from tallystick.cli.main import app
from tallystick.study import Study

Runner = Callable[..., Run]
ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
EXAMPLES = sorted((ROOT / "examples").rglob("*.toml"))


def shell(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The installed command, in a process of its own."""
    command = [sys.executable, "-m", "tallystick.cli.main", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)


# -- plan -------------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_a_study_costs(run: Runner, study: Path) -> None:
    plan = run("plan", study, "--records", 5000, "--format", "json").json
    assert plan["schema"] == "tallystick/plan/1"
    assert (plan["records"], plan["columns"], plan["hopeless"]) == (5000, 3, None)
    assert [r["rounds"] for r in plan["rounds"]] == [[1, 1], [2, 4]]
    assert [r["group"] for r in plan["rounds"]] == ["moments", "gradient"]
    assert sum(r["rho"] * (r["rounds"][1] - r["rounds"][0] + 1) for r in plan["rounds"]) == pytest.approx(
        plan["privacy"]["rho"]
    )
    text = run("plan", study, "--records", 5000).out
    assert "it costs     epsilon = 10, delta = 1e-06" in text
    assert "nothing was spent" in text


def test_a_plan_and_a_run_state_the_same_privacy(run: Runner, study: Path, data: Path) -> None:
    planned = run("plan", study, "--records", 120, "--format", "json").json
    done = run("simulate", study, "--data", data, "--format", "json").json
    assert planned["privacy"] == done["privacy"]
    assert planned["study"] == done["study"]


def test_a_plan_reads_no_record(run: Runner, study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a plan read records or opened a ledger")

    for name in (
        "tallystick.data.sources._open",
        "tallystick.data.encoding.encode",
        "tallystick.data.examples.census",
        "tallystick.privacy.ledger.Ledger.reserve",
        "tallystick.engines.federation.SimulatedFederation.records",
    ):
        monkeypatch.setattr(name, touched)
    assert run("plan", study, "--records", 1000).code == 0


def test_a_plan_needs_the_number_of_records(run: Runner, study: Path) -> None:
    done = run("plan", study, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "replace-one-needs-records")
    assert "--records" in done.error["remedy"]
    assert run("plan", study, "--set", "data.records=1000").code == 0


def test_a_plan_warns_of_noise_and_refuses_what_a_run_refuses(run: Runner, study: Path) -> None:
    assert "NOT WORTH RUNNING" in run("plan", study, "--records", 50, "--set", "privacy.epsilon=0.1").out
    for setting, code in (("privacy.epsilon=0", 3), ("trust.model=gossip", 2), ("trust.min_clients=1", 3)):
        assert run("plan", study, "--records", 500, "--set", setting).code == code


# -- programs of one's own --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", sorted(PROGRAMS.glob("*.py")), ids=lambda p: p.name)
def test_example_programs_may_run(run: Runner, file: Path) -> None:
    report = run("check-program", file, "--format", "json")
    assert report.code == 0
    assert report.json["ok"] is True
    assert report.json["hash"].startswith("sha256:")
    assert "may run" in run("check-program", file).out


def test_a_hostile_program_is_refused(run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "hostile.py"
    file.write_text("import os\nimport tallystick as ts\nclass P(ts.Program):\n    bound = 1.0\n", encoding="utf-8")
    done = run("check-program", file, "--format", "json")
    assert done.code == 2
    assert done.json["ok"] is False
    assert done.json["findings"][0]["line"] == 1
    assert "refused" in run("check-program", file).out
    absent = run("check-program", tmp_path / "absent.py", "--format", "json")
    assert (absent.code, absent.error["rule"]) == (2, "StudyError")


VISITS = """
[study]
name = "visits"
program = "poisson_regression.py"
target = "visits"
[privacy]
epsilon = 20.0
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
visits = { type = "number", lower = 0, upper = 20 }
"""


@pytest.fixture
def visits(tmp_path: Path) -> tuple[Path, Path]:
    """A study with a program file beside it, and records of counts."""
    program = tmp_path / "poisson_regression.py"
    program.write_text((PROGRAMS / program.name).read_text(encoding="utf-8"), encoding="utf-8")
    rng = np.random.default_rng(3)
    age = rng.uniform(0, 100, 2000)
    count = rng.poisson(np.exp(0.3 + 0.8 * (age / 50 - 1)))
    data = tmp_path / "visits.csv"
    lines = [f"{a:.3f},{c}" for a, c in zip(age, count)]
    data.write_text("\n".join(["age,visits", *lines]) + "\n", encoding="utf-8")
    return study_file(tmp_path, VISITS), data


def test_a_program_file_runs_as_a_study(run: Runner, visits: tuple[Path, Path]) -> None:
    study, data = visits
    assert run("check-program", PROGRAMS / "poisson_regression.py", "--study", study, "--format", "json").json["tried"]
    done = run("simulate", study, "--data", data, "--clients", 3, "--seed", 1, "--format", "json")
    assert done.code == 0
    assert done.json["study"]["program"] == "poisson_regression.py"
    assert done.json["privacy"]["rounds"] == 20
    assert done.json["model"]["type"] == "PoissonRegression"
    slope, level = done.json["model"]["state"]["weights"]
    assert slope == pytest.approx(0.8, abs=0.3)
    assert level == pytest.approx(0.3, abs=0.3)
    assert run("plan", study, "--records", 2000).code == 0


def test_a_changed_program_file_is_another_study(run: Runner, visits: tuple[Path, Path]) -> None:
    study, data = visits
    before = run("simulate", study, "--data", data, "--seed", 1, "--format", "json").json["study"]["hash"]
    program = study.parent / "poisson_regression.py"
    program.write_text(program.read_text(encoding="utf-8").replace("STEP = 0.15", "STEP = 0.16"), encoding="utf-8")
    after = run("simulate", study, "--data", data, "--seed", 1, "--format", "json").json["study"]["hash"]
    assert before != after
    pinned = run("simulate", study, "--data", data, "--set", f"study.program_hash=sha256:{'0' * 64}", "--format=json")
    assert (pinned.code, pinned.error["rule"]) == (2, "program-hash")


def test_a_program_file_with_too_many_rounds_is_refused(run: Runner, visits: tuple[Path, Path]) -> None:
    study, data = visits
    program = study.parent / "poisson_regression.py"
    program.write_text(program.read_text(encoding="utf-8").replace("rounds = 20", "rounds = 1_000_000_000"), "utf-8")
    done = run("simulate", study, "--data", data, "--format", "json")
    assert done.code in (2, 3)
    assert "rounds" in done.error["cause"]


def test_the_same_program_in_python(visits: tuple[Path, Path]) -> None:
    study, data = visits
    text = (PROGRAMS / "poisson_regression.py").read_text(encoding="utf-8")
    schema = Study.parse(study.read_text(encoding="utf-8")).schema_of_data()
    fed = ts.Federation.simulate([data], schema=schema, seed=1)
    model = ts.ProgramEstimator.from_text(text, name="poisson_regression.py", epsilon=20.0).fit(fed, target="visits")
    assert model.state_.weights == pytest.approx([0.8, 0.3], abs=0.3)
    assert model.privacy_.epsilon == 20.0
    assert fed.spent.fits == 1


# -- the study's JSON Schema ------------------------------------------------------------------------------------------


def test_the_reference_page_is_the_codes_and_has_every_key(run: Runner) -> None:
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert run("schema", "--markdown").out == page  # `tallystick schema --markdown > docs/study.md`
    for model in run("schema").json["$defs"].values():
        for key in [key for part in model.get("oneOf", [model]) for key in part["properties"]]:
            assert f"`{key}`" in page or key in ("type", "model", "parties"), key
    for name, program in BUILT_IN.items():
        for key in program.keys - {"classifier"}:
            assert re.search(rf"### {name}\n[^#]*\| `{key}` \|", page), (name, key)


def test_the_published_schema_is_the_codes(run: Runner) -> None:
    published = json.loads((ROOT / "docs" / "study.schema.json").read_text(encoding="utf-8"))
    assert run("schema").json == published
    jsonschema.Draft202012Validator.check_schema(published)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda p: p.name)
def test_the_examples_are_valid_studies(run: Runner, file: Path) -> None:
    raw = tomllib.loads(file.read_text(encoding="utf-8"))
    jsonschema.validate(raw, run("schema").json)
    assert Study.from_dict(raw).printed_hash.startswith("sha256:")
    assert run("plan", file, "--records", 48842).code == 0


def test_the_contracts_study_is_valid(run: Runner) -> None:
    """The example of docs/contract.md, whole."""
    text = """
[study]
name = "income"
version = 1
program = "logistic_regression"
target = "income"
purpose = "who earns above 50K"
[program]
[privacy]
epsilon = 1.0
delta = 1e-6
neighbours = "replace-one"
mechanism = "gaussian"
unit = "record"
groups = []
[trust]
model = "servers"
servers = 2
colluding = 1
min_clients = 3
round_timeout_s = 60
[data]
records = 48842
missing = { marker = "?", policy = "category" }
[data.columns]
age = { type = "number", lower = 17, upper = 90 }
hours_per_week = { type = "number", lower = 1, upper = 99, bins = [20, 35, 40, 50] }
native_country = { type = "category", values = ["United-States"], merge = "other" }
income = { type = "category", values = ["<=50K", ">50K"] }
[results]
visible_to = ["analyst"]
"""
    jsonschema.validate(tomllib.loads(text), run("schema").json)
    assert Study.parse(text).data.records == 48842


@pytest.mark.parametrize(
    "old, new",
    [
        ("[program]", "[programme]"),
        ("epsilon = 10.0", "epsilon = 10.0\nepsilom = 1"),
        ('type = "number"', 'type = "nombre"'),
        ("version = 1", 'version = "one"'),
        ("delta = 1e-6", 'delta = 1e-6\nmechanism = "uniform"'),
    ],
)
def test_the_schema_refuses_what_the_code_refuses(run: Runner, old: str, new: str, tmp_path: Path) -> None:
    text = STUDY.replace(old, new)
    assert text != STUDY
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), run("schema").json)
    assert run("simulate", study_file(tmp_path, text), "--data", clinic(tmp_path)).code in (2, 3)


# -- the console script -----------------------------------------------------------------------------------------------


def declared_options(callback: Any) -> set[str]:
    """The options that a command's signature declares."""
    found = set()
    for name, hint in get_type_hints(callback, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OptionInfo):
                given = [d for d in (mark.param_decls or ()) if d.startswith("--")]
                found |= set(given) or {f"--{name.rstrip('_').replace('_', '-')}"}
    return found


COMMANDS = {c.name or c.callback.__name__: c.callback for c in app.registered_commands if c.callback}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_mentions_every_option(run: Runner, command: str) -> None:
    done = run(command, "--help")
    assert done.code == 0
    contract = {
        "simulate": "--data --clients --partition --set --seed --holdout --folds --out --format",
        "plan": "--records --set --format",
        "check-program": "--format",
        "bench": "--format",
    }
    wanted = set(contract.get(command, "").split())
    assert wanted <= declared_options(COMMANDS[command])
    assert not [option for option in declared_options(COMMANDS[command]) if option not in done.out]
    assert len(done.out.splitlines()) > 3


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from tallystick.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'numba', 'sklearn', 'pyarrow', 'polars', 'pandas', 'pydantic', 'cryptography', 'scipy'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"
    assert "simulate" in done.stdout


def test_the_process_prints_json_alone(study: Path, data: Path) -> None:
    done = shell("simulate", study, "--data", data, "--clients", 3, "--seed", 1, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["kind"] == "simulation"


def test_the_process_exits_as_it_says(study: Path, data: Path) -> None:
    done = shell("simulate", study, "--data", data, "--set", "privacy.epsilon=-1", "--format", "json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["error"]["rule"] == "epsilon-is-positive-and-finite"
    assert done.stderr.startswith("tallystick: ")


def test_version_and_no_command(run: Runner) -> None:
    assert run("--version").out.strip() == ts.__version__
    assert run().code == 2
    unknown = run("simulat", "--format", "json")
    assert (unknown.code, unknown.error["rule"]) == (2, "usage")


def test_an_unknown_benchmark(run: Runner) -> None:
    done = run("bench", "speed", "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "unknown-bench")
