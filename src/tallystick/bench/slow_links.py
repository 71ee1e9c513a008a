"""A wide-area network between processes of one machine: a relay that holds every byte back.

Where ``tc`` may not be used, connections go through this process instead. Bytes leave a party at its rate, all its
connections together, and come out one delay later; both ways, so that everything a protocol waits for is slow:
handshakes, announcements, grants. What it lacks of a real network: packet loss, jitter, and TCP's slow start.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tallystick.bench.processes import obey

__all__ = ["WAN", "Link", "Network", "serve"]

_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Network:
    """A one-way delay, and how much each party can send in a second to all others together."""

    delay_seconds: float
    bytes_per_second: float


WAN = Network(delay_seconds=0.05, bytes_per_second=100e6 / 8)
"""100 ms round trip, 100 Mbit/s."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """Whoever connects to ``port`` is this caller, and reaches the callee at ``to``."""

    caller: str
    callee: str
    port: int
    to: int


class _Relay:
    """All links of a bench."""

    def __init__(self, network: Network, links: Sequence[Link]) -> None:
        self._network = network
        self._free: dict[str, float] = {}
        """When a party's line has carried all it was given."""
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._listen(links), self._loop).result(30.0)

    async def _listen(self, links: Sequence[Link]) -> None:
        for link in links:

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link = link) -> None:
                try:
                    answers, there = await asyncio.open_connection("127.0.0.1", link.to)
                except OSError:
                    writer.close()  # not there yet: the caller dials again
                    return
                for work in (self._carry(reader, there, link.caller), self._carry(answers, writer, link.callee)):
                    task = self._loop.create_task(work)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

            await asyncio.start_server(connected, "127.0.0.1", link.port)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sender: str) -> None:
        way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = self._loop.create_task(self._arrive(way, writer))
        try:
            while chunk := await reader.read(_CHUNK):
                left = max(self._free.get(sender, 0.0), self._loop.time()) + len(chunk) / self._network.bytes_per_second
                self._free[sender] = left
                way.put_nowait((left + self._network.delay_seconds, chunk))
        except ConnectionError:
            pass  # one end is gone; the other hears of it
        way.put_nowait((0.0, b""))
        await arriving

    async def _arrive(self, way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                at, chunk = await way.get()
                if not chunk:
                    break
                await asyncio.sleep(at - self._loop.time())
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def stop(self) -> None:
        """The process ends with it."""


def serve(line: Connection[Any, Any], network: Network, links: Sequence[Link]) -> None:
    """Be the network between these parties."""
    obey(line, _Relay(network, links))
