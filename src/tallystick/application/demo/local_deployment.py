"""A whole consortium on this machine: every party a process of its own, over mutual TLS on loopback.

The processes are started with the same commands an operator uses; they differ from a real deployment only in sharing a
machine. Whatever happens, :meth:`LocalDeployment.stop` leaves no process behind.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tallystick.application.demo.free_ports import HOST, free_ports
from tallystick.core.errors import RoundAborted
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.identity_files import wall_clock

_TAIL_LINES = 8
_POLL_SECONDS = 0.1
_STOP_SECONDS = 8.0
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")


class LocalDeployment:
    """Servers, an aggregator, an analyst's keys, and one institution for every data file.

    Institutions in ``asking`` leave each study to their data steward; the others approve within their limits.
    """

    def __init__(
        self, folder: Path, *, name: str, servers: int, institutions: Mapping[str, Path], asking: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.consortium = folder / "consortium" / enrolment.CONSORTIUM
        self.servers = tuple(f"server-{i}" for i in range(1, servers + 1))
        self.institutions = tuple(institutions)
        self._configs: dict[str, tuple[str, Path]] = {}
        self._monitors: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._expected_dead: set[str] = set()
        home, now = self.consortium.parent, wall_clock()
        listening = (*self.servers, "aggregator")
        ports = free_ports(2 * len(listening) + len(institutions))
        enrolment.create(name, home, now=now)
        for party in listening:
            role = "server" if party in self.servers else "aggregator"
            self._enrol(party, role, ports.pop(), address=f"{HOST}:{ports.pop()}")
        for party, data in institutions.items():
            decide = "ask" if party in asking else "approve"
            self._enrol(party, "client", ports.pop(), data=str(data.absolute()), decide=decide)
        self.analyst = enrolment.enrol("analyst", "analyst", home, now=now)[1]

    def _enrol(self, party: str, role: str, monitor: int, **where: Any) -> None:
        _, config = enrolment.enrol(party, role, self.consortium.parent, now=wall_clock(), **where)
        with config.open("a", encoding="utf-8") as file:
            file.write(f'\n[metrics]\nlisten = "{HOST}:{monitor}"\n')
        self._configs[party] = (role, config)
        self._monitors[party] = monitor

    def config(self, party: str) -> Path:
        """The role file of a party."""
        return self.analyst if party == "analyst" else self._configs[party][1]

    @property
    def parties(self) -> tuple[str, ...]:
        """Everybody with a process, those that others dial first."""
        return tuple(self._configs)

    # -- processes --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def start(self, party: str) -> None:
        """Start (again) the process of a party, unless it runs; its log goes on in the same file."""
        if party in self._processes and self._processes[party].poll() is None:
            return
        role, config = self._configs[party]
        command = [sys.executable, "-m", "tallystick.cli.main", role, "start", "--config", str(config)]
        with self.log(party).open("ab") as log, _undivided():
            self._processes[party] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | _THREADS,  # nine processes share the machine: one thread each
                start_new_session=True,  # Ctrl-C comes to us; we stop them in order
            )
        self._expected_dead.discard(party)

    def start_all(self, *, timeout: float, told: Callable[[str], None] = lambda _: None) -> None:
        """First those that listen, then the institutions; returns when every line stands."""
        deadline = time.monotonic() + timeout
        for group in ((*self.servers, "aggregator"), self.institutions):
            for party in group:
                self.start(party)
            for party in group:
                self._wait(party, deadline, lambda health: health is not None)
                told(party)
        needed = {party: {*self.servers, "aggregator"} for party in self.institutions}
        needed["aggregator"] = {*self.servers, *self.institutions}
        for party, peers in needed.items():
            self._wait(party, deadline, lambda health, p=peers: p <= set((health or {}).get("connected", ())))  # type: ignore[misc]

    def _wait(self, party: str, deadline: float, done: Callable[[dict[str, Any] | None], bool]) -> None:
        while not done(self.health(party)):
            self.check()
            if time.monotonic() > deadline:
                remedy = "Try again when the machine is less busy; look for a firewall on loopback."
                raise self._failed(party, f"{party} did not come up in time", remedy)
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise if a process ended that nobody ended."""
        for party, process in self._processes.items():
            code = process.poll()
            if code is not None and party not in self._expected_dead:
                remedy = "The last lines of its log say why; keep the folder with --keep to read all of it."
                raise self._failed(party, f"the process of {party} ended with code {code}", remedy)

    def kill(self, party: str) -> None:
        """kill −9: no farewell, nothing flushed."""
        self._expected_dead.add(party)
        process = self._processes[party]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """SIGTERM to all, institutions first; after a while SIGKILL to those that are still there."""
        self._expected_dead.update(self._processes)
        running = [p for p in reversed(self._processes.values()) if p.poll() is None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        try:
            for process in running:
                process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in running:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def running(self) -> int:
        """How many processes there are now."""
        return sum(p.poll() is None for p in self._processes.values())

    # -- what they say ----------------------------------------------------------------------------------------------

    def log(self, party: str) -> Path:
        """The log of a party's process."""
        return self.folder / f"{party}.log"

    def _failed(self, party: str, cause: str, remedy: str) -> RoundAborted:
        try:
            lines = self.log(party).read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        except OSError:
            lines = []
        tail = "Its log ends:\n" + "\n".join(f"    {line}" for line in lines) if lines else "It wrote no log."
        return RoundAborted(f"{cause}. {tail}", party=party, rule="process-failed", remedy=remedy)

    def health(self, party: str) -> dict[str, Any] | None:
        """What its /health says; None while it does not answer."""
        answer = self._get(party, "/health")
        return None if answer is None else dict(json.loads(answer))

    def bytes_sent(self, party: str) -> int | None:
        """Bytes on the wire since the process started, from its /metrics."""
        for line in (self._get(party, "/metrics") or "").splitlines():
            if line.startswith("tallystick_bytes_sent_total"):
                return int(float(line.rpartition(" ")[2]))
        return None

    def _get(self, party: str, path: str) -> str | None:
        line = http.client.HTTPConnection(HOST, self._monitors[party], timeout=5)
        try:
            line.request("GET", path)
            return line.getresponse().read().decode("utf-8")
        except (OSError, http.client.HTTPException):
            return None
        finally:
            line.close()


@contextmanager
def _undivided() -> Iterator[None]:
    """An interrupt that comes between the start of a process and its entry in our list would leave it behind."""
    came: list[int] = []
    with interrupts_to(lambda caught, _frame: came.append(caught)):
        yield
    for caught in came:  # now, to whoever would have had it
        signal.raise_signal(caught)


@contextmanager
def interrupts_to(handler: Callable[[int, Any], object]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP go to ``handler`` for as long as the block lasts; a thread beside the main one, which
    none of them reaches, changes nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
