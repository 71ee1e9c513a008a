"""Whose turn it is at a file that several processes share: an advisory lock with patience.

SQLite's own lock would do for the database; the anchor beside it has to change under the same lock. The kernel frees
it when its holder dies, however that happens.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from tallystick.core.errors import RoundAborted

PATIENCE_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.008


class TurnLock:
    """A lock file; each object has a descriptor of its own, so that threads exclude each other too."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, *, party: str) -> None:
        """Wait for the turn; give up with words if somebody keeps it."""
        pause, patience = _FIRST_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > patience:
                    raise RoundAborted(
                        "another process has kept the ledger for itself for too long",
                        rule="storage-in-use",
                        party=party,
                        remedy="Look for a tallystick command or client that hangs, and stop it.",
                    ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def give_back(self) -> None:
        """The next one's turn."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Free the descriptor; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
