"""Units, guide and commands mean the same files: all are put into a folder that stands for the root of a machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Run

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
TARGETS = ("sysinit", "basic", "shutdown", "network-online", "time-sync", "multi-user")


def said(pattern: str) -> str:
    """What the guide says, once."""
    (found,) = set(re.findall(pattern, GUIDE))
    return str(found)


HOME = said(r"useradd .*--home-dir (\S+)")
PROGRAM = said(r"python3 -m venv (\S+)") + "/bin/tallystick"
PARTY = said(r"consortium request .* --out (\S+)")


def lines_of(unit: Path) -> dict[str, str]:
    pairs = [line.split("=", 1) for line in unit.read_text(encoding="utf-8").splitlines() if re.match("[A-Z]", line)]
    return dict(pairs)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The units in their place, a program where the guide installs it, and the targets they name."""
    for unit in UNITS:
        place = tmp_path / "etc" / "systemd" / "system" / unit.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(unit, place)
    program = tmp_path / PROGRAM.lstrip("/")
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for target in TARGETS:
        file = tmp_path / "usr" / "lib" / "systemd" / "system" / f"{target}.target"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[Unit]\nDescription=a target\n")
    return tmp_path


def findings(machine: Path) -> str:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not here; `make system` installs it where it can")
    words = [tool, "verify", f"--root={machine}", *(unit.name for unit in UNITS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"exit {done.returncode}")


def test_systemd_finds_nothing_in_the_units(machine: Path) -> None:
    assert findings(machine) == ""
    unit = machine / "etc" / "systemd" / "system" / UNITS[0].name
    unit.write_text(unit.read_text().replace("UMask=", "Umsk="))
    assert "Umsk" in findings(machine)  # it can find something
    (machine / PROGRAM.lstrip("/")).unlink()
    assert "not executable" in findings(machine)


@pytest.mark.parametrize("unit", UNITS, ids=lambda p: p.name)
def test_a_unit_starts_what_the_commands_have_made(
    run: Callable[..., Run], machine: Path, unit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, home = lines_of(unit), machine / HOME.lstrip("/")
    home.mkdir(parents=True)
    monkeypatch.chdir(home)  # as the guide says
    role = unit.stem.removeprefix("tallystick-")
    address = () if role == "client" else ("--address", "127.0.0.1:7101")
    assert run("consortium", "request", "one", "--role", role, "--out", PARTY, *address).code == 0
    program, *words = lines["ExecStart"].split()
    assert program == PROGRAM
    assert lines["User"] == lines["Group"] == said(r"useradd .* (\S+)\n")
    assert lines["ReadWritePaths"] == HOME
    assert (machine / lines["WorkingDirectory"].lstrip("/")) == home / PARTY
    config = machine / words[words.index("--config") + 1].lstrip("/")
    assert config == home / PARTY / "role.toml"
    assert config.exists()
    # The very line, on the files the command made: it goes as far as the consortium file, which is not there yet.
    started = run(*[word.replace(HOME, str(home)) for word in words])
    assert started.code == 2
    assert str(config.with_name("consortium.toml")) in started.err
    assert lines["Environment"] == f"NUMBA_CACHE_DIR=/var/cache/{lines['CacheDirectory']}"
    data = said(r"--role client --data (\S+)")
    assert role != "client" or data.startswith(lines["ReadOnlyPaths"].lstrip("-"))
