"""The public clock of a stream at the coordinator: tick t's round is not opened before start + t·tick_seconds.

The start is what the study states, or the time of day at which the study started here; it is durable, so a restarted
coordinator has the same clock and runs the ticks it missed at once, one after another. Between restarts the clock is
the monotonic one: the time of day may jump.
"""

from __future__ import annotations

import struct

from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.stores import RoleStore
from tallystick.study.sections import StreamSection

_KEY = "stream"
_START = struct.Struct("<d")


class StreamClock:
    """When each tick is due, on the process's monotonic clock."""

    def __init__(self, stream: StreamSection, store: RoleStore, study_hash: bytes, *, wall: float, now: float) -> None:
        kept = store.records(study_hash).get(_KEY)
        if kept is None:
            kept = _START.pack(wall if stream.start is None else stream.start)
            store.persist(study_hash, _KEY, kept)
            crashpoint("clock-kept")
        self._begin = now - (wall - float(_START.unpack(kept)[0]))
        self._seconds = stream.tick_seconds

    def due(self, tick: int) -> float:
        """The end of the tick: all that belongs to it is there by then."""
        return self._begin + tick * self._seconds
