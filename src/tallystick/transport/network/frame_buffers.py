"""Memory for frames of data: written by whoever makes a chunk, sent as it is, and used again.

Memory that was just used is still in the processor's cache, and needs no page from the system: for a chunk of two
megabytes that is worth more than the cipher costs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from io import SEEK_END, BytesIO

from tallystick.transport.network.frames import HEADER_BYTES, Kind, frame

_KEPT = 8


class FrameBuffer:
    """Memory for the payload of one frame after another, with place for the header before it.

    A frame goes to gRPC as ``bytes``, and to make them of a header and a chunk costs a copy of the chunk into memory
    that nobody has used yet. This is memory that becomes ``bytes`` as it is (``BytesIO.getvalue``), and is written
    again when nobody else has those bytes any more; if somebody still has, ``BytesIO`` itself takes other memory.
    A payload as long as the buffer costs least: for a shorter one the memory is cut, and then has to grow again.
    """

    __slots__ = ("_memory", "size", "used")

    def __init__(self, size: int) -> None:
        self.size, self.used = size, 0
        self._memory = BytesIO(bytes(HEADER_BYTES + size))

    def fill(self, write: Callable[[memoryview], int]) -> bool:
        """Have the next payload written here; ``write`` says how many bytes it is, none if there is no more."""
        memory, whole = self._memory, HEADER_BYTES + self.size
        try:
            if memory.seek(0, SEEK_END) < whole:
                memory.seek(whole - 1)
                memory.write(b"\0")
        except BufferError:  # a view of what was here before lives on
            self._memory = memory = BytesIO(bytes(whole))
        with memory.getbuffer() as frame_view, frame_view[HEADER_BYTES:] as payload:
            self.used = write(payload)
        return self.used > 0

    def view(self) -> memoryview:
        """The payload, until the buffer is filled again."""
        return self._memory.getbuffer()[HEADER_BYTES : HEADER_BYTES + self.used]

    def framed(self, kind: Kind, ident: int, flags: int) -> bytes:
        """The frame of the whole payload; without a copy if no view of it is left."""
        with self._memory.getbuffer() as whole:
            whole[:HEADER_BYTES] = frame(kind, ident, flags=flags)
        if self.used == self.size:
            return self._memory.getvalue()
        try:
            self._memory.truncate(HEADER_BYTES + self.used)
        except BufferError:
            return self._memory.getvalue()[: HEADER_BYTES + self.used]
        return self._memory.getvalue()


class BufferPool:
    """Buffers that nobody needs now; any thread may take one and give it back. A few are kept, whatever their size."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._free: deque[FrameBuffer] = deque(maxlen=kept)
        self._lock = threading.Lock()

    def take(self, size: int) -> FrameBuffer:
        """A buffer of exactly this size: the one that was given back first, whose frame is most likely gone by now."""
        with self._lock:
            for buffer in self._free:
                if buffer.size == size:
                    self._free.remove(buffer)
                    return buffer
        return FrameBuffer(size)

    def give(self, buffer: FrameBuffer) -> None:
        """For the next who needs one; it may still hold a frame that is on its way."""
        with self._lock:
            self._free.append(buffer)


BUFFERS = BufferPool()  # of this process: what is sealed here is no secret
