"""Where a proxy keeps ciphertexts: owners' uploads until the set is signed, and its own sum until the round is over.

Uploads cannot be added up as they come in: one that breaks off would be in the sum in part, and until both have signed
the set nobody knows who is in it. The store is injected; the memory one serves simulations, a deployed proxy has files.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class UploadStore(Protocol):
    """Chunks by round, owner and index; sums by round and index."""

    def begin(self, round: int, client: int) -> None:
        """A new upload of this owner: what there is of an unfinished one is forgotten."""
        ...

    def put(self, round: int, client: int, index: int, payload: bytes) -> None:
        """The next chunk of the upload that was begun."""
        ...

    def complete(self, round: int, client: int) -> None:
        """The upload is whole: durable when this returns, and never replaced."""
        ...

    def whole(self, round: int) -> Iterable[int]:
        """Owners whose uploads of this round are whole."""
        ...

    def get(self, round: int, client: int, index: int, start: int, size: int) -> bytes:
        """``size`` bytes of a chunk, from ``start`` on."""
        ...

    def put_sum(self, round: int, index: int, payload: bytes) -> None:
        """A chunk of the sum; durable with :meth:`complete_sum`."""
        ...

    def complete_sum(self, round: int) -> None:
        """The sum is whole, and durable when this returns."""
        ...

    def get_sum(self, round: int, index: int) -> bytes: ...

    def drop(self, round: int, *, sums: bool) -> None:
        """Forget the uploads of this round and all before it; with ``sums``, their sums too."""
        ...


class MemoryUploads:
    """A store in memory."""

    def __init__(self) -> None:
        self._uploads: dict[tuple[int, int], list[bytes]] = {}
        self._whole: set[tuple[int, int]] = set()
        self._sums: dict[tuple[int, int], bytes] = {}

    def begin(self, round: int, client: int) -> None:
        self._uploads[round, client] = []

    def put(self, round: int, client: int, index: int, payload: bytes) -> None:
        chunks = self._uploads[round, client]
        if index != len(chunks):
            raise IndexError(index)
        chunks.append(payload)

    def complete(self, round: int, client: int) -> None:
        self._whole.add((round, client))

    def whole(self, round: int) -> Iterable[int]:
        return sorted(client for number, client in self._whole if number == round)

    def get(self, round: int, client: int, index: int, start: int, size: int) -> bytes:
        return self._uploads[round, client][index][start : start + size]

    def put_sum(self, round: int, index: int, payload: bytes) -> None:
        self._sums[round, index] = payload

    def complete_sum(self, round: int) -> None:
        """It is as durable as memory is."""

    def get_sum(self, round: int, index: int) -> bytes:
        return self._sums[round, index]

    def drop(self, round: int, *, sums: bool) -> None:
        self._uploads = {key: chunks for key, chunks in self._uploads.items() if key[0] > round}
        self._whole = {key for key in self._whole if key[0] > round}
        if sums:
            self._sums = {key: chunk for key, chunk in self._sums.items() if key[0] > round}
