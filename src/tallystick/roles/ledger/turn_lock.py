"""Whose turn it is at a file that several processes share: an advisory lock with patience.

SQLite's own lock would do for the database; the anchor beside it has to change under the same lock. The kernel frees
it when its holder dies, however that happens.

``flock`` promises no order, and whoever has just had its turn is awake and asks again first: a busy client could keep
a steward's command waiting until its patience ends. So those who wait say so, by a shared lock on a second file, and
whoever has had many turns in a row steps back for as long as a waiting one sleeps. Steps back cost time, never
safety: the lock itself decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from tallystick.core.errors import RoundAborted

PATIENCE_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.008
_TURNS_IN_A_ROW = 16  # one step back for so many turns: a thirtieth of the time of turns that wait for the disk


class TurnLock:
    """A lock file; each object has a descriptor of its own, so that threads exclude each other too."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._queue = os.open(path.with_suffix(".waiting"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            os.close(self._file)
            raise
        self._in_a_row = 0

    def take(self, *, party: str) -> None:
        """Wait for the turn; give up with words if somebody keeps it."""
        if self._in_a_row >= _TURNS_IN_A_ROW:
            self._in_a_row = 0
            if self._somebody_waits():
                time.sleep(2 * _LONGEST_PAUSE)
        if self._at_once():
            self._in_a_row += 1
            return
        self._in_a_row = 0
        try:
            self._wait(party)
        finally:
            fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _at_once(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _somebody_waits(self) -> bool:
        try:
            fcntl.flock(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._queue, fcntl.LOCK_UN)
        return False

    def _wait(self, party: str) -> None:
        pause, patience = _FIRST_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while not self._at_once():
            with contextlib.suppress(BlockingIOError):  # one who looks holds it for an instant: the next time, then
                fcntl.flock(self._queue, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if time.monotonic() > patience:
                raise RoundAborted(
                    "another process has kept the ledger for itself for too long",
                    rule="storage-in-use",
                    party=party,
                    remedy="Look for a tallystick command or client that hangs, and stop it.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def give_back(self) -> None:
        """The next one's turn."""
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Free the descriptors; a second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            os.close(self._queue)
            self._file = self._queue = -1
