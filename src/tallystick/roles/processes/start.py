"""Starting a role: the one place where the operating system's randomness and clock are wired in.

``tallystick server|aggregator|client start --config F`` comes here. There is no parameter, variable or key that could
seed or silence noise: a test greps this package for one.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from pathlib import Path

from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import system_stream
from tallystick.roles.identity.identity_files import expiry_warning, load_identity, read_consortium, wall_clock
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.operations.heap import keep_freed_memory
from tallystick.roles.operations.monitoring import serve_monitoring
from tallystick.roles.processes.client import ClientProcess
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.session import Parts
from tallystick.roles.storage.stores import ROLE_STORE, RoleStore
from tallystick.study.trust import CLIENT, registered

_log = logging.getLogger("tallystick.roles")


def process_of(role: str) -> type[RoleProcess]:
    """The process that runs a role: a client's, or what the trust model names for a role of its cast."""
    if role == CLIENT:
        return ClientProcess
    found = next((model, r) for model in registered() for r in model.roles if r.name == role)
    loaded: type[RoleProcess] = found[0].load(found[1].process)
    return loaded


class SystemClock:
    """The monotonic clock: it does not jump when somebody sets the time."""

    def now(self) -> float:
        return time.monotonic()


def _system_streams(*_labels: bytes) -> WordSource:
    return system_stream()


def build(path: str | Path, role: str) -> RoleProcess:
    """A role from its config file, not yet started."""
    config = load_role_config(path, role=role)
    consortium = read_consortium(config.consortium)
    now = wall_clock()
    identity = load_identity(config, consortium, now)
    warning = expiry_warning(identity.certificate, now)
    if warning:
        _log.warning("%s", warning)
    config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    parts = Parts(
        config=config,
        consortium=consortium,
        identity=identity,
        store=RoleStore(config.state / ROLE_STORE, party=config.name),
        streams=_system_streams,
        clock=SystemClock(),
    )
    return process_of(role)(parts)


def start(path: str | Path, role: str) -> None:
    """Run a role until it is told to stop (SIGTERM, SIGINT)."""
    keep_freed_memory()
    run_until_signal(build(path, role))


def run_until_signal(process: RoleProcess) -> None:
    """The loop in this thread; a first signal stops it gracefully, a second one at once."""
    if threading.current_thread() is threading.main_thread():

        def stop(number: int, _frame: object) -> None:
            process.stop()
            signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

        def look_again(_number: int, _frame: object) -> None:
            process.look_again = True

        if hasattr(signal, "SIGHUP"):
            signal.signal(signal.SIGHUP, look_again)
    listen = process.parts.config.metrics
    monitoring = serve_monitoring(listen, process) if listen else None
    process.start()
    _log.info("%s %s is up", process.role, process.name)
    try:
        process.run()
    finally:
        process.close()
        if monitoring is not None:
            monitoring()
        _log.info("%s %s has stopped", process.role, process.name)
