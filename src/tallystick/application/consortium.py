"""``tallystick consortium create|enrol|request|approve|install|rotate|remove|show``: plain functions, facts out.

Each returns a JSON-able dict with an ``action``; :func:`describe` puts it into words and always ends with what to do
next. ``now`` is for tests; commands use the wall clock.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

from tallystick.core.errors import StudyError
from tallystick.crypto.certificates import certificate_facts
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.consortium import Consortium, Party
from tallystick.roles.identity.identity_files import expiry_warning, read_consortium, read_public, wall_clock
from tallystick.roles.identity.requests import CERTIFICATE, Request, RoleOptions
from tallystick.roles.identity.role_config import load_role_config


def create(name: str, out: Path, *, now: datetime | None = None) -> dict[str, Any]:
    """A certificate authority and an empty consortium.toml in ``out``."""
    consortium = enrolment.create(name, out, now=now or wall_clock())
    return {"action": "create", **_head(consortium, out / enrolment.CONSORTIUM)}


def enrol(
    name: str, *, role: str, directory: Path, now: datetime | None = None, **options: Unpack[RoleOptions]
) -> dict[str, Any]:
    """Keys, certificate, role config and consortium entry in one step, all on this machine."""
    consortium, config = enrolment.enrol(name, role, directory, now=now or wall_clock(), **options)
    start = f"Start it: tallystick {role} start --config {config}"
    step = f"Propose studies with it: tallystick study propose --config {config}" if role == "analyst" else start
    facts = {"name": name, "role": role, "config": str(config), "next": step}
    return {"action": "enrol", **facts, **_head(consortium, directory / enrolment.CONSORTIUM)}


def request(name: str, *, role: str, out: Path, **options: Unpack[RoleOptions]) -> dict[str, Any]:
    """Keys that stay in ``out``, and a request to send to the authority."""
    asked, path = enrolment.request(name, role, out, **options)
    config = str(out / enrolment.ROLE)
    return {"action": "request", **_asked(asked), "request": str(path), "config": config}


def approve(
    request: Path,
    *,
    directory: Path,
    fingerprint: str | None = None,
    unchecked: bool = False,
    renewal: bool = False,
    now: datetime | None = None,
) -> dict[str, Any]:
    """Issue and pin a certificate for a request; ``fingerprint`` is what the party told out of band."""
    asked = _read_request(request)
    heard = _heard(fingerprint, asked.name, unchecked)
    consortium, issued = enrolment.approve(asked, directory, now=now or wall_clock(), expected=heard, renewal=renewal)
    facts = {**_asked(asked), "certificate": str(issued), "compared": fingerprint is not None}
    return {"action": "approve", **facts, **_head(consortium, directory / enrolment.CONSORTIUM)}


def _heard(fingerprint: str | None, name: str, unchecked: bool) -> str | None:
    """The fingerprint that was read out, however it was typed; None if it is not to be compared."""
    if (fingerprint is None) is not unchecked:
        cause = (
            "--fingerprint and --unchecked at once" if unchecked else f"nobody has vouched for this request of {name}"
        )
        raise StudyError(
            cause,
            rule="fingerprint-needed",
            party=name,
            remedy="Have the party read its fingerprint out by telephone; give what you hear: --fingerprint sha256:…. "
            "Only for a request that never left your hands: --unchecked.",
        )
    if fingerprint is None:
        return None
    digits = "".join(fingerprint.split()).lower().removeprefix("sha256:")
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise StudyError(
            f"{len(digits)} characters are not a whole fingerprint",
            rule="fingerprint-needed",
            party=name,
            remedy="It is sha256: and 64 digits (0-9, a-f): have it read out again, to the end.",
        )
    return f"sha256:{digits}"


def install(certificate: Path, *, consortium: Path, directory: Path, now: datetime | None = None) -> dict[str, Any]:
    """At the party: put what the authority sent back in place, after checking it against the keys here."""
    installed = enrolment.install(directory, read_public(certificate), read_public(consortium), now=now or wall_clock())
    config = load_role_config(directory / enrolment.ROLE)
    return {"action": "install", "name": config.name, "config": str(config.path), **_head(installed, config.consortium)}


def rotate(
    name: str | None = None, *, directory: Path, finish: bool = False, now: datetime | None = None
) -> dict[str, Any]:
    """A new certificate; the old one counts too until ``finish``.

    In the authority's folder, for an enrolled ``name``: all at once. In a party's own folder (no ``name``): a new key
    and a request for the authority to approve.
    """
    now = now or wall_clock()
    if (directory / enrolment.AUTHORITY_KEY).exists():
        if name is None:
            raise StudyError("whose certificate is to be renewed?", remedy="Give the party's name.")
        return _rotate_here(name, directory, finish, now)
    if finish:
        raise StudyError("a renewal is finished by the authority", remedy="Run it where consortium create ran.")
    config = load_role_config(directory / enrolment.ROLE)
    asked, path = enrolment.renew(directory, consortium=read_consortium(config.consortium))
    return {"action": "request", **_asked(asked), "request": str(path), "config": str(config.path)}


def _rotate_here(name: str, directory: Path, finish: bool, now: datetime) -> dict[str, Any]:
    path = directory / enrolment.CONSORTIUM
    if finish:
        return {"action": "finish", "name": name, **_head(enrolment.finish(name, directory), path)}
    party = read_consortium(path).party(name)
    folder = directory / party.dns_name
    if not (folder / enrolment.ROLE).exists():
        raise StudyError(
            f"the keys of {name} are not on this machine",
            remedy="Run consortium rotate in the party's own folder and approve the request it makes.",
        )
    asked, sent = enrolment.renew(folder, consortium=read_consortium(path))
    consortium, issued = enrolment.approve(asked, directory, now=now, renewal=True)
    enrolment.install(folder, read_public(issued), read_public(path), now=now)
    sent.unlink()
    return {"action": "rotate", "name": name, "config": str(folder / enrolment.ROLE), **_head(consortium, path)}


def remove(name: str, *, directory: Path) -> dict[str, Any]:
    """Take a party out of the consortium file."""
    consortium = enrolment.remove(name, directory)
    return {"action": "remove", "name": name, **_head(consortium, directory / enrolment.CONSORTIUM)}


def show(path: Path, *, now: datetime | None = None) -> dict[str, Any]:
    """What a consortium file (or the folder with it) says; with expiry where the certificates are at hand."""
    now = now or wall_clock()
    file = path / enrolment.CONSORTIUM if path.is_dir() else path
    consortium = read_consortium(file)
    parties, warnings = [], []
    for party in consortium.parties:
        expires, warning = _expiry(party, file.parent, now)
        parties.append(
            {
                "name": party.name,
                "role": party.role,
                "address": party.address,
                "fingerprints": list(party.fingerprints),
                "identity": party.identity.encoded.hex(),
                "expires": expires,
                "rotating": len(party.fingerprints) > 1,
            }
        )
        warnings += [warning] if warning else []
    authority = expiry_warning(consortium.ca_certificate, now)
    warnings += [f"the authority itself: {authority}"] if authority else []
    return {"action": "show", **_head(consortium, file), "parties": parties, "warnings": warnings}


def _expiry(party: Party, folder: Path, now: datetime) -> tuple[str | None, str | None]:
    for path in (folder / enrolment.ISSUED / f"{party.dns_name}.pem", folder / CERTIFICATE):
        if path.exists():
            certificate = read_public(path)
            facts = certificate_facts(certificate)
            if facts.fingerprint in party.fingerprints:
                return facts.not_after.isoformat(), expiry_warning(certificate, now)
    return None, None


def _read_request(path: Path) -> Request:
    try:
        return Request.parse(read_public(path).decode("utf-8"))
    except UnicodeDecodeError:
        raise StudyError(f"{path} is not a request file", remedy="Send it again as it is.") from None


def _head(consortium: Consortium, path: Path) -> dict[str, Any]:
    counts = {"file": str(path), "size": len(consortium.parties)}
    return {"consortium": consortium.name, "version": consortium.version, "hash": consortium.printed_hash, **counts}


def _asked(asked: Request) -> dict[str, Any]:
    return {"name": asked.name, "role": asked.role, "address": asked.address, "fingerprint": asked.fingerprint}


def describe(result: dict[str, Any]) -> str:
    """The same for people."""
    action = result["action"]
    if action == "show":
        return _describe_show(result)
    lines = [_SAID[action].format(**result)]
    if "hash" in result:
        lines.append(f"  {result['file']}: version {result['version']}, {result['size']} parties, {result['hash']}")
    if action == "approve" and not result["compared"]:
        lines += [
            f"  Not compared: ask {result['name']} by telephone for the fingerprint of its request; it must be",
            f"  {result['fingerprint']}. If it is not: tallystick consortium remove.",
        ]
    return "\n".join(lines)


_SAID = {
    "create": "Consortium {consortium} is there; ca.key stays on this machine.\n"
    "  Next: consortium enrol (keys made here), or consortium approve (keys made at the party).",
    "enrol": "{name} is enrolled as {role}.\n"
    "  {next}\n"
    "  Every change gives a new consortium file: all parties need the same one.",
    "request": "Keys of {name} are made and stay here. Send {request} to the consortium's authority\n"
    "  and tell it by telephone: {fingerprint}\n"
    "  Next, with what it sends back: consortium install CERTIFICATE --consortium FILE",
    "approve": "{name} is approved as {role}.\n  Send back {certificate} and, to every party, the consortium file.",
    "install": "{name} is ready: {config}",
    "rotate": "{name} has a new certificate; the old one counts too.\n"
    "  Give every party the new consortium file, restart {name}, then: consortium rotate {name} --finish",
    "finish": "The old certificate of {name} counts no more.\n  Give every party the new consortium file.",
    "remove": "{name} is out.\n  Give every party the new consortium file and restart them.",
}


def _describe_show(result: dict[str, Any]) -> str:
    lines = [f"{result['consortium']}, version {result['version']}", f"  {result['hash']}  (compare out of band)"]
    for p in result["parties"]:
        expires = f"expires {p['expires'][:10]}" if p["expires"] else ""
        state = "  two certificates: rotating" if p["rotating"] else ""
        lines.append(f"  {p['role']:<10} {p['name']:<24} {p['address'] or '-':<28} {expires}{state}".rstrip())
    lines += [] if result["parties"] else ["  nobody yet: tallystick consortium enrol"]
    return "\n".join([*lines, *(f"warning: {w}" for w in result["warnings"])])
