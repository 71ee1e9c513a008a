"""Callers that have not said who they are: only so many at once, and the oldest goes first.

gRPC gives a caller some seconds for its handshake, and closes what comes in above a fixed number of sockets: then
whoever holds that many keeps everybody else out. So the number of callers in front of the door is kept far below it.
When there are too many, those who have stood there longest are sent away, from the address that has most of them: a
handshake takes milliseconds, so a party that really wants to come in is hardly ever among them.

gRPC accepts the sockets and does not lend them; but they are files of this process. One that is to go is shut down
through a second handle, which gRPC takes for a caller that hung up. Nothing stands between a line and its bytes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

Caller = tuple[str, int]
"""The address and port somebody calls from."""

_FILES = next((folder for folder in map(Path, ("/proc/self/fd", "/dev/fd")) if folder.is_dir()), None)


def _caller(host: str, port: int) -> Caller | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), port


def caller_of(peer: str) -> Caller | None:
    """Who gRPC says is at the other end: ``ipv4:192.0.2.1:5000``, ``ipv6:%5B2001:db8::1%5D:5000``."""
    _, _, rest = unquote(peer).partition(":")
    host, _, port = rest.rpartition(":")
    return _caller(host.strip("[]"), int(port)) if port.isascii() and port.isdigit() else None


def to_send_away(waiting: Mapping[Caller, float], most: int) -> list[Caller]:
    """Of those who wait, with the times since which they do, who has to go so that ``most`` are left."""
    if len(waiting) <= most:
        return []
    left = Counter(address for address, _ in waiting)
    oldest: dict[str, list[Caller]] = {address: [] for address in left}
    for caller in sorted(waiting, key=lambda one: waiting[one], reverse=True):
        oldest[caller[0]].append(caller)
    gone: list[Caller] = []
    while len(waiting) - len(gone) > most:
        crowded = max(left, key=lambda address: left[address])
        gone.append(oldest[crowded].pop())
        left[crowded] -= 1
    return gone


class Doorkeeper:
    """Looks after one listening port; used on the event loop only."""

    def __init__(self, port: int, most: int) -> None:
        self.most = most
        self._port = port
        self._since: dict[Caller, float] = {}
        self._inside: Counter[Caller] = Counter()
        self._settled: dict[int, int] = {}  # files of callers that are inside, and their inodes: not looked at again

    @contextlib.contextmanager
    def inside(self, caller: Caller | None) -> Iterator[None]:
        """While this caller, who has shown a pinned certificate, is served."""
        if caller is None:
            yield
            return
        self._inside[caller] += 1
        try:
            yield
        finally:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller]
                self._settled.clear()

    def look(self, now: float) -> int:
        """Send away who has to go; how many that were."""
        there = list(
            _accepted(self._port, self._inside, self._settled)
        )  # a caller may be there twice, by an older handle of gRPC's
        try:
            self._since = {caller: self._since.get(caller, now) for caller, _ in there}
            gone = set(to_send_away(self._since, self.most))
            for caller, handle in there:
                if caller in gone:
                    with contextlib.suppress(OSError):  # it has hung up by itself
                        handle.shutdown(socket.SHUT_RDWR)
        finally:
            for _, handle in there:
                handle.close()
        return len(gone)


def _accepted(port: int, inside: Container[Caller], settled: dict[int, int]) -> Iterator[tuple[Caller, socket.socket]]:
    """The connections that somebody else made to a port of this process, each with a handle of its own to close.

    A file may be closed, and its number given to another one, at any moment: so everything is asked of the second
    handle, which stays what it is.
    """
    for name in [file.name for file in _FILES.iterdir()] if _FILES is not None else ():
        try:
            found = os.fstat(int(name))
            if not stat.S_ISSOCK(found.st_mode) or settled.get(int(name)) == found.st_ino:
                continue
            handle = socket.socket(fileno=os.dup(int(name)))
        except (OSError, ValueError):
            continue
        caller = None
        with contextlib.suppress(OSError):
            if handle.family in (socket.AF_INET, socket.AF_INET6) and handle.getsockname()[1] == port:
                caller = _caller(*handle.getpeername()[:2])
        if caller is None or caller in inside:
            if caller is not None:
                settled[int(name)] = found.st_ino
            handle.close()
        else:
            yield caller, handle
