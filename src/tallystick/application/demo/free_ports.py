"""Ports of this machine for parties that are started a moment later.

A port that the system itself hands out (``bind`` to port 0) comes from the range it also takes for outgoing
connections, so between being found and being listened on it may go to any program that connects somewhere. Those below
that range only go to who asks for them by number.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

from tallystick.core.errors import StudyError

HOST = "127.0.0.1"
_FIRST, _COUNT = 20_000, 12_000  # Linux and IANA begin at 32768 and 49152
_TRIES = 2_000


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now; all are held until the last is found, so that they differ."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for _ in range(_TRIES):
            if len(found) == count:
                break
            port = _FIRST + secrets.randbelow(_COUNT)
            with contextlib.suppress(OSError):
                held.enter_context(socket.create_server((HOST, port)))
                found.append(port)
    if len(found) < count:
        raise StudyError(f"no free port on {HOST}", rule="no-port", remedy="Close programs that hold many ports.")
    return found
