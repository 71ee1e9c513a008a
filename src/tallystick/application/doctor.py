"""``tallystick doctor``: what would go wrong if this role started now, and what to do about each.

Findings are ``ok``, ``warning`` (it runs, look at it) or ``problem`` (it does not, or not safely). Everything is
looked at with the role's own files and certificate, nothing is changed and nothing but TLS handshakes leaves the
machine. Column names, and how many records the studies at hand could use, are told on this screen only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

from tallystick.application.ledger_check import check_own_ledger
from tallystick.core.errors import TallystickError
from tallystick.core.version import __version__
from tallystick.crypto.certificates import certificate_facts
from tallystick.roles.identity.consortium import Consortium, dials
from tallystick.roles.identity.handshake import Reached, handshake, port_state
from tallystick.roles.identity.identity_files import (
    Identity,
    expiry_warning,
    key_file_problem,
    load_identity,
    read_consortium,
)
from tallystick.roles.identity.role_config import RoleConfig, load_role_config
from tallystick.roles.ledger.store import LEDGER, LedgerStore

__all__ = ["Finding", "examine"]

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_LEAST_DISK, _ENOUGH_DISK = 100 << 20, 2 << 30
_LIBRARIES = ("cryptography", "grpcio", "numpy", "numba", "pyarrow", "polars")
_COLUMNS_SHOWN = 40


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at."""

    check: str
    status: str
    what: str
    remedy: str | None = None


def examine(path: str | Path, *, now: datetime, timeout: float = 3.0) -> dict[str, Any]:
    """All findings for the role of this config file; ``ok`` is False if any of them is a problem."""
    findings = list(_versions())
    config: RoleConfig | None = None
    try:
        config = load_role_config(path)
        findings.append(Finding(check="config", status=OK, what=f"{config.role} {config.name}"))
    except TallystickError as error:
        findings.append(_problem("config", error))
    if config is not None:
        findings += _key_files(config)
        consortium, identity = None, None
        try:
            consortium = read_consortium(config.consortium)
            what = f"{consortium.name}, version {consortium.version}, {consortium.printed_hash}"
            findings.append(Finding(check="consortium", status=OK, what=what))
            identity = load_identity(config, consortium, now)
        except TallystickError as error:
            findings.append(_problem("consortium" if consortium is None else "certificate", error))
        findings += _clock(config, consortium, now)
        if consortium is not None and identity is not None:
            findings += _certificate(identity, now)
            findings += _connections(config, consortium, timeout)
        findings += _state(config)
        findings += _data(config)
        if consortium is not None:
            findings += _records(config, consortium)
        if consortium is not None and identity is not None:
            findings += _ledger(config, consortium, identity)
    return {
        "ok": all(f.status != PROBLEM for f in findings),
        "party": config and config.name,
        "role": config and config.role,
        "config": str(path),
        "version": __version__,
        "findings": [asdict(f) for f in findings],
    }


def _problem(check: str, error: TallystickError) -> Finding:
    return Finding(check=check, status=PROBLEM, what=error.cause, remedy=error.remedy)


def _versions() -> Iterator[Finding]:
    found = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    what = f"tallystick {__version__}, Python {platform.python_version()}, {', '.join(found)}"
    yield Finding(check="versions", status=OK, what=what)


def _key_files(config: RoleConfig) -> Iterator[Finding]:
    for label, path in (("TLS key", config.key), ("identity key", config.identity)):
        try:
            problem = key_file_problem(path.stat())
        except OSError as error:
            remedy = "Check the path in [role]; keys are made by consortium request or enrol."
            yield Finding(check="keys", status=PROBLEM, what=f"{label} {path}: {error.strerror}", remedy=remedy)
            continue
        if problem:
            remedy = "Make a new key (consortium rotate): others could have read this one. Keep key files 0600."
            yield Finding(check="keys", status=PROBLEM, what=f"{label} {path} {problem}", remedy=remedy)
        else:
            yield Finding(check="keys", status=OK, what=f"{label} {path.name}, mode 0600")


def _certificate(identity: Identity, now: datetime) -> Iterator[Finding]:
    facts = identity.facts
    what = f"{facts.fingerprint}, pinned, issued by {facts.issuer}, until {facts.not_after:%Y-%m-%d}"
    yield Finding(check="certificate", status=OK, what=what)
    warning = expiry_warning(identity.certificate, now)
    if warning:
        remedy = "Renew now: tallystick consortium rotate, then approve, install and restart."
        yield Finding(check="certificate", status=WARNING, what=warning.partition(". ")[0], remedy=remedy)


def _clock(config: RoleConfig, consortium: Consortium | None, now: datetime) -> Iterator[Finding]:
    remedy = "Set the clock, best by NTP (systemd-timesyncd or chrony); certificates tolerate 5 minutes."
    earliest = certificate_facts(consortium.ca_certificate).not_before if consortium else None
    if earliest is not None and now < earliest:
        what = f"the clock says {now:%Y-%m-%d %H:%M} UTC, before the consortium existed"
        yield Finding(check="clock", status=PROBLEM, what=what, remedy=remedy)
        return
    newest = _newest(config)
    if newest is not None and newest > now.timestamp() + timedelta(minutes=5).total_seconds():
        what = "a file of this role is dated in the future: the clock went back"
        yield Finding(check="clock", status=WARNING, what=what, remedy=remedy)
    elif _unsynchronised():
        what = f"{now:%Y-%m-%d %H:%M:%S} UTC; the kernel says the clock is not synchronised"
        yield Finding(check="clock", status=WARNING, what=what, remedy=remedy)
    else:
        yield Finding(check="clock", status=OK, what=f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _newest(config: RoleConfig) -> float | None:
    times = []
    for path in (config.path, config.certificate, config.consortium, config.state):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def _unsynchronised() -> bool:
    """Linux: adjtimex(2) without changing anything returns TIME_ERROR (5) while no daemon keeps the clock."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512))) == 5
    except (OSError, AttributeError):
        return False


def _connections(config: RoleConfig, consortium: Consortium, timeout: float) -> Iterator[Finding]:
    if config.listen is not None:
        yield _listening(config, consortium, timeout)
    if config.metrics is not None and port_state(config.metrics) != "free":
        remedy = "If it is not this role that is running: change [metrics] listen."
        what = f"{config.metrics} is in use or cannot be bound"
        yield Finding(check="metrics", status=WARNING, what=what, remedy=remedy)
    others = dials(consortium, config.name)
    for role in ("aggregator", "server"):
        if not consortium.by_role(role):
            remedy = "Enrol one and distribute the new consortium file."
            yield Finding(check="consortium", status=WARNING, what=f"there is no {role} yet", remedy=remedy)
    if not others:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(others))) as pool:
        reached = pool.map(lambda p: handshake(p.address or "", p, consortium, config, timeout), others)
        for party, result in zip(others, reached, strict=True):
            what = f"{party.role} {party.name} at {party.address}: {result.what}"
            status = OK if result.fine else PROBLEM
            yield Finding(check="reach", status=status, what=what, remedy=result.remedy)


def _listening(config: RoleConfig, consortium: Consortium, timeout: float) -> Finding:
    listen = config.listen or ""
    state = port_state(listen)
    if state == "free":
        return Finding(check="listen", status=OK, what=f"{listen} is free")
    if state == "in use":
        me = consortium.party(config.name)
        answer: Reached = handshake(listen, me, consortium, config, timeout)
        if answer.fine:
            return Finding(check="listen", status=OK, what=f"{listen}: this role is running")
        remedy = "Stop what listens there, or change [role] listen and this party's address."
        return Finding(check="listen", status=PROBLEM, what=f"{listen} is taken by another program", remedy=remedy)
    remedy = "Listen on an address of this machine (0.0.0.0 for all), at a port above 1023."
    return Finding(check="listen", status=PROBLEM, what=f"cannot listen on {listen}: {state}", remedy=remedy)


def _state(config: RoleConfig) -> Iterator[Finding]:
    folder = config.state
    there = next(p for p in (folder, *folder.parents) if p.exists())
    try:
        if not there.is_dir():
            raise NotADirectoryError(20, "not a folder")
        with tempfile.TemporaryFile(dir=there) as probe:
            probe.write(b"doctor")
            probe.flush()
            os.fsync(probe.fileno())
        free = shutil.disk_usage(there).free
    except OSError as error:
        remedy = "Make the folder writable for the user this role runs as, or change [role] state."
        yield Finding(check="state", status=PROBLEM, what=f"{folder}: {error.strerror}", remedy=remedy)
        return
    what = f"{folder} is writable, {free / 2**30:.1f} GiB free"
    if free < _ENOUGH_DISK:
        status = PROBLEM if free < _LEAST_DISK else WARNING
        remedy = "Free some space: a server keeps 8 bytes per entry and client of a round."
        yield Finding(check="state", status=status, what=what, remedy=remedy)
    else:
        yield Finding(check="state", status=OK, what=what)
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        remedy = f"chmod 700 {folder}"
        yield Finding(check="state", status=WARNING, what=f"{folder} is open to other users", remedy=remedy)


def _ledger(config: RoleConfig, consortium: Consortium, identity: Identity) -> Iterator[Finding]:
    path = config.state / LEDGER
    if config.role != "client" or not path.exists():
        return
    try:
        with LedgerStore(path, party=config.name, signing=identity.signing) as ledger:
            check_own_ledger(ledger, config, consortium)
    except TallystickError as error:
        yield _problem("ledger", error)
        return
    yield Finding(check="ledger", status=OK, what="every link and signature is in order, as far as is known here")


def _data(config: RoleConfig) -> Iterator[Finding]:
    if config.data is None:
        return
    from tallystick.data.sources import column_names

    try:
        columns = column_names(config.data)
    except TallystickError as error:
        yield _problem("data", error)
        return
    shown = ", ".join(ascii(c)[1:-1] for c in columns[:_COLUMNS_SHOWN])
    more = f" and {len(columns) - _COLUMNS_SHOWN} more" if len(columns) > _COLUMNS_SHOWN else ""
    yield Finding(check="data", status=OK, what=f"{config.data.name} opens, columns: {shown}{more}")


def _records(config: RoleConfig, consortium: Consortium) -> Iterator[Finding]:
    from tallystick.application.own_records import records_of_open_studies

    remedy = "Correct the cells, or leave them: such records add zeros, and nobody outside can tell which or how many."
    try:
        for name, found in records_of_open_studies(config, consortium):
            what = f"study {ascii(name)[1:-1]}: {found.words}"
            if found.fine:
                yield Finding(check="records", status=OK, what=what)
            else:
                yield Finding(check="records", status=WARNING, what=what, remedy=remedy)
    except TallystickError as error:
        yield _problem("records", error)
