"""Health and Prometheus metrics over plain HTTP, on an address of the operator's choice: public facts only.

``/health`` answers 200 or 503 with a reason; ``/metrics`` in Prometheus's text format. Neither tells anything about
records: counts of clamped, unknown or dropped records stay on the client's own screen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tallystick.roles.identity.consortium import split_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystick.roles.processes.process import RoleProcess


_SENT_AWAY = "Callers that did not say who they are, too many at once"


class _Collector:
    def __init__(self, process: RoleProcess) -> None:
        self._process = process

    def collect(self) -> Iterator[Metric]:
        process = self._process
        health, counters = process.health, process.node.counters
        labels, values = ["role", "party"], [process.role, process.name]
        total = counters.total()
        running = sum(s == "running" for s in health.studies.values())
        gauge, counter = GaugeMetricFamily, CounterMetricFamily
        for kind, name, text, value in (
            (gauge, "healthy", "1 if the role can work", float(health.green)),
            (gauge, "connected_peers", "Peers connected now", len(process.node.connected())),
            (gauge, "running_studies", "Studies under way", running),
            (gauge, "last_round", "The last round this role worked on", health.rounds),
            (gauge, "boot", "How often this role has been started", process.store.boot),
            (counter, "refused_messages", "Messages that broke the protocol", health.refused),
            (counter, "equivocations", "Clients caught with two sharings in one round", health.blamed),
            (counter, "refused_callers", "Callers whose certificate is not pinned", counters.strangers),
            (counter, "callers_sent_away", _SENT_AWAY, counters.sent_away),
            (counter, "bytes_received", "Bytes received", total.bytes_received),
            (counter, "bytes_sent", "Bytes sent", total.bytes_sent),
        ):
            family = kind(f"tallystick_{name}", text, labels=labels)
            family.add_metric(values, value)
            yield family
        limited = CounterMetricFamily(
            "tallystick_limited", "What a member was refused, by limit", labels=[*labels, "member", "limit"]
        )
        for member, limits in limited_members(process).items():
            for limit, count in limits.items():
                limited.add_metric([*values, member, limit], count)
        yield limited


def limited_members(process: RoleProcess) -> dict[str, dict[str, int]]:
    """Which member was refused what, and how often: by this role, and by its network."""
    found = process.conduct.counts()
    for member, traffic in process.node.counters.peers().items():
        for limit in ("paced", "ungranted", "busy"):
            count = getattr(traffic, limit)
            if count:
                found.setdefault(member, {})[limit] = count
    return found


def serve_monitoring(listen: str, process: RoleProcess) -> Callable[[], None]:
    """Serve until the returned function is called."""
    registry = CollectorRegistry()
    registry.register(_Collector(process))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4", generate_latest(registry))
            elif self.path == "/health":
                health = process.health
                body = json.dumps(
                    {
                        "role": process.role,
                        "party": process.name,
                        "green": health.green,
                        "reason": health.reason,
                        "connected": sorted(process.node.connected()),
                        "studies": dict(health.studies),
                        "declined": dict(health.declined),
                        "round": health.rounds,
                        "consortium": process.parts.consortium.printed_hash,
                        "consortium_problem": health.file_problem,
                        "limited": limited_members(process),
                        "callers_sent_away": process.node.counters.sent_away,
                    }
                )
                self._answer(200 if health.green else 503, "application/json", body.encode())
            else:
                self._answer(404, "text/plain", b"/health or /metrics\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    host, port = split_address(listen)
    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="monitoring", daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    return stop
