"""Messages sealed to one receiver, on top of TLS: nobody who terminates TLS sees a share.

    sealed  = header ‖ chunk ‖ chunk ‖ …                    header = "TSS1" ‖ number (8) ‖ salt (16)
    chunk i = AES-256-GCM( key = HKDF-Expand-SHA256(channel key, "tallystick/sealed-message/v1" ‖ header),
                           nonce = number (8) ‖ last flag (1 bit), i (31 bits), all big-endian,
                           aad = digest("tallystick/sealed-chunk/v1", study, sender, receiver, header),
                           plaintext = up to 2 MiB − 64 bytes, all chunks full but the last )

This is the STREAM construction [Hoang, Reyhanitabar, Rogaway, Vizár 2015, §7]: counter and last flag sit in the
nonce, so chunks that are missing, swapped, doubled or taken from another message do not open. Every message has a
key of its own, from a fresh random salt. A nonce is therefore never used twice even if a sender comes back from a
crash or a snapshot with an old counter and seals something else under an old number; the counter serves order only.

An :class:`Opener` takes strictly rising numbers: replayed and reordered messages are refused, lost ones leave a gap.
A sender that restarts continues above everything it used: ``first = boot counter << 40``. Nothing of a message that
does not open is returned or kept, and the cause does not say which part was wrong. The length of a message shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from struct import Struct
from typing import NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.core.randomness import WordSource
from tallystick.crypto.key_agreement import ChannelKey

CHUNK_BYTES = (1 << 21) - 64
TAG_BYTES = 16
HEADER_BYTES = 28
PIECE_BYTES = HEADER_BYTES + CHUNK_BYTES + TAG_BYTES  # the longest piece of a Sealing, below 2 MiB
SALT_BYTES = 16
_MAGIC = b"TSS1"
_HEADER = Struct(">4sQ16s")
_NONCE = Struct(">QI")
_LAST = 1 << 31
_STEP = CHUNK_BYTES + TAG_BYTES

Buffer = bytes | bytearray | memoryview


def sealed_size(size: int) -> int:
    """How long a message of ``size`` bytes is when sealed."""
    return HEADER_BYTES + size + TAG_BYTES * max(1, -(-size // CHUNK_BYTES))


def opened_size(size: int) -> int | None:
    """How long a sealed message of ``size`` bytes is when opened; None if no message has that size."""
    body = size - HEADER_BYTES
    if body < TAG_BYTES:
        return None
    opened = body - TAG_BYTES * -(-body // _STEP)
    return opened if opened >= 0 and sealed_size(opened) == size else None


class _Message:
    """Cipher, associated data and nonces of one message."""

    __slots__ = ("_key", "aad", "cipher", "number")

    def __init__(self, channel: ChannelKey, header: bytes, number: int) -> None:
        info = b"tallystick/sealed-message/v1" + header
        self._key = HKDFExpand(algorithm=SHA256(), length=32, info=info).derive(channel.reveal())
        self.cipher = AESGCM(self._key)
        ends = (channel.study_hash, channel.sender.encode(), channel.receiver.encode())
        self.aad = digest(b"tallystick/sealed-chunk/v1", *ends, header)
        self.number = number

    def nonce(self, chunk: int, last: bool) -> bytes:
        return _NONCE.pack(self.number, chunk | _LAST if last else chunk)

    def seal(self, chunk: int, parts: list[memoryview], last: bool, out: memoryview) -> None:
        """One chunk into memory of its very size; what lies in several parts is not joined first."""
        nonce = self.nonce(chunk, last)
        if len(parts) == 1:
            self.cipher.encrypt_into(nonce, parts[0], self.aad, out)
            return
        encryptor = Cipher(AES(self._key), GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(self.aad)
        at = 0
        for part in parts:
            at += encryptor.update_into(part, out[at:])  # wants 15 bytes more than it writes: the tag's
        encryptor.finalize()
        out[at:] = encryptor.tag


class Sealer:
    """Seals one party's messages to one other; numbers rise by one with every message begun."""

    def __init__(self, channel: ChannelKey, source: WordSource, *, first: int = 0) -> None:
        if not 0 <= first < 1 << 64:
            raise LocalProtocolError("a message number has 64 bits", remedy="Begin at boot counter << 40.")
        self._channel = channel
        self._source = source
        self._next = first

    def seal(self, raw: Buffer) -> bytes:
        """The whole sealed message, written once into fresh memory."""
        out = BytesIO(bytes(sealed_size(_flat(raw).nbytes)))  # sole owner of its bytes: getvalue() copies nothing
        with out.getbuffer() as view:
            sealing, at = self.sealing(raw), 0
            while size := sealing.into(view[at:]):
                at += size
        return out.getvalue()

    def sealing(self, *raw: Buffer, prefix: bytes = b"") -> Sealing:
        """The same for those who have memory for its pieces: fresh memory costs more than the cipher.

        None is longer than ``prefix`` and ``PIECE_BYTES``: header and chunk 0, then a chunk each. The message may be
        given in several parts, so that nobody has to join a head and a vector.
        """
        header, message = self._begin()
        return Sealing(message, prefix + header, [_flat(part) for part in raw])

    def erase(self) -> None:
        """End of the study: nothing can be sealed any more."""
        self._channel.erase()

    def _begin(self) -> tuple[bytes, _Message]:
        number = self._next
        if number >= 1 << 64:
            raise LocalProtocolError("all message numbers are used", remedy="Start a new study.")
        header = _HEADER.pack(_MAGIC, number, self._source.bytes(SALT_BYTES))
        message = _Message(self._channel, header, number)
        self._next = number + 1
        return header, message

    def __repr__(self) -> str:
        return f"Sealer({self._channel.sender} to {self._channel.receiver}, next {self._next})"


class Sealing:
    """One message on its way out, a piece each time :meth:`into` is called, the first the ``longest``."""

    def __init__(self, message: _Message, before: bytes, parts: list[memoryview]) -> None:
        self._message, self._before = message, before
        self._chunks = _chunks_of(parts, CHUNK_BYTES)
        self._left: int | None = sum(part.nbytes for part in parts)
        self.longest = self.next_size

    @property
    def next_size(self) -> int:
        """How long the next piece is, 0 when there is none left."""
        return 0 if self._left is None else len(self._before) + min(_STEP, TAG_BYTES + self._left)

    def into(self, memory: bytearray | memoryview) -> int:
        """Seal the next piece into this memory; how many bytes of it were used, 0 when there is none left."""
        view = _flat(memory)
        if view.nbytes < self.next_size:
            raise LocalProtocolError("the buffer is too small", remedy="Give it as much as ``next_size`` says.")
        found = next(self._chunks, None)
        if found is None:
            return 0
        chunk, parts, last = found
        start = len(self._before)
        view[:start], self._before = self._before, b""
        end = start + sum(part.nbytes for part in parts) + TAG_BYTES
        self._message.seal(chunk, parts, last, view[start:end])
        self._left = None if last or self._left is None else self._left - CHUNK_BYTES
        return end


class Opener:
    """Opens what one party sealed to another, in the order it was sealed, each message once."""

    def __init__(self, channel: ChannelKey, *, after: int = -1) -> None:
        self._channel = channel
        self.after = after
        """The number of the last message opened; a restarted receiver that kept it refuses everything up to it."""

    def open(self, sealed: Buffer) -> bytes:
        """The message, if all of it is genuine, new and for this pair of parties; RemoteProtocolError otherwise."""
        box = _flat(sealed)
        opening = self.opening(box.nbytes)
        plain = b"".join(opening.take(box))
        opening.finish()
        return plain

    def opening(self, size: int) -> Opening:
        """A message of ``size`` sealed bytes that will be pushed in as they arrive."""
        if opened_size(size) is None:
            self._refuse("a sealed message has an impossible length")
        return Opening(self, size)

    def erase(self) -> None:
        """End of the study: nothing can be opened any more."""
        self._channel.erase()

    def _open_chunk(
        self, message: _Message, part: memoryview, chunk: int, *, last: bool, into: memoryview | None = None
    ) -> Buffer:
        shape = TAG_BYTES <= part.nbytes <= _STEP if last else part.nbytes == _STEP
        if not shape or (last and chunk and part.nbytes == TAG_BYTES) or chunk >= _LAST:
            self._forged()
        try:
            if into is None:
                return message.cipher.decrypt(message.nonce(chunk, last), part, message.aad)
            plain = into[: part.nbytes - TAG_BYTES]
            message.cipher.decrypt_into(message.nonce(chunk, last), part, message.aad, plain)
            return plain
        except InvalidTag:
            if into is not None:
                into[:] = bytes(into.nbytes)
            self._forged()

    def _begin(self, header: bytes) -> _Message:
        magic, number, _ = _HEADER.unpack(header)
        if magic != _MAGIC:
            self._refuse("a message is not sealed the way this release seals", "other-version")
        if number <= self.after:
            self._refuse("a sealed message was replayed or reordered", "replayed")
        return _Message(self._channel, header, number)

    def _advance(self, message: _Message) -> None:
        if message.number <= self.after:  # another message was opened meanwhile
            self._refuse("a sealed message was replayed or reordered", "replayed")
        self.after = message.number

    def _forged(self) -> NoReturn:
        self._refuse("a sealed message does not open: changed, cut, or sealed for another party or study")

    def _refuse(self, cause: str, rule: str = "malformed") -> NoReturn:
        raise RemoteProtocolError(
            cause,
            rule=rule,
            party=self._channel.sender,
            remedy="Nothing of it was kept; the sender will send it again.",
        ) from None

    def __repr__(self) -> str:
        return f"Opener({self._channel.sender} to {self._channel.receiver}, after {self.after})"


class Opening:
    """One message on its way in, cut anywhere, for messages that are not held whole.

    :meth:`finish` says whether it was whole; until then the caller keeps nothing that it cannot take back. Of several
    threads only one may be in ``finish`` or ``Opener.open`` at a time; ``take`` touches this message alone.
    """

    def __init__(self, opener: Opener, size: int) -> None:
        self._opener = opener
        self._message: _Message | None = None
        self._left = size  # of the sealed bytes
        self._chunk = 0
        self._box: bytearray | None = None  # for a chunk, or the header, that is not whole yet
        self._have = 0

    def take(self, raw: Buffer, into: bytearray | memoryview | None = None) -> Iterator[Buffer]:
        """The next sealed bytes; the parts that they complete, each genuine and in its place.

        ``into`` gives memory of ``CHUNK_BYTES`` in which each part lies until the next is asked for: fresh memory for
        every part costs more than the cipher.
        """
        view, room = _flat(raw), None if into is None else _flat(into)
        if room is not None and room.nbytes < CHUNK_BYTES:
            raise LocalProtocolError("the buffer is too small", remedy="Give it CHUNK_BYTES.")
        if view.nbytes > self._left - self._have:
            self._opener._refuse("a sealed message is longer than was announced", "too-long")
        while view.nbytes:
            want = HEADER_BYTES if self._message is None else min(_STEP, self._left)
            if self._have or view.nbytes < want:
                some = min(want - self._have, view.nbytes)
                if self._box is None:
                    self._box = bytearray(max(HEADER_BYTES, min(_STEP, self._left)))
                memoryview(self._box)[self._have : self._have + some] = view[:some]  # a bytearray would copy it twice
                self._have += some
                view = view[some:]
                if self._have < want:
                    return
                whole = memoryview(self._box)[:want]
            else:
                whole, view = view[:want], view[want:]
            self._have = 0
            if self._message is None:
                self._message = self._opener._begin(bytes(whole))
                self._left -= want
            else:
                yield self._open(self._message, whole, room)

    def _open(self, message: _Message, whole: memoryview, room: memoryview | None) -> Buffer:
        plain = self._opener._open_chunk(message, whole, self._chunk, last=whole.nbytes == self._left, into=room)
        self._left -= whole.nbytes
        self._chunk += 1
        return plain

    def finish(self) -> None:
        """Return if all of it came, was genuine, and nothing later was opened meanwhile; raise otherwise."""
        if self._left or self._message is None:
            self._opener._refuse("a sealed message broke off")
        self._opener._advance(self._message)


def _flat(raw: Buffer) -> memoryview:
    view = memoryview(raw)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _chunks_of(parts: list[memoryview], step: int) -> Iterator[tuple[int, list[memoryview], bool]]:
    """(index, what it is made of, whether it is the last) for each chunk of a message; nothing is copied."""
    left = sum(part.nbytes for part in parts)
    waiting = [part for part in reversed(parts) if part.nbytes]
    chunk = 0
    while True:
        size, found = min(step, left), []
        left -= size
        while size:
            some = waiting[-1][:size]
            waiting[-1] = waiting[-1][size:]
            if not waiting[-1].nbytes:
                waiting.pop()
            size -= some.nbytes
            found.append(some)
        yield chunk, found or [memoryview(b"")], not left
        if not left:
            return
        chunk += 1
        if chunk >= _LAST:
            raise LocalProtocolError("a message is too long to seal", remedy="Send it in several messages.")
