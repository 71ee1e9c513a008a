"""Which Spark table or files a source means, as it is written in a role's file.

table:clinic.patients                    a table of the session's catalogue (Hive, Iceberg, Delta)
hdfs://…/patients, s3a://…, /srv/x       files; the format by their ending, Parquet if there is none
delta:/srv/x   orc:/srv/x   csv:/srv/x   files of that format; so iceberg:, hudi: and parquet:
postgresql://user:${PW}@host/db#SELECT … through JDBC, where its driver is on the class path
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from tallystick.core.errors import DataError
from tallystick.data.addresses import Address, is_address, parse_address, settled_source
from tallystick.engines.spark.csv_files import CsvFiles, csv_files, open_csv_files
from tallystick.engines.spark.paths import SCHEMES, split_path, suffixes
from tallystick.engines.spark.tables import refuse_table_folders

FORMATS = ("parquet", "orc", "csv", "delta", "iceberg", "hudi")
_JSON = ("json", "jsonl", "ndjson")
_PACKED = ("gz", "bz2", "zst", "lz4")
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


def settled_spark_source(source: str, *, query: str | None = None, folder: Path) -> str:
    """A source as it is kept: a path made absolute, anything else as it is written; an address checked."""
    prefix, path = _parted(source)
    if query is not None or _is_database(source):
        return settled_source(source, query=query, folder=folder)
    if prefix == "table":
        return f"table:{path}"
    if not _has_scheme(path) and not (prefix == "iceberg" and "/" not in path):  # of a catalogue's table, a name
        path = str(folder.absolute() / path)
    return f"{prefix}:{path}" if prefix else path


def location_of(source: str) -> str:
    """How a source is known again, in whichever of these ways it is written: without its format, ``file:`` and slashes
    that say nothing; an address without user and options."""
    prefix, path = _parted(source)
    if _is_database(source):
        return parse_address(source).location
    if prefix == "table":
        return f"table:{path}"
    head, place = split_path(path)
    return f"{'' if head.lower() in ('file:', 'file://') else head}{place}"


def _parted(source: str) -> tuple[str, str]:
    """(``table`` or a format, what it is of); nothing and the source itself, if neither is written before it."""
    prefix, colon, rest = source.partition(":")
    known = bool(colon) and prefix.lower() in ("table", "json", *FORMATS)
    return (prefix.lower(), rest) if known else ("", source)


def _has_scheme(path: str) -> bool:
    scheme, colon, _ = path.partition(":/")
    return is_address(path) or bool(colon and scheme.lower() in SCHEMES)


def _is_database(source: str) -> bool:
    prefix, path = _parted(source)
    return not prefix and is_address(path) and path.partition(":")[0].lower() not in SCHEMES


class Reading(NamedTuple):
    """What Spark is asked to read."""

    format: str
    path: str | None
    options: dict[str, str]


def reading_of(source: str) -> Reading:
    """How a source is read; ``table`` is the format of a table's name."""
    prefix, path = _parted(source)
    if prefix == "table":
        return Reading("table", path, {})
    if _is_database(source):
        return _jdbc(source)
    found = prefix or _format_by_name(path)
    if found == "json":
        raise DataError(
            "Spark types the columns of JSON by looking at all records, so one of them would decide about others",
            rule="spark-source",
            remedy="Write the records as Parquet, with a type for every column.",
        )
    return Reading(found, path, _options(found))


def _format_by_name(path: str) -> str:
    """By the ending of a file's or folder's name, as on one machine: ``a.csv.gz`` and ``a.tsv`` are CSV files."""
    endings = suffixes(path)
    packed = bool(endings) and endings[-1] in _PACKED
    last = endings[-2 if packed else -1 :][:1]
    if last and last[0] in FORMATS:
        return last[0]
    if "pq" in last:
        return "parquet"
    if "csv" in endings or "tsv" in endings:
        return "csv"
    return "json" if last and last[0] in _JSON else "parquet"


def _options(format: str) -> dict[str, str]:
    """Folders of Parquet files are read as one machine reads them: folders in them, too, and no column is made of a
    folder's name; and dates before 1582 as they are written, where Spark may else give up a file for one of them."""
    if format != "parquet":
        return {}
    return {"recursiveFileLookup": "true", "datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}


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
    if reading.path is None:
        return _numbers_as_text(reader)
    frame = reader.load(reading.path)
    if reading.format in ("parquet", "orc"):
        refuse_table_folders(session, reading.path, frame)
    return frame


def files_of(session: Any, source: str, names: Sequence[str]) -> CsvFiles | None:
    """A source's files, where a frame of its records does not say all that is in them; else None."""
    reading = reading_of(source)
    return csv_files(session, str(reading.path), names) if reading.format == "csv" else None


def _numbers_as_text(reader: Any) -> Any:
    """A database's decimal numbers by their digits, for Java fails at the whole table where one of them is no number or
    beyond 38 digits, and rounds others; a cell is read from its text as well."""
    frame = reader.load()
    decimals = [field.name.replace("`", "``") for field in frame.schema if field.dataType.typeName() == "decimal"]
    if not decimals:
        return frame
    return reader.option("customSchema", ", ".join(f"`{name}` STRING" for name in decimals)).load()
