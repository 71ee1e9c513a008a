"""Where a server keeps shares one by one, and how it sums exactly the agreed set.

Shares cannot be added up as they come in: until all servers have signed the
set U nobody knows who is in it. The store is injected; the memory
one serves simulations, a deployed server keeps a spool file. ``put`` need not
be durable by itself: the machine asks for that with ``Sync``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallystick.crypto.additive import share_context as server_context
from tallystick.crypto.field import add_all_into
from tallystick.crypto.prg import add_expanded
from tallystick.protocol.secure_sum.messages import Share, ShareKind, share_context

_BATCH = 64  # vectors added in one pass over the accumulator


class ShareStore(Protocol):
    """Shares of the current round, by client index."""

    def put(self, share: Share) -> None: ...

    def get(self, round: int, client: int) -> Share: ...

    def discard(self, round: int, client: int) -> None: ...

    def clients(self, round: int) -> Iterable[int]: ...

    def drop(self, round: int) -> None:
        """Forget every share of this round and of all before it."""
        ...


class MemoryShares:
    """A share store in memory."""

    def __init__(self) -> None:
        self._rounds: dict[int, dict[int, Share]] = {}

    def put(self, share: Share) -> None:
        self._rounds.setdefault(share.round, {})[share.client] = share

    def get(self, round: int, client: int) -> Share:
        return self._rounds[round][client]

    def discard(self, round: int, client: int) -> None:
        self._rounds.get(round, {}).pop(client, None)

    def clients(self, round: int) -> Iterable[int]:
        return tuple(self._rounds.get(round, ()))

    def drop(self, round: int) -> None:
        for number in [number for number in self._rounds if number <= round]:
            del self._rounds[number]

    def __len__(self) -> int:
        return sum(map(len, self._rounds.values()))


def sum_shares(store: ShareStore, round: int, clients: Sequence[int], size: int) -> NDArray[np.uint64]:
    """The sum mod p of the stored shares of exactly these clients; exact, so in any order the same bits."""
    total: NDArray[np.uint64] = np.zeros(size, dtype=np.uint64)
    batch: list[NDArray[np.uint64]] = []
    for client in clients:
        share = store.get(round, client)
        if share.kind == ShareKind.SEED:
            context = share_context(
                share.study_hash, share.round, share.client, share.servers, share.size, share.model_hash
            )
            add_expanded(total, share.payload, server_context(context, share.server))
        else:
            batch.append(
                np.frombuffer(share.payload, dtype="<u8").astype(np.uint64, copy=False)
            )  # checked as it is added
            if len(batch) == _BATCH:
                add_all_into(total, batch)
                batch.clear()
    if batch:
        add_all_into(total, batch)
    return total
