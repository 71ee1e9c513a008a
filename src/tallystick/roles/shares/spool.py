"""Shares on disk: one append-only file per round, written as they arrive, made durable together.

A share of any size streams into its room (``begin`` … ``write`` … ``share``) and never sits in memory; it is
visible only once the machine that checked it has ``put`` it. Room of a transfer that broke off is used again, so a
client that breaks off for ever does not fill the disk. ``sync`` is one fsync for all shares since the last. What a file
looks like, and what of it is believed when it is opened again, is in ``spool_file``.

A round that is over is set aside at once, and its file is overwritten with zeros before it goes (``erasure``): in the
background, for a million entries of a hundred clients are 800 MB. Until a restart has seen to it, what a crash left
half erased is not read again.

After a failed fsync nobody knows what is on disk, and asking again may lie. Everything since the last good sync is
therefore forgotten, in memory and in the file; the server's machine must then be made anew with ``restore``.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.protocol.secure_sum.codec import encode
from tallystick.protocol.secure_sum.messages import Share, ShareKind
from tallystick.roles.shares.spool_file import (
    COMMIT,
    DISCARD,
    FRAME_BYTES,
    ROOM,
    SHIFT,
    Entry,
    Recovery,
    RoundFile,
    head_check,
    make_frame,
    read_share,
    room_for,
)
from tallystick.roles.storage.database import corrupt, storage_guard
from tallystick.roles.storage.erasure import BackgroundEraser, set_aside, zero

_NO_ROUND_IS_LATER = (1 << 32) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the elements of a vector share lie in a spool file."""

    path: str
    offset: int
    size: int


class ShareSink:
    """One share on its way in, straight to its room in the file; nobody sees it until it is ``put``."""

    def __init__(self, store: SpoolShares, file: RoundFile, client: int, room: int, length: int) -> None:
        self._store, self._file, self._client, self._room = store, file, client, room
        self._start, self._length = room + FRAME_BYTES + SHIFT, length
        self._generation = file.generation
        self._written = 0
        self._open = True
        self._writing = threading.Lock()  # taken after the store's lock, never before it
        self._share: Share | None = None

    @property
    def missing(self) -> int:
        """Bytes still to come."""
        return self._length - self._written

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """The next bytes. More than were announced is the sender's fault; nothing of it is kept."""
        size = memoryview(chunk).nbytes
        with self._writing:
            if not self._open or self._generation != self._file.generation:
                raise LocalProtocolError("this transfer has ended", remedy="Let the client send its share again.")
            if size <= self.missing:
                self._file.write(self._start + self._written, chunk)
                self._written += size
                return
        self.abort()
        raise RemoteProtocolError("a share is longer than was announced", rule="too-long", remedy="It was dropped.")

    def share(self, *, elements_checked: bool = False) -> Share:
        """The share, once all of it is there, checked as a message; give this very object to the machine.

        ``elements_checked`` by the caller, on their way in: then the vector is not read again.
        """
        if self._share is None:
            if not self._open or self.missing:
                self.abort()
                raise RemoteProtocolError("a share broke off", rule="malformed", remedy="The message was dropped.")
            try:
                share = read_share(self._file.view(self._start, self._length), elements_checked)
                if (share.round, share.client) != (self._file.round, self._client):
                    raise RemoteProtocolError(
                        "a share is not of the round or client announced", rule="wrong-round", remedy="It was dropped."
                    )
            except BaseException:
                self.abort()
                raise
            self._share = share
        return self._share

    def abort(self) -> None:
        """Give the room back, unless the share was put; safe to call at any time."""
        self._store._end(self, committed=False)


class SpoolShares:
    """A ``ShareStore`` on spool files in one directory, which belongs to one study of one server."""

    def __init__(self, directory: Path, *, party: str | None = None) -> None:
        self._directory, self._party = directory, party
        self._lock = threading.RLock()
        self._rounds: dict[int, RoundFile] = {}
        self._sinks: dict[tuple[int, int], ShareSink] = {}
        self._eraser = BackgroundEraser()
        self._over = 0  # the last round that was dropped
        with storage_guard("the spool of shares", party=party):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in sorted(directory.glob("round-*.spool.*")):
                self._eraser.add(left)
            found = sorted(directory.glob("round-*.spool"))
        self.recovered: tuple[Recovery, ...] = tuple([self._recover(path) for path in found])

    # -- the store the machine knows -----------------------------------------------------------------------------

    def put(self, share: Share) -> None:
        """Make a share visible: one that streamed in where it lies, another by writing it; durable after ``sync``."""
        with self._lock:
            sink = self._sinks.get((share.round, share.client))
            if sink is None or sink._share is not share:
                raw = encode(share)
                if share.kind != ShareKind.VECTOR and not self._file(share.round).free.get(room_for(len(raw))):
                    self._append_share(share, raw)
                    return
                sink = self.begin(share.round, share.client, len(raw))
                try:
                    sink.write(raw)
                except BaseException:
                    sink.abort()
                    raise
            file = sink._file
            entry = Entry(share.without_vector(), sink._start, sink._length, sink._room, file.end)
            self._append(file, make_frame(COMMIT, share.client, sink._room, sink._length, head_check(entry.head)))
            file.entries[share.client] = entry
            self._end(sink, committed=True)

    def get(self, round: int, client: int) -> Share:
        """The share; a vector is a view of the file, gone from memory when the caller lets go of it."""
        with self._lock:
            file = self._rounds[round]
            entry = file.entries[client]
            if entry.head.kind != ShareKind.VECTOR:
                return entry.head
            at, length = self._payload(entry)
            return replace(entry.head, payload=cast(bytes, file.view(at, length)))

    def discard(self, round: int, client: int) -> None:
        """The share no longer counts."""
        with self._lock:
            file = self._rounds.get(round)
            entry = file.entries.pop(client, None) if file is not None else None
            if file is not None and entry is not None:
                self._append(file, make_frame(DISCARD, client, entry.room, 0))

    def clients(self, round: int) -> Iterable[int]:
        """Who has a share in this round."""
        with self._lock:
            file = self._rounds.get(round)
            return tuple(file.entries) if file is not None else ()

    def drop(self, round: int) -> None:
        """Erase every share of this round and of all before it; transfers under way break off, none begins any more."""
        with self._lock:
            self._over = max(self._over, round)
            for number in [number for number in self._rounds if number <= round]:
                file = self._rounds.pop(number)
                with storage_guard("the end of a round", party=self._party):
                    aside = set_aside(file.path)
                self._retire(file)  # nobody writes to it from here on
                self._eraser.add(aside)

    def sync(self) -> None:
        """One fsync per file written to since the last: every share put before is durable when this returns."""
        with self._lock:
            files = [(file, file.end) for file in self._rounds.values() if file.end > file.synced]
            for file, _ in files:
                file.pins += 1
        try:
            for file, end in files:
                with storage_guard("a share", party=self._party):
                    try:
                        os.fsync(file.fd)
                    except OSError:
                        self._forget_unsynced(file)
                        raise
                with self._lock:
                    file.synced = max(file.synced, end)
                    file.write_head()
        finally:
            with self._lock:
                for file, _ in files:
                    file.unpin()

    def close(self) -> None:
        """Let go of the files; those of rounds that are not over stay."""
        with self._lock:
            for file in self._rounds.values():
                self._retire(file)
            self._rounds.clear()
        with storage_guard("the end of a round", party=self._party):
            self._eraser.wait()

    def erase(self) -> None:
        """The study is over: erase every share of every round, and be done with it when this returns."""
        self.drop(_NO_ROUND_IS_LATER)
        self.close()

    def __len__(self) -> int:
        with self._lock:
            return sum(len(file.entries) for file in self._rounds.values())

    # -- streaming ---------------------------------------------------------------------------------------------------

    def begin(self, round: int, client: int, length: int) -> ShareSink:
        """Room for a share of ``length`` encoded bytes; the disk is asked for it now, not after the transfer.

        A transfer of this client that was under way breaks off: it has dialled again.
        """
        if length < 1:
            raise RemoteProtocolError("a share without bytes was announced", rule="malformed", remedy="It was dropped.")
        with self._lock:
            old = self._sinks.get((round, client))
            if old is not None:
                old.abort()
            file = self._file(round)
            room = room_for(length)
            waiting = file.free.get(room)
            if waiting:
                frame = waiting.pop()
            else:
                frame = file.end
                with storage_guard("a share", party=self._party):
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fd, frame, FRAME_BYTES + room)
                    else:  # macOS: the space is not promised, the room is there
                        os.ftruncate(file.fd, frame + FRAME_BYTES + room)
                file.write(frame, make_frame(ROOM, client, frame, room))
                file.end = frame + FRAME_BYTES + room
            sink = ShareSink(self, file, client, frame, length)
            file.pins += 1
            self._sinks[round, client] = sink
            return sink

    def places(self, round: int, clients: Iterable[int]) -> tuple[list[Place], list[Share]]:
        """For a sum over these clients: where the vectors lie, and the seed shares."""
        with self._lock:
            file = self._rounds[round]
            vectors, seeds = [], []
            for entry in (file.entries[client] for client in clients):
                if entry.head.kind == ShareKind.VECTOR:
                    at, length = self._payload(entry)
                    vectors.append(Place(path=str(file.path), offset=at, size=length // 8))
                else:
                    seeds.append(entry.head)
            return vectors, seeds

    # -- inside ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _payload(entry: Entry) -> tuple[int, int]:
        """Where the vector lies: after the head and before the proof, whose length is known."""
        length = 8 * entry.head.size
        return entry.start + entry.length - len(entry.head.proof) - 4 - length, length

    def _file(self, round: int) -> RoundFile:
        file = self._rounds.get(round)
        if file is None:
            if round <= self._over:
                raise LocalProtocolError("this round is over", party=self._party, remedy="Nothing is kept of it.")
            file = RoundFile(self._directory / f"round-{round:010d}.spool", round, self._party)
            file.create()
            self._rounds[round] = file
        return file

    def _append_share(self, share: Share, raw: bytes) -> None:
        """A seed: room, share and commit in one write, for they are most of what a server is sent."""
        old = self._sinks.get((share.round, share.client))
        if old is not None:
            old.abort()  # the client has dialled again
        file, length = self._file(share.round), room_for(len(raw))
        room, start = file.end, file.end + FRAME_BYTES + SHIFT
        committed = room + FRAME_BYTES + length
        head = make_frame(ROOM, share.client, room, length) + bytes(SHIFT)
        commit = make_frame(COMMIT, share.client, room, len(raw), head_check(share))
        file.write(room, b"".join((head, raw, bytes(length - SHIFT - len(raw)), commit)))
        file.end = committed + FRAME_BYTES
        file.entries[share.client] = Entry(share, start, len(raw), room, committed)

    def _append(self, file: RoundFile, frame: bytes) -> None:
        file.write(file.end, frame)
        file.end += len(frame)

    def _end(self, sink: ShareSink, *, committed: bool) -> None:
        with self._lock:
            if not sink._open:
                return
            with sink._writing:  # a write under way ends first: its room and descriptor are still its own
                sink._open = False
            file = sink._file
            if self._sinks.get((file.round, sink._client)) is sink:
                del self._sinks[file.round, sink._client]
            if not committed and sink._generation == file.generation:
                file.free.setdefault(room_for(sink._length), []).append(sink._room)
            file.unpin()

    def _retire(self, file: RoundFile) -> None:
        file.generation += 1
        for sink in [sink for sink in self._sinks.values() if sink._file is file]:
            sink.abort()
        file.closed = True
        file.close_if_unused()

    def _forget_unsynced(self, file: RoundFile) -> None:
        with self._lock:
            file.generation += 1
            for sink in [sink for sink in self._sinks.values() if sink._file is file]:
                sink.abort()
            file.entries = {c: entry for c, entry in file.entries.items() if entry.committed < file.synced}
            file.end, file.free = file.synced, {}
            with contextlib.suppress(OSError):  # what is beyond the end is cut off when the file is next opened
                zero(file.fd, file.synced, os.fstat(file.fd).st_size)
                os.ftruncate(file.fd, file.synced)

    # -- opening again -----------------------------------------------------------------------------------------------

    def _recover(self, path: Path) -> Recovery:
        try:
            number = int(path.stem.removeprefix("round-"))
        except ValueError:
            raise corrupt("the spool of shares", party=self._party) from None
        file = RoundFile(path, number, self._party)
        try:
            found = file.scan()
        except BaseException:
            os.close(file.fd)
            raise
        self._rounds[number] = file
        return found
