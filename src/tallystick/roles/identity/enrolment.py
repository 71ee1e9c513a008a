"""How a party comes into a consortium, renews its certificate and leaves it; private keys never travel.

The folder where ``create`` ran holds ``consortium.toml``, ``ca.key`` (0600, nowhere else) and ``issued/``. A party's
folder holds ``role.toml``, ``tls.key`` and ``identity.key`` (0600), ``certificate.pem`` and, if it is on another
machine, its copy of ``consortium.toml``.

    party                                    authority
    request   keys, NAME.request.toml  ──▶   approve   issues, pins the fingerprint, raises the version
    install   checks and puts in place ◀──   issued/NAME.pem and consortium.toml

A request is signed with both keys it asks for: the CSR with the TLS key, all of it with the identity key. Its
fingerprint is compared out of band (telephone) before it is approved: who can swap the whole file on its way could
otherwise enrol instead. Renewal is the same walk with the identity key that is already pinned, so nobody else can
renew a party; old and new certificate both count until ``finish``.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Unpack

from tallystick.core.errors import TallystickError, VerificationError
from tallystick.core.identifiers import check_party_name
from tallystick.core.randomness import SystemSource
from tallystick.crypto.certificates import (
    CertificateAuthority,
    TlsKey,
    certificate_facts,
    check_certificate,
    dns_name,
    fingerprint,
    signing_key_from_pem,
    signing_key_to_pem,
)
from tallystick.crypto.signing import SigningKey
from tallystick.data.accounts import remedy_for
from tallystick.roles.identity.consortium import Consortium, Party, deny
from tallystick.roles.identity.identity_files import (
    read_consortium,
    read_private,
    read_public,
    write_private,
    write_public,
)
from tallystick.roles.identity.requests import (
    CERTIFICATE,
    IDENTITY,
    TLS_KEY,
    Request,
    RoleOptions,
    role_file,
    signed_request,
)
from tallystick.roles.identity.role_config import load_role_config

CONSORTIUM, AUTHORITY_KEY, ISSUED = "consortium.toml", "ca.key", "issued"
ROLE, NEXT_TLS_KEY = "role.toml", "tls.next.key"


def create(name: str, folder: Path, *, now: datetime) -> Consortium:
    """A new authority and an empty consortium file."""
    check_party_name(name)
    _make_folder(folder)
    with _locked(folder):
        for file in (CONSORTIUM, AUTHORITY_KEY):
            if (folder / file).exists():
                deny(f"{folder / file} is there already", "Give a new folder; a consortium is never overwritten.")
        authority = CertificateAuthority.create(name, SystemSource(), now)
        write_private(folder / AUTHORITY_KEY, authority.key.to_pem())
        consortium = Consortium(name=name, version=1, ca_certificate=authority.certificate)
        write_public(folder / CONSORTIUM, consortium.to_toml().encode())
    return consortium


def request(
    name: str, role: str, folder: Path, *, consortium: str = CONSORTIUM, **options: Unpack[RoleOptions]
) -> tuple[Request, Path]:
    """New keys, a role config and a request in the party's own folder."""
    identity = SigningKey.generate(SystemSource())
    key = TlsKey.generate(SystemSource())
    asked = signed_request(name, role, options.get("address"), key, identity)
    _make_folder(folder)
    for file in (TLS_KEY, IDENTITY, ROLE):
        if (folder / file).exists():
            deny(f"{folder / file} is there already", "Give a new folder, or renew: consortium rotate.")
    config = role_file(name, role, consortium, **options)
    write_private(folder / TLS_KEY, key.to_pem())
    write_private(folder / IDENTITY, signing_key_to_pem(identity))
    write_public(folder / ROLE, config.encode())
    path = folder / f"{dns_name(name)}.request.toml"
    write_public(path, asked.to_toml().encode())
    return asked, path


def renew(folder: Path, *, consortium: Consortium) -> tuple[Request, Path]:
    """A new TLS key beside the old one and a request for it, signed with the identity key the others know."""
    config = load_role_config(folder / ROLE)
    party = consortium.party(config.name)
    key = TlsKey.generate(SystemSource())
    asked = signed_request(
        party.name, party.role, party.address, key, signing_key_from_pem(read_private(config.identity))
    )
    write_private(config.key.with_name(NEXT_TLS_KEY), key.to_pem())
    path = folder / f"{dns_name(party.name)}.request.toml"
    write_public(path, asked.to_toml().encode())
    return asked, path


def approve(
    asked: Request, folder: Path, *, now: datetime, expected: str | None = None, renewal: bool = False
) -> tuple[Consortium, Path]:
    """Issue a certificate for a request and pin it. ``renewal``: of a party that is in already, and of nobody else."""
    asked.verify()
    if expected is not None and expected != asked.fingerprint:
        raise VerificationError(
            "the request is not the one with the fingerprint you were told",
            rule="wrong-fingerprint",
            party=asked.name,
            remedy="Do not approve it: it was changed on its way. Ask the party to send it again.",
        )
    with _locked(folder):
        consortium = read_consortium(folder / CONSORTIUM)
        known = next((p for p in consortium.parties if p.name == asked.name), None)
        path = folder / ISSUED / f"{dns_name(asked.name)}.pem"
        if known is not None:
            _check_renewal(known, asked, path, renewal)
        elif renewal:
            deny(f"{asked.name} is not in the consortium: there is nothing to renew", "Leave --rotate out.")
        authority = CertificateAuthority(
            TlsKey.from_pem(read_private(folder / AUTHORITY_KEY)), consortium.ca_certificate
        )
        certificate = authority.issue(asked.csr, party=asked.name, source=SystemSource(), now=now)
        pinned = (*known.fingerprints, fingerprint(certificate)) if known else (fingerprint(certificate),)
        party = Party(
            name=asked.name, role=asked.role, address=asked.address, fingerprints=pinned, identity=asked.identity
        )
        consortium = consortium.with_party(party)
        _make_folder(path.parent)
        write_public(path, certificate)
        write_public(folder / CONSORTIUM, consortium.to_toml().encode())
    return consortium, path


def _check_renewal(known: Party, asked: Request, issued: Path, renewal: bool) -> None:
    if asked.identity != known.identity:
        raise VerificationError(
            f"{known.name} is in the consortium with another identity key",
            rule="other-identity",
            party=known.name,
            remedy="Ask the party. If it lost its key: consortium remove, then approve this request.",
        )
    if issued.exists() and certificate_facts(read_public(issued)).public_der == asked.public_der:
        deny(
            f"this request of {known.name} is approved already",
            f"Send {issued} again. A renewal has a new key: the party asks for it with consortium rotate.",
        )
    if not renewal:
        deny(
            f"{known.name} is in the consortium already, and this is another request of it",
            "If it renews its certificate (consortium rotate), say so: --rotate. Then old and new both count.",
        )
    if (asked.role, asked.address) != (known.role, known.address):
        deny("a renewal changes role or address", "Remove the party and approve the request as a new one.")
    if len(known.fingerprints) > 1:
        deny(f"{known.name} is being renewed already", "End that first: consortium rotate --finish.")


def install(folder: Path, certificate: bytes, consortium_file: bytes, *, now: datetime) -> Consortium:
    """Put an issued certificate and the new consortium file in place, once they fit the keys that are here."""
    config = load_role_config(folder / ROLE)
    try:
        consortium = Consortium.parse(consortium_file.decode("utf-8"))
    except UnicodeDecodeError:
        deny("the consortium file is not UTF-8 text", "Copy it again.")
    if config.consortium.exists():
        check_successor(read_consortium(config.consortium), consortium)
    facts = check_certificate(certificate, consortium.ca_certificate, party=config.name, now=now)
    party = consortium.party(config.name)
    if signing_key_from_pem(read_private(config.identity)).public != party.identity:
        deny("the consortium file pins another identity key for this party", "Do not use it; ask the authority.")
    if facts.fingerprint not in party.fingerprints:
        deny("the consortium file does not pin this certificate", "Get both files from the same approval.")
    following = config.key.with_name(NEXT_TLS_KEY)
    matching = [p for p in (config.key, following) if p.exists() and _opens(p, facts.public_der)]
    if not matching:
        deny("no key here belongs to this certificate", "Install it where its request was made.")
    # Key before certificate: after a crash between the two, running this again finds the key already in place.
    if matching[0] == following:
        write_private(config.key, read_private(following))
        following.unlink()
    write_public(config.certificate, certificate)
    write_public(config.consortium, consortium_file)
    return consortium


def _opens(key: Path, public_der: bytes) -> bool:
    return TlsKey.from_pem(read_private(key)).public_der == public_der


def check_successor(old: Consortium, new: Consortium) -> None:
    """Return if the new file may take the old one's place: same consortium, and not an older file."""
    if (old.name, old.ca_certificate) != (new.name, new.ca_certificate):
        deny("the new consortium file is of another consortium", "Compare it with the authority before using it.")
    if new.version < old.version or (new.version == old.version and new.hash != old.hash):
        deny(
            f"the new consortium file has version {new.version}, the one here {old.version}",
            "Get the newest file from the authority.",
        )


def enrol(
    name: str, role: str, folder: Path, *, now: datetime, **options: Unpack[RoleOptions]
) -> tuple[Consortium, Path]:
    """Request, approve and install at once, for a party whose keys may be made on the authority's machine."""
    consortium = read_consortium(folder / CONSORTIUM)
    if any(p.dns_name == dns_name(name) for p in consortium.parties):
        deny(f"{name}, or a name too like it, is in the consortium already", "Renew it: consortium rotate.")
    party_folder = folder / dns_name(name)
    asked, path = request(name, role, party_folder, consortium=f"../{CONSORTIUM}", **options)
    try:
        consortium, issued = approve(asked, folder, now=now)
    except TallystickError:
        for file in (TLS_KEY, IDENTITY, ROLE, path.name):  # made just now: the next try finds the folder empty
            (party_folder / file).unlink(missing_ok=True)
        raise
    path.unlink()
    write_public(party_folder / CERTIFICATE, read_public(issued))
    return consortium, party_folder / ROLE


def finish(name: str, folder: Path) -> Consortium:
    """End a renewal: the old certificate counts no more."""
    return _change(folder, lambda c: c.with_party(_newest_only(c.party(name))))


def remove(name: str, folder: Path) -> Consortium:
    """Take a party out: with the new consortium file nobody talks to it any more."""
    return _change(folder, lambda c: c.without_party(name))


def _newest_only(party: Party) -> Party:
    if len(party.fingerprints) < 2:
        deny(f"{party.name} is not being renewed", "Nothing to finish.")
    return replace(party, fingerprints=party.fingerprints[-1:])


def _change(folder: Path, change: Callable[[Consortium], Consortium]) -> Consortium:
    with _locked(folder):
        read_private(folder / AUTHORITY_KEY)  # only where the consortium was created
        consortium = change(read_consortium(folder / CONSORTIUM))
        write_public(folder / CONSORTIUM, consortium.to_toml().encode())
    return consortium


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        deny(f"cannot make the folder {folder}: {error.strerror}", remedy_for(error, folder, "Check the path."))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One change of a consortium at a time."""
    try:
        file = (folder / ".lock").open("wb")
    except OSError as error:
        remedy = remedy_for(error, folder, "Give the folder that consortium create made.")
        deny(f"cannot work in {folder}: {error.strerror}", remedy)
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
