"""What ``tallystick bench network`` is compared with: a raw TLS 1.3 socket whose bytes go to a file.

The plainest program that moves the same payload between the same number of processes: both sides show certificates,
the receiver writes what it reads and, where durability is measured, has it on disk before it says so. No sealing, no
commitments, no checks, no restart.
"""

from __future__ import annotations

import os
import socket
import ssl
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_LENGTH = struct.Struct("<Q")
_BUFFER = 1 << 20


def _context(purpose: int, certificate: Path, key: Path, ca_pem: str) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(cadata=ca_pem)
    return context


class Receiver:
    """Listens; a thread for each connection writes its messages to one file."""

    def __init__(self, certificate: Path, key: Path, ca_pem: str, target: Path, *, fsync: bool) -> None:
        self._context = _context(ssl.PROTOCOL_TLS_SERVER, certificate, key, ca_pem)
        self._fsync = fsync
        self._file = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._end = 0
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._socket.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def clear(self) -> None:
        """Begin the file again."""
        with self._lock:
            os.ftruncate(self._file, 0)
            self._end = 0

    def _accept(self) -> None:
        while True:
            plain, _ = self._socket.accept()
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer = memoryview(bytearray(_BUFFER))
        with self._context.wrap_socket(plain, server_side=True) as line:
            while _fill(line, buffer[: _LENGTH.size]):
                (length,) = _LENGTH.unpack(buffer[: _LENGTH.size])
                with self._lock:
                    at = self._end
                    self._end += length
                end = at + length
                while at < end:
                    part = buffer[: min(_BUFFER, end - at)]
                    if not _fill(line, part):
                        return
                    at += os.pwrite(self._file, part, at)
                if self._fsync:
                    os.fsync(self._file)
                line.sendall(b"\1")


def _fill(line: ssl.SSLSocket, part: memoryview) -> bool:
    have = 0
    while have < part.nbytes:
        got = line.recv_into(part[have:])
        if not got:
            return False
        have += got
    return True


class Sender:
    """One connection per client, made beforehand; a few threads send the payloads one after the other."""

    def __init__(self, ca_pem: str, clients: list[tuple[Path, Path, int]]) -> None:
        self._lines = []
        for certificate, key, port in clients:
            context = _context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, ca_pem)
            plain = socket.create_connection(("127.0.0.1", port))
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines.append(context.wrap_socket(plain))

    def send(self, payloads: list[bytes], threads: int) -> None:
        """Every client's payload, and its acknowledgement."""
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(_send, self._lines, payloads))

    def close(self) -> None:
        """End every connection."""
        for line in self._lines:
            line.close()


def _send(line: ssl.SSLSocket, payload: bytes) -> None:
    line.sendall(_LENGTH.pack(len(payload)))
    line.sendall(payload)
    line.recv(1)
