"""The role's end: locked children that are started, asked, watched and ended; none can hurt the role.

Every call has a time limit, every reply a size limit known beforehand. A child that is late, says something it should
not, or dies is ended, and the caller gets :class:`Contained` with a cause in plain words; the next call starts a fresh
one. Children end with :meth:`Children.close`, at the exit of the process, and, by the kernel's hand, when the process
is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tallystick.core.errors import StudyError
from tallystick.engines.sandbox import messages
from tallystick.engines.sandbox.confinement import OUT_OF_MEMORY
from tallystick.engines.sandbox.seccomp import architecture_here

Kind = Literal["public", "map"]
_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
_MOST_CHILDREN = 8
_COMMAND = (sys.executable or "", "-I", "-B", "-m", "tallystick.engines.sandbox.fork_server")
_PASSED_ON = ("HOME", "LANG", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_UNAVAILABLE = (
    "Run this role on Linux (x86-64 or aarch64), in a container that lets a process filter its own system calls; "
    "or take part only in studies with built-in programs."
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may use. Public, the same for every program."""

    start_seconds: float = 120.0
    load_seconds: float = 120.0
    call_seconds: float = 30.0
    memory_bytes: int = 1 << 30
    cpu_seconds: int = 3600
    state_bytes: int = 64 << 20


class Contained(Exception):  # noqa: N818 - becomes a StudyError, DataError or RoundAborted one floor up
    """A child was ended or died. ``outside``: not by anything the program did."""

    def __init__(self, cause: str, *, outside: bool = False) -> None:
        self.cause = cause
        self.outside = outside
        super().__init__(cause)


def _cause_of(status: int | None) -> Contained:
    if status is None:
        return Contained("its process was killed from outside", outside=True)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGSYS:
            return Contained("it asked the system for something no program may have (a connection, another process, …)")
        if number == signal.SIGXCPU:
            return Contained("it used more processor time than it may")
        if number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            return Contained("its process was killed from outside", outside=True)
        return Contained(f"it broke its own process ({signal.Signals(number).name})")
    if os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return Contained("it asked for more memory than it may have")
    return Contained("it ended its own process")


class Child:
    """One locked process and the pipes to it. One call at a time."""

    def __init__(self, owner: Children, server: subprocess.Popen[bytes], pid: int, inbox: int, outbox: int) -> None:
        self._owner = owner
        self.server = server
        self.pid = pid
        self._in, self._out = inbox, outbox
        self.lock = threading.Lock()
        self.busy_seconds = 0.0
        self.ended = False

    def call(
        self, header: Mapping[str, Any], body: Sequence[Any] = (), *, seconds: float, body_limit: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """Ask, and wait for the answer: its header and a body of at most ``body_limit`` bytes."""
        views = [memoryview(piece).cast("B") for piece in body if len(piece)]
        started = time.monotonic()
        with self.lock:
            try:
                if self.ended or self._hung_up():
                    raise EOFError
                deadline = started + seconds
                self._write(memoryview(messages.pack(header, sum(len(v) for v in views))), deadline)
                for view in views:
                    self._write(view, deadline)
                return self._reply(deadline, body_limit)
            except TimeoutError:
                self._end()
                raise Contained(f"it did not answer within {seconds:g} s") from None
            except (EOFError, OSError):
                raise _cause_of(self._end()) from None
            except messages.BadReply as problem:
                self._end()
                raise Contained(f"its process broke the protocol: {problem}") from None
            finally:
                self.busy_seconds += time.monotonic() - started

    def hello(self, seconds: float) -> dict[str, Any]:
        """What a child says first, unasked."""
        with self.lock:
            try:
                return self._reply(time.monotonic() + seconds, 0)[0]
            except TimeoutError:
                self._end()
                raise Contained(f"its process was not ready within {seconds:g} s", outside=True) from None
            except (EOFError, OSError, messages.BadReply):
                raise _cause_of(self._end()) from None

    def close(self) -> None:
        """End it; a call under way is waited for."""
        with self.lock:
            self._end()

    def end_if_idle(self) -> None:
        """End it unless a call is under way."""
        if self.lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self.lock.release()

    def _end(self) -> int | None:
        if self.ended:
            return None
        self.ended = True
        os.close(self._in)
        os.close(self._out)
        return self._owner.bury(self)

    def _reply(self, deadline: float, body_limit: int) -> tuple[dict[str, Any], bytes]:
        first = self._read(messages.FRAME.size, deadline)
        header, body = messages.lengths(first, body_limit=body_limit)
        return messages.header_of(self._read(header, deadline)), self._read(body, deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        """Exactly ``size`` bytes; room is made for what has come, not for what was announced."""
        found = bytearray()
        while len(found) < size:
            if not self._readable(_left(deadline)):
                raise TimeoutError
            piece = os.read(self._out, min(size - len(found), _PIPE_BYTES))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)

    def _write(self, view: memoryview, deadline: float) -> None:
        waiting = select.poll()
        waiting.register(self._in, select.POLLOUT)
        while view:
            if not waiting.poll(1000 * _left(deadline)):
                raise TimeoutError
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self._in, view) :]

    def _readable(self, seconds: float) -> int:
        waiting = select.poll()
        waiting.register(self._out, select.POLLIN)
        return sum(events for _, events in waiting.poll(1000 * seconds))

    def _hung_up(self) -> bool:
        """Whether it is gone; what it has to say before it was asked is no answer to anything."""
        events = self._readable(0.0)
        if events & select.POLLIN:
            raise messages.BadReply("it speaks unasked")
        return bool(events)


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


class Children:
    """The locked children of this process, forked from one warmed-up server that is started when first needed."""

    def __init__(self, *, limits: Limits | None = None, command: Sequence[str] = _COMMAND) -> None:
        self.limits = limits or Limits()
        self._command = tuple(command)
        self._control: socket.socket | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()
        self._living: dict[Child, None] = {}  # in the order they were started
        self._owner = os.getpid()
        self.programs: dict[tuple[str, str, Kind], Any] = {}  # of the programs that live here

    def start(self, kind: Kind) -> Child:
        """A child that is locked in and waits for a program. StudyError where there is no locking in."""
        child = self._start(kind)
        try:
            said = child.hello(self.limits.start_seconds)
        except Contained as contained:
            if not contained.outside:
                raise _unavailable(f"a locked process {contained.cause}") from None
            raise
        if said.get("locked") is not True:
            child.close()
            raise _unavailable(str(said.get("refused", "no reason is given"))[:200])
        return child

    def _start(self, kind: Kind) -> Child:
        with self._lock:
            for child in list(self._living)[: max(0, len(self._living) - _MOST_CHILDREN + 1)]:
                child.end_if_idle()  # the oldest go first; they come back when they are needed
        allowance = {"memory_bytes": self.limits.memory_bytes, "cpu_seconds": self.limits.cpu_seconds}
        ours_in, theirs_in, theirs_out, ours_out = _pipes()
        try:
            with self._lock:
                told = self._ask({"do": "start", "kind": kind, **allowance}, [theirs_in, theirs_out])
                if self._server is None:
                    raise _unavailable("the process that starts them is gone")
                child = Child(self, self._server, told["pid"], ours_in, ours_out)
                self._living[child] = None
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        return child

    def bury(self, child: Child) -> int | None:
        """End a child's process and say how it ended; None if nobody knows any more."""
        with self._lock:
            self._living.pop(child, None)
            if self._control is None or self._server is not child.server:
                return None  # the server it came from is gone, and it with the server
            try:
                told = self._ask({"do": "end", "pid": child.pid}, restart=False)
            except StudyError:
                return None
        status = told.get("status")
        return status if isinstance(status, int) else None

    # -- the server ---------------------------------------------------------------------------------------------------

    def _ask(self, order: dict[str, Any], descriptors: Sequence[int] = (), *, restart: bool = True) -> dict[str, Any]:
        with self._lock:
            for _ in range(2 if restart else 1):
                control = self._connected()
                try:
                    socket.send_fds(control, [json.dumps(order).encode()], list(descriptors))
                    return _hear(control)
                except (OSError, ValueError):
                    self._shut()  # killed from outside: its children went with it
            raise _unavailable("the process that starts them is gone")

    def _connected(self) -> socket.socket:
        if self._control is not None:
            return self._control
        if architecture_here() is None or not self._command[0]:
            raise _unavailable("there is no seccomp filter for this system")
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = here
        here.settimeout(self.limits.start_seconds)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            self._server = subprocess.Popen(
                [*self._command, str(there.fileno())],
                pass_fds=[there.fileno()],
                env=environment | dict.fromkeys(_ONE_THREAD, "1"),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            there.close()
            said = _hear(here)
        except (OSError, ValueError):
            there.close()
            self._shut()
            raise _unavailable(f"`{' '.join(self._command)}` does not start") from None
        if "ready" not in said:
            self._shut()
            raise _unavailable(str(said.get("refused", "no reason is given"))[:200])
        return here

    def _shut(self) -> None:
        control, server = self._control, self._server
        self._control = self._server = None
        if control is not None:
            control.close()
        if server is not None and self._owner == os.getpid():  # a fork of the role leaves the role's server alone
            server.kill()
            server.wait()

    def close(self) -> None:
        """End every child and the server, at once. They are started again if anybody asks."""
        with self._lock:
            living = list(self._living)
            for child in living:
                child.end_if_idle()
            self._shut()
        for child in living:
            child.close()  # a call under way has ended by now: the kernel has ended the child with its server


def _hear(control: socket.socket) -> dict[str, Any]:
    raw = control.recv(4096)
    told = json.loads(raw) if raw else None
    if not isinstance(told, dict):
        raise ValueError("the server has ended")
    return told


def _pipes() -> tuple[int, int, int, int]:
    """(our inlet, their inbox, their outbox, our outlet)."""
    theirs_in, ours_in = os.pipe()
    ours_out, theirs_out = os.pipe()
    for ours in (ours_in, ours_out):
        os.set_blocking(ours, False)
        with contextlib.suppress(OSError):  # a larger pipe is faster; an unprivileged user may have used up his share
            fcntl.fcntl(ours, _SET_PIPE_SIZE, _PIPE_BYTES)
    return ours_in, theirs_in, theirs_out, ours_out


def _unavailable(cause: str) -> StudyError:
    return StudyError(
        f"program files cannot be run here: {cause}; nothing of the program was run",
        rule="sandbox-unavailable",
        remedy=_UNAVAILABLE,
    )


_shared: tuple[int, Children] | None = None
_sharing = threading.Lock()


def shared_children() -> Children:
    """The children of this process: one server for all its program files. A forked process gets a server of its own."""
    global _shared
    with _sharing:
        if _shared is None or _shared[0] != os.getpid():
            _shared = os.getpid(), Children()
            atexit.register(_shared[1].close)
        return _shared[1]
