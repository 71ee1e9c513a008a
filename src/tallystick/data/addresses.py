"""How a source of records is written: the path of a file or folder, or the address of a database and what to ask it.

    records.csv                                                          a file, relative to the role's own
    sqlite:///clinic.db#patients                                         every row of a table or view
    postgresql://reader:${CLINIC_PASSWORD}@db/clinic#SELECT age, sex FROM patients

What such a text says may be kept for ever and shown to anyone: it goes into the role's file and into the ledger. So a
password is never written in it. ``${NAME}`` stands for a variable of the client's environment and is filled in when the
database is asked, in memory; a database's own means (``~/.pgpass``, a service file, peer authentication) work without.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from tallystick.core.errors import DataError, StudyError

_PLACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_KEY = re.compile(r"pass|pwd|secret|token|credential|private|apikey|api_key|access_key", re.IGNORECASE)
_SECRET_IN_VALUE = re.compile(r"(pwd|password|secret|token)\s*=", re.IGNORECASE)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*")
_TABLE = re.compile(r"[^\s()\"'`;@]+")  # an @: what is left of an address whose password was cut at a # of its own
_QUOTED = re.compile(r"'((?:[^']|'')*)'|\"[^\"]*\"|`[^`]*`")
_AMBIGUOUS = re.compile(r"--|/\*|\$|\\|#")
"""Comments and other quotes, in which an apostrophe is none: then what is within quotes is not to be told."""
_READS = ("select", "with", "table", "values")
_HOLDS_PASSWORD = "the address of the database holds a password, and addresses are kept and shown"
_USE_VARIABLE = "Write ${NAME} in its place and set the variable NAME for the client's account; or use ~/.pgpass."
_HOW = "Write postgresql://user@host/database#SELECT …, or a table's name after the #."


def is_address(source: object) -> bool:
    """Whether a source is written as an address (``postgresql://…``), not as a path."""
    return "://" in str(source)


@dataclass(frozen=True, kw_only=True)
class Address:
    """A database and the query that gives the records; no password is in it."""

    url: str
    query: str

    @property
    def text(self) -> str:
        """As it is written, in one piece."""
        return f"{self.url}#{self.query}"

    @property
    def shown(self) -> str:
        """The database alone, for messages: without user, options and query."""
        return self._bare

    @property
    def location(self) -> str:
        """How it is known again: whoever asks, by whatever driver, with whatever blanks."""
        bare = self._bare if self.sqlite_file is None else f"sqlite:///{self.sqlite_file.resolve()}"
        return f"{bare}#{' '.join(self.query.split())}"

    @property
    def _bare(self) -> str:
        if self.sqlite_file is not None:
            return f"sqlite:///{self.sqlite_file}"
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme.partition("+")[0].lower(), place.lower(), parts.path, "", ""))

    @property
    def table(self) -> tuple[str, ...] | None:
        """The parts of a table's name, where no query is written but that."""
        return tuple(self.query.split(".")) if _TABLE.fullmatch(self.query) else None

    @property
    def sqlite_file(self) -> Path | None:
        """The file of an SQLite database; None of another one."""
        parts = urlsplit(self.url)
        if parts.scheme.partition("+")[0].lower() != "sqlite":
            return None
        return Path(unquote(parts.path.removeprefix("/")))

    def filled(self) -> str:
        """The URL with the variables of the environment filled in: for the driver, and for nothing else."""
        absent = [name for name in _PLACE.findall(self.url) if name not in os.environ]
        if absent:
            raise DataError(
                f"the address of the database names the variable {absent[0]}, which is not set here",
                rule="source-address",
                remedy=f"Set {absent[0]} in the environment of this account (systemd: EnvironmentFile=).",
            )
        return _PLACE.sub(lambda found: quote(os.environ[found[1]], safe=""), self.url)

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"


def parse_address(text: str, *, query: str | None = None, folder: Path | None = None) -> Address:
    """Check how an address is written; ``query`` if it is written beside it. A refusal never repeats the address."""
    url, _, asked = text.partition("#")
    if query is not None and asked.strip():
        _refuse("the query is written twice, after the # of the address and by itself", "Keep one of them.")
    asked = (asked if query is None else query).strip().rstrip(";").strip()
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        _refuse("the address of the database cannot be read", _HOW)
    if not _SCHEME.fullmatch(parts.scheme) or not (parts.netloc or parts.path.strip("/") or options):
        _refuse("the address of the database cannot be read", _HOW)
    _check_no_secret(parts.netloc, options)
    if not asked:
        _refuse("the address of the database does not say which records", _HOW)
    if not _TABLE.fullmatch(asked) and asked.split(None, 1)[0].lower() not in _READS:
        _refuse("the query does not begin with SELECT or WITH", "Records are only ever read: write a query.")
    _check_query(asked)
    made = Address(url=url, query=asked)
    file = made.sqlite_file
    if file is not None and file.parts and not file.is_absolute():
        where = (Path.cwd() if folder is None else folder.absolute()) / file
        made = Address(
            url=f"{parts.scheme}:///{quote(str(where))}{'?' if parts.query else ''}{parts.query}", query=asked
        )
    return made


def settled_source(source: str | Path, *, query: str | None = None, folder: Path | None = None) -> str:
    """A source as it is kept: an address checked, a path made absolute (in ``folder``, or here)."""
    if is_address(source):
        return parse_address(str(source), query=query, folder=folder).text
    if query is not None:
        _refuse("a query is for a database, and the source is a file", "Leave the query out, or give an address.")
    return str((Path.cwd() if folder is None else folder).absolute() / source)


def _check_no_secret(netloc: str, options: list[tuple[str, str]]) -> None:
    """Nothing that looks like a password stands in the text itself."""
    user, _, _ = netloc.rpartition("@")
    _, colon, password = user.partition(":")
    written = bool(colon and password and not _PLACE.fullmatch(password))
    for key, value in options:
        bare = _PLACE.sub("", value)
        written |= bool(_SECRET_KEY.search(key) and bare)
        written |= any(rest.strip() for rest in _values_of_secrets(bare))
    if written:
        _refuse(_HOLDS_PASSWORD, _USE_VARIABLE)


def _check_query(query: str) -> None:
    """One statement, with no connection string among its texts: the query is kept and shown, too.

    A second statement could end the transaction that is read only, and write in another.
    """
    if any(rest.strip() for found in _QUOTED.finditer(query) for rest in _values_of_secrets(found[1] or "")):
        _refuse(_HOLDS_PASSWORD, "Let the database keep it (CREATE USER MAPPING, a view), and ask for that.")
    hidden = ";" in query and _AMBIGUOUS.search(query)
    if hidden or ";" in _QUOTED.sub("", query):
        _refuse("the query is more than one statement", "Write one query; what prepares it belongs in a view.")


def _values_of_secrets(value: str) -> list[str]:
    """What follows ``PWD=`` in an ODBC connection string."""
    return [value[found.end() :].partition(";")[0] for found in _SECRET_IN_VALUE.finditer(value)]


def _refuse(cause: str, remedy: str) -> NoReturn:
    raise StudyError(cause, rule="source-address", remedy=remedy) from None
