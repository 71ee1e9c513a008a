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
from contextlib import suppress
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from tallystick.application.own_records import records_of_open_studies
from tallystick.application.party_files import PartyFiles
from tallystick.application.studies.waiting import waiting
from tallystick.core.errors import TallystickError
from tallystick.core.version import __version__
from tallystick.crypto.certificates import certificate_facts
from tallystick.data.accounts import account_to_use, remedy_for
from tallystick.data.addresses import parse_address
from tallystick.data.sources import column_names
from tallystick.roles.identity.consortium import Consortium, dials
from tallystick.roles.identity.handshake import handshake, port_state
from tallystick.roles.identity.identity_files import (
    ANOTHERS,
    Identity,
    expiry_warning,
    key_file_problem,
    load_identity,
    read_consortium,
    read_private,
    wall_clock,
)
from tallystick.roles.identity.role_config import RoleConfig, load_role_config
from tallystick.roles.ledger.store import LEDGER
from tallystick.roles.steward.delivery import Waiting, deliver
from tallystick.study.trust import DEFAULT_TRUST, registered

OK, WARNING, PROBLEM = "ok", "warning", "problem"
_LEAST_DISK, _ENOUGH_DISK = 100 << 20, 2 << 30
_LIBRARIES = ("cryptography", "grpcio", "numpy", "numba", "pyarrow", "polars")
_COLUMNS_SHOWN = 40
_MARKS = {OK: "ok     ", WARNING: "look   ", PROBLEM: "PROBLEM"}


class Finding(NamedTuple):
    """One thing looked at."""

    check: str
    status: str
    what: str
    remedy: str | None = None


def _failed(check: str, error: TallystickError) -> Finding:
    return Finding(check, PROBLEM, error.cause, error.remedy)


def _looking(check: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Findings, and what kept us from looking further."""
    try:
        yield from findings
    except TallystickError as error:
        yield _failed(check, error)


def examine(
    path: str | Path, *, now: datetime | None = None, timeout: float = 3.0, test_notice: bool = False
) -> dict[str, Any]:
    """All findings for the role of this config file; ``ok`` is False if any of them is a problem. ``test_notice``: the
    steward is told of a study that does not exist."""
    findings = [_versions()]
    config: RoleConfig | None = None
    try:
        config = load_role_config(path)
        findings.append(Finding("config", OK, f"{config.role} {config.name}"))
    except TallystickError as error:
        findings.append(_failed("config", error))
    if config is not None:
        findings += _role(config, now or wall_clock(), timeout)
        findings += _looking("notify", _test_notice(config)) if test_notice else ()
    return {
        "ok": all(f.status != PROBLEM for f in findings),
        "party": config and config.name,
        "role": config and config.role,
        "config": str(path),
        "version": __version__,
        "findings": [f._asdict() for f in findings],
    }


def _test_notice(config: RoleConfig) -> Iterator[Finding]:
    if config.notify is None:
        remedy = "Say under [notify] in the role file of a client how its steward is told."
        yield Finding("notify", PROBLEM, "nobody is told of a waiting study", remedy)
        return
    test = Waiting(name="a test of [notify]: no study waits", hash=f"sha256:{'0' * 64}", analyst="nobody", epsilon="0")
    deliver(config.notify, config.name, [test])
    yield Finding("notify", OK, f"a test was sent to {config.notify.words}")


def _role(config: RoleConfig, now: datetime, timeout: float) -> Iterator[Finding]:
    yield from _key_files(config)
    consortium, identity = None, None
    try:
        consortium = read_consortium(config.consortium)
        yield Finding("consortium", OK, f"{consortium.name}, version {consortium.version}, {consortium.printed_hash}")
        identity = load_identity(config, consortium, now)
    except TallystickError as error:
        yield _failed("consortium" if consortium is None else "certificate", error)
    yield _clock(config, consortium, now)
    if consortium is not None and identity is not None:
        yield from _certificate(identity, now)
        yield from _connections(config, consortium, timeout)
    yield from _state(config)
    yield from _looking("data", _data(config))
    if consortium is not None:
        with PartyFiles(config, consortium) as files:
            yield from _looking("records", _records(files))
            yield from _looking("notify", _notify(config))
            if identity is not None:
                files.identity = identity
                yield from _looking("ledger", _ledger(files))
                yield from _looking("waiting", _waiting(files))


def _versions() -> Finding:
    found = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    return Finding("versions", OK, f"tallystick {__version__}, Python {platform.python_version()}, {', '.join(found)}")


def _key_files(config: RoleConfig) -> Iterator[Finding]:
    for label, path in (("TLS key", config.key), ("identity key", config.identity)):
        try:
            problem = key_file_problem(path.stat())
        except OSError as error:
            remedy = remedy_for(error, path, "Check the path in [role]; keys are made by consortium request or enrol.")
            yield Finding("keys", PROBLEM, f"{label} {path}: {error.strerror}", remedy)
            continue
        if problem == ANOTHERS:
            yield Finding("keys", PROBLEM, f"{label} {path} {problem}", account_to_use(path))
        elif problem:
            remedy = "Make a new key (consortium rotate): others could have read this one. Keep key files 0600."
            yield Finding("keys", PROBLEM, f"{label} {path} {problem}", remedy)
        else:
            yield Finding("keys", OK, f"{label} {path.name}, mode 0600")


def _certificate(identity: Identity, now: datetime) -> Iterator[Finding]:
    facts = identity.facts
    until = f"until {facts.not_after:%Y-%m-%d}"
    yield Finding("certificate", OK, f"{facts.fingerprint}, pinned, issued by {facts.issuer}, {until}")
    warning = expiry_warning(identity.certificate, now)
    if warning:
        remedy = "Renew now: tallystick consortium rotate, then approve, install and restart."
        yield Finding("certificate", WARNING, warning.partition(". ")[0], remedy)


def _clock(config: RoleConfig, consortium: Consortium | None, now: datetime) -> Finding:
    remedy = "Set the clock, best by NTP (systemd-timesyncd or chrony); certificates tolerate 5 minutes."
    said = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if consortium is not None and now < certificate_facts(consortium.ca_certificate).not_before:
        return Finding(
            "clock", PROBLEM, f"the clock says {now:%Y-%m-%d %H:%M} UTC, before the consortium existed", remedy
        )
    if _newest(config) > now.timestamp() + timedelta(minutes=5).total_seconds():
        return Finding("clock", WARNING, "a file of this role is dated in the future: the clock went back", remedy)
    if _unsynchronised():
        return Finding("clock", WARNING, f"{said}; the kernel says the clock is not synchronised", remedy)
    return Finding("clock", OK, said)


def _newest(config: RoleConfig) -> float:
    times = [0.0]
    for path in (config.path, config.certificate, config.consortium, config.state):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


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
        yield Finding("metrics", WARNING, f"{config.metrics} is in use or cannot be bound", remedy)
    others = dials(consortium, config.name)
    for role in _missing_roles(consortium):
        remedy = "Enrol one and distribute the new consortium file."
        yield Finding("consortium", WARNING, f"there is no {role} yet", remedy)
    if not others:
        return
    with ThreadPoolExecutor(max_workers=min(16, len(others))) as pool:
        reached = pool.map(lambda p: handshake(p.address or "", p, consortium, config, timeout), others)
        for party, result in zip(others, reached, strict=True):
            what = f"{party.role} {party.name} at {party.address}: {result.what}"
            yield Finding("reach", OK if result.fine else PROBLEM, what, result.remedy)


def _missing_roles(consortium: Consortium) -> list[str]:
    """What the trust model that this consortium is nearest to still lacks; nothing, if it has all parties of one."""
    roles = {model.name: (model.coordinator, *model.helpers) for model in registered()}
    missing = {name: [role for role in of if not consortium.by_role(role)] for name, of in roles.items()}
    there = {name: len(of) - len(missing[name]) for name, of in roles.items()}
    if not all(missing.values()):
        return []
    return missing[max(roles, key=lambda name: (there[name], name == DEFAULT_TRUST))]


def _listening(config: RoleConfig, consortium: Consortium, timeout: float) -> Finding:
    listen = config.listen or ""
    state = port_state(listen)
    if state == "free":
        return Finding("listen", OK, f"{listen} is free")
    if state == "in use":
        if handshake(listen, consortium.party(config.name), consortium, config, timeout).fine:
            return Finding("listen", OK, f"{listen}: this role is running")
        remedy = "Stop what listens there, or change [role] listen and this party's address."
        return Finding("listen", PROBLEM, f"{listen} is taken by another program", remedy)
    remedy = "Listen on an address of this machine (0.0.0.0 for all), at a port above 1023."
    return Finding("listen", PROBLEM, f"cannot listen on {listen}: {state}", remedy)


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
        remedy = remedy_for(
            error, folder, "Make it a folder that this role's account may write, or change [role] state."
        )
        yield Finding("state", PROBLEM, f"{folder}: {error.strerror}", remedy)
        return
    what = f"{folder} is writable, {free / 2**30:.1f} GiB free"
    if free < _ENOUGH_DISK:
        remedy = "Free some space: a server keeps 8 bytes per entry and client of a round."
        yield Finding("state", PROBLEM if free < _LEAST_DISK else WARNING, what, remedy)
    else:
        yield Finding("state", OK, what)
    if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        yield Finding("state", WARNING, f"{folder} is open to other users", f"chmod 700 {folder}")


def _ledger(files: PartyFiles) -> Iterator[Finding]:
    if not files.config.holds_records or not (files.config.state / LEDGER).exists():
        return
    with files.ledger() as ledger:
        files.check_ledger(ledger)
    yield Finding("ledger", OK, "every link and signature is in order, as far as is known here")


def _data(config: RoleConfig) -> Iterator[Finding]:
    if config.data is None:
        return
    if config.spark is not None:
        yield Finding("data", OK, "the records are with Spark, which is not asked here: tallystick data check STUDY")
        return
    columns = column_names(config.data)
    shown = ", ".join(ascii(c)[1:-1] for c in columns[:_COLUMNS_SHOWN])
    more = f" and {len(columns) - _COLUMNS_SHOWN} more" if len(columns) > _COLUMNS_SHOWN else ""
    named = config.data.name if isinstance(config.data, Path) else parse_address(config.data).shown
    yield Finding("data", OK, f"{named} opens, columns: {shown}{more}")


def _records(files: PartyFiles) -> Iterator[Finding]:
    for name, found in records_of_open_studies(files):
        remedy = f"tallystick data check {name!a} shows it column by column; nobody outside can tell which or how many."
        what = f"study {ascii(name)[1:-1]}: {found.words}"
        yield Finding("records", OK, what) if found.fine else Finding("records", WARNING, what, remedy)


def _waiting(files: PartyFiles) -> Iterator[Finding]:
    """A study that waits for a person waits until somebody looks: here at the latest."""
    if not files.config.holds_records or not (files.config.state / LEDGER).exists():
        return
    found = [one["study"] for one in waiting(files)]
    if not found:
        yield Finding("waiting", OK, "no study waits for a decision")
        return
    shown = ", ".join(f"{one['name']} ({one['hash'].removeprefix('sha256:')[:12]})" for one in found[:_COLUMNS_SHOWN])
    count = "1 study waits" if len(found) == 1 else f"{len(found)} studies wait"
    yield Finding("waiting", WARNING, f"{count} for a decision: {shown}", "Read it and decide: tallystick study show.")


def _notify(config: RoleConfig) -> Iterator[Finding]:
    """How the steward is told, as far as can be seen without telling."""
    notify = config.notify
    if not config.holds_records or notify is None:
        return
    if notify.command and shutil.which(notify.command[0]) is None:
        remedy = "Write the path of a program that this account may run under [notify] command."
        yield Finding("notify", PROBLEM, f"there is no command {notify.command[0]}", remedy)
        return
    if notify.smtp_password is not None:
        read_private(notify.smtp_password)
    yield Finding("notify", OK, f"a waiting study is told to {notify.words}; try it: doctor --test-notice")


def describe(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{report['role']} {report['party']}" if report["party"] else str(report["config"])]
    for f in report["findings"]:
        lines.append(f"  {_MARKS[f['status']]} {f['check']:<12} {f['what']}")
        lines += [f"{'':>23}{f['remedy']}"] if f["remedy"] else []
    statuses = [f["status"] for f in report["findings"]]
    problems = statuses.count(PROBLEM)
    verdict = f"{problems} problem(s) to solve first" if problems else "fit to run"
    return "\n".join([*lines, f"{verdict}, {statuses.count(WARNING)} warning(s)"])
