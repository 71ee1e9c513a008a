"""A file that the account of a command may not use, wherever in a command that was found out."""

from __future__ import annotations

from pathlib import Path

from tallystick.core.errors import StudyError
from tallystick.data.accounts import account_to_use


def denied(error: PermissionError) -> StudyError:
    """The typed form: which file, and the account to use."""
    path = Path(str(error.filename or "."))
    return StudyError(f"{path}: permission denied", rule="wrong-account", remedy=account_to_use(path))
