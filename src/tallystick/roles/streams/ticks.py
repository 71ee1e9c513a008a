"""Before a client makes a batch: does any server know a later tick of it than it remembers itself?

    client   TICK       I am about to make the batch of tick t                       to every server
    server   TICK_SEEN  the last tick in which I hold, or have summed, your shares   durable: spool, notes

A client whose state was put back from an older copy, or of which two copies run, has an old watermark: records that a
later tick has used would be in its next batch again, and a record would be charged once for two releases. What was
released has gone through every server, the honest one among them, which kept a share before it was summed. So the
client waits for the answer of all of them, at every tick, and refuses the tick if one has seen more than it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct

from tallystick.core.errors import RemoteProtocolError, VerificationError

TICKS = "ticks"
_PAIR = Struct("<QQ")


def pack_tick(asked: int, seen: int = 0) -> bytes:
    """The tick that is asked about, and the last one seen."""
    return _PAIR.pack(asked, seen)


def unpack_tick(raw: bytes, sender: str) -> tuple[int, int]:
    """Inverse of :func:`pack_tick`."""
    if len(raw) != _PAIR.size:
        raise RemoteProtocolError("a word about ticks is not one", rule="malformed", party=sender)
    asked, seen = _PAIR.unpack(raw)
    return asked, seen


class SeenTicks:
    """One stream at a client: what the servers have seen of it. ``ask`` sends to one, ``again`` has us called later."""

    def __init__(
        self, servers: Sequence[str], *, party: str, ask: Callable[[str, bytes], None], again: Callable[[], None]
    ) -> None:
        self._servers, self._party, self._ask, self._again = tuple(servers), party, ask, again
        self._tick = 0
        self._seen: dict[str, int] = {}

    def given(self, tick: int, own: int) -> bool:
        """Whether the batch of ``tick`` may be made by a client whose watermark is of tick ``own``; asks if need be.

        Raises :class:`VerificationError` if a server has seen a later one.
        """
        if tick != self._tick:
            self._tick, self._seen = tick, {}
        for server, seen in self._seen.items():
            if seen > own:
                raise VerificationError(
                    f"{server} has this client's shares of tick {seen}, and its own watermark is of tick {own}: its "
                    "state is an older copy, or two copies of it run",
                    party=self._party,
                    rule="watermark-rolled-back",
                    round=tick,
                    remedy="Stop this copy and let the newest state run. If that is lost, let this client sit out the "
                    "rest of the stream: records that were used would be used again.",
                )
        missing = [server for server in self._servers if server not in self._seen]
        for server in missing:
            self._ask(server, pack_tick(tick))
        if missing:
            self._again()
        return not missing

    def hear(self, server: str, raw: bytes) -> bool:
        """An answer; whether it was the last one that was missing for the tick asked about."""
        asked, seen = unpack_tick(raw, server)
        if asked != self._tick or server not in self._servers or server in self._seen:
            return False
        self._seen[server] = seen
        return len(self._seen) == len(self._servers)
