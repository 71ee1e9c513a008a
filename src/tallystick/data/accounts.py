"""Whose file it is: what to say when an account of this machine may not read or write it.

Roles run under an account of their own, and their folders are closed to others. Whoever types a command under another
one meets "permission denied"; the remedy is the other account's name, not a chmod.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


def account_name(uid: int) -> str:
    """The name of an account, or its number."""
    try:
        import pwd  # not on every system

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)


def may(path: Path, rights: int) -> bool:
    """Whether this process, as it is, has these rights (``os.R_OK | …``)."""
    return os.access(path, rights, effective_ids=os.access in os.supports_effective_ids)


def account_to_use(path: Path) -> str:
    """Under which account a command may use this file, as far as this one can see."""
    mine = account_name(os.geteuid())
    seen = ((place, _owner(place)) for place in (path, *path.absolute().parents))
    place, owner = next(((place, found) for place, found in seen if found is not None), (path, os.geteuid()))
    if owner == os.geteuid():
        return f"This command runs as {mine}, to whom it belongs: look at its rights with ls -ld {path}."
    name = account_name(owner)
    if owner == 0:
        return f"It belongs to root, this command runs as {mine}: if root made it by mistake, chown -R {mine} {place}."
    sudo = f"sudo -u {name if name != str(owner) else f'#{owner}'} tallystick …"
    return f"It belongs to the account {name}, this command runs as {mine}. Run it as {name}: {sudo}."


def _owner(place: Path) -> int | None:
    try:
        return place.stat().st_uid
    except OSError:
        return None


def remedy_for(error: OSError, path: Path, otherwise: str) -> str:
    """What to do about a file that could not be used: another account, if that is the reason."""
    return account_to_use(path) if isinstance(error, PermissionError) else otherwise


class Closed(NamedTuple):
    """Records that are there, and not for this account."""

    cause: str
    remedy: str


def why_closed(records: Path) -> Closed | None:
    """Why this account may not read a file of records, or one of the folders above it; None if it may, or if there is
    no such file. Records belong to somebody else as a rule: they are to be opened to this account, for reading."""
    file, mine = records.absolute(), account_name(os.geteuid())
    for place, right, wanted in (*((folder, "x", os.X_OK) for folder in reversed(file.parents)), (file, "r", os.R_OK)):
        if not may(place, os.F_OK):
            return None
        if not may(place, wanted):
            return Closed(f"may not be read by the account {mine}", f"Let it: setfacl -m u:{mine}:{right} {place}.")
    return None
