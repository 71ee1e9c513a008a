"""Files whose content must go: set aside, overwritten, made durable, and only then unlinked.

SQLite is no place for a secret that has to be erased. ``secure_delete`` zeroes what a page gives up, but a page that is
rebuilt may keep a copy of a row in its gaps (rare, but seen), and the log keeps one until it is cut. So noise, seeds,
study keys and shares lie in files of their own. ``set_aside`` renames a file, after which nobody reads it any more;
``overwrite`` puts zeros over every byte of it, waits until they are on disk, and takes the file away. A crash between
the two leaves a file with ``.erasing`` in its name: whoever opens the folder next finishes the work.

What this does and does not promise on file systems and disks that write elsewhere is said in docs/attacks.md.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterable
from pathlib import Path

_ASIDE, _NEW = ".erasing", ".new"
_ZEROS = bytes(1 << 20)


def sync_folder(folder: Path) -> None:
    """The names in a folder are durable when this returns."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def set_aside(path: Path) -> Path | None:
    """Take a file out of use at once; its new name, for ``overwrite``. None if there is no such file."""
    aside = path if path.name.endswith(_ASIDE) else path.with_name(path.name + _ASIDE)
    if aside != path and aside.exists():
        overwrite(aside)  # of an earlier time, interrupted: a rename would drop it unerased
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    return aside


def zero(fd: int, start: int, end: int) -> None:
    """Zeros over these bytes of a file, on disk when this returns."""
    while start < end:
        start += os.pwrite(fd, memoryview(_ZEROS)[: end - start], start)
    os.fsync(fd)


def overwrite(path: Path) -> None:
    """Zeros over all of it, on disk; then the file goes. It is not cut short: somebody may still have it mapped."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        zero(fd, 0, os.fstat(fd).st_size)
    finally:
        os.close(fd)
    path.unlink(missing_ok=True)


def erase_all(paths: Iterable[Path]) -> None:
    """Erase these files; those that are not there need nothing."""
    for aside in [set_aside(path) for path in paths]:
        if aside is not None:
            overwrite(aside)


class SecretFiles:
    """Small secrets of one study, a file each, in a folder that may hold other things too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, secret: bytes) -> None:
        """Keep this one in place of the last of its name, which is erased; durable when this returns."""
        if not self._folder.exists():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self._folder.parent)
        self.erase(name)
        new = self._folder / (name + _NEW)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            at = 0
            while at < len(secret):
                at += os.pwrite(fd, memoryview(secret)[at:], at)
            os.fsync(fd)
        finally:
            os.close(fd)
        new.rename(self._folder / name)
        sync_folder(self._folder)

    def get(self, name: str) -> bytes | None:
        """The secret, or None when there is none or it has been erased."""
        try:
            found = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None
        return found if any(found) else None  # only zeros: erased, and the loss of power brought the name back

    def names(self, ending: str) -> tuple[str, ...]:
        """Those that are there, by the end of their names."""
        return tuple(sorted(path.name for path in self._folder.glob(f"*{ending}")))

    def erase(self, name: str) -> None:
        """Overwrite this one, and what a crash has left of it; nothing happens if there is none."""
        path = self._folder / name
        erase_all([path, path.with_name(name + _NEW), path.with_name(name + _ASIDE)])

    def erase_folder(self) -> None:
        """Overwrite every file in the folder, whatever it is, and take the folder away."""
        if self._folder.exists():
            erase_all(self._folder.iterdir())
            with contextlib.suppress(OSError):  # an empty folder tells nothing: it may be a disk of its own
                self._folder.rmdir()


class BackgroundEraser:
    """Overwrites large files while the next round goes on; ``wait`` until it has done so."""

    def __init__(self) -> None:
        self._files: queue.Queue[Path | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._failed: OSError | None = None

    def add(self, aside: Path | None) -> None:
        """Overwrite this file, which was set aside, soon."""
        if aside is None:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="eraser", daemon=True)
            self._thread.start()
        self._files.put(aside)

    def wait(self) -> None:
        """Until all of it is gone; raises what the disk said if it could not be overwritten."""
        if self._thread is not None:
            self._files.put(None)
            self._thread.join()
            self._thread = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _run(self) -> None:
        while (path := self._files.get()) is not None:
            try:
                overwrite(path)
            except OSError as error:
                self._failed = error
