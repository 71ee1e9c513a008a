"""Shares on their way in: from the network, opened chunk by chunk, straight into the server's spool.

A vector share never sits in memory, however long it is and however many clients send at once. Two threads meet here.
The network's workers open chunks and write them; the server's loop alone has the machine. What a worker has finished
it hands to the loop, which asks the machine, makes everything durable with one fsync, and only then answers.

    worker   write … write, close    room in the spool; elements and commitment chunk by chunk, then the head
    loop     arrived                 machine.receive(that very share): put, or the room is given back

A room belongs to one transfer until the machine has spoken: a client that sends its share again while the first still
waits for the machine is declined, so nothing is written where somebody reads. Only the round that is open, and the
next (the loop may be drawing its noise at this moment), have room at all; a client cannot fill the disk with rounds.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.crypto.field import ELEMENT_BYTES, MODULUS, is_canonical
from tallystick.crypto.sealing import CHUNK_BYTES, Opening, opened_size
from tallystick.protocol.secure_sum import SumParameters
from tallystick.protocol.secure_sum.codec import share_head, vector_share_bytes
from tallystick.protocol.secure_sum.messages import Code, Share, ShareDigest, share_context
from tallystick.roles.shares.spool import ShareSink, SpoolShares
from tallystick.transport.network.admission import Unwanted
from tallystick.transport.wire import HEADER_BYTES, Seals

_SHIFT = 7  # as in the spool: after the head of a share, 1 byte more than a multiple of 8, its elements are aligned


@dataclass(frozen=True, slots=True)
class Arrival:
    """A share for the machine; ``settle`` after it has spoken: gives its room back, unless the machine has put it."""

    sender: str
    share: Share
    commitment: bytes | None = None
    settle: Callable[[], object] = lambda: None


class ShareArrivals:
    """The transfers of one study at one server, and the shares that wait for the machine."""

    def __init__(
        self,
        parameters: SumParameters,
        spool: SpoolShares,
        seals: Seals,
        *,
        round_now: Callable[[], int],
        announce: Callable[[], None],
        refuse: Callable[[str, int, Code], None],
    ) -> None:
        self.parameters, self.spool, self.seals = parameters, spool, seals
        self._round_now, self._announce, self._refuse = round_now, announce, refuse
        self._share_bytes = vector_share_bytes(parameters.size, len(parameters.servers))
        self.head_bytes = vector_share_bytes(0, len(parameters.servers))  # all before the payload, and a little more
        self._lock = threading.Lock()
        self._reserved: set[tuple[int, int]] = set()  # whole, the machine has not spoken
        self._waiting: deque[Arrival] = deque()
        self._announced = False
        self._memory: list[bytearray] = []  # a chunk each, as many as workers were ever at it at once

    def sink(self, sender: str, length: int) -> ArrivingShare:
        """For a sealed message of ``length`` bytes with its wire header; Unwanted if no share can be in it."""
        client = self.parameters.client_index.get(sender)
        size = opened_size(length - HEADER_BYTES)
        if client is None or size is None or size != self._share_bytes:  # before anything is kept
            raise Unwanted
        return ArrivingShare(self, sender, client, size, self.seals.opening(sender, length - HEADER_BYTES))

    def put(self, arrival: Arrival, announce: Callable[[], None] | None = None) -> None:
        """The loop shall see this share, together with all that wait by then."""
        with self._lock:
            self._waiting.append(arrival)
            told, self._announced = self._announced, True
        if not told:
            (announce or self._announce)()

    def take(self) -> list[Arrival]:
        """What has arrived, in order; by the loop."""
        with self._lock:
            found, self._waiting = list(self._waiting), deque()
            self._announced = False
        return found

    def room(self, sender: str, round: int, client: int, size: int) -> ShareSink:
        """Room in the spool; Unwanted if the round has none, or the client's share already waits for the machine."""
        now = self._round_now()
        if not max(now, 1) <= round <= min(now + 1, self.parameters.last_round):
            self._refuse(sender, round, Code.PAST_ROUND if round < max(now, 1) else Code.TOO_EARLY)
            raise Unwanted
        with self._lock:
            if (round, client) in self._reserved:
                raise Unwanted
            return self.spool.begin(round, client, size)

    @contextlib.contextmanager
    def memory(self) -> Iterator[bytearray]:
        """Room for one opened chunk, used again and again: it stays in the processor's cache."""
        with self._lock:
            found = self._memory.pop() if self._memory else bytearray(_SHIFT + CHUNK_BYTES)
        try:
            yield found
        finally:
            with self._lock:
                self._memory.append(found)

    def reserve(self, round: int, client: int) -> None:
        """From now on no other transfer of this client has room."""
        with self._lock:
            self._reserved.add((round, client))

    def release(self, round: int, client: int, sink: ShareSink) -> None:
        """The machine has spoken, or the share was not one."""
        sink.abort()
        with self._lock:
            self._reserved.discard((round, client))


class _Elements:
    """The elements of a vector that comes in by parts, cut anywhere."""

    def __init__(self) -> None:
        self._begun = b""  # the first bytes of an element that lies across a cut

    def below_the_modulus(self, part: memoryview) -> bool:
        """Whether all that end in this part are."""
        if self._begun:
            some = ELEMENT_BYTES - len(self._begun)
            self._begun, part = self._begun + part[:some], part[some:]
            if len(self._begun) < ELEMENT_BYTES:
                return True
            if int.from_bytes(self._begun, "little") >= MODULUS:
                return False
        whole = part.nbytes // ELEMENT_BYTES * ELEMENT_BYTES
        self._begun = bytes(part[whole:])
        vector = np.frombuffer(part[:whole], dtype="<u8").astype(np.uint64, copy=False)
        return is_canonical(vector if vector.flags.aligned else vector.copy())


class ArrivingShare:
    """One transfer; a ``Sink`` of the network."""

    def __init__(self, arrivals: ShareArrivals, sender: str, client: int, size: int, opening: Opening) -> None:
        self._arrivals, self._sender, self._client, self._size = arrivals, sender, client, size
        self._opening = opening
        self._skip = HEADER_BYTES
        self._round = 0
        self._sink: ShareSink | None = None
        self._digest: ShareDigest | None = None
        self._elements = _Elements()
        self._before = self._inside = 0  # bytes before the payload, bytes of it, still to come

    def write(self, chunk: memoryview, /) -> None:
        """Open what has become whole, and write it to its room."""
        if self._skip:
            skipped = min(self._skip, chunk.nbytes)
            self._skip -= skipped
            chunk = chunk[skipped:]
        try:
            with self._arrivals.memory() as memory:
                for part in self._opening.take(chunk, memoryview(memory)[_SHIFT:]):
                    if self._sink is None:
                        self._sink = self._begin(bytes(part[: self._arrivals.head_bytes]))
                    self._sink.write(part)
                    self._look(memoryview(part))
        except LocalProtocolError:  # the round ended, or the client has dialled again
            raise Unwanted from None

    def _begin(self, part: bytes) -> ShareSink:
        head, self._before, self._inside = share_head(part)
        self._round = head.round
        if head.client != self._client:
            raise RemoteProtocolError(
                "a share must come from the client it names", rule="wrong-party", party=self._sender
            )
        study, context = self._arrivals.parameters.study_hash, (head.servers, head.size, head.model_hash)
        self._digest = ShareDigest(
            share_context(study, head.round, head.client, *context), head.server, head.kind, head.blind
        )
        return self._arrivals.room(self._sender, head.round, head.client, self._size)

    def _look(self, part: memoryview) -> None:
        """Elements and commitment, while the chunk is in the cache; the machine compares the commitment."""
        payload = part[self._before :][: self._inside]
        self._before = max(0, self._before - len(part))
        self._inside -= payload.nbytes
        if not self._elements.below_the_modulus(payload):
            raise RemoteProtocolError(
                "a share has an element that is not below the modulus", rule="not-a-field-element", party=self._sender
            )
        if self._digest is not None:
            self._digest.update(payload)

    def close(self) -> None:
        """All of it is there: check it as a message, and hand it to the loop."""
        sink, arrivals, digest = self._sink, self._arrivals, self._digest
        if sink is None or digest is None:
            raise RemoteProtocolError("a transfer did not hold a share", rule="malformed", party=self._sender)
        try:
            with arrivals.seals.lock:
                self._opening.finish()
            arrivals.reserve(self._round, self._client)
        except BaseException:
            sink.abort()
            raise

        def settle() -> None:
            arrivals.release(self._round, self._client, sink)

        try:
            share = sink.share(elements_checked=True)
        except BaseException:
            settle()
            raise
        arrivals.put(Arrival(self._sender, share, digest.digest(), settle))

    def abort(self) -> None:
        """The line broke: the room is free again."""
        if self._sink is not None:
            self._sink.abort()
