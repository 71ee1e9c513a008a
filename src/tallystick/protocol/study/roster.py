"""Who takes part in a study.

Every party builds the roster by itself from the coordinator's ``StudyStart`` and its own copy of the consortium file,
and believes nothing else: all helpers, at least ``min_clients`` clients, in the consortium's order, each key signed by
its owner's identity for this very study. Equal rosters make equal rounds; ``digest`` names a roster, and bound
into what parties sign or seal it makes two different rosters fail where they meet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct

from tallystick.core.errors import RemoteProtocolError, TallystickError
from tallystick.core.identifiers import digest
from tallystick.crypto.key_agreement import StudyKey, check_study_keys
from tallystick.crypto.signing import VerifyKey
from tallystick.protocol.members import Cast
from tallystick.protocol.study.messages import StudyStart, Ticket

_U32S = Struct("<II")


@dataclass(frozen=True, kw_only=True)
class Roster:
    """Who takes part in a study, equal at every party; all of it public."""

    study_hash: bytes
    attempt: int
    consortium_hash: bytes
    coordinator: str
    helpers: tuple[str, ...]
    clients: tuple[str, ...]
    min_clients: int
    helper_identities: tuple[VerifyKey, ...] = field(repr=False)
    keys: Mapping[str, StudyKey] = field(repr=False)

    @property
    def digest(self) -> bytes:
        """One hash over all of it."""
        parts = [b for name in (*self.helpers, *self.clients) for b in (name.encode(), self.keys[name].public)]
        counts = _U32S.pack(self.attempt, self.min_clients) + _U32S.pack(len(self.helpers), len(self.clients))
        return digest(b"tallystick/study/roster", self.study_hash, self.consortium_hash, counts, *parts)

    @property
    def session(self) -> bytes:
        """What the rounds call their study: bound to the roster, so that parties who were told different rosters
        refuse each other's first message."""
        return digest(b"tallystick/study/session", self.study_hash, self.digest)


def _study_key(study_hash: bytes, ticket: Ticket, role: str) -> StudyKey:
    return StudyKey(
        study_hash=study_hash, party=ticket.party, role=role, public=ticket.public, signature=ticket.signature
    )


def check_ticket(cast: Cast, study_hash: bytes, ticket: Ticket) -> StudyKey:
    """The party's key for this study, if the party is a member and signed it; a typed error otherwise."""
    role = cast.role(ticket.party)
    if role is None:
        raise RemoteProtocolError("this party is not in the study", party=ticket.party, rule="wrong-party")
    key = _study_key(study_hash, ticket, role)
    check_study_keys([key], study_hash=study_hash, members={ticket.party: (role, cast.identities[ticket.party])})
    return key


def make_roster(cast: Cast, start: StudyStart) -> Roster:
    """The roster of a start, or an error that says what is wrong with it."""

    def refuse(cause: str, party: str | None = None) -> RemoteProtocolError:
        return RemoteProtocolError(
            cause,
            party=party or cast.coordinator,
            rule="bad-roster",
            remedy="Nothing was computed. Compare the consortium files and ask the aggregator's operator.",
        )

    names = tuple([ticket.party for ticket in start.tickets])
    inside = set(names)
    clients = tuple([name for name in cast.clients if name in inside])
    if names != (*cast.helpers, *clients):
        raise refuse("the study was started with other parties, or in another order, than the consortium has")
    if len(clients) < max(2, start.min_clients):
        raise refuse(f"the study was started with {len(clients)} clients; it asks for {start.min_clients}")
    pinned = {name: (cast.role(name) or "", cast.identities[name]) for name in names}
    keys = [_study_key(start.study_hash, ticket, pinned[ticket.party][0]) for ticket in start.tickets]
    try:
        checked = check_study_keys(keys, study_hash=start.study_hash, members=pinned)
    except TallystickError as error:
        raise refuse(f"a key in the start of the study does not verify: {error.cause}", error.party) from None
    return Roster(
        study_hash=start.study_hash,
        attempt=start.attempt,
        consortium_hash=cast.consortium_hash,
        coordinator=cast.coordinator,
        helpers=cast.helpers,
        clients=clients,
        min_clients=start.min_clients,
        helper_identities=tuple([cast.identities[name] for name in cast.helpers]),
        keys=checked,
    )
