"""A PostgreSQL of a test's own, where it is installed: in a folder of /tmp, on a socket there or on a port."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WORD = "TALLYSTICK_TEST_WORD"
"""The variable that an address names for its password."""


def _as_nobody(*command: str) -> None:
    """PostgreSQL does not run as root."""
    other = ["setpriv", "--reuid=65534", "--clear-groups", "--"] if os.geteuid() == 0 else []
    with Path(os.devnull).open("w") as nowhere:
        subprocess.run(
            [*other, *command], check=True, stdin=subprocess.DEVNULL, stdout=nowhere, stderr=nowhere, timeout=60
        )


@contextmanager
def postgresql(*, port: int | None = None, password: str | None = None) -> Iterator[str]:
    """The folder with its socket; with a port it listens on loopback too, and asks for the password there."""
    found = shutil.which("pg_ctl") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))), None)
    if found is None:
        pytest.skip("PostgreSQL is not installed: make system (as root, where apt-get is)")
    folder = Path("/tmp") / f"tallystick-pg-{os.getpid()}-{port or 0}"  # a socket's path must be short
    folder.mkdir(mode=0o700)
    (folder / "word").write_text(password or "")
    (folder / "word").chmod(0o644)
    if os.geteuid() == 0:
        os.chown(folder, 65534, -1)
    tools, data = Path(found).resolve().parent, str(folder / "data")
    asks = [] if password is None else ["--auth-host=scram-sha-256", f"--pwfile={folder}/word"]
    try:
        _as_nobody(str(tools / "initdb"), "-D", data, "-U", "reader", "--auth-local=trust", *asks, "-N")
        where = "''" if port is None else f"127.0.0.1 -c port={port}"
        options = f"-c listen_addresses={where} -c fsync=off -k {folder}"
        _as_nobody(found, "-D", data, "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield str(folder)
        finally:
            _as_nobody(found, "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
