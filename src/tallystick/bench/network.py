"""``tallystick bench network``: shares from clients to the disks of the servers, beside a raw TLS socket doing it.

100 clients × 1,000,000 entries × 3 servers over mutual TLS on 127.0.0.1, servers and clients in processes of their
own. Measured is the way of the shares: sealed by the client, sent, opened, checked against its commitment, spooled,
acknowledged when durable. The reference moves the same vectors between the same processes and writes them to the same
disk, and does nothing else (``raw_tls``). Ratio = time of the reference / ours: 1 is as fast, higher is better.
Runs of both alternate, because machines are shared, and the best of each counts; before that, as many rounds as there
are servers warm up, for each round a client's vector goes to another one. Both are bound by the processors, so
``cpu_ratio``, the same of processor seconds, says it again, also on a machine that others use at the same time.

``throughput-no-fsync`` shows what the disk hides: neither side makes anything durable. No deployed role can do that.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.application.demo.free_ports import free_ports
from tallystick.bench import network_parties
from tallystick.bench.measuring import row
from tallystick.bench.processes import PATIENCE, ToldProcess, preload, tell
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.identity_files import wall_clock

_SERVERS = 3
_DRIVERS = 2
_THREADS = 3  # of each driver of the reference: what was fastest


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """``throughput-fsync``, ``throughput-no-fsync``, ``vector-10m`` and ``server-memory``."""
    clients, size, repeat = (9, 100_000, 1) if quick else (100, 1_000_000, 5)
    table = []
    with _Place(clients, size) as place:
        for fsync in (True, False):
            table.append(_throughput(place, "throughput-fsync" if fsync else "throughput-no-fsync", fsync, repeat))
        table.append(_memory(place, max(2, clients // 10), clients))
    with _Place(2, size if quick else 10_000_000) as place:
        table.append(_throughput(place, "vector-10m", True, repeat))
    return table


def _throughput(place: _Place, case: str, fsync: bool, repeat: int) -> dict[str, Any]:
    gigabytes = 8 * place.size * len(place.clients) / 1e9
    with _Fleet(place, fsync=fsync) as fleet:
        ours, raw = [], []
        for round in range(1, _SERVERS + repeat + 1):
            fleet.open(round)
            raw.append(fleet.send_raw())
            ours.append(fleet.send())
        ours, raw = ours[_SERVERS:], raw[_SERVERS:]  # until every line has carried a vector, both warm up
        measured, reference = min(ours), min(raw)
        cpu, reference_cpu = (min(run.cpu for run in runs) for runs in (ours, raw))
    ratio = reference.seconds / measured.seconds
    return _row(case, gigabytes / measured.seconds, "GB/s of vectors", gigabytes / reference.seconds, ratio) | {
        "cpu_seconds": round_to(cpu),
        "reference_cpu_seconds": round_to(reference_cpu),
        "cpu_ratio": round_to(reference_cpu / cpu),
        "server_cpu_seconds": round_to(measured.server_cpu),
    }


def _memory(place: _Place, few: int, many: int) -> dict[str, Any]:
    """Peak resident size of the largest server, by the number of clients that send a vector at once."""
    before, peaks = [], []
    for count in (few, many):
        with _Fleet(place, fsync=True, clients=place.clients[:count]) as fleet:
            fleet.open(1)
            before.append(max(answer["resident_mb"] for answer in tell(fleet.servers, do="usage")))
            tell(fleet.servers, do="watch")
            fleet.send()
            peaks.append(max(answer["peak_mb"] for answer in tell(fleet.servers, do="usage")))
    vectors = 8 * place.size * (many - few) / _SERVERS / 2**20
    return _row("server-memory", peaks[1], f"MB peak, {many} clients", peaks[0], peaks[0] / peaks[1]) | {
        "connected_mb": round_to(before[1]),
        "reference_connected_mb": round_to(before[0]),
        "note": (
            f"server-memory: the reference is the peak with {few} clients; the {many - few} more brought a server "
            f"{vectors:.0f} MB of vectors, and their open lines alone take {before[1] - before[0]:.0f} MB"
        ),
    }


def round_to(value: float) -> float:
    """Four digits are more than the machine repeats."""
    return float(f"{value:.4g}")


def _row(case: str, value: float, unit: str, reference: float, ratio: float) -> dict[str, Any]:
    return row(case, round_to(value), unit, round_to(reference), round_to(ratio))


class _Place:
    """A consortium in a temporary folder, and the keys of a study that all of its parties take part in."""

    def __init__(self, clients: int, size: int) -> None:
        self.size = size
        self.clients = [f"client-{number}" for number in range(clients)]
        self.servers = [f"server-{number}" for number in range(1, _SERVERS + 1)]
        self._temporary = tempfile.TemporaryDirectory(prefix="tallystick-bench-")
        self.folder = Path(self._temporary.name)

    def __enter__(self) -> _Place:
        folder, now = self.folder / "consortium", wall_clock()
        enrolment.create("bench", folder, now=now)
        for name, port in zip((*self.servers, "aggregator"), free_ports(_SERVERS + 1)):
            role = "aggregator" if name == "aggregator" else "server"
            enrolment.enrol(name, role, folder, now=now, address=f"127.0.0.1:{port}")
        for name in self.clients:
            enrolment.enrol(name, "client", folder, now=now, data="none.parquet")
        self.folder = folder
        return self

    def write_plan(self, clients: Sequence[str]) -> None:
        """What the processes read; the keys are drawn for this and die with the folder."""
        keys = {name: secrets.token_hex(32) for name in (*self.servers, *clients, "absent")}
        (self.folder / "plan.json").write_text(json.dumps({"size": self.size, "clients": list(clients), "keys": keys}))

    def __exit__(self, *_exception: object) -> None:
        self._temporary.cleanup()


@dataclass(frozen=True, order=True)
class _Run:
    seconds: float
    cpu: float
    server_cpu: float


class _Fleet:
    """The processes of one measurement: servers (each also the reference's receiver) and drivers of clients."""

    def __init__(self, place: _Place, *, fsync: bool, clients: Sequence[str] | None = None) -> None:
        self._place, self._fsync = place, fsync
        self._clients = list(place.clients if clients is None else clients)
        self.servers: list[ToldProcess] = []
        self.drivers: list[ToldProcess] = []
        self._aggregator: list[ToldProcess] = []

    def __enter__(self) -> _Fleet:
        preload("tallystick.bench.network_parties")
        self._place.write_plan(self._clients)
        folder = self._place.folder
        try:
            self._aggregator = [ToldProcess(network_parties.serve, folder, "aggregator", {})]
            self._aggregator[0].answer()
            self.servers = [
                ToldProcess(network_parties.serve, folder, "server", {"name": name, "fsync": self._fsync})
                for name in self._place.servers
            ]
            drivers = min(_DRIVERS, len(self._clients))
            self.drivers = [
                ToldProcess(network_parties.serve, folder, "driver", {"names": self._clients[n::drivers]})
                for n in range(drivers)
            ]
            for party in (*self.servers, *self.drivers):
                party.answer()
            self._ports = [answer["port"] for answer in tell(self.servers, do="port")]
            tell(self.drivers, do="connect")
        except BaseException:
            self.__exit__()
            raise
        return self

    def open(self, round: int) -> None:
        """Open a round at the servers and have the clients make their shares."""
        tell(self.servers, do="open", round=round)
        tell(self.drivers, do="prepare", round=round)

    def send(self) -> _Run:
        """All shares of the round to all servers, until the last is acknowledged.

        As in a study that is under way, and as the reference does, the files of the round before are gone by then:
        otherwise every round would need memory of the system's cache that nobody has used yet.
        """
        tell(self.servers, do="forget")
        return self._timed(do="send", timeout=PATIENCE)

    def send_raw(self) -> _Run:
        """The same vectors by the reference."""
        tell(self.servers, do="clear")
        tell(self.drivers, do="raw_connect", ports=self._ports)
        return self._timed(do="raw_send", threads=_THREADS)

    def _timed(self, **command: Any) -> _Run:
        parties = (*self.servers, *self.drivers)
        before = [answer["cpu"] for answer in tell(parties, do="usage")]
        started = time.monotonic()
        tell(self.drivers, **command)
        seconds = time.monotonic() - started
        used = [answer["cpu"] - b for answer, b in zip(tell(parties, do="usage"), before)]
        return _Run(seconds, sum(used), sum(used[: len(self.servers)]))

    def __exit__(self, *_exception: object) -> None:
        for party in (*self.drivers, *self.servers, *self._aggregator):
            party.end()
        for name in self._place.servers:
            for file in self._place.folder.glob(f"{name}/state/*/round-*.spool"):
                file.unlink()
