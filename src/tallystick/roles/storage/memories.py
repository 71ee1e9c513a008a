"""What a client's local program remembers from round to round, on its own disk: secret, durable, the last two rounds.

A memory holds a number for each record, so it lies in a file of its own that is overwritten when its turn is over or
the study ends (:mod:`tallystick.roles.storage.erasure`). Two files take turns, by even and odd rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from struct import Struct

from tallystick.roles.storage.crash_points import crashpoint
from tallystick.roles.storage.stores import RoleStore

_ROUND = Struct("<Q")
_PLACES = ("memory-even", "memory-odd")


class StoredMemories(MutableMapping[int, bytes]):
    """The memories of one study at this client, by round (:data:`tallystick.engines.local_map.Memories`)."""

    def __init__(self, store: RoleStore, study: bytes, *, keeps: Callable[[], bool]) -> None:
        self._store, self._study, self._keeps = store, study, keeps
        records = store.records(study)
        self._held: dict[int, bytes] = {}
        for place in _PLACES:
            kept = records.get(place)
            if kept is not None and len(kept) >= _ROUND.size:
                self._held[int(_ROUND.unpack_from(kept)[0])] = kept[_ROUND.size :]

    def __getitem__(self, round: int) -> bytes:
        return self._held[round]

    def __setitem__(self, round: int, memory: bytes) -> None:
        """Durable when this returns; the memory of two rounds ago makes room."""
        if self._keeps():
            place = _PLACES[round % 2]
            self._store.persist(self._study, place, _ROUND.pack(round) + memory, secret=True)
            crashpoint("memory-kept")
        self._held[round] = memory

    def __delitem__(self, round: int) -> None:
        del self._held[round]  # on disk the next memory takes its place

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._held))

    def __len__(self) -> int:
        return len(self._held)
