"""Shares on disk: one append-only file per round, written as they arrive, made durable together.

    file    head (64 bytes: magic, version, round, how far it was synced) | frame | frame | …
    frame   32 bytes: tag, client, offset, length, CRC-32s; every frame begins at a multiple of 8
    TSXT    room for one encoded share follows; the share begins 7 bytes later, so that the elements of its
            vector lie at multiples of 8 and can be summed where they are, without a copy
    TSCM    the share of this client is in the room at this offset: only now does it exist
    TSDC    ... and now it no longer counts

A share of any size streams into its room (``begin`` … ``write`` … ``share``) and never sits in memory; it is
visible only once the machine that checked it has ``put`` it. Room of a transfer that broke off is used again, so a
client that breaks off for ever does not fill the disk. ``sync`` is one fsync for all shares since the last.

What ``open`` finds is believed for a reason. A payload is bound to the commitment inside its share (a hash over
blind and payload, checked by the server's machine when it arrived), so it is checked against that and megabytes need
no second checksum; the few bytes around it have a CRC in the frame that commits them. Beyond the synced mark a frame
or share that does not check was never acknowledged to anyone: it is cut off and reported. Before the mark it is
damage, and the role stops (``VerificationError``).

A round that is over is set aside at once, and its file is overwritten with zeros before it goes (``erasure``): in the
background, for a million entries of a hundred clients are 800 MB. Until a restart has seen to it, what a crash left
half erased is not read again.

After a failed fsync nobody knows what is on disk, and asking again may lie. Everything since the last good sync is
therefore forgotten, in memory and in the file; the server's machine must then be made anew with ``restore``.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import cast

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.protocol.secure_sum.codec import decode, encode, streamed_share
from tallystick.protocol.secure_sum.messages import Share, ShareKind, share_context, share_digest
from tallystick.roles.storage.erasure import BackgroundEraser, set_aside, sync_folder, zero
from tallystick.roles.storage.stores import corrupt, storage_guard

__all__ = ["Place", "Recovery", "ShareSink", "SpoolShares"]

_HEAD = Struct("<4sHHIQI")  # magic, version, zero, round, synced, CRC-32
_FRAME = Struct("<4sIQQII")  # tag, client, offset, length, CRC-32 of a share's head, CRC-32 of the frame
_HEAD_BYTES, _FRAME_BYTES, _SHIFT = 64, 32, 7
_MAGIC, _VERSION = b"TSPL", 1
_ROOM, _COMMIT, _DISCARD = b"TSXT", b"TSCM", b"TSDC"
_NO_ROUND_IS_LATER = (1 << 32) - 1
_Line = tuple[int, int, int, int, int]  # of the log: its place, client, room, length, CRC of the head


def _frame(tag: bytes, client: int, offset: int, length: int, head: int = 0) -> bytes:
    bare = _FRAME.pack(tag, client, offset, length, head, 0)
    return bare[:-4] + zlib.crc32(bare[:-4]).to_bytes(4, "little")


def _room_for(length: int) -> int:
    return (_SHIFT + length + 7) // 8 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening a spool found: shares kept, bytes cut off the torn end, clients whose last share was not whole."""

    round: int
    kept: int
    torn_bytes: int = 0
    torn_clients: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the elements of a vector share lie in a spool file."""

    path: str
    offset: int
    size: int


@dataclass(slots=True)
class _Entry:
    """One visible share: its fields without the vector, and where its bytes are."""

    head: Share = field(repr=False)
    start: int  # of the encoded share
    length: int
    room: int  # its frame
    committed: int  # the offset of its TSCM frame


class _RoundFile:
    """One round's file and its index. The descriptor lives as long as a transfer or the store needs it."""

    def __init__(self, path: Path, round: int, party: str | None) -> None:
        self.path, self.round, self.party = path, round, party
        self.entries: dict[int, _Entry] = {}
        self.free: dict[int, list[int]] = {}  # room in bytes -> frames of abandoned transfers
        self.end = self.synced = _HEAD_BYTES
        self.generation = 0
        self.pins = 0
        self.closed = False
        with storage_guard("a share", party=party):
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def create(self) -> None:
        self.write_head()
        with storage_guard("a share", party=self.party):
            sync_folder(self.path.parent)  # the file's name is durable, too

    def write_head(self) -> None:
        bare = _HEAD.pack(_MAGIC, _VERSION, 0, self.round, self.synced, 0)[:-4]
        self.write(0, (bare + zlib.crc32(bare).to_bytes(4, "little")).ljust(_HEAD_BYTES, b"\0"))

    def write(self, at: int, *parts: bytes | bytearray | memoryview) -> None:
        """All the bytes at this place, or a typed error."""
        with storage_guard("a share", party=self.party):
            for part in parts:
                view = memoryview(part).cast("B")
                while view.nbytes:
                    done = os.pwrite(self.fd, view, at)
                    at, view = at + done, view[done:]

    def view(self, start: int, length: int) -> memoryview:
        """These bytes where they are: a read-only map that goes when its last user goes."""
        if start + length > os.fstat(self.fd).st_size:  # a map beyond the end would kill the process
            raise corrupt("the spool of shares", party=self.party)
        low = start // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        with storage_guard("a share", party=self.party):
            mapped = mmap.mmap(self.fd, start + length - low, access=mmap.ACCESS_READ, offset=low)
        return memoryview(mapped)[start - low :]

    def unpin(self) -> None:
        self.pins -= 1
        self.close_if_unused()

    def close_if_unused(self) -> None:
        if self.closed and not self.pins and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _read_share(view: memoryview, elements_checked: bool = False) -> Share:
    """The share in these bytes, its vector still where it is; the elements are checked, here or before."""
    message = (streamed_share if elements_checked else decode)(cast(bytes, view))
    if not isinstance(message, Share):
        raise RemoteProtocolError(
            "a transfer did not hold a share", rule="malformed", remedy="The message was dropped."
        )
    payload = message.payload if message.kind == ShareKind.VECTOR else bytes(message.payload)
    commitments = tuple([bytes(part) for part in message.commitments])
    return replace(message, commitments=commitments, payload=payload, proof=bytes(message.proof))


def _is_whole(share: Share) -> bool:
    context = share_context(share.study_hash, share.round, share.client, share.servers, share.size, share.model_hash)
    mine = share_digest(context, share.server, share.kind, share.blind, share.payload)
    return share.server < share.servers and share.commitments[share.server] == mine


def _head_check(share: Share) -> int:
    return zlib.crc32(encode(replace(share, payload=b"")))


class ShareSink:
    """One share on its way in, straight to its room in the file; nobody sees it until it is ``put``."""

    def __init__(self, store: SpoolShares, file: _RoundFile, client: int, room: int, length: int) -> None:
        self._store, self._file, self._client, self._room = store, file, client, room
        self._start, self._length = room + _FRAME_BYTES + _SHIFT, length
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
                share = _read_share(self._file.view(self._start, self._length), elements_checked)
                if (share.round, share.client) != (self._file.round, self._client):
                    raise RemoteProtocolError(
                        "a share is not of the round or client announced", rule="wrong-round", remedy="It was dropped."
                    )
            except BaseException:
                self.abort()
                raise
            self._share = share
        return self._share

    def commit(self) -> Share:
        """Make the share visible: what ``put`` does once the machine has accepted it."""
        share = self.share()
        self._store.put(share)
        return share

    def abort(self) -> None:
        """Give the room back, unless the share was put; safe to call at any time."""
        self._store._end(self, committed=False)


class SpoolShares:
    """A ``ShareStore`` on spool files in one directory, which belongs to one study of one server."""

    def __init__(self, directory: Path, *, party: str | None = None) -> None:
        self._directory, self._party = directory, party
        self._lock = threading.RLock()
        self._rounds: dict[int, _RoundFile] = {}
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
                if share.kind != ShareKind.VECTOR and not self._file(share.round).free.get(_room_for(len(raw))):
                    self._append_share(share, raw)
                    return
                sink = self._write(share, raw)
            file = sink._file
            entry = _Entry(self._head(share), sink._start, sink._length, sink._room, file.end)
            self._append(file, _frame(_COMMIT, share.client, sink._room, sink._length, _head_check(share)))
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
                self._append(file, _frame(_DISCARD, client, entry.room, 0))

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
            room = _room_for(length)
            waiting = file.free.get(room)
            if waiting:
                frame = waiting.pop()
            else:
                frame = file.end
                with storage_guard("a share", party=self._party):
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fd, frame, _FRAME_BYTES + room)
                    else:  # macOS: the space is not promised, the room is there
                        os.ftruncate(file.fd, frame + _FRAME_BYTES + room)
                file.write(frame, _frame(_ROOM, client, frame, room))
                file.end = frame + _FRAME_BYTES + room
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
    def _head(share: Share) -> Share:
        return share if share.kind != ShareKind.VECTOR else replace(share, payload=b"")

    @staticmethod
    def _payload(entry: _Entry) -> tuple[int, int]:
        """Where the vector lies: after the head and before the proof, whose length is known."""
        length = 8 * entry.head.size
        return entry.start + entry.length - len(entry.head.proof) - 4 - length, length

    def _file(self, round: int) -> _RoundFile:
        file = self._rounds.get(round)
        if file is None:
            if round <= self._over:
                raise LocalProtocolError("this round is over", party=self._party, remedy="Nothing is kept of it.")
            file = _RoundFile(self._directory / f"round-{round:010d}.spool", round, self._party)
            file.create()
            self._rounds[round] = file
        return file

    def _write(self, share: Share, raw: bytes) -> ShareSink:
        sink = self.begin(share.round, share.client, len(raw))
        try:
            sink.write(raw)
        except BaseException:
            sink.abort()
            raise
        return sink

    def _append_share(self, share: Share, raw: bytes) -> None:
        """A seed: room, share and commit in one write, for they are most of what a server is sent."""
        old = self._sinks.get((share.round, share.client))
        if old is not None:
            old.abort()  # the client has dialled again
        file, length = self._file(share.round), _room_for(len(raw))
        room, start = file.end, file.end + _FRAME_BYTES + _SHIFT
        committed = room + _FRAME_BYTES + length
        head = _frame(_ROOM, share.client, room, length) + bytes(_SHIFT)
        commit = _frame(_COMMIT, share.client, room, len(raw), _head_check(share))
        file.write(room, b"".join((head, raw, bytes(length - _SHIFT - len(raw)), commit)))
        file.end = committed + _FRAME_BYTES
        file.entries[share.client] = _Entry(share, start, len(raw), room, committed)

    def _append(self, file: _RoundFile, frame: bytes) -> None:
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
                file.free.setdefault(_room_for(sink._length), []).append(sink._room)
            file.unpin()

    def _retire(self, file: _RoundFile) -> None:
        file.generation += 1
        for sink in [sink for sink in self._sinks.values() if sink._file is file]:
            sink.abort()
        file.closed = True
        file.close_if_unused()

    def _forget_unsynced(self, file: _RoundFile) -> None:
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
        file = _RoundFile(path, number, self._party)
        try:
            found = self._scan(file)
        except BaseException:
            os.close(file.fd)
            raise
        self._rounds[number] = file
        return found

    def _scan(self, file: _RoundFile) -> Recovery:
        with storage_guard("the spool of shares", party=self._party):
            size = os.fstat(file.fd).st_size
            start = os.pread(file.fd, _HEAD.size, 0)
        bare = start[: _HEAD.size - 4]
        if len(start) == _HEAD.size and start[-4:] == zlib.crc32(bare).to_bytes(4, "little"):
            magic, version, _, number, synced, _ = _HEAD.unpack(start)
            if (magic, version, number) != (_MAGIC, _VERSION, file.round) or synced > size:
                raise corrupt("the spool of shares", party=self._party)
            file.synced = synced
        elif size > _HEAD_BYTES:
            raise corrupt("the spool of shares", party=self._party)
        rooms, log, at = self._frames(file, size)
        if at < file.synced:
            raise corrupt("the spool of shares", party=self._party)
        torn: set[int] = set()
        while True:  # a share that is not whole ends the file; what is left is looked at again
            last: dict[int, tuple[int, int, int, int]] = {}
            for committed, client, room, length, head in log:
                if committed < at:
                    last.pop(client, None)
                    if length:
                        last[client] = (room, length, committed, head)
            file.entries = {}
            bad = {}
            for client, (room, length, committed, head) in last.items():
                entry = self._check(file, client, room, length, committed, head)
                if entry is not None:
                    file.entries[client] = entry
                else:
                    bad[committed] = client
            if not bad:
                break
            if min(bad) < file.synced:
                raise corrupt("a share that was acknowledged", party=self._party)
            at = min(bad)
            torn.update(bad.values())
        with storage_guard("the spool of shares", party=self._party):
            zero(file.fd, at, size)  # the torn end is a piece of a share, too
            os.ftruncate(file.fd, at)
            os.fsync(file.fd)  # before any room is used again, what made it free is durable
        file.end = file.synced = max(at, _HEAD_BYTES)
        file.write_head()
        used = {entry.room for entry in file.entries.values()}
        for frame, length in rooms.items():
            if frame not in used and frame < at:
                file.free.setdefault(length, []).append(frame)
        return Recovery(
            round=file.round,
            kept=len(file.entries),
            torn_bytes=max(size - at, 0),
            torn_clients=tuple(sorted(torn - set(file.entries))),
        )

    @staticmethod
    def _frames(file: _RoundFile, size: int) -> tuple[dict[int, int], list[_Line], int]:
        """The rooms, the commits and discards (length 0) in order, and where the good frames end."""
        rooms: dict[int, int] = {}
        log: list[_Line] = []
        at = _HEAD_BYTES
        while at < size:
            raw = os.pread(file.fd, _FRAME_BYTES, at)
            if len(raw) < _FRAME_BYTES or zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
                break
            tag, client, offset, length, head, _ = _FRAME.unpack(raw)
            after = at + _FRAME_BYTES
            if tag == _ROOM and offset == at and length % 8 == 0 and after + length <= size:
                rooms[at] = length
                after += length
            elif tag == _COMMIT and length and _room_for(length) == rooms.get(offset):
                log.append((at, client, offset, length, head))
            elif tag == _DISCARD and offset in rooms:
                log.append((at, client, offset, 0, 0))
            else:
                break
            at = after
        return rooms, log, at

    def _check(self, file: _RoundFile, client: int, room: int, length: int, committed: int, head: int) -> _Entry | None:
        start = room + _FRAME_BYTES + _SHIFT
        try:
            share = _read_share(file.view(start, length))
        except RemoteProtocolError:
            return None
        if (share.round, share.client) != (file.round, client) or _head_check(share) != head or not _is_whole(share):
            return None
        return _Entry(self._head(share), start, length, room, committed)
