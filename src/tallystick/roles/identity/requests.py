"""What a party asks its consortium for: the request file, signed with both keys it names, and its own ``role.toml``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypedDict

from tallystick.core.errors import TallystickError
from tallystick.core.identifiers import check_party_name, digest, format_hash
from tallystick.core.outside_text import read_toml
from tallystick.crypto.certificates import TlsKey, check_signing_request, request_key_der
from tallystick.crypto.signing import SigningKey, VerifyKey
from tallystick.privacy.ranges import BUDGET_EPSILON
from tallystick.roles.identity.consortium import (
    Party,
    check_address,
    deny,
    listening_roles,
    reachable_roles,
    split_address,
)
from tallystick.study.trust import holding_roles

TLS_KEY, IDENTITY, CERTIFICATE = "tls.key", "identity.key", "certificate.pem"
_PROOF = b"tallystick/request/v1"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What travels to the authority: public, and worthless to anybody without the two private keys."""

    name: str
    role: str
    address: str | None
    csr: bytes
    identity: VerifyKey
    proof: bytes

    def statement(self) -> bytes:
        """What the identity key signs: all of the request."""
        return _statement(self.name, self.role, self.address, self.csr, self.identity)

    @property
    def fingerprint(self) -> str:
        """To be compared out of band by the party and the authority."""
        return format_hash(self.statement())

    @property
    def public_der(self) -> bytes:
        """The TLS key that a certificate is asked for."""
        return request_key_der(self.csr, party=self.name)

    def verify(self) -> None:
        """Return if whoever made it holds both keys it names; raise otherwise."""
        check_signing_request(self.csr, party=self.name)
        self.identity.verify(self.statement(), self.proof)

    def to_toml(self) -> str:
        """The request file."""
        lines = [
            "# A request to join or to renew. Public: no private key is in it. Send it to the consortium's authority.",
            "[request]",
            f"name = {json.dumps(self.name)}",
            f"role = {json.dumps(self.role)}",
            *([f"address = {json.dumps(self.address)}"] if self.address is not None else []),
            f'identity = "{self.identity.encoded.hex()}"',
            f'proof = "{self.proof.hex()}"',
            f'csr = """\n{self.csr.decode("ascii")}"""',
        ]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> Request:
        """Inverse of :meth:`to_toml`; checks form only."""
        try:
            raw = read_toml(text)["request"]
            address = raw.pop("address", None)
            if set(raw) != {"name", "role", "identity", "proof", "csr"} or not all(
                type(v) is str for v in raw.values()
            ):
                raise ValueError
            return cls(
                name=check_party_name(raw["name"]),
                role=raw["role"],
                address=None if address is None else check_address(address),
                csr=raw["csr"].encode("ascii"),
                identity=VerifyKey(bytes.fromhex(raw["identity"])),
                proof=bytes.fromhex(raw["proof"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, TallystickError):
            deny("this is not a request file", "Make it again with tallystick consortium request.")


def _statement(name: str, role: str, address: str | None, csr: bytes, identity: VerifyKey) -> bytes:
    return digest(_PROOF, name.encode(), role.encode(), (address or "").encode(), csr, identity.encoded)


def signed_request(name: str, role: str, address: str | None, key: TlsKey, identity: SigningKey) -> Request:
    """A request for these keys, signed with both; what the consortium would deny is refused here."""
    pin = "sha256:" + "0" * 64
    Party(name=name, role=role, address=address, fingerprints=(pin,), identity=identity.public)  # the same checks
    csr = key.signing_request(name)
    proof = identity.sign(_statement(name, role, address, csr, identity.public))
    return Request(name=name, role=role, address=address, csr=csr, identity=identity.public, proof=proof)


class RoleOptions(TypedDict, total=False):
    """What a party says of itself when it asks to join."""

    address: str | None
    listen: str | None
    data: str | None
    decide: str
    budget: float


def role_file(
    name: str,
    role: str,
    consortium: str,
    *,
    address: str | None = None,
    listen: str | None = None,
    data: str | None = None,
    decide: str = "ask",
    budget: float = 1.0,
) -> str:
    """The text of a new ``role.toml``; what does not fit the role is refused."""
    if decide not in ("ask", "approve"):
        deny(f"--decide {ascii(decide)[:40]} is unknown", "Write ask or approve.")
    lines = [
        "[role]",
        f"name = {json.dumps(name)}",
        f'role = "{role}"',
        f'consortium = "{consortium}"',
        f'certificate = "{CERTIFICATE}"',
        f'key = "{TLS_KEY}"',
        f'identity = "{IDENTITY}"',
        'state = "state"',
    ]
    if role in (*listening_roles(), *reachable_roles()) and address is not None:
        host, port = split_address(address)
        own = address if host in ("127.0.0.1", "::1", "localhost") else f"0.0.0.0:{port}"
        lines.append(f"listen = {json.dumps(check_address(listen or own))}")
    elif listen is not None:
        deny(f"the role {role!r} does not listen", "Leave --listen out: clients and analysts dial out only.")
    if role in holding_roles():
        BUDGET_EPSILON.check("--budget", budget)  # the client would not start with it, and its keys were made by then
        lines += ["", "[data]", f"source = {json.dumps(data or 'records.parquet', ensure_ascii=False)}"]
        lines += ["# The most these records may ever spend, all studies together; later: tallystick budget grant."]
        lines += [f"budget_epsilon = {float(budget)!r}", "budget_delta = 1e-6"]
        lines += ["", "[policy]", "# Limits for every study; programs = [...] would allow only those, [] nothing."]
        lines += ["max_epsilon = 1.0", "allow_not_private = false", "min_clients = 3"]
        lines += [
            '# Within the limits: "ask" (a person approves each study) or "approve" (without asking, once a person'
        ]
        lines += ["# has accepted how its columns are read: tallystick data check STUDY --accept)."]
        lines += [f'default = "{decide}"']
    elif data is not None:
        deny(f"the role {role!r} has no data", "Leave --data out: only clients read records.")
    return "\n".join(lines) + "\n"
