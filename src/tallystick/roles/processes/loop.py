"""The loop of a role: everything that happens is an event in one queue, and one bad event does not end it.

A message (a thread takes them off the network), a command of this process's own threads, a time that has come: the loop
is the only one that touches machines and store. A disk that fails is met here, too: a session whose machines may be
ahead of their records is laid down, and made anew from what is durable once the disk works again.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from tallystick.core.errors import ProtocolError, TallystickError
from tallystick.roles.operations.conduct import Conduct
from tallystick.roles.processes.session import Health, Parts, Session
from tallystick.roles.storage.database import is_storage_failure

_log = logging.getLogger("tallystick.roles")
_TAKE_UP = "take up"
TAKE_UP_SECONDS = 1.0
KEPT_SESSIONS = 256


class EventLoop(ABC):
    """Sessions, events, and times to wake up at. A role says what else is due (:meth:`due`)."""

    session: ClassVar[Callable[..., Session]]
    """The class of a study's session in this role."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.role = parts.config.role
        self.name = parts.config.name
        self.store = parts.store
        self.health = Health()
        self.conduct = Conduct()
        self.sessions: dict[bytes, Session] = {}
        self.fault: TallystickError | None = None
        """What keeps this role from taking part until somebody has looked: it does not pass by itself."""
        self._events: queue.Queue[Callable[[], None]] = queue.Queue(maxsize=256)
        self._wakes: list[tuple[float, int, bytes, str]] = []
        self._laid_down: set[bytes] = set()
        self._tie = itertools.count()
        self._stop = threading.Event()

    @abstractmethod
    def due(self, now: float) -> None:
        """What is to be done from time to time, whatever happens."""

    def resume_one(self, study_hash: bytes) -> None:
        """The session of a stored study, as its durable records have it."""
        if self.store.study(study_hash) is not None:
            session = self.sessions[study_hash] = self.session(self, study_hash)
            self._in(session, session.begin)

    def now(self) -> float:
        """The monotonic clock."""
        return self.parts.clock.now()

    def wake(self, at: float, session: Session, layer: str) -> None:
        """Call ``session.tick(layer)`` at this time."""
        heapq.heappush(self._wakes, (at, next(self._tie), session.study_hash, layer))

    def post(self, work: Callable[[], None], *, wait: bool = True) -> None:
        """Have the loop do something; any thread may ask."""
        while not self._stop.is_set():
            try:
                self._events.put(work, block=wait, timeout=0.5)
                return
            except queue.Full:
                if not wait:
                    _log.warning("the queue of %s is full; an event was dropped", self.name)
                    return

    def soon(self, session: Session, work: Callable[[], None]) -> None:
        """For the loop itself: do something for a session after all that waits now, or at once if too much waits."""
        later = self._if_current(session, work)
        try:
            self._events.put_nowait(later)
        except queue.Full:
            later()

    def post_for(self, session: Session, work: Callable[[], None]) -> None:
        """Have the loop do something for a session, if it is still this one by then."""
        self.post(self._if_current(session, work))

    def _if_current(self, session: Session, work: Callable[[], None]) -> Callable[[], None]:
        def if_current() -> None:
            if self.sessions.get(session.study_hash) is session:
                self._in(session, work)

        return if_current

    def run(self) -> None:
        """Until :meth:`stop`."""
        while not self._stop.is_set():
            try:
                work = self._events.get(timeout=self._patience())
            except queue.Empty:
                work = None
            self._guarded(work or self._due)
            if work is not None:
                self._guarded(self._due)

    def stop(self) -> None:
        """Graceful: what is queued is sent, then the lines are closed. Nothing needs it: kill -9 costs no privacy."""
        self._stop.set()

    def _patience(self) -> float:
        soonest = self._wakes[0][0] - self.now() if self._wakes else 1.0
        return min(max(soonest, 0.0), 0.5)

    def _due(self) -> None:
        now = self.now()
        self.due(now)
        while self._wakes and self._wakes[0][0] <= now:
            _, _, study_hash, layer = heapq.heappop(self._wakes)
            session = self.sessions.get(study_hash)
            if layer == _TAKE_UP:
                self._guarded(lambda taken=study_hash: self._take_up(taken))  # type: ignore[misc]
            elif session is not None:
                self._guarded(lambda s=session, name=layer: self._in(s, lambda: s.tick(name)))  # type: ignore[misc]

    # -- sessions, and a disk that fails -------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Sessions that are over, or never began, are made anew if they are asked again: few are kept."""
        if len(self.sessions) >= KEPT_SESSIONS:
            idle = [study for study, session in self.sessions.items() if session.idle]
            for study in idle[: len(self.sessions) - KEPT_SESSIONS // 2]:
                self.sessions.pop(study).close()

    def _in(self, session: Session, work: Callable[[], None]) -> None:
        """Work of one session. If the disk fails, its machines may be ahead of their records: they are given up.

        A server that went on with noise that is not on disk could draw it again after a crash, and have released
        both. So the session is laid down and made anew from what is durable, again and again until the disk works.
        """
        try:
            work()
        except TallystickError as error:
            if is_storage_failure(error):
                self._lay_down(session.study_hash)
            raise

    def _lay_down(self, study_hash: bytes) -> None:
        session = self.sessions.pop(study_hash, None)
        if session is not None:
            with contextlib.suppress(TallystickError):
                session.close()
        self._laid_down.add(study_hash)
        heapq.heappush(self._wakes, (self.now() + TAKE_UP_SECONDS, next(self._tie), study_hash, _TAKE_UP))

    def _take_up(self, study_hash: bytes) -> None:
        if study_hash not in self._laid_down:
            return
        try:
            self.store.check_writable()
            self._laid_down.discard(study_hash)
            self.resume_one(study_hash)
        except TallystickError as error:
            if is_storage_failure(error):
                self._lay_down(study_hash)
            raise

    def _guarded(self, work: Callable[[], None], sender: str | None = None) -> None:
        """One bad message or full disk does not end the process: it is refused, told, and the loop goes on."""
        try:
            work()
            if not self.health.green and not self._laid_down and self.fault is None:
                self.health.green, self.health.reason = True, ""
                _log.info("%s is well again", self.name)
        except ProtocolError as error:
            self.health.refused += 1
            _log.warning("refused: %s", error, extra={"member": error.party or sender})
            if sender is not None:
                self.conduct.note(error.party or sender, error.rule or "refused", told=True)
        except TallystickError as error:
            if is_storage_failure(error):
                self.health.green, self.health.reason = False, str(error)
            _log.error("%s", error, extra={"member": sender})
        except Exception:
            self.health.green, self.health.reason = False, "a fault in this program; see its log"
            _log.exception("a fault in %s", self.name, extra={"member": sender})
