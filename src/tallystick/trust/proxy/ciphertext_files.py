"""Where a deployed proxy keeps ciphertexts: a file per upload, a file per sum, in the study's own folder.

An upload grows under the name ``….part`` and gets its own name when it is whole and on disk: what a crash leaves of an
unfinished one is not taken for whole, and is overwritten when the next round begins or the study ends. Uploads are
erased, not only unlinked: with the data user's key, an institution's exact sum could be read from one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from tallystick.roles.storage.database import storage_guard
from tallystick.roles.storage.erasure import BackgroundEraser, set_aside, sync_folder

_UPLOAD = re.compile(r"round-(\d+)\.owner-(\d+)\.upload(\.part)?")
_SUM = re.compile(r"round-(\d+)\.sum(\.part)?")


class CiphertextFiles:
    """An ``UploadStore`` (``protocol.encrypted_sum.uploads``) on disk; every chunk but the last is full."""

    def __init__(self, folder: Path, *, chunk_bytes: int, party: str) -> None:
        self._folder, self._chunk, self._party = folder, chunk_bytes, party
        self._eraser = BackgroundEraser()
        with self._guard():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = [m for path in folder.iterdir() if (m := _UPLOAD.fullmatch(path.name)) and not m[3]]
        self._whole = {(int(m[1]), int(m[2])) for m in found}

    def _guard(self) -> AbstractContextManager[None]:
        return storage_guard("a ciphertext", party=self._party)

    def _upload(self, round: int, client: int) -> Path:
        return self._folder / f"round-{round}.owner-{client}.upload"

    def _sum(self, round: int) -> Path:
        return self._folder / f"round-{round}.sum"

    def begin(self, round: int, client: int) -> None:
        with self._guard():
            part = _part(self._upload(round, client))
            self._eraser.add(set_aside(part))  # of an upload that broke off
            part.write_bytes(b"")

    def put(self, round: int, client: int, index: int, payload: bytes) -> None:
        with self._guard():
            _write(_part(self._upload(round, client)), index * self._chunk, payload)

    def complete(self, round: int, client: int) -> None:
        with self._guard():
            _finish(self._upload(round, client))
        self._whole.add((round, client))

    def whole(self, round: int) -> Iterable[int]:
        return sorted(client for number, client in self._whole if number == round)

    def get(self, round: int, client: int, index: int, start: int, size: int) -> bytes:
        with self._guard():
            return _read(self._upload(round, client), index * self._chunk + start, size)

    def put_sum(self, round: int, index: int, payload: bytes) -> None:
        with self._guard():
            part = _part(self._sum(round))
            if index == 0:
                part.write_bytes(b"")
            _write(part, index * self._chunk, payload)

    def complete_sum(self, round: int) -> None:
        with self._guard():
            _finish(self._sum(round))

    def get_sum(self, round: int, index: int) -> bytes:
        with self._guard():
            return _read(self._sum(round), index * self._chunk, self._chunk)

    def drop(self, round: int, *, sums: bool) -> None:
        self._whole = {key for key in self._whole if key[0] > round}
        with self._guard():
            for path in list(self._folder.iterdir()):
                upload, summed = _UPLOAD.fullmatch(path.name), _SUM.fullmatch(path.name)
                if upload and int(upload[1]) <= round:
                    self._eraser.add(set_aside(path))
                elif sums and summed and int(summed[1]) <= round:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Until what was dropped is overwritten."""
        with self._guard():
            self._eraser.wait()


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _write(path: Path, at: int, payload: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < len(payload):
            done += os.pwrite(fd, memoryview(payload)[done:], at + done)
    finally:
        os.close(fd)


def _finish(path: Path) -> None:
    fd = os.open(_part(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    _part(path).rename(path)
    sync_folder(path.parent)


def _read(path: Path, at: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)
