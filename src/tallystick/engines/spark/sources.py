"""Which Spark table or files a source means, as it is written in a role's file.

table:clinic.patients                    a table of the session's catalogue (Hive, Iceberg, Delta)
hdfs://…/patients, s3a://…, /srv/x       files; the format by their ending, Parquet if there is none
delta:/srv/x   orc:/srv/x   csv:/srv/x   files of that format
postgresql://user:${PW}@host/db#SELECT … through JDBC, where its driver is on the class path
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tallystick.core.errors import DataError
from tallystick.data.addresses import Address, is_address, parse_address, settled_source
from tallystick.engines.spark.csv_files import csv_contents, open_csv_files

FORMATS = ("parquet", "orc", "csv", "delta", "iceberg")
_ROWS_AT_ONCE = "10000"
"""From a database: PostgreSQL's driver would else take a whole table into memory."""
DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mssql": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
}
"""Java looks for a driver by itself only where Spark was installed, not in the files that ``spark.jars`` names."""
_FILES = ("hdfs", "s3", "s3a", "gs", "abfs", "abfss", "wasbs", "file", "dbfs", "viewfs")


def settled_spark_source(source: str, *, query: str | None = None, folder: Path) -> str:
    """A source as it is kept: a path made absolute, anything else as it is written; an address checked."""
    prefix, colon, _ = source.partition(":")
    if query is not None or (is_address(source) and prefix.lower() not in _FILES):
        return settled_source(source, query=query, folder=folder)
    if colon and (prefix == "table" or prefix in FORMATS or is_address(source)):
        return source
    return str(folder.absolute() / source)


class Reading(NamedTuple):
    """What Spark is asked to read."""

    format: str
    path: str | None
    options: dict[str, str]


def reading_of(source: str) -> Reading:
    """How a source is read; ``table`` is the format of a table's name."""
    prefix, colon, rest = source.partition(":")
    ending = source.rstrip("/").rpartition(".")[2].lower()
    if (colon and prefix == "json") or (ending == "json" and not is_address(source)):
        raise DataError(
            "Spark types the columns of JSON by looking at all records, so one of them would decide about others",
            rule="spark-source",
            remedy="Write the records as Parquet, with a type for every column.",
        )
    if colon and prefix == "table":
        return Reading("table", rest, {})
    if colon and prefix in FORMATS:
        return Reading(prefix, rest, _options(prefix))
    if is_address(source) and prefix.lower() not in _FILES:
        return _jdbc(source)
    found = ending if ending in FORMATS else "parquet"
    return Reading(found, source, _options(found))


def _options(format: str) -> dict[str, str]:
    """Folders of Parquet files are read as one machine reads them: folders in them, too, and no column is made of a
    folder's name."""
    return {"recursiveFileLookup": "true"} if format == "parquet" else {}


def _jdbc(source: str) -> Reading:
    """The address as a driver of Java reads it; what it asks of the connection (``?sslmode=…``) goes with it."""
    address = parse_address(source)
    parts = urlsplit(address.filled())
    user, _, place = parts.netloc.rpartition("@")
    name, _, word = user.partition(":")
    dialect = parts.scheme.partition("+")[0].lower()
    options = {
        "url": f"jdbc:{dialect}://{place}{parts.path}{'?' if parts.query else ''}{parts.query}",
        "fetchsize": _ROWS_AT_ONCE,
        **({"driver": DRIVERS[dialect]} if dialect in DRIVERS else {}),
        **({"readOnly": "true"} if dialect == "postgresql" else {}),
        **_asked(dialect, address),
    }
    named = {"user": unquote(name), "password": unquote(word)}
    return Reading("jdbc", None, options | {key: value for key, value in named.items() if value})


def _asked(dialect: str, address: Address) -> dict[str, str]:
    """A table or a query. Spark puts a query within brackets, before which a comment at its end must end."""
    if address.table is not None:
        return {"dbtable": _table(dialect, address.table)}
    return {"dbtable": f"({address.query}\n) records"} if "--" in address.query else {"query": address.query}


def _table(dialect: str, parts: tuple[str, ...]) -> str:
    """A table's name, quoted as in an address that is read without Spark, where it is known how."""
    return ".".join(f'"{part}"' for part in parts) if dialect == "postgresql" else ".".join(parts)


def open_frame(session: Any, source: str) -> Any:
    """The DataFrame of a source."""
    reading = reading_of(source)
    if reading.format == "table":
        return session.table(reading.path)
    if reading.format == "csv":
        return open_csv_files(session, str(reading.path))
    reader = session.read.format(reading.format).options(**reading.options)
    return reader.load(reading.path) if reading.path is not None else _numbers_as_text(reader)


def contents_of(session: Any, source: str) -> Any:
    """The digests of a source's files, where its records alone do not say all that is in them; else None."""
    reading = reading_of(source)
    return csv_contents(session, str(reading.path)) if reading.format == "csv" else None


def _numbers_as_text(reader: Any) -> Any:
    """A database's decimal numbers by their digits, for Java fails at the whole table where one of them is no number or
    beyond 38 digits, and rounds others; a cell is read from its text as well."""
    frame = reader.load()
    decimals = [field.name.replace("`", "``") for field in frame.schema if field.dataType.typeName() == "decimal"]
    if not decimals:
        return frame
    return reader.option("customSchema", ", ".join(f"`{name}` STRING" for name in decimals)).load()
