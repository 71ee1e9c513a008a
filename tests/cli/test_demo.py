"""The demonstration end to end with real processes, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Run

from tallystick.application.demo import demonstration
from tallystick.application.demo.local_deployment import LocalDeployment
from tallystick.application.demo.words import _ranges, describe
from tallystick.core.errors import RoundAborted, StudyError
from tallystick.roles.identity.role_config import load_role_config

Runner = Callable[..., Run]


def role_processes(folder: Path) -> list[str]:
    """Command lines of processes that were started with a config below this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(str(folder) in word for word in words):
            found.append(" ".join(words))
    return found


def test_the_demonstration_end_to_end(tmp_path: Path) -> None:
    """Nine processes, one killed and back; the folder is kept here to look into it."""
    kept = tmp_path / "kept"
    result = demonstration.demo(keep=kept, records=8000, rounds=14)
    json.dumps(result, allow_nan=False)
    assert result["kind"] == "study"
    assert "simulation" not in result
    shown = result["demonstration"]
    assert shown["processes"] == 9
    assert result["participants"]["clients"] == 4  # one refused
    assert [d["by"] for d in shown["decisions"]["approved"]][:3] == list(demonstration.STEWARDS.values())
    assert [d["client"] for d in shown["decisions"]["rejected"]] == [demonstration.REFUSING]
    assert shown["second_study"]["state"] == "refused"
    assert "Nothing has been spent" in shown["budgets"]["institution-1"]["before"]
    assert "1 study has spent epsilon = 1" in shown["budgets"]["institution-1"]["after"]
    assert "Nothing has been spent" in shown["budgets"][demonstration.REFUSING]["after"]
    assert shown["verified"]["sound"]
    assert result["privacy"]["epsilon"] == 1.0
    assert result["privacy"]["trust"] == {"model": "servers", "servers": 3, "colluding": 1, "honest": 2}
    assert set(shown["evaluation"]) >= {"accuracy", "baseline_accuracy", "majority_accuracy"}
    killed = shown["killed"]
    assert killed["name"] == demonstration.VICTIM
    assert killed["missed"]  # the others went on without it
    assert min(killed["missed"]) > killed["after_round"]
    told = {d["round"]: d["names"] for d in result["participants"]["dropped"]}
    assert all(demonstration.VICTIM in told[number] for number in killed["missed"])
    assert shown["bytes_sent"]["institution-1"] > result["cost"]["bytes_up_per_client"]

    words = describe(result)
    assert "made the records up" in words
    assert result["privacy"]["statement"] in words
    assert f"killed after round {killed['after_round']}" in words

    assert role_processes(kept) == []
    log = (kept / f"{demonstration.VICTIM}.log").read_text()
    assert log.count(f"client {demonstration.VICTIM} is up") == 2  # it was started again, on the same state
    assert "Traceback" not in "".join(p.read_text() for p in kept.glob("*.log"))
    assert (kept / "consortium" / "ca.key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(StudyError, match="not empty"):
        demonstration.demo(keep=kept)


def test_an_interrupted_demonstration_leaves_nothing(tmp_path: Path) -> None:
    code = (
        "from tallystick.application.demo import demonstration as d\n"
        "from tallystick.cli.progress import told_on_stderr\n"
        "with told_on_stderr(quiet=False) as story:\n"
        "    d.demo(records=4000, rounds=9, tell=story.tell, step=story.step)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "server-1 is up" in line:
                break
        assert len(role_processes(tmp_path)) >= 4
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
    assert "KeyboardInterrupt" in rest
    assert list(tmp_path.glob("tallystick-demo-*")) == []
    assert role_processes(tmp_path) == []


def test_a_process_that_cannot_start_is_named_with_its_log(tmp_path: Path) -> None:
    data = tmp_path / "records.parquet"
    data.write_bytes(b"")
    with LocalDeployment(tmp_path, name="trial", servers=1, institutions={"clinic": data}) as deployment:
        listen = load_role_config(deployment.consortium.parent / "server-1" / "role.toml").listen
        assert listen is not None
        taken = socket.create_server(("127.0.0.1", int(listen.rpartition(":")[2])))
        with taken, pytest.raises(RoundAborted) as failed:
            deployment.start_all(timeout=60)
    assert failed.value.party == "server-1"
    assert failed.value.exit_code == 4
    assert "Its log ends" in str(failed.value)
    assert listen.rpartition(":")[2] in str(failed.value)
    assert role_processes(tmp_path) == []


def test_there_is_no_seed(run: Runner) -> None:
    done = run("demo", "--seed", 1, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "usage")


def test_keep_needs_a_new_folder(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "something").write_text("")
    done = run("demo", "--keep", tmp_path, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, "keep")
    assert [p.name for p in tmp_path.iterdir()] == ["something"]
    assert run("demo", "--keep", tmp_path / "something" / "x", "--format", "json").error["rule"] == "keep"


def test_the_folder_goes_away_when_something_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(demonstration, "_warm", broken)
    with pytest.raises(RuntimeError, match="broken"):
        demonstration.demo(records=500)
    assert list(tmp_path.iterdir()) == []


def test_rounds_are_told_as_ranges() -> None:
    assert _ranges([3, 5, 6, 7, 9, 10]) == "3, 5-7, 9-10"
    assert _ranges([]) == ""
