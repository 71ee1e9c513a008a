"""Who could take part (``Members``, from the consortium file), and what each does in a study (``Cast``).

A consortium has parties in roles; what a role is for is the trust model's to say. Whoever carries out a protocol asks
a study's cast who coordinates, must be there, witnesses ledgers and makes noise, and looks at no role's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.core.identifiers import HASH_BYTES, check_party_name
from tallystick.crypto.signing import VerifyKey
from tallystick.study.trust import TrustModel, holding_roles, registered

ANALYST = "analyst"


@dataclass(frozen=True, kw_only=True)
class Members:
    """The parties of a consortium, each role's in the consortium's order, and their pinned identities."""

    consortium_hash: bytes
    board: str
    """Who keeps the notice board."""
    roles: Mapping[str, tuple[str, ...]]
    identities: Mapping[str, VerifyKey] = field(repr=False)

    def __post_init__(self) -> None:
        names = [name for parties in self.roles.values() for name in parties]
        for name in names:
            check_party_name(name)
        if len(set(names)) != len(names):
            raise StudyError("two parties have the same name", remedy="Give every party a name of its own.")
        if len(self.consortium_hash) != HASH_BYTES:
            raise StudyError("the consortium hash is not 32 bytes", remedy="Pass the SHA-256 of the consortium file.")
        if not set(self.identities) >= {*self.helpers, *self.clients}:
            raise StudyError("not every party has an identity", remedy="Pin one public key per party.")

    def of(self, role: str) -> tuple[str, ...]:
        """The parties in a role."""
        return self.roles.get(role, ())

    def role(self, name: str) -> str | None:
        """A party's role, or None for a stranger."""
        return next((role for role, parties in self.roles.items() if name in parties), None)

    @property
    def analysts(self) -> tuple[str, ...]:
        return self.of(ANALYST)

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """Parties that hold records in some trust model."""
        return self._in_any(set(holding_roles()))

    @cached_property
    def helpers(self) -> tuple[str, ...]:
        """Everybody but the board, the clients and the analysts."""
        others = [role for role in self.roles if role not in (ANALYST, *holding_roles())]
        return tuple(name for role in others for name in self.roles[role] if name != self.board)

    @cached_property
    def witnesses(self) -> tuple[str, ...]:
        """Parties that countersign ledgers in some trust model."""
        return self._in_any({model.witnesses for model in registered()})

    @cached_property
    def makers(self) -> tuple[str, ...]:
        """Parties that make noise, and attest to it, in some trust model that has its coordinator here."""
        possible = [model for model in registered() if self.of(model.coordinator)]
        return self._in_any({role for model in possible for role in model.maker_roles})

    @cached_property
    def helpers_by_model(self) -> tuple[tuple[str, ...], ...]:
        """Who must be there in a study, for each trust model, without a dealer and with each of them."""
        found = []
        for model in registered():
            always = tuple(n for role in model.helpers for n in self.of(role))
            found += [always, *((*always, dealer) for dealer in self.of(model.dealer))]
        return tuple(found)

    @cached_property
    def coordinators(self) -> tuple[str, ...]:
        """Parties that open studies in some trust model."""
        return self._in_any({model.coordinator for model in registered()})

    def _in_any(self, roles: set[str]) -> tuple[str, ...]:
        return tuple(name for role in self.roles if role in roles for name in self.roles[role])

    @property
    def parties(self) -> tuple[str, ...]:
        """Helpers, then clients."""
        return (*self.helpers, *self.clients)

    def cast(self, model: TrustModel, section: Mapping[str, Any] | None = None) -> Cast:
        """What each does in a study of this trust model; ``section`` is its [trust], which nobody has checked."""
        coordinators = self.of(model.coordinator)
        if len(coordinators) != 1:
            raise RemoteProtocolError(
                f"the consortium has {len(coordinators)} {model.coordinator}s",
                rule="consortium",
                remedy=f"Enrol exactly one {model.coordinator}.",
            )
        witnesses, needed = model.witnesses_of(section or {}, self.of(model.witnesses))
        named = (section or {}).get("dealer")
        dealer = named if isinstance(named, str) and named in self.of(model.dealer) else None
        return Cast(
            members=self,
            model=model,
            coordinator=coordinators[0],
            clients=self.of(model.holders),
            helpers=(*(n for role in model.helpers for n in self.of(role)), *([] if dealer is None else [dealer])),
            dealer=dealer,
            witnesses=witnesses,
            countersigners=needed,
            makers=tuple(name for role in model.maker_roles for name in self.of(role)),
        )


@dataclass(frozen=True, kw_only=True)
class Cast:
    """The parties of a study by what they do in it; analysts are the consortium's."""

    members: Members
    model: TrustModel = field(repr=False)
    coordinator: str
    """Opens the study and its rounds, and learns the totals."""
    clients: tuple[str, ...]
    """They hold the records."""
    helpers: tuple[str, ...]
    """All of them take part in every study."""
    witnesses: tuple[str, ...]
    """They countersign every client's ledger before anything of it leaves."""
    makers: tuple[str, ...]
    """They add noise, and attest to it."""
    dealer: str | None = None
    """One of the helpers: it deals masks to institutions with different columns."""
    countersigners: int | None = None
    """How many of the witnesses have to countersign a ledger; all, unless the trust model says otherwise."""

    def among(self, members: Members) -> Cast:
        """The same study's among other members."""
        there = members.cast(self.model, {"dealer": self.dealer})
        return replace(there, witnesses=self.witnesses, countersigners=self.countersigners)

    def witnesses_of(self, client: str) -> tuple[str, ...]:
        """Who may countersign a client's ledger: nobody its own."""
        return tuple(name for name in self.witnesses if name != client)

    def countersigners_of(self, client: str) -> int:
        """How many of them have to."""
        there = len(self.witnesses_of(client))
        return there if self.countersigners is None else self.countersigners

    @property
    def analysts(self) -> tuple[str, ...]:
        return self.members.analysts

    @property
    def identities(self) -> Mapping[str, VerifyKey]:
        return self.members.identities

    @property
    def consortium_hash(self) -> bytes:
        return self.members.consortium_hash

    @property
    def parties(self) -> tuple[str, ...]:
        """Who is asked to take part: helpers, then clients."""
        return (*self.helpers, *self.clients)

    @property
    def clients_make_noise(self) -> bool:
        """Whether the noise is the clients' own: then each vouches for the rounds it was in."""
        return self.model.holders in self.model.maker_roles

    def role(self, name: str) -> str | None:
        """The role of a party that is asked to take part, or None for anyone else."""
        return self.members.role(name) if name in self.parties else None

    def counts(self) -> dict[str, int]:
        """How many parties each role has."""
        return {role: len(parties) for role, parties in self.members.roles.items()}
