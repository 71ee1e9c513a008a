"""Who belongs together: the consortium file, the same bytes at every party, public throughout.

    [consortium]  name, version, ca_certificate (PEM)
    [[party]]     name, role, address (server, aggregator), fingerprints (two during rotation), identity

Nothing outside it is trusted: a certificate counts if its fingerprint is pinned here, whatever its authority says,
and a signature counts under the identity key written here. Every change raises ``version``. The hash is over the
content, not the spelling, and the order of parties is part of it: it is the order of the studies' clients and servers.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, NoReturn

from pydantic import AfterValidator, Field, ValidationError

from tallystick.core.errors import StudyError
from tallystick.core.findings import Finding, Table, first_finding
from tallystick.core.identifiers import canonical, check_party_name, digest, format_hash
from tallystick.core.outside_text import NotReadable, read_toml
from tallystick.crypto.certificates import certificate_facts, dns_name
from tallystick.crypto.signing import VerifyKey
from tallystick.study.trust import CLIENT, holding_roles, registered

LINES = 8
"""To so many of the peers that can be reached each peer opens a line; with those that dial it, about twice as many."""
_HOST = re.compile(r"\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


def consortium_roles() -> tuple[str, ...]:
    """The roles there are: institutions, analysts, and the cast of every trust model."""
    return (CLIENT, *dict.fromkeys(role.name for model in registered() for role in model.roles), "analyst")


def listening_roles() -> tuple[str, ...]:
    """The roles that others connect to."""
    return tuple(dict.fromkeys(role.name for model in registered() for role in model.roles if role.listens))


def reachable_roles() -> tuple[str, ...]:
    """The roles that may be given an address, and need not have one."""
    return tuple(dict.fromkeys(role.name for model in registered() for role in model.roles if role.may_listen))


def split_address(text: str) -> tuple[str, int]:
    """(host, port) of ``host:port`` or ``[IPv6]:port``."""
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not _HOST.fullmatch(host) or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        raise StudyError(
            f"{ascii(text)[:80]} is not an address", remedy='Write "host:port", for example "sum1.example.org:7101".'
        )
    return host.strip("[]"), int(port)


def check_address(text: str) -> str:
    """The address itself, once it reads as one."""
    split_address(text)
    return text


@dataclass(frozen=True, kw_only=True)
class Party:
    """One role instance, as all the others know it."""

    name: str
    role: str
    address: str | None = None
    fingerprints: tuple[str, ...]
    identity: VerifyKey

    def __post_init__(self) -> None:
        check_party_name(self.name)
        if self.role not in consortium_roles():
            deny(
                f"party {self.name} has the unknown role {ascii(self.role)[:40]}",
                f"Roles: {', '.join(consortium_roles())}.",
            )
        if self.role in listening_roles():
            if self.address is None:
                deny(f"{self.role} {self.name} has no address", 'Give address = "host:port".')
            check_address(self.address)
        elif self.address is not None:
            if self.role not in reachable_roles():
                deny(f"{self.role} {self.name} has an address", "Clients and analysts dial out only: leave it out.")
            check_address(self.address)
        if not 1 <= len(self.fingerprints) <= 2 or len(set(self.fingerprints)) != len(self.fingerprints):
            deny(
                f"party {self.name} has {len(self.fingerprints)} fingerprints",
                "There is one; two different ones during rotation. Finish it: consortium rotate --finish.",
            )
        for text in self.fingerprints:
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
                deny(f"a fingerprint of {self.name} is not sha256:<64 hex digits>", "Copy the file again.")

    @property
    def dns_name(self) -> str:
        """The name its certificate carries, to be checked by whoever dials it."""
        return dns_name(self.name)


class _PartyTable(Table):
    name: str
    role: str
    address: str | None = None
    fingerprints: Annotated[tuple[str, ...], Field(strict=False)]
    identity: Annotated[
        str, Field(pattern=r"^[0-9a-f]{64}$"), AfterValidator(lambda text: VerifyKey(bytes.fromhex(text)))
    ]


class _HeadTable(Table):
    name: str
    version: int
    ca_certificate: str


class _File(Table):
    consortium: _HeadTable
    party: Annotated[tuple[_PartyTable, ...], Field(strict=False)] = ()


@dataclass(frozen=True, kw_only=True)
class Consortium:
    """The parsed consortium file."""

    name: str
    version: int
    ca_certificate: bytes = field(repr=False)
    parties: tuple[Party, ...] = ()

    def __post_init__(self) -> None:
        check_party_name(self.name)
        if not 1 <= self.version < 1 << 31:
            deny("the version of a consortium file is a number from 1", "Get the file again from its author.")
        certificate_facts(self.ca_certificate)
        _distinct([p.name for p in self.parties], "two parties are named")
        _distinct([p.dns_name for p in self.parties], "two parties' names differ in punctuation or case only:")
        _distinct([f for p in self.parties for f in p.fingerprints], "two parties share the certificate")
        _distinct([p.identity.encoded.hex() for p in self.parties], "two parties share the identity")
        for role in sorted({model.board for model in registered()}):
            if len(self.by_role(role)) > 1:
                deny(f"there are two {role}s", "A consortium has one.")

    @classmethod
    def parse(cls, text: str) -> Consortium:
        """The file's content; unknown keys, missing keys and wrong types are errors that name the place."""
        try:
            raw = read_toml(text)
        except NotReadable as error:
            deny(f"the consortium file cannot be read: {error}", "Copy it again from the consortium.")
        try:
            file = _File.model_validate(raw)
        except ValidationError as error:
            _explain(first_finding(error, _File, unknown_first=True))
        return cls(
            name=file.consortium.name,
            version=file.consortium.version,
            ca_certificate=file.consortium.ca_certificate.encode(),
            parties=tuple(Party(**dict(entry)) for entry in file.party),
        )

    def to_toml(self) -> str:
        """The file; ``parse`` gives the same consortium back."""
        lines = [
            "# Public. The same bytes at every party; compare its hash out of band: tallystick consortium show.",
            "[consortium]",
            f"name = {_quote(self.name)}",
            f"version = {self.version}",
            f'ca_certificate = """\n{self.ca_certificate.decode("ascii")}"""',
        ]
        for p in self.parties:
            lines += ["", "[[party]]", f"name = {_quote(p.name)}", f"role = {_quote(p.role)}"]
            lines += [f"address = {_quote(p.address)}"] if p.address is not None else []
            lines += [f"fingerprints = [{', '.join(map(_quote, p.fingerprints))}]"]
            lines += [f'identity = "{p.identity.encoded.hex()}"']
        return "\n".join(lines) + "\n"

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 over the content in one canonical form: equal at two parties exactly if they agree on all of it."""
        content = {
            "name": self.name,
            "version": self.version,
            "ca": certificate_facts(self.ca_certificate).fingerprint,
            "parties": [
                [p.name, p.role, p.address, list(p.fingerprints), p.identity.encoded.hex()] for p in self.parties
            ],
        }
        return digest(b"tallystick/consortium/v1", canonical(content))

    @property
    def printed_hash(self) -> str:
        """``sha256:<64 hex>``."""
        return format_hash(self.hash)

    def party(self, name: str) -> Party:
        """The party of this name."""
        for p in self.parties:
            if p.name == name:
                return p
        listed = ", ".join(p.name for p in self.parties) or "nobody yet"
        raise StudyError(
            f"{ascii(name)[:80]} is not in consortium {self.name}",
            rule="consortium",
            remedy=f"Parties there: {listed}.",
        )

    def by_role(self, role: str) -> tuple[Party, ...]:
        """The parties in this role, in the file's order."""
        return tuple(p for p in self.parties if p.role == role)

    def with_party(self, party: Party) -> Consortium:
        """The next version, with this party added or replaced in its place."""
        if any(p.name == party.name for p in self.parties):
            parties = tuple(party if p.name == party.name else p for p in self.parties)
        else:
            parties = (*self.parties, party)
        return replace(self, version=self.version + 1, parties=parties)

    def without_party(self, name: str) -> Consortium:
        """The next version, without this party: its certificate counts nowhere any more."""
        gone = self.party(name)
        return replace(self, version=self.version + 1, parties=tuple(p for p in self.parties if p != gone))


def dials(consortium: Consortium, name: str) -> tuple[Party, ...]:
    """Whom this party connects to: a client everybody who listens, an analyst the notice board, and of those who listen
    each the later ones; the board comes last, and dials nobody. Of the peers that may listen, each dials some."""
    me = consortium.party(name)
    boards = {model.board for model in registered()}
    listening = [p for role in listening_roles() for p in consortium.by_role(role)]
    listening.sort(key=lambda p: p.role in boards)
    if me.role in holding_roles():
        own = _lines(consortium, me)
        twice = [p for p in own if p.name < me.name and me in _lines(consortium, p)]  # one of the two opens the line
        return (*sorted(listening, key=lambda p: p.role not in boards), *(p for p in own if p not in twice))
    if me.role == "analyst":
        return tuple(p for p in listening if p.role in boards)
    return tuple(listening[listening.index(me) + 1 :]) if me in listening else ()


def _lines(consortium: Consortium, me: Party) -> list[Party]:
    """The peers that this one would keep a line to: some, any, and the same ones at every start."""
    others = [p for p in consortium.parties if p.role in reachable_roles() and p.address is not None and p != me]
    others.sort(key=lambda p: digest(b"tallystick/lines", me.name.encode(), p.name.encode()))
    return others[:LINES]


def _explain(found: Finding) -> NoReturn:
    """The finding, with the table it is in."""
    *tables, key = found.path[:3]  # a fourth is a place among the fingerprints
    where = f"[[party]] {int(tables[1]) + 1}" if tables[1:] else "[consortium]" if tables else "the consortium file"
    again = "Copy the file again from the consortium."
    if found.kind == "unknown":
        near = f"Did you mean {found.closest}? " if found.closest else ""
        deny(f"{where} has the unknown key {ascii(key)[:60]}", f"{near}Known: {', '.join(found.known)}.")
    if found.path[0] == "party" and len(found.path) < 3:
        deny("parties are written as [[party]]", again)
    if found.path == ("consortium",):
        deny("the consortium file has no [consortium]", again)
    if found.kind == "missing":
        deny(f"{where} lacks {key}", again)
    if found.kind == "string_pattern_mismatch":
        deny(f"{where}: identity is 64 hex digits", "Copy the file again.")
    deny(f"{where}: {key} is not of the right type", again)


def _distinct(values: list[str], cause: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            deny(f"{cause} {value}", "Every party has a name, certificate and identity of its own.")
        seen.add(value)


def _quote(text: str) -> str:
    return json.dumps(text)  # the texts here are ASCII without controls, where JSON and TOML agree


def deny(cause: str, remedy: str) -> NoReturn:
    """What is asked of, or written in, a consortium is not possible."""
    raise StudyError(cause, rule="consortium", remedy=remedy) from None
