"""What a server remembers of the round it is in: states, events, who sent what, who is in the set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, unique

import numpy as np
from numpy.typing import NDArray

from tallystick.protocol.noise_source import NoiseSource
from tallystick.protocol.secure_sum.codec import decode
from tallystick.protocol.secure_sum.messages import (
    Abort,
    Agreement,
    Message,
    Partial,
    ReceivedList,
    Start,
    commitments_digest,
    share_context,
)
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.secure_sum.records import EquivocatorsRecord, RoundRecord
from tallystick.protocol.secure_sum.shares import ShareStore

__all__ = ["ACTIVE", "NoiseSource", "OpenRound", "ServerEvent", "ServerState"]


@unique
class ServerState(Enum):
    IDLE = "idle"
    COLLECTING = "collecting"
    LISTED = "listed"
    AGREED = "agreed"
    DRAWING = "drawing"
    RELEASED = "released"
    ABORTED = "aborted"


@unique
class ServerEvent(Enum):
    OPEN = "round opened, noise drawn and kept"
    LIST = "deadline, or all clients sent: own list signed"
    AGREE = "all lists in: own agreement signed"
    DRAW = "all agreements identical: begun to draw from the total, which is kept; noise and shares erased"
    RELEASE = "all agreements identical: partial kept, noise erased"
    ABORT = "round given up, noise erased"


ACTIVE = frozenset((ServerState.COLLECTING, ServerState.LISTED, ServerState.AGREED, ServerState.DRAWING))


@dataclass(slots=True)
class OpenRound:
    """What a server remembers of the round it is in."""

    record: RoundRecord
    start: Start
    deadline: float
    give_up: float
    noise: NDArray[np.int64] | None = field(default=None, repr=False)  # gone once the round is over
    received: dict[int, bytes] = field(default_factory=dict)  # client -> digest over its commitments
    equivocators: set[int] = field(default_factory=set)
    absent: set[int] = field(default_factory=set)  # said so themselves; forgotten in a restart, which costs time only
    lists: dict[int, ReceivedList] = field(default_factory=dict)
    agreements: dict[int, Agreement] = field(default_factory=dict)
    waits: bool = False  # somebody is missed, and the aggregator was told
    partial: Partial | None = None
    abort: Abort | None = None

    def complete(self, parameters: SumParameters) -> bool:
        """Whether every client has sent or said that it will not, so that there is nothing to wait for."""
        return len(self.received) + len(self.equivocators) + len(self.absent) == len(parameters.clients)

    def start_of(self, server: int, own: int) -> Start | None:
        """Under which start this server opened the round, by its own word as this one has kept it."""
        if own in self.agreements:
            return self.agreements[own].starts[server]
        return self.lists[server].start if server in self.lists else None

    def blamed(self) -> tuple[int, ...]:
        """Clients caught with two different sharings, by this server or by comparing the lists of all."""
        found = set(self.equivocators)
        seen: dict[int, bytes] = dict(self.received)
        for one in self.lists.values():
            found.update(one.equivocators)
            found.update(
                client for client, bound in zip(one.clients, one.digests) if seen.setdefault(client, bound) != bound
            )
        return tuple(sorted(found))

    def agreed_set(self) -> tuple[int, ...]:
        """U: clients all servers hold under one digest and none caught equivocating."""
        first, *others = (dict(zip(one.clients, one.digests)) for one in self.lists.values())
        flagged = {client for one in self.lists.values() for client in one.equivocators}
        return tuple(
            client
            for client in sorted(first)
            if client not in flagged and all(other.get(client) == first[client] for other in others)
        )

    def recall(self, server: int, records: Mapping[str, bytes], shares: ShareStore) -> ServerState:
        """Fill the memory from what is durable, and say which state that is; records of other rounds are nothing."""
        state, number = ServerState.COLLECTING, self.record.round

        def said(key: str) -> Message | None:
            message = decode(records[key]) if key in records else None
            return message if message is not None and message.round == number else None

        if "equivocators" in records:
            known = EquivocatorsRecord.from_bytes(records["equivocators"])
            if known.round == number:
                self.equivocators.update(known.clients)
        for client in shares.clients(number):
            share = shares.get(number, client)
            if client not in self.equivocators:
                context = share_context(share.study_hash, number, client, share.servers, share.size, share.model_hash)
                self.received[client] = commitments_digest(context, share.commitments)
        own_list, agreement, partial, abort = said("list"), said("agreement"), said("partial"), said("aborted")
        if isinstance(own_list, ReceivedList):
            self.lists[server] = own_list
            self.received = dict(zip(own_list.clients, own_list.digests))
            state = ServerState.LISTED
        if isinstance(agreement, Agreement):
            self.agreements[server] = agreement
            state = ServerState.AGREED
        if isinstance(partial, Partial):
            self.partial = partial
            state = ServerState.RELEASED
        if isinstance(abort, Abort):
            self.abort = abort
            state = ServerState.ABORTED
        return state
