"""The commands of a deployment through the command line: who is who, starting and stopping, the doctor."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from cli_runs import Run
from typer.models import OptionInfo

from tallystick.application import doctor as doctors_room
from tallystick.application.demo.free_ports import free_ports
from tallystick.cli.deployment import consortium_app, doctor, role_app, role_words

Runner = Callable[..., Run]


def free_port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def consortium(run: Runner, tmp_path: Path) -> Path:
    """Created and filled by the command line: a server, an aggregator, a client, an analyst."""
    folder = tmp_path / "con"
    assert run("consortium", "create", "Trial", "--out", folder).code == 0
    for name, role, more in (
        ("server-1", "server", ("--address", f"127.0.0.1:{free_port()}")),
        ("aggregator", "aggregator", ("--address", f"127.0.0.1:{free_port()}")),
        ("clinic", "client", ("--data", "a.csv")),
        ("analyst", "analyst", ()),
    ):
        done = run("consortium", "enrol", name, "--role", role, "--in", folder, *more)
        assert done.code == 0, done.err
        assert f"{name} is enrolled as {role}" in done.out
    (folder / "clinic" / "a.csv").write_text("age,sex\n61,f\n")
    return folder


def private_keys(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.key"))


# -- consortium -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["nan", "inf", "0", "-1", "5e-324", "1e-200", "1e308"])
def test_a_budget_that_no_client_starts_with_is_refused_before_keys_are_made(
    run: Runner, consortium: Path, tmp_path: Path, budget: str
) -> None:
    words = ("late", "--role", "client", "--data", "a.csv", "--budget", budget, "--format", "json")
    for done in (
        run("consortium", "enrol", *words, "--in", consortium),
        run("consortium", "request", *words, "--out", tmp_path / "late"),
    ):
        assert (done.code, done.error["rule"]) == (2, "number-in-range")
        assert "--budget" in done.error["cause"]
    assert not private_keys(consortium / "late")
    assert not private_keys(tmp_path / "late")
    assert "late" not in run("consortium", "show", consortium).out


def test_create_and_enrol(run: Runner, consortium: Path) -> None:
    shown = run("consortium", "show", consortium / "consortium.toml", "--format", "json").json
    assert [p["role"] for p in shown["parties"]] == ["server", "aggregator", "client", "analyst"]
    assert shown["version"] == 5
    assert re.fullmatch("sha256:[0-9a-f]{64}", shown["hash"])
    words = run("consortium", "show", consortium).out
    assert "compare out of band" in words
    assert shown["hash"] in words
    assert all(name in words for name in ("server-1", "aggregator", "clinic", "analyst"))
    assert len(private_keys(consortium)) == 1 + 2 * 4
    assert {p.stat().st_mode & 0o777 for p in private_keys(consortium)} == {0o600}


def test_nothing_is_overwritten(run: Runner, consortium: Path) -> None:
    before = (consortium / "ca.key").read_bytes()
    done = run("consortium", "create", "Trial", "--out", consortium, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "consortium")
    again = run("consortium", "enrol", "clinic", "--role", "client", "--in", consortium, "--format", "json")
    assert (again.code, again.error["rule"]) == (2, "consortium")
    assert "rotate" in again.error["remedy"]
    assert (consortium / "ca.key").read_bytes() == before


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--role", "nurse"), "role"),
        (("--role", "server"), "address"),
        (("--role", "server", "--address", "nowhere"), "host:port"),
        (("--role", "client", "--address", "127.0.0.1:7101"), "address"),
        (("--role", "server", "--address", "127.0.0.1:1", "--data", "x.csv"), "data"),
        (("--role", "client", "--listen", "127.0.0.1:1"), "listen"),
    ],
)
def test_enrol_refuses_with_a_remedy(run: Runner, consortium: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run("consortium", "enrol", "new", "--in", consortium, *arguments, "--format", "json")
    assert done.code == 2
    assert words in done.error["cause"] + (done.error["remedy"] or "")
    assert done.error["remedy"]
    assert "new" not in [p["name"] for p in run("consortium", "show", consortium, "--format", "json").json["parties"]]


def test_request_approve_install(run: Runner, consortium: Path, tmp_path: Path) -> None:
    party = tmp_path / "party"
    asked = run("consortium", "request", "hospital", "--role", "client", "--out", party, "--format", "json").json
    request = Path(asked["request"])
    secrets = [line for p in private_keys(party) for line in p.read_text().splitlines() if "-----" not in line]
    assert len(secrets) >= 2
    assert not [s for s in secrets if s in request.read_text()]
    assert {p.stat().st_mode & 0o777 for p in private_keys(party)} == {0o600}

    wrong = ("--fingerprint", "sha256:" + "0" * 64)
    refused = run("consortium", "approve", request, "--in", consortium, *wrong, "--format", "json")
    assert (refused.code, refused.error["rule"], refused.error["party"]) == (6, "wrong-fingerprint", "hospital")
    told = run("consortium", "approve", request, "--in", consortium, "--fingerprint", asked["fingerprint"])
    assert told.code == 0
    assert "Not compared" not in told.out

    certificate = consortium / "issued" / "hospital.pem"
    others = consortium / "issued" / "clinic.pem"
    new_file = ("--consortium", consortium / "consortium.toml", "--in", party)
    assert run("consortium", "install", others, *new_file).code in (2, 6)
    done = run("consortium", "install", certificate, *new_file, "--format", "json").json
    assert (done["action"], done["name"]) == ("install", "hospital")
    assert (party / "consortium.toml").read_bytes() == (consortium / "consortium.toml").read_bytes()


def test_an_approval_without_a_telephone_says_so(run: Runner, consortium: Path, tmp_path: Path) -> None:
    asked = run("consortium", "request", "h", "--role", "client", "--out", tmp_path / "p", "--format", "json").json
    done = run("consortium", "approve", asked["request"], "--in", consortium, "--unchecked")
    assert "Not compared" in done.out
    assert asked["fingerprint"] in done.out


def test_rotate_and_remove(run: Runner, consortium: Path) -> None:
    def pins(name: str) -> list[str]:
        shown = run("consortium", "show", consortium, "--format", "json").json
        return next((p["fingerprints"] for p in shown["parties"] if p["name"] == name), [])

    old = pins("clinic")
    assert "--finish" in run("consortium", "rotate", "clinic", "--in", consortium).out
    assert pins("clinic")[0] == old[0]
    assert len(pins("clinic")) == 2
    assert "rotating" in run("consortium", "show", consortium).out
    assert run("consortium", "rotate", "clinic", "--in", consortium, "--finish").code == 0
    assert pins("clinic") != old
    assert len(pins("clinic")) == 1
    nothing = run("consortium", "rotate", "clinic", "--in", consortium, "--finish", "--format", "json")
    assert (nothing.code, nothing.error["rule"]) == (2, "consortium")
    assert run("consortium", "rotate", "--in", consortium, "--format", "json").code == 2
    assert run("consortium", "remove", "clinic", "--in", consortium).code == 0
    assert pins("clinic") == []
    assert run("consortium", "remove", "clinic", "--in", consortium, "--format", "json").code == 2


@pytest.mark.parametrize(
    "command",
    [
        ("show", "absent.toml"),
        ("approve", "absent.toml", "--in", "absent"),
        ("install", "absent.pem", "--consortium", "absent.toml", "--in", "absent"),
        ("remove", "x", "--in", "absent"),
        ("rotate", "x", "--in", "absent"),
    ],
)
def test_absent_files_are_exit_2(run: Runner, command: tuple[str, ...], tmp_path: Path) -> None:
    words = [str(tmp_path / w) if w.startswith("absent") else w for w in command]
    done = run("consortium", *words, "--format", "json")
    assert done.code == 2
    assert done.error["remedy"]


# -- starting and stopping --------------------------------------------------------------------------------------------


def test_the_wrong_role_or_config(run: Runner, consortium: Path, tmp_path: Path) -> None:
    wrong = run("server", "start", "--config", consortium / "clinic" / "role.toml")
    assert wrong.code == 2
    assert "is the config of the role 'client', not of 'server'" in wrong.err
    assert "Give the role file of one with the role 'server'" in wrong.err
    assert run("client", "start", "--config", tmp_path / "absent.toml").code == 2
    config = consortium / "server-1" / "role.toml"
    config.write_text(config.read_text() + "seed = 1\n")
    seeded = run("server", "start", "--config", config)
    assert seeded.code == 2
    assert "seed" in seeded.err
    assert run("server", "start", "--config", config, "--log-format", "xml").code == 2


def test_keys_that_others_can_read_are_not_used(run: Runner, consortium: Path) -> None:
    (consortium / "clinic" / "tls.key").chmod(0o644)
    done = run("client", "start", "--config", consortium / "clinic" / "role.toml")
    assert done.code == 2
    assert "make a new one" in done.err  # closing it again would not undo who has read it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_role_gracefully(consortium: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "tallystick.cli.main", "aggregator", "start", "--log-format", "json"]
    process = subprocess.Popen(
        [*command, "--config", str(consortium / "aggregator" / "role.toml")],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "aggregator aggregator is up" in line:
                break
        process.send_signal(number)
        rest = process.communicate(timeout=30)[1]
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    assert process.returncode == 0, "".join(seen) + rest
    assert "aggregator aggregator has stopped" in rest
    assert "Traceback" not in "".join(seen) + rest


def test_a_role_starts_without_what_it_does_not_need() -> None:
    """Seconds of every start: scikit-learn, SciPy's statistics and pandas are for analysts."""
    code = (
        "import sys, tallystick.roles.processes.start\n"
        "print(sorted({'sklearn', 'scipy.stats', 'pandas', 'polars', 'typer', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


# -- the doctor -------------------------------------------------------------------------------------------------------


def test_the_doctor_finds_a_role_fit(run: Runner, consortium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors_room, "_unsynchronised", lambda: False)
    done = run("doctor", "--config", consortium / "aggregator" / "role.toml")
    assert done.code == 0
    assert "fit to run" in done.out
    report = run("doctor", "--config", consortium / "aggregator" / "role.toml", "--format", "json")
    assert (report.code, report.json["ok"]) == (0, True)


def test_the_doctor_finds_what_is_wrong(run: Runner, consortium: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctors_room, "_unsynchronised", lambda: False)
    done = run("doctor", "--config", consortium / "clinic" / "role.toml", "--format", "json")  # nobody is running
    assert (done.code, done.json["ok"]) == (4, False)
    assert all(f["remedy"] for f in done.json["findings"] if f["status"] == "problem")
    (consortium / "aggregator" / "identity.key").chmod(0o604)
    assert run("doctor", "--config", consortium / "aggregator" / "role.toml").code == 4
    absent = run("doctor", "--config", consortium / "nobody.toml")
    assert absent.code == 4
    assert "PROBLEM" in absent.out


# -- help -------------------------------------------------------------------------------------------------------------


def options_of(callback: Any) -> set[str]:
    found = set()
    for name, hint in get_type_hints(callback, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OptionInfo):
                spelt = (mark.default, *(mark.param_decls or ()))  # in Annotated, the first one is read as a default
                given = [d for d in spelt if isinstance(d, str) and d.startswith("--")]
                found |= set(given) or {f"--{name.replace('_', '-')}"}
    return found


COMMANDS = [
    *(
        (("consortium", c.name or c.callback.__name__), c.callback)
        for c in consortium_app.registered_commands
        if c.callback
    ),
    *(
        ((role, c.name or (c.callback.__name__ if c.callback else "")), c.callback)
        for role, does in role_words().items()
        for c in role_app(role, does).registered_commands
    ),
    (("doctor",), doctor),
]


@pytest.mark.parametrize("words, callback", COMMANDS, ids=[" ".join(w) for w, _ in COMMANDS])
def test_help_of_every_deployment_command(run: Runner, words: tuple[str, ...], callback: Any) -> None:
    done = run(*words, "--help")
    assert done.code == 0
    assert options_of(callback)
    assert not [option for option in options_of(callback) if option not in done.out]
    assert not [o for o in options_of(callback) if re.search("seed|noise|insecure|debug", o)]
