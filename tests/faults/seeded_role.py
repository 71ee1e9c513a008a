"""The test entry point: real role processes with seeded randomness, crash points and faults. Not in the wheel.

``python seeded_role.py`` is a nursery: it imports the product once, loads its compiled kernels, and forks one process
per order it reads on stdin (a line of JSON: role, config, spec). Each child is what ``tallystick ROLE start`` runs,
but for what the spec says: a seed, a folder where it notes what it drew, sent and reached, and a fault. Children die
with the nursery, and the nursery ends with its stdin, so nothing outlives a test run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.engines.federation import seed_bytes
from tallystick.roles.identity.identity_files import load_identity, read_consortium, unix_time, wall_clock
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.operations.logs import configure_logs
from tallystick.roles.processes import start
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.session import Parts
from tallystick.roles.storage import crash_points
from tallystick.roles.storage.stores import RoleStore
from tallystick.transport.network.options import Options

OPTIONS = Options(first_backoff=0.05, longest_backoff=0.25)


class Notes:
    """Append-only files in the spec's folder; one line is one write, so a kill never tears one."""

    def __init__(self, folder: Path, name: str, role: str) -> None:
        self._folder, self._name, self._role = folder, name, role
        self._seen: set[str] = set()

    def add(self, kind: str, line: str) -> None:
        fd = os.open(self._folder / f"{self._name}.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, line.encode() + b"\n")
        os.close(fd)

    def reached(self, step: str) -> None:
        """Note the point; die if an order to die here is waiting."""
        point = f"{self._role}:{step}"
        if point not in self._seen:
            self._seen.add(point)
            self.add("reached", point)
        order = self._folder / f"{self._name}.die"
        with contextlib.suppress(FileNotFoundError):
            wanted, _, visits = order.read_text().partition(" ")
            if wanted == point and visits == "hold":
                self.add("held", point)
                while order.exists() and order.read_text() == f"{wanted} {visits}":
                    time.sleep(0.01)
            elif wanted == point:
                if int(visits or 1) > 1:
                    order.write_text(f"{wanted} {int(visits) - 1}")
                    return
                order.unlink()
                self.add("died", point)
                os.kill(os.getpid(), signal.SIGKILL)


def streams_of(seed: int | None, notes: Notes) -> Any:
    """The simulation's streams under this seed, every use noted."""

    def streams(study: bytes, *labels: bytes) -> WordSource:
        if labels[0] == b"noise":
            notes.add("noise", f"{study.hex()} {int.from_bytes(labels[1], 'little')} {labels[2].decode()}")
        if seed is None:
            return system_stream()
        return AesStream(derive(seed_bytes(seed), b"tallystick/simulation/1", study, *labels))

    return streams


def note_sent_partials(process: RoleProcess, notes: Notes) -> None:
    """The digest of every partial that is handed to the network."""
    from tallystick.protocol import secure_sum as sums
    from tallystick.protocol.secure_sum.messages import Partial
    from tallystick.transport.wire import HEADER_BYTES, SUM

    send = process.send

    def noted(to: str, raw: Any, length: int | None = None) -> None:
        if isinstance(raw, bytes) and raw[0] == SUM:
            message = sums.decode(raw[HEADER_BYTES:])
            if isinstance(message, Partial):
                digest = hashlib.sha256(raw).hexdigest()
                notes.add("partials", f"{raw[1:HEADER_BYTES].hex()} {message.round} {message.start.boot} {digest}")
        send(to, raw, length)

    process.send = noted  # type: ignore[method-assign]


def jump_wall_clock() -> None:
    """The time of day jumps an hour forth and back, many times a second, for whoever asks for it."""
    real = time.time

    def jumping() -> float:
        now = real()
        return now + (3600, -3600, 0, 600, -600)[int(now * 10) % 5]

    time.time = jumping


def build(role: str, config_path: str, spec: dict[str, Any]) -> RoleProcess:
    """As ``roles.start.build``, with the spec's randomness and faults."""
    config = load_role_config(config_path, role=role)
    consortium = read_consortium(config.consortium)
    notes = Notes(Path(spec["notes"]), config.name, role)
    identity = load_identity(config, consortium, wall_clock())
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    crash_points.install(notes.reached)
    parts = Parts(
        config=config,
        consortium=consortium,
        identity=identity,
        store=RoleStore(config.state / "role.sqlite", party=config.name),
        streams=streams_of(spec.get("seed"), notes),
        clock=start.SystemClock(),
        options=OPTIONS,
        wall=lambda: unix_time() + spec.get("wall_ahead", 0.0),
    )
    process = start.process_of(role)(parts)
    note_sent_partials(process, notes)
    if spec.get("least_piece"):
        from tallystick.roles.shares import sharded_sum

        sharded_sum.LEAST_PIECE = spec["least_piece"]
    if spec.get("patience"):
        from tallystick.protocol.study import pausing
        from tallystick.trust.servers import parts

        pausing.RESUME_SECONDS = 2 * spec["patience"]
        parts.LEAST_AGREEMENT_SECONDS, parts.RETRY_SECONDS = spec["patience"], 0.3
    if spec.get("clock_jumps"):
        jump_wall_clock()
    if spec.get("secrets"):
        from secret_notes import PLANTED, note_secrets

        note_secrets(lambda line: notes.add("secrets", line))
        if spec.get("planted"):
            PLANTED[spec["planted"]](process)
    if spec.get("hostile"):
        from hostile_roles import BEHAVIOURS

        BEHAVIOURS[spec["hostile"]](process, spec)
    return process


def run(order: dict[str, Any]) -> None:
    """The child's whole life."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the nursery
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    configure_logs("text")
    start.run_until_signal(build(order["role"], order["config"], order["spec"]))


def warm_up() -> None:
    """Load what every child would load for itself: compiled kernels above all."""
    import pyarrow.csv  # noqa: F401

    import tallystick as ts

    frame = {"x": np.linspace(-1, 1, 9), "z": np.linspace(0, 2, 9), "y": np.array(["no", "yes", "no"] * 3)}
    schema = ts.Schema({"x": ts.Number(-1, 1), "z": ts.Number(0, 2), "y": ts.Category(["no", "yes"])})
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fed = ts.Federation.simulate([frame] * 3, schema=schema, seed=1)
        ts.LogisticRegression(rounds=2).fit(fed, target="y")


def nursery() -> None:
    """Fork a role per line; say its pid; say who ended and how."""
    warm_up()
    gc.collect()
    gc.freeze()  # what is here already: a child's collector would look through all of it, and copy its pages
    if threading.active_count() != 1:
        raise RuntimeError("forking would copy one thread of several")
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    os.set_blocking(0, False)
    say.write(json.dumps({"ready": os.getpid()}) + "\n")
    pending = b""
    while True:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(0, 65536)
            if not piece:
                break
            pending += piece
        while b"\n" in pending:
            line, _, pending = pending.partition(b"\n")
            order = json.loads(line)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    run(order)
                    code = 0
                except BaseException as error:
                    sys.stderr.write(f"not started or ended: {type(error).__name__}: {error}\n")
                    sys.stderr.flush()
                finally:
                    os._exit(code)
            say.write(json.dumps({"started": child, "number": order["number"]}) + "\n")
        with contextlib.suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if child == 0:
                    break
                say.write(json.dumps({"ended": child, "code": os.waitstatus_to_exitcode(status)}) + "\n")
        time.sleep(0.02)
    os._exit(0)


if __name__ == "__main__":
    nursery()
