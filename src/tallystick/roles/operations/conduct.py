"""What each member was refused, by limit: for the operator's screen, ``/health`` and the metrics.

Public: it tells of messages and statements, never of records. Every limit that one member can reach names that member
here, so that whoever is called at night knows whom to call.
"""

from __future__ import annotations

import logging
import threading

_log = logging.getLogger("tallystick.roles")
MOST_LIMITS = 64  # of different names for one member; they are this program's own words


class Conduct:
    """Counted by the loop and by the network's thread; read from anywhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {}

    def note(self, member: str, limit: str, count: int = 1, *, told: bool = False, why: str = "") -> None:
        """A member was refused something; a line of the log says so, if it was not ``told`` there before."""
        with self._lock:
            own = self._counts.setdefault(member, {})
            known = limit if limit in own or len(own) < MOST_LIMITS else "other"
            own[known] = own.get(known, 0) + count
            total = own[known]
        if told:
            return
        words = f"{why} " if why else ""
        _log.warning("%s is limited: %s(%s, %d so far)", member, words, limit, total, extra={"member": member})

    def counts(self) -> dict[str, dict[str, int]]:
        """How often each member was refused, by limit."""
        with self._lock:
            return {member: dict(own) for member, own in self._counts.items()}
