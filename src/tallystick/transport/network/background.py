"""One event loop and two pools of workers for all nodes of a process, one for what goes out, one for what comes in.

gRPC's asyncio side wants one loop; parties call in from their own threads.
Disks and ciphers are the workers' business, so that they never hold up a
heartbeat.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as _wait
from typing import Any, TypeVar

_T = TypeVar("_T")
_lock = threading.Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None
_waking: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
# Half the processors, for the other half is at the network's own ciphers: more workers only take turns, each with a
# chunk of its own and out of the other's cache (two on two processors: 5 % more time for a share).
_WORKERS = max(1, min(8, (os.cpu_count() or 2) // 2))
_makers = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="tallystick-network-maker")
_keepers = ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="tallystick-network-keeper")


def background_loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, started on first use."""
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="tallystick-network", daemon=True).start()
            _running = (os.getpid(), loop)
        return _running[1]


def call(work: Coroutine[Any, Any, _T], timeout: float | None = None) -> _T:
    """Run a coroutine there and wait for what it returns."""
    return asyncio.run_coroutine_threadsafe(work, background_loop()).result(timeout)


def wake_soon(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of the loop from any thread; the loop is woken once for all that wait to be set by then."""
    with _lock:
        others = _waking.setdefault(loop, [])
        others.append(event)
        first = len(others) == 1
    if first:
        try:
            loop.call_soon_threadsafe(_wake_all, loop)
        except RuntimeError:  # the loop is closed
            _wake_all(loop)


def _wake_all(loop: asyncio.AbstractEventLoop) -> None:
    with _lock:
        events = _waking.pop(loop, [])
    for event in events:
        event.set()


class Workers(Executor):
    """One node's use of a pool: its shutdown waits for the node's own work only.

    Those who make what is sent and those who keep what has come are not the same, so that a disk that does not answer
    holds up nothing that goes out, and a sender that waits for its own data nothing that comes in.
    """

    def __init__(self, *, outgoing: bool = False) -> None:
        self._pool = _makers if outgoing else _keepers
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        work = self._pool.submit(fn, *args, **kwargs)
        with self._lock:
            self._pending.add(work)
        work.add_done_callback(self._done)
        return work

    def _done(self, work: Future[Any]) -> None:
        with self._lock:
            self._pending.discard(work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            pending = set(self._pending)
        if wait:
            _wait(pending)
