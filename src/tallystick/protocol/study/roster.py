"""Who could take part (``Members``, from the consortium file) and who does (``Roster``, from the start).

Every party builds the roster by itself from the aggregator's ``StudyStart`` and its own copy of the consortium file,
and believes nothing else: all servers, at least ``min_clients`` clients, in the consortium's order, each key signed by
its owner's identity for this very study (X32). Equal rosters make equal ``SumParameters``; ``digest`` names a roster,
and bound into what parties sign or seal it makes two different rosters fail where they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from tallystick.core.errors import RemoteProtocolError, StudyError, TallystickError
from tallystick.core.identifiers import HASH_BYTES, check_party_name, digest
from tallystick.crypto.key_agreement import StudyKey, check_study_keys
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.secure_sum.parameters import SumParameters
from tallystick.protocol.study.messages import StudyStart, Ticket

__all__ = ["Members", "Roster", "check_ticket", "make_roster"]

_U32S = Struct("<II")


@dataclass(frozen=True, kw_only=True)
class Members:
    """The parties that may take part in a study, in the consortium's order, and their pinned identities."""

    consortium_hash: bytes
    aggregator: str
    analysts: tuple[str, ...]
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    identities: Mapping[str, VerifyKey] = field(repr=False)

    def __post_init__(self) -> None:
        names = (self.aggregator, *self.analysts, *self.servers, *self.clients)
        for name in names:
            check_party_name(name)
        if len(set(names)) != len(names):
            raise StudyError("two parties have the same name", remedy="Give every party a name of its own.")
        if len(self.consortium_hash) != HASH_BYTES:
            raise StudyError("the consortium hash is not 32 bytes", remedy="Pass the SHA-256 of the consortium file.")
        if not set(self.identities) >= {*self.servers, *self.clients}:
            raise StudyError("not every party has an identity", remedy="Pin one public key per party.")

    def role(self, name: str) -> str | None:
        """ "server" or "client", or None for anyone else."""
        return "server" if name in self.servers else "client" if name in self.clients else None

    @property
    def parties(self) -> tuple[str, ...]:
        """Servers, then clients."""
        return (*self.servers, *self.clients)


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who takes part in a study, equal at every party; all of it public."""

    study_hash: bytes
    attempt: int
    consortium_hash: bytes
    aggregator: str
    servers: tuple[str, ...]
    clients: tuple[str, ...]
    min_clients: int
    server_identities: tuple[VerifyKey, ...] = field(repr=False)
    keys: Mapping[str, StudyKey] = field(repr=False)

    @property
    def digest(self) -> bytes:
        """One hash over all of it."""
        parts = [b for name in (*self.servers, *self.clients) for b in (name.encode(), self.keys[name].public)]
        counts = _U32S.pack(self.attempt, self.min_clients) + _U32S.pack(len(self.servers), len(self.clients))
        return digest(b"tallystick/study/roster", self.study_hash, self.consortium_hash, counts, *parts)

    def sum_parameters(
        self, *, size: int, honest: int, colluding: int, result_limit: int, **options: Any
    ) -> SumParameters:
        """The secure sum's parameters: the same at every party whose study and roster are the same.

        ``honest`` and ``colluding`` are the study's; they must fit the servers that there are.

        What the sum calls its study is bound to the roster, so that parties who were told different rosters refuse
        each other's first message.
        """
        return SumParameters(
            study_hash=digest(b"tallystick/study/session", self.study_hash, self.digest),
            size=size,
            servers=self.servers,
            clients=self.clients,
            server_keys=self.server_identities,
            honest=honest,
            colluding=colluding,
            min_clients=self.min_clients,
            result_limit=result_limit,
            aggregator=self.aggregator,
            **options,
        )


def check_ticket(members: Members, study_hash: bytes, ticket: Ticket) -> StudyKey:
    """The party's key for this study, if the party is a member and signed it; a typed error otherwise."""
    role = members.role(ticket.party)
    if role is None:
        raise RemoteProtocolError("this party is not in the study", party=ticket.party, rule="X32")
    key = StudyKey(
        study_hash=study_hash, party=ticket.party, role=role, public=ticket.public, signature=ticket.signature
    )
    check_study_keys([key], study_hash=study_hash, members={ticket.party: (role, members.identities[ticket.party])})
    return key


def make_roster(members: Members, start: StudyStart) -> Roster:
    """The roster of a start, or an error that says what is wrong with it."""

    def refuse(cause: str, party: str | None = None) -> RemoteProtocolError:
        return RemoteProtocolError(
            cause,
            party=party or members.aggregator,
            rule="bad-roster",
            remedy="Nothing was computed. Compare the consortium files and ask the aggregator's operator.",
        )

    names = tuple([ticket.party for ticket in start.tickets])
    inside = set(names)
    clients = tuple([name for name in members.clients if name in inside])
    if names != (*members.servers, *clients):
        raise refuse("the study was started with other parties, or in another order, than the consortium has")
    if len(clients) < max(2, start.min_clients):
        raise refuse(f"the study was started with {len(clients)} clients; it asks for {start.min_clients}")
    pinned = {name: (members.role(name) or "", members.identities[name]) for name in names}
    keys = [
        StudyKey(
            study_hash=start.study_hash,
            party=ticket.party,
            role=pinned[ticket.party][0],
            public=ticket.public,
            signature=ticket.signature,
        )
        for ticket in start.tickets
    ]
    try:
        checked = check_study_keys(keys, study_hash=start.study_hash, members=pinned)
    except TallystickError as error:
        raise refuse(f"a key in the start of the study does not verify: {error.cause}", error.party) from None
    return Roster(
        study_hash=start.study_hash,
        attempt=start.attempt,
        consortium_hash=members.consortium_hash,
        aggregator=members.aggregator,
        servers=members.servers,
        clients=clients,
        min_clients=start.min_clients,
        server_identities=tuple([members.identities[name] for name in members.servers]),
        keys=checked,
    )
