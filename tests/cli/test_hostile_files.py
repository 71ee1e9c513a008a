"""Files and words that nobody who means well writes, given to every command: an exit code and a sentence each time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import STUDY, Run

from tallystick.application import study_results
from tallystick.core.errors import VerificationError

Runner = Callable[..., Run]

FILES: dict[str, bytes] = {
    "3,000 lists": b"a = " + b"[" * 3000 + b"]" * 3000,
    "200,000 lists": b"a = " + b"[" * 200_000 + b"]" * 200_000,
    "3,000 tables": b"a = " + b"{a=" * 3000 + b"1" + b"}" * 3000,
    "3,000 objects": b'{"schema":' * 3000 + b"1" + b"}" * 3000,
    "30,000 dots": b".".join([b"a"] * 30_000) + b" = 1",
    "5,000 digits": b"a = " + b"9" * 5000,
    "5,000 digits of JSON": b'{"schema": ' + b"9" * 5000 + b"}",
    "NUL": b"a = 1\n# \x00\n",
    "not UTF-8": b"\xff\xfe\x00",
    "nothing": b"",
    "infinity": b'{"schema": Infinity}',
    "half a character": b'{"schema": "\\ud800"}',
    "a bare result": b'{"kind":"study","receipt":{},"released":"","schema":"tallystick/result/1","study":{"hash":1}}\n',
    "dates": b"[role]\nname = 1979-05-27\n[consortium]\nname = 07:32:00\n[request]\nname = 1979-05-27\n",
    "hidden names": b'[role]\nname = "\\u202e"\nrole = "client"\n[consortium]\nname = "\\u202e"\nversion = 1\n',
    "large numbers": b"[role]\nname = 'x'\nrole = 'server'\nworkers = " + b"9" * 300 + b"\n",
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", "FILE"),
    "simulate": ("simulate", "FILE"),
    "verify": ("verify", "FILE"),
    "verify against": ("verify", "FILE", "--consortium", "FILE"),
    "server": ("server", "start", "--config", "FILE"),
    "aggregator": ("aggregator", "start", "--config", "FILE"),
    "client": ("client", "start", "--config", "FILE"),
    "doctor": ("doctor", "--config", "FILE"),
    "propose": ("study", "propose", "FILE", "--config", "FILE"),
    "list": ("study", "list", "--config", "FILE"),
    "consortium": ("consortium", "show", "FILE"),
    "approve": ("consortium", "approve", "FILE", "--in", "FOLDER", "--unchecked"),
    "install": ("consortium", "install", "FILE", "--consortium", "FILE", "--in", "FOLDER"),
    "ledger": ("ledger", "verify", "--file", "FILE", "--consortium", "FILE"),
    "budget": ("budget", "show", "--config", "FILE"),
    "data": ("data", "list", "--config", "FILE"),
    "check-program": ("check-program", "FILE", "--study", "FILE"),
}


@pytest.mark.parametrize("name", FILES)
def test_every_command_refuses_every_such_file(run: Runner, tmp_path: Path, name: str) -> None:
    file = tmp_path / "given"
    file.write_bytes(FILES[name])
    for command, words in COMMANDS.items():
        done = run(*[{"FILE": file, "FOLDER": tmp_path}.get(word, word) for word in words])
        assert done.code in ((4,) if command == "doctor" else (2, 6)), (command, done)
        assert "Traceback" not in done.err, command
        assert done.err.replace("\n", "").isprintable(), command
        assert len(done.err) < 2000, command


@pytest.fixture
def role(run: Runner, tmp_path: Path, data: Path) -> Path:
    """A client's role file, with its data set registered."""
    folder = tmp_path / "con"
    assert run("consortium", "create", "Trial", "--out", folder).code == 0
    assert run("consortium", "enrol", "clinic", "--role", "client", "--in", folder, "--data", data).code == 0
    file = folder / "clinic" / "role.toml"
    done = run("data", "add", "patients", "--source", data, "--budget-epsilon", 1, "--config", file)
    assert done.code == 0, done.err
    return file


def test_numbers_and_words_of_a_steward(run: Runner, role: Path, data: Path) -> None:
    def steward(*words: object) -> Run:
        return run(*words, "--config", role)

    for figure in ("5e-324", "1e-200", "1e308", "inf", "nan", "0", "-0.0"):
        assert steward("budget", "grant", "patients", "--epsilon", figure, "--reason", "x").code == 2
        assert steward("data", "add", "more", "--source", data, "--budget-epsilon", figure).code == 2
        if float(figure) != 0:
            assert steward("budget", "grant", "patients", "--epsilon", 1, "--delta", figure, "--reason", "x").code == 2
    for hidden in ("\u202eevil", "a\u200bb", "\x1b[2J", "a\nb"):
        assert steward("budget", "grant", "patients", "--epsilon", 2, "--reason", hidden).code == 2
        assert steward("budget", "grant", "patients", "--epsilon", 2, "--by", hidden, "--reason", "x").code == 2
        assert steward("data", "add", hidden, "--source", data, "--budget-epsilon", 1).code == 2
        assert steward("data", "add", "m", "--source", data, "--unit", "person", "--person", hidden).code == 2
        assert steward("budget", "show", hidden).code == 2
        assert run("consortium", "create", hidden, "--out", role.parent / "other").code == 2
        refused = run("consortium", "enrol", hidden, "--role", "client", "--in", role.parents[1])
        assert refused.code == 2
        assert refused.err.strip().isprintable()
    assert steward("budget", "grant", "patients", "--epsilon", 2, "--reason", "Größeres Budget").code == 0
    assert "epsilon = 2" in steward("budget", "show").out


@pytest.mark.parametrize(
    "change",
    ["budget_epsilon = 5e-324", "budget_epsilon = 1e308", "budget_delta = 1e-300", "budget_epsilon = true",
     "budget_epsilon = 1979-05-27", f"budget_epsilon = {'9' * 300}"],
)  # fmt: skip
def test_a_role_file_with_such_a_number(run: Runner, role: Path, change: str) -> None:
    lines = [line for line in role.read_text(encoding="utf-8").splitlines() if not line.startswith(change.split()[0])]
    at = lines.index("[data]") + 1
    role.write_text("\n".join([*lines[:at], change, *lines[at:]]), encoding="utf-8")
    for words in (("client", "start"), ("budget", "show"), ("study", "list")):
        done = run(*words, "--config", role)
        assert (done.code, "Traceback" in done.err) == (2, False)
        assert "budget" in done.err
    assert run("doctor", "--config", role).code == 4


@pytest.mark.parametrize("clients", [0, 100_001, 2**31, 2**62, 10**30])
def test_a_simulation_of_so_many_clients(run: Runner, study: Path, data: Path, clients: int) -> None:
    done = run("simulate", study, "--data", data, "--clients", clients, "--format", "json")
    assert done.code == 2
    assert "clients" in done.error["cause"]


@pytest.mark.parametrize(
    "statements",
    [None, 7, [7], [{}], [{"kind": ["start"], "body": {"at": 1}}], [{"kind": "start", "body": 1}],
     [{"kind": "start", "body": {"at": "now"}}], [{"kind": "start", "body": {"at": 10**300}}]],
    ids=str,
)  # fmt: skip
def test_a_receipt_that_came_with_a_result_may_say_anything(statements: object) -> None:
    """It is shown with the result before anybody has verified it."""
    assert study_results._seconds({"statements": statements}) >= 0
    for raw in (b"[]", b"", b"{", b"[" * 5000, b'{"a": NaN}'):
        with pytest.raises(VerificationError):
            study_results.read_receipt(raw)


def test_devices_and_folders_are_no_studies(run: Runner, tmp_path: Path) -> None:
    for path in ("/dev/zero", "/dev/null", tmp_path):
        assert run("plan", path).code == 2
    program = STUDY.replace('"logistic_regression"', '"/dev/zero.py"')
    (tmp_path / "study.toml").write_text(program, encoding="utf-8")
    assert run("plan", tmp_path / "study.toml").code == 2
