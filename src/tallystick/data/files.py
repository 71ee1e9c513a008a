"""Small files that people name on the command line: read whole, up to a limit, with an error that names the file."""

from __future__ import annotations

from pathlib import Path

from tallystick.core.errors import StudyError
from tallystick.data.accounts import remedy_for


def read_file(path: Path, *, limit: int, what: str = "", remedy: str = "Check the path.") -> bytes:
    """The content, of at most ``limit`` bytes: a wrong path must not fill the memory."""
    named = f"{what} {str(path)!r}".strip()
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        cause = error.strerror if isinstance(error, OSError) else "it is no path"
        remedy = remedy_for(error, path, remedy) if isinstance(error, OSError) else remedy
        raise StudyError(f"cannot read {named}: {cause}", remedy=remedy) from None
    if len(content) > limit:
        raise StudyError(f"cannot read {named}: it has more than {limit} bytes", remedy=remedy)
    return content


def read_text(path: Path, *, limit: int, what: str = "", remedy: str = "Check the path.") -> str:
    """The same for UTF-8 text; its lines end as they do here, wherever it was written."""
    try:
        text = read_file(path, limit=limit, what=what, remedy=remedy).decode("utf-8")
        return text.replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        named = f"{what} {str(path)!r}".strip()
        raise StudyError(f"cannot read {named}: it is not UTF-8 text", remedy="Save it as UTF-8.") from None
