"""What Spark says when it fails, told in our words: its own may quote records."""

from __future__ import annotations

import re

from tallystick.engines.spark.sources import DRIVERS

STOPPED = "stopped SparkContext"
JAVA_EXITED = "JAVA_GATEWAY_EXITED"
KNOWN = {
    "PYTHON_VERSION_MISMATCH": (
        "spark-versions",
        "Spark's executors run another Python than this process",
        "Set PYSPARK_PYTHON to the same version of Python on every worker.",
    ),
    "DATA_SOURCE_NOT_FOUND": (
        "spark-source",
        "Spark has no package here for records of this format",
        'Name it in [spark] conf: "spark.jars.packages" = "io.delta:delta-spark_2.13:…", or, where the cluster has no '
        'network, "spark.jars" = the files that it consists of.',
    ),
    "No suitable driver": (
        "spark-source",
        "Spark has no driver here for this database",
        'Name its file in [spark] conf: "spark.jars" = "/usr/share/java/postgresql.jar".',
    ),
    "PATH_NOT_FOUND": (
        "spark-source",
        "Spark sees no such file or folder",
        "Correct [data] source: a path under which every executor sees the records, with the format before it where "
        'its name does not say it ("orc:/srv/x"; also csv, delta, iceberg, hudi, parquet), or "table:NAME".',
    ),
    **dict.fromkeys(
        ("AccessControlException", "Permission denied", "AccessDenied"),
        (
            "spark-source",
            "Spark's account may not read these records",
            "Let it, for reading: the executors' account, and that of this process, which looks at the files' names.",
        ),
    ),
    **dict.fromkeys(
        ("FAILED_READ_FILE", "Relative path in absolute URI"),
        (
            "spark-source",
            "Spark cannot read one of the files",
            "Look for one that is half written, was replaced while it was read, has other types than the first, or has "
            "a colon in its name, which Hadoop does not read. Name a table, or a snapshot that nobody writes to.",
        ),
    ),
    "CSV_UNREADABLE": (
        "spark-source",
        "a CSV file there cannot be read: it is not packed as its ending says, or ends too early",
        "Write it again.",
    ),
    "COLUMN_ALREADY_EXISTS": (
        "spark-source",
        "Spark sees two columns of one name there (capitals do not tell columns apart)",
        "Rename one of them, or read the records without Spark.",
    ),
    "CSV_HEADERS_DIFFER": (
        "spark-source",
        "the CSV files of this folder do not begin with the same line of names",
        "Write the folder anew, with the same columns in the same order in every file.",
    ),
    "TABLE_OR_VIEW_NOT_FOUND": (
        "spark-source",
        "Spark's catalogue has no such table",
        "Correct [data] source; [spark] conf says which catalogue is asked (spark.sql.catalogImplementation, …).",
    ),
}
_ENDED = (
    "spark-session",
    "Spark has ended its session: no master of this version answers there, something else listens on its port, or it "
    "has taken the application away",
    "Look at [spark] master, its host and port, and at the master's own log. A role makes a new session in the next "
    "round; in a notebook make one, and the frames, anew.",
)
KNOWN |= dict.fromkeys((STOPPED, "SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED"), _ENDED)
KNOWN["BindException"] = (
    "spark-session",
    "Spark cannot listen where it is told to: another process has that port, or this machine has no such address",
    "Leave spark.driver.port and spark.blockManager.port out of [spark] conf, or name free ones; "
    "spark.driver.bindAddress is an address of this machine.",
)
KNOWN |= {f"ClassNotFoundException: {driver}": KNOWN["No suitable driver"] for driver in DRIVERS.values()}
"""What of Spark's own words is recognised: the rule, and what is said instead."""
_ERROR_CLASS = re.compile(rf"\b({'|'.join(map(re.escape, KNOWN))}|{JAVA_EXITED})\b")


def kind_of(error: Exception) -> str:
    """One of :data:`KNOWN`, if it is said; else the error's class."""
    found = _ERROR_CLASS.search(str(error))
    return found[1] if found else type(error).__name__


def reason_of(error: Exception) -> str:
    """The first line of what Java says: only while a session is made, when no record has been read."""
    try:
        said = str(error.java_exception.getMessage())  # type: ignore[attr-defined]
    except Exception:
        return ""
    return f": {said.strip().splitlines()[0][:200]}" if said.strip() else ""
