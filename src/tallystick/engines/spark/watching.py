"""What a Spark job is doing, for this machine's log; and an end to waiting for executors that do not come."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

_log = logging.getLogger("tallystick.engines")
_POLL_SECONDS = 2.0


class Watch:
    """Tells this machine's log how far the stages of a job are, and gives it up if nobody works on it."""

    def __init__(self, session: Any, what: str, seconds: float) -> None:
        self._seconds = seconds
        self._what, self._group = what, f"tallystick-{uuid.uuid4()}"
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self.given_up = False
        try:
            self._context = session.sparkContext
        except Exception:  # Spark Connect has none
            self._context = None

    def __enter__(self) -> None:
        if self._context is None:
            return
        try:
            self._context.setJobGroup(self._group, f"tallystick: {self._what}")
        except Exception:  # the cluster is gone: the action will say so
            return
        self._watcher = threading.Thread(target=self._watch, name="tallystick-spark", daemon=True)
        self._watcher.start()

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        if self._watcher is None:
            return
        self._watcher.join()
        with suppress(Exception):  # a notebook's next job is its own
            self._context.setLocalProperty("spark.jobGroup.id", None)
            self._context.setLocalProperty("spark.job.description", None)

    def _watch(self) -> None:
        tracker, idle_since = self._context.statusTracker(), time.monotonic()
        while not self._over.wait(_POLL_SECONDS):
            try:
                stages = list(filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())))
                for info in stages:
                    _log.info("%s: %d of %d tasks", self._what, info.numCompletedTasks, info.numTasks)
                if not stages or any(info.numActiveTasks > 0 for info in stages):
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > self._seconds:
                    self.given_up = True
                    self._context.cancelJobGroup(self._group)
                    return
            except Exception:  # the cluster is gone: the action says so
                return
