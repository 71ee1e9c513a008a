"""Files that hold keys and certificates, and the one look at the wall clock.

A private key is written atomically with mode 0600 and refused at load when anybody else could have read or replaced
it: then the remedy is a new key, not a chmod. Public files are written atomically too, so that a reader meets the old
bytes or the new ones. Nothing here prints a key.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tallystick.core.errors import StudyError, VerificationError
from tallystick.core.redaction import Secret
from tallystick.crypto.certificates import (
    CertificateFacts,
    TlsKey,
    certificate_facts,
    check_certificate,
    signing_key_from_pem,
)
from tallystick.crypto.signing import SigningKey
from tallystick.data.accounts import account_to_use, remedy_for
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.role_config import RoleConfig
from tallystick.roles.storage.erasure import sync_folder

EXPIRY_WARNING_DAYS = 14
ANOTHERS = "belongs to another account"
_LARGEST = 1 << 20  # no file read here is near it


def wall_clock() -> datetime:
    """The time of day, for certificates and reports alone; deadlines use the monotonic clock."""
    return datetime.now(UTC)  # noqa: TID251 - the one place


def unix_time() -> float:
    """The time of day in unix seconds: for expiries and the dates of statements, never for deadlines."""
    return wall_clock().timestamp()


def write_private(path: Path, content: Secret) -> None:
    """A new or replaced file of mode 0600: complete or not there at all, and on the disk when this returns."""
    _write(path, content.reveal(), 0o600)


def write_public(path: Path, content: bytes) -> None:
    """The same for what everybody may read."""
    _write(path, content, 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)  # whatever the umask is
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise StudyError(
            f"cannot write {path}: {error.strerror}",
            remedy=remedy_for(error, path, "Check the folder and the free space."),
        ) from None


def read_private(path: Path) -> Secret:
    """The content of a key file that is a plain file of this user's with no rights for anybody else."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            problem = key_file_problem(found)
            content = b"" if problem else file.read(_LARGEST)
    except OSError as error:
        raise _unreadable(path, error) from None
    if problem == ANOTHERS:
        raise StudyError(f"key file {path} {problem}", rule="wrong-account", remedy=account_to_use(path))
    if problem:
        raise StudyError(
            f"key file {path} {problem}",
            rule="key-permissions",
            remedy="Whoever could read it may have the key: make a new one (consortium request), keep key files 0600.",
        )
    return Secret(content)


def key_file_problem(found: os.stat_result) -> str | None:
    """What is wrong with a key file's kind, owner or mode; None if nothing is."""
    if not stat.S_ISREG(found.st_mode):
        return "is not a plain file"
    if found.st_mode & 0o077:
        return f"is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
    if found.st_uid not in (os.geteuid(), 0):
        return ANOTHERS
    return None


def read_public(path: Path) -> bytes:
    """The content of a small public file."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(content) > _LARGEST:
        raise StudyError(f"{path} is larger than 1 MB", remedy="Check that the path names the right file.")
    return content


def read_consortium(path: Path) -> Consortium:
    """The consortium file, parsed and checked."""
    try:
        return Consortium.parse(read_public(path).decode("utf-8"))
    except UnicodeDecodeError:
        raise StudyError(f"{path} is not UTF-8 text", remedy="Copy it again from the consortium.") from None


def _unreadable(path: Path, error: OSError) -> StudyError:
    return StudyError(f"cannot read {path}: {error.strerror}", remedy=remedy_for(error, path, "Check the path."))


@dataclass(frozen=True, kw_only=True)
class Identity:
    """One role instance's own keys and certificate, checked against its consortium."""

    party: str
    role: str
    certificate: bytes
    facts: CertificateFacts
    tls_key: Secret = field(repr=False)
    signing: SigningKey = field(repr=False)


def load_identity(config: RoleConfig, consortium: Consortium, now: datetime) -> Identity:
    """The keys a role config names, refused unless they are this party's as pinned in the consortium file."""
    party = consortium.party(config.name)
    if party.role != config.role:
        raise StudyError(
            f"the consortium knows {config.name} as {party.role}, this config says {config.role}",
            remedy="Correct [role] role, or have the party approved again.",
        )
    certificate = read_public(config.certificate)
    facts = check_certificate(certificate, consortium.ca_certificate, party=config.name, now=now)
    if facts.fingerprint not in party.fingerprints:
        raise VerificationError(
            f"the certificate {facts.fingerprint} is not pinned in the consortium file",
            rule="untrusted-certificate",
            party=config.name,
            remedy="Get the newest consortium.toml, or have this certificate approved (consortium approve).",
        )
    pem = read_private(config.key)
    if TlsKey.from_pem(pem).public_der != facts.public_der:
        raise VerificationError(
            "the TLS key does not belong to the certificate",
            party=config.name,
            remedy="Put the key and the certificate of the same request side by side.",
        )
    signing = signing_key_from_pem(read_private(config.identity))
    if signing.public != party.identity:
        raise VerificationError(
            "the identity key is not the one pinned in the consortium file",
            party=config.name,
            remedy="Restore identity.key from its backup, or leave the consortium and enrol anew.",
        )
    return Identity(
        party=config.name, role=config.role, certificate=certificate, facts=facts, tls_key=pem, signing=signing
    )


def expiry_warning(certificate: bytes, now: datetime) -> str | None:
    """What to say from 14 days before a certificate expires; None before that."""
    facts = certificate_facts(certificate)
    left = facts.days_left(now)
    if left > EXPIRY_WARNING_DAYS:
        return None
    when = f"on {facts.not_after:%Y-%m-%d %H:%M} UTC"
    said = f"expires in {max(left, 0.0):.1f} days, {when}" if left > 0 else f"expired {when}"
    return f"the certificate of {facts.party} {said}. Renew it: tallystick consortium rotate."
