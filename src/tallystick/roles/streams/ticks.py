"""Before a client makes a batch: does any witness know a later tick of it than it remembers itself?

    client   TICK       I am about to make the batch of tick t                       to every witness
    witness  TICK_SEEN  the last tick in which I hold, or have summed, your shares   durable: spool, notes

A client whose state was put back from an older copy, or of which two copies run, has an old watermark: records that a
later tick has used would be in its next batch again, and a record would be charged once for two releases. What was
released has gone through every witness, the honest one among them, which kept a share before it was summed. So the
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
    """One stream at a client: what witnesses have seen of it. ``ask`` sends to one, ``again`` has us called later."""

    def __init__(
        self, witnesses: Sequence[str], *, party: str, ask: Callable[[str, bytes], None], again: Callable[[], None]
    ) -> None:
        self._witnesses, self._party, self._ask, self._again = tuple(witnesses), party, ask, again
        self._tick = 0
        self._seen: dict[str, int] = {}

    def given(self, tick: int, own: int) -> bool:
        """Whether the batch of ``tick`` may be made by a client whose watermark is of tick ``own``; asks if need be.

        Raises :class:`VerificationError` if a witness has seen a later one.
        """
        if tick != self._tick:
            self._tick, self._seen = tick, {}
        for witness, seen in self._seen.items():
            if seen > own:
                raise VerificationError(
                    f"{witness} has this client's shares of tick {seen}, and its own watermark is of tick {own}: its "
                    "state is an older copy, or two copies of it run",
                    party=self._party,
                    rule="watermark-rolled-back",
                    round=tick,
                    remedy="Stop this copy and let the newest state run. If that is lost, let this client sit out the "
                    "rest of the stream: records that were used would be used again.",
                )
        missing = [witness for witness in self._witnesses if witness not in self._seen]
        for witness in missing:
            self._ask(witness, pack_tick(tick))
        if missing:
            self._again()
        return not missing

    def hear(self, witness: str, raw: bytes) -> bool:
        """An answer; whether it was the last one that was missing for the tick asked about."""
        asked, seen = unpack_tick(raw, witness)
        if asked != self._tick or witness not in self._witnesses or witness in self._seen:
            return False
        self._seen[witness] = seen
        return len(self._seen) == len(self._witnesses)
