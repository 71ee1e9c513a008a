"""The file of one round's shares: its frames, its index, and what is believed of it when it is opened again.

    file    head (64 bytes: magic, version, round, how far it was synced) | frame | frame | …
    frame   32 bytes: tag, client, offset, length, CRC-32s; every frame begins at a multiple of 8
    TSXT    room for one encoded share follows; the share begins 7 bytes later, so that the elements of its
            vector lie at multiples of 8 and can be summed where they are, without a copy
    TSCM    the share of this client is in the room at this offset: only now does it exist
    TSDC    ... and now it no longer counts

What :meth:`RoundFile.scan` finds is believed for a reason. A payload is bound to the commitment inside its share (a
hash over blind and payload, checked by the server's machine when it arrived), so it is checked against that and
megabytes need no second checksum; the few bytes around it have a CRC in the frame that commits them. Beyond the synced
mark a frame or share that does not check was never acknowledged to anyone: it is cut off and reported. Before the mark
it is damage, and the role stops (``VerificationError``).
"""

from __future__ import annotations

import mmap
import os
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import cast

from tallystick.core.errors import RemoteProtocolError
from tallystick.protocol.secure_sum.codec import decode, encode, streamed_share
from tallystick.protocol.secure_sum.messages import Share, ShareKind, share_context, share_digest
from tallystick.roles.storage.database import corrupt, storage_guard
from tallystick.roles.storage.erasure import sync_folder, zero

_HEAD = Struct("<4sHHIQI")  # magic, version, zero, round, synced, CRC-32
_FRAME = Struct("<4sIQQII")  # tag, client, offset, length, CRC-32 of a share's head, CRC-32 of the frame
_HEAD_BYTES, FRAME_BYTES, SHIFT = 64, 32, 7
_MAGIC, _VERSION = b"TSPL", 1
ROOM, COMMIT, DISCARD = b"TSXT", b"TSCM", b"TSDC"
_Line = tuple[int, int, int, int, int]  # of the log: its place, client, room, length, CRC of the head


def make_frame(tag: bytes, client: int, offset: int, length: int, head: int = 0) -> bytes:
    bare = _FRAME.pack(tag, client, offset, length, head, 0)
    return bare[:-4] + zlib.crc32(bare[:-4]).to_bytes(4, "little")


def room_for(length: int) -> int:
    return (SHIFT + length + 7) // 8 * 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What opening a spool found: shares kept, bytes cut off the torn end, clients whose last share was not whole."""

    round: int
    kept: int
    torn_bytes: int = 0
    torn_clients: tuple[int, ...] = ()


@dataclass(slots=True)
class Entry:
    """One visible share: its fields without the vector, and where its bytes are."""

    head: Share = field(repr=False)
    start: int  # of the encoded share
    length: int
    room: int  # its frame
    committed: int  # the offset of its TSCM frame


def read_share(view: memoryview, elements_checked: bool = False) -> Share:
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


def head_check(share: Share) -> int:
    return zlib.crc32(encode(replace(share, payload=b"")))


class RoundFile:
    """One round's file and its index. The descriptor lives as long as a transfer or the store needs it."""

    def __init__(self, path: Path, round: int, party: str | None) -> None:
        self.path, self.round, self.party = path, round, party
        self.entries: dict[int, Entry] = {}
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

    # -- opening again -----------------------------------------------------------------------------------------------

    def scan(self) -> Recovery:
        """Look at what is there: keep what checks, cut off the torn end, and stop at damage before the synced mark."""
        with storage_guard("the spool of shares", party=self.party):
            size = os.fstat(self.fd).st_size
            start = os.pread(self.fd, _HEAD.size, 0)
        bare = start[: _HEAD.size - 4]
        if len(start) == _HEAD.size and start[-4:] == zlib.crc32(bare).to_bytes(4, "little"):
            magic, version, _, number, synced, _ = _HEAD.unpack(start)
            if (magic, version, number) != (_MAGIC, _VERSION, self.round) or synced > size:
                raise corrupt("the spool of shares", party=self.party)
            self.synced = synced
        elif size > _HEAD_BYTES:
            raise corrupt("the spool of shares", party=self.party)
        rooms, log, at = self._frames(size)
        if at < self.synced:
            raise corrupt("the spool of shares", party=self.party)
        torn: set[int] = set()
        while True:  # a share that is not whole ends the file; what is left is looked at again
            last: dict[int, tuple[int, int, int, int]] = {}
            for committed, client, room, length, head in log:
                if committed < at:
                    last.pop(client, None)
                    if length:
                        last[client] = (room, length, committed, head)
            self.entries = {}
            bad = {}
            for client, (room, length, committed, head) in last.items():
                entry = self._check(client, room, length, committed, head)
                if entry is not None:
                    self.entries[client] = entry
                else:
                    bad[committed] = client
            if not bad:
                break
            if min(bad) < self.synced:
                raise corrupt("a share that was acknowledged", party=self.party)
            at = min(bad)
            torn.update(bad.values())
        with storage_guard("the spool of shares", party=self.party):
            zero(self.fd, at, size)  # the torn end is a piece of a share, too
            os.ftruncate(self.fd, at)
            os.fsync(self.fd)  # before any room is used again, what made it free is durable
        self.end = self.synced = max(at, _HEAD_BYTES)
        self.write_head()
        used = {entry.room for entry in self.entries.values()}
        for frame, length in rooms.items():
            if frame not in used and frame < at:
                self.free.setdefault(length, []).append(frame)
        return Recovery(
            round=self.round,
            kept=len(self.entries),
            torn_bytes=max(size - at, 0),
            torn_clients=tuple(sorted(torn - set(self.entries))),
        )

    def _frames(self, size: int) -> tuple[dict[int, int], list[_Line], int]:
        """The rooms, the commits and discards (length 0) in order, and where the good frames end."""
        rooms: dict[int, int] = {}
        log: list[_Line] = []
        at = _HEAD_BYTES
        while at < size:
            raw = os.pread(self.fd, FRAME_BYTES, at)
            if len(raw) < FRAME_BYTES or zlib.crc32(raw[:-4]).to_bytes(4, "little") != raw[-4:]:
                break
            tag, client, offset, length, head, _ = _FRAME.unpack(raw)
            after = at + FRAME_BYTES
            if tag == ROOM and offset == at and length % 8 == 0 and after + length <= size:
                rooms[at] = length
                after += length
            elif tag == COMMIT and length and room_for(length) == rooms.get(offset):
                log.append((at, client, offset, length, head))
            elif tag == DISCARD and offset in rooms:
                log.append((at, client, offset, 0, 0))
            else:
                break
            at = after
        return rooms, log, at

    def _check(self, client: int, room: int, length: int, committed: int, head: int) -> Entry | None:
        start = room + FRAME_BYTES + SHIFT
        try:
            share = read_share(self.view(start, length))
        except RemoteProtocolError:
            return None
        if (share.round, share.client) != (self.round, client) or head_check(share) != head or not _is_whole(share):
            return None
        return Entry(share.without_vector(), start, length, room, committed)
