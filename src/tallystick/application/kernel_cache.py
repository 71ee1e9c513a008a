"""Where compiled kernels are kept: beside the package or in the account's cache; else in the state folder or nowhere.

numba writes what it has compiled to disk, and refuses to work at all where it finds no place for it: an account without
a home, a package that only root may write. Whoever begins with tallystick (a command, ``import tallystick``) comes here
first. What is kept is *run* when it is read again: so a folder is used only if it is this account's own and nobody
else may write it, also one that the environment names (a shared /tmp/numba, a HOME that others may write).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tallystick.core.errors import StudyError
from tallystick.core.outside_text import TOML_BYTES, NotReadable, read_toml
from tallystick.data.accounts import may

_SETTING = "NUMBA_CACHE_DIR"
_PACKAGE = Path(__file__).parents[1] / "crypto"  # one of the folders whose functions are compiled


def keep_kernels(config: Path | None = None) -> None:
    """Let numba find a place it can write, for this process and those it starts; ``config`` is a party's role file."""
    given = os.environ.get(_SETTING)
    if given and _writable(Path(given)) and _own(Path(given)):
        return
    os.environ.pop(_SETTING, None)
    if _package_is_writable() or _account_cache_is_writable():
        return
    state = _state_of(config)
    if state is not None and _own(state) and _writable(state / "kernels") and _own(state / "kernels"):
        os.environ[_SETTING] = str(state / "kernels")
        return
    try:
        scratch = tempfile.mkdtemp(prefix="tallystick-kernels-")
    except OSError:
        raise StudyError(
            "there is no folder in which this account may write: compiled code has no place",
            rule="no-place-to-write",
            remedy="Set TMPDIR or NUMBA_CACHE_DIR to a folder of this account's own.",
        ) from None
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    os.environ[_SETTING] = scratch


def _package_is_writable() -> bool:
    compiled = _PACKAGE / "__pycache__"
    return may(compiled if compiled.exists() else _PACKAGE, os.W_OK)


def _account_cache_is_writable() -> bool:
    """Where numba itself would look; an account without a home has none."""
    usual = "~/Library/Caches" if sys.platform == "darwin" else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(os.path.expanduser(usual)) / "numba"  # noqa: PTH111 - Path's own raises where there is no home
    return folder.is_absolute() and _writable(folder) and _own(folder)


def _writable(folder: Path) -> bool:
    """Whether this account may write there, having made the folder if need be."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return may(folder, os.W_OK)


def _own(folder: Path) -> bool:
    try:
        found = folder.stat()
    except OSError:
        return False
    others = 0o002 if found.st_gid == found.st_uid else 0o022  # a group of this account's own is nobody else
    return found.st_uid == os.geteuid() and not found.st_mode & others


def _state_of(config: Path | None) -> Path | None:
    """The state folder that a role file names; None if there is none to be found."""
    try:
        with (config or Path("role.toml")).absolute().open("rb") as file:
            state: str = read_toml(file.read(TOML_BYTES).decode("utf-8"))["role"]["state"]
        return (Path(file.name).parent / state).resolve()
    except (OSError, ValueError, KeyError, TypeError, NotReadable):
        return None
