"""Records in a database: one query, read with a server-side cursor, a block at a time (extra ``sql``: SQLAlchemy).

The query runs as its steward wrote it, read only. No column has a type here: every cell is what the driver gives, and
is judged by itself (:mod:`tallystick.data.object_columns`).

What a driver says when it fails may quote the statement, a cell or the address with its password, so nothing of it is
repeated but the name of the error's class and the database's own five-letter code.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from tallystick.core.errors import DataError, TallystickError
from tallystick.data.accounts import why_closed
from tallystick.data.addresses import Address
from tallystick.data.object_columns import cells_to_arrow
from tallystick.data.opened import Opened

if TYPE_CHECKING:
    import pyarrow as pa

_CODE = re.compile(r"[0-9A-Z]{5}")
_READ_AT_ONCE = 1 << 16
_LOGGED_AS = "tallystick"


def open_address(address: Address) -> Opened:
    """The records that a query gives; asks the database for the names of its columns."""
    where = f"the database {address.shown}"

    def in_blocks(columns: list[str], rows: int) -> Iterator[pa.Table]:
        with _asked(address, where, rows) as (names, fetched):
            places = [names.index(column) for column in columns]
            for block in fetched():
                yield _table([list(cells) for cells in zip(*block)], places, columns)

    def read(columns: list[str]) -> pa.Table:
        import pyarrow as pa

        cells: list[list[Any]] = [[] for _ in columns]
        with _asked(address, where, _READ_AT_ONCE) as (names, fetched):
            places = [names.index(column) for column in columns]
            for block in fetched():
                for column, place in zip(cells, places):
                    column.extend(row[place] for row in block)
        return pa.table({name: cells_to_arrow(column) for name, column in zip(columns, cells)})

    with _asked(address, where, 1) as (names, _):
        return Opened(names=names, read=read, where=where, in_blocks=in_blocks)


def _table(cells: list[list[Any]], places: list[int], columns: list[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table({name: cells_to_arrow(cells[place] if cells else []) for name, place in zip(columns, places)})


@contextmanager
def _asked(address: Address, where: str, rows: int) -> Iterator[tuple[list[str], Callable[[], Iterator[list[Any]]]]]:
    """The names of the columns, and what fetches the records in blocks; one connection, closed at the end."""
    engine = _engine(address, where)
    failed: tuple[str, str] | None = None
    try:
        with engine.connect() as connection:
            # no_parameters: the query is passed as it is; a per cent sign or a colon in it is nobody's placeholder.
            options = {"stream_results": True, "yield_per": rows, "no_parameters": True, "postgresql_readonly": True}
            asked = connection.execution_options(**options)
            result = asked.exec_driver_sql(_statement(address, engine))
            yield [str(name) for name in result.keys()], lambda: result.partitions()  # noqa: SIM118 - no mapping
    except Exception as error:
        if isinstance(error, TallystickError):
            raise
        failed = _told(error)
    finally:
        engine.dispose()
    if failed is not None:
        _fail(where, *failed)


def _engine(address: Address, where: str) -> Any:
    try:
        import sqlalchemy
        from sqlalchemy.pool import NullPool
    except ImportError:
        raise DataError(
            "records in a database are read with SQLAlchemy, which is not installed here",
            rule="extra-not-installed",
            remedy='Install it: pip install "tallystick[sql]", and the driver of your database (psycopg, pymysql, …).',
        ) from None
    named = {"logging_name": _LOGGED_AS, "pool_logging_name": _LOGGED_AS, "poolclass": NullPool}
    for logger in ("sqlalchemy.engine.Engine", "sqlalchemy.pool.impl.NullPool"):
        logging.getLogger(f"{logger}.{_LOGGED_AS}").disabled = True  # it logs a driver's errors as they are
    if address.sqlite_file is not None:
        return sqlalchemy.create_engine("sqlite://", creator=_sqlite(address, where), **named)
    url, failed = address.filled(), None
    try:
        return sqlalchemy.create_engine(url, **named)
    except (ImportError, sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        failed = error.name if isinstance(error, ImportError) else None
    scheme = address.url.partition(":")[0]
    needs = f"needs the driver {failed}" if failed else f"is no address that SQLAlchemy knows ({scheme}://…)"
    raise DataError(
        f"{where} {needs}",
        rule="source-address",
        remedy="Install the driver beside tallystick (pip install psycopg[binary] for postgresql+psycopg://), or "
        "correct the address.",
    )


def _sqlite(address: Address, where: str) -> Callable[[], sqlite3.Connection]:
    """Opens an SQLite file read only: one that is missing is not made."""
    file = address.sqlite_file
    if file is None or not file.is_file():
        if file is not None and (closed := why_closed(file)) is not None:
            raise DataError(f"{where} {closed.cause}", rule="wrong-account", remedy=closed.remedy)
        raise DataError(f"{where} does not exist", remedy="Give the path of an SQLite file: sqlite:///clinic.db#table.")

    with suppress(OSError), file.open("rb") as content:
        ahead = content.read(20)[18:] == b"\2\2"  # its writers keep what is new in a file beside it
        if ahead and not os.access(file.parent, os.W_OK) and not Path(f"{file}-shm").exists():
            raise DataError(
                f"{where} is in SQLite's WAL mode, whose readers write beside it too, and this account may not",
                rule="database",
                remedy='End that mode (sqlite3 FILE "PRAGMA journal_mode=DELETE"), give the client a copy, or let its '
                "account write to the folder.",
            )

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
        # As in a CSV file: bytes that are no UTF-8 become U+FFFD in their own cell and spoil no other.
        connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        return connection

    return connect


def _statement(address: Address, engine: Any) -> str:
    if address.table is None:
        return address.query
    quoted = engine.dialect.identifier_preparer.quote_identifier
    return f"SELECT * FROM {'.'.join(quoted(part) for part in address.table)}"


def _told(error: Exception) -> tuple[str, str]:
    """What may be repeated of a driver's error: its class and the database's own code."""
    original = getattr(error, "orig", None) or error
    codes = [getattr(original, name, None) for name in ("sqlstate", "pgcode")]
    if original.args and isinstance(original.args[0], dict):  # pg8000
        codes.append(original.args[0].get("C"))
    code = next((c for c in codes if isinstance(c, str) and _CODE.fullmatch(c)), "")
    return type(original).__name__, code


def _fail(where: str, kind: str, code: str) -> NoReturn:
    told = f"{kind}, SQLSTATE {code}" if code else kind
    raise DataError(
        f"{where} did not give the records ({told})",
        rule="database",
        remedy="Ask it the same with its own tool (psql, sqlite3) under this account: address, rights and query. "
        "Nothing of its message is repeated here, for it may quote records.",
    ) from None
