"""One study at one party, and what a role's process is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tallystick.core.randomness import WordSource
from tallystick.protocol.members import Members
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import Identity, unix_time
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.storage.stores import RoleStore
from tallystick.transport.network.options import Options

if TYPE_CHECKING:
    from tallystick.roles.processes.process import RoleProcess

DECLINED_SHOWN = 20

Streams = Callable[..., WordSource]
"""Where a named piece of randomness comes from: ``streams(study_hash, b"noise", round, server)``."""


class Clock(Protocol):
    """Seconds on a monotonic clock; only differences mean anything. Machines are told ``now``, they never look."""

    def now(self) -> float: ...


@dataclass(kw_only=True)
class Health:
    """What a probe is told. Public: no counts of records, no data."""

    green: bool = True
    reason: str = ""
    studies: dict[str, str] = field(default_factory=dict)
    rounds: int = 0
    declined: dict[str, str] = field(default_factory=dict)
    """Studies this party was asked to take part in and did not, the newest last, with the reason."""
    refused: int = 0
    blamed: int = 0
    file_problem: str = ""
    """Why the consortium file that is installed is not the one in use."""

    def decline(self, study: str, why: str) -> None:
        """Note why this party takes no part in a study; the oldest reasons make room."""
        self.declined.pop(study, None)
        self.declined[study] = why
        while len(self.declined) > DECLINED_SHOWN:
            del self.declined[next(iter(self.declined))]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a role is made of; wired once, at the start."""

    config: RoleConfig
    consortium: Consortium
    identity: Identity
    store: RoleStore
    streams: Streams
    clock: Clock
    options: Options | None = None
    wall: Callable[[], float] = unix_time
    """The time of day, in unix seconds: for expiries and dates in statements, never for deadlines."""


class Session:
    """One study at one party. Subclasses feed their machines; nothing here knows about sockets."""

    def __init__(self, process: RoleProcess, study_hash: bytes) -> None:
        self.process = process
        self.study_hash = study_hash
        self.over = False

    @property
    def keeps(self) -> bool:
        """Whether records of this study are kept: nothing is of one that was turned down before it was stored."""
        return True

    @property
    def secret_rounds(self) -> bool:
        """Whether what is kept of rounds tells of single people: then it is erased with the study's secrets."""
        return False

    @property
    def idle(self) -> bool:
        """Whether nothing is lost when it is made anew from its records, should it be asked again."""
        return False

    def begin(self) -> None:
        """What the durable records say is to be done first."""
        raise NotImplementedError

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        """A message of this study."""
        raise NotImplementedError

    def tick(self, layer: str) -> None:
        """A time this session asked for has come."""
        raise NotImplementedError

    def connected(self, peer: str) -> None:
        """A line is there (again)."""

    def members_changed(self, members: Members) -> None:
        """Another consortium file is about to be in force: end what cannot go on under it."""

    def close(self) -> None:
        """The process stops; what must survive is on disk already."""
