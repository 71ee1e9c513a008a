"""A Spark session: one that is there already, or one made from the role's file; and whether its executors fit.

What goes wrong in a cluster is told in our words: no PySpark, no Java, another version of tallystick or Python on the
executors, no executor at all, a job that failed. Spark's own messages may quote records and are not repeated.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import tallystick
from tallystick.core.errors import DataError, TallystickError
from tallystick.engines.spark.sources import DRIVERS
from tallystick.engines.spark.watching import Watch

if TYPE_CHECKING:
    import pyarrow as pa

_Answer = TypeVar("_Answer")
WITHOUT_EXECUTORS_SECONDS = 300.0
"""For so long a job waits for somebody to work on it: a cluster that is full would else hold a round up for ever."""
_KNOWN = {
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
    "PATH_NOT_FOUND": ("spark-source", "Spark sees no such file or folder", "Correct [data] source."),
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
_KNOWN |= {f"ClassNotFoundException: {driver}": _KNOWN["No suitable driver"] for driver in DRIVERS.values()}
"""What of Spark's own words is recognised: the rule, and what is said instead."""
_ERROR_CLASS = re.compile(rf"\b({'|'.join(map(re.escape, _KNOWN))}|JAVA_GATEWAY_EXITED)\b")
_TRIES = 2
"""A Java that ended before it said where it listens has been seen in a role with many threads, and not twice."""
_checked: WeakSet[Any] = WeakSet()


def java_is_missing() -> bool:
    """Whether Spark would find no Java on this machine."""
    return shutil.which("java") is None and "JAVA_HOME" not in os.environ


def start_session(master: str, conf: Mapping[str, str]) -> Any:
    """The session of this process, made if there is none, or if the one there was has ended with its cluster."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DataError(
            "Spark is asked for, and PySpark is not installed here",
            rule="extra-not-installed",
            remedy='Install it: pip install "tallystick[spark]". Everything else works without.',
        ) from None
    if not master.startswith("sc://") and java_is_missing():
        raise DataError(
            "Spark is asked for, and there is no Java on this machine",
            rule="spark-session",
            remedy="Install Java 17 or later (Debian: apt-get install default-jre-headless), or set JAVA_HOME.",
        )
    logging.getLogger("py4j").setLevel(logging.WARNING)  # else it writes all it tells Java, with a database's password
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the system's, without tallystick
    builder = SparkSession.builder.appName("tallystick")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # Beyond it PySpark would hand an order to executors as a file in /tmp, with the seeds that are in it.
        "spark.broadcast.UDFCompressionThreshold": str((1 << 31) - 1),
        **conf,
    }
    if master.startswith("local"):
        settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", **settings}
    for key, value in settings.items():
        builder = builder.config(key, value)
    failed = needs = ""
    _bury()
    for _ in range(_TRIES):
        try:
            with _own_interrupts():
                session = builder.getOrCreate()
                if _has_ended(session):
                    session.stop()
                    session = builder.getOrCreate()
            return session
        except ImportError:
            needs = "Spark Connect needs packages that are not installed here"
        except Exception as error:  # Spark raises what its gateway finds
            failed = ascii(_kind(error) + _reason(error))[1:-1]
        if failed != "JAVA_GATEWAY_EXITED":
            break
    if needs:
        raise DataError(
            needs, rule="extra-not-installed", remedy='Install them: pip install "pyspark[connect]" beside tallystick.'
        )
    raise DataError(
        f"no Spark session could be had from {master!a} ({failed})",
        rule="spark-session",
        remedy="Look at [spark] master and conf, at the Java there (17 or later), and at the cluster's own log.",
    )


def _has_ended(session: Any) -> bool:
    """Whether Spark has given its context up, as it does when the master takes the application away."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except Exception:  # Spark Connect has none
        return False


def _bury() -> None:
    """Forget a Java that is dead (killed, out of memory): PySpark would keep asking it for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        with suppress(Exception):
            SparkContext._gateway.close()
        with suppress(OSError, AttributeError):  # what is still to be written to it goes nowhere
            process.stdin.close()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """PySpark takes SIGINT for itself, with which a role is told to stop: give it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, mine)


def check_executors(session: Any, *, patience: float | None = None) -> None:
    """That executors have this tallystick and this Python: the bits depend on them. Once for every session."""
    if session in _checked:
        return
    expected = {"tallystick": tallystick.__version__, "python": ".".join(map(str, sys.version_info[:2]))}

    def probe(batches: Any) -> Iterator[pa.RecordBatch]:  # pickled by value: it must run where tallystick is not
        import json as text
        import sys as system

        import pyarrow as arrow

        for _ in batches:
            pass
        found = {"python": ".".join(map(str, system.version_info[:2])), "tallystick": "none"}
        try:
            import tallystick as there

            found["tallystick"] = there.__version__
        except ImportError:
            pass
        yield arrow.RecordBatch.from_pydict({"found": [text.dumps(found)]})

    def found_there() -> Any:
        return session.range(0, 4, 1, 4).mapInArrow(probe, "found string").collect()

    rows = job(found_there, session, "versions", patience=patience)
    for row in rows:
        found = json.loads(row["found"])
        if found != expected:
            raise DataError(
                f"Spark's executors have tallystick {found['tallystick']} on Python {found['python']}, this process "
                f"{expected['tallystick']} on {expected['python']}",
                rule="spark-versions",
                remedy="Install the same version on every worker, or point PYSPARK_PYTHON at an environment that has "
                "it: the bits of a sum depend on the code.",
            )
    _checked.add(session)


def job(action: Callable[[], _Answer], session: Any, what: str, *, patience: float | None = None) -> _Answer:
    """Run a Spark action; its stages go to the log, and a failure becomes a typed error without Spark's words.

    ``patience``: for so many seconds it waits for executors, if that is less than anybody does.
    """
    seconds = min(WITHOUT_EXECUTORS_SECONDS, WITHOUT_EXECUTORS_SECONDS if patience is None else patience)
    failed, watch = "", Watch(session, what, seconds)
    try:
        with watch:
            return action()
    except TallystickError:
        raise
    except Exception as error:  # Spark wraps whatever happened in classes of its own
        failed = _kind(error)
    if watch.given_up:
        raise DataError(
            f"Spark has had no executor for {seconds:.0f} seconds: {what}",
            rule="spark-job",
            remedy="Look at the cluster: whether its workers are up, have cores and memory free, and can reach this "
            "machine (spark.driver.host). [spark] conf says how much is asked for.",
        )
    if failed in _KNOWN:
        rule, cause, remedy = _KNOWN[failed]
        raise DataError(f"{cause} ({what})", rule=rule, remedy=remedy)
    raise DataError(
        f"Spark could not finish: {what} ({failed})",
        rule="spark-job",
        remedy="Executors that are lost are replaced and change nothing; this job was given up after Spark's own "
        "retries. Look at the executors' logs: Spark's message is not repeated here, for it may quote records.",
    )


def _reason(error: Exception) -> str:
    """The first line of what Java says: only while a session is made, when no record has been read."""
    try:
        said = str(error.java_exception.getMessage())  # type: ignore[attr-defined]
    except Exception:
        return ""
    return f": {said.strip().splitlines()[0][:200]}" if said.strip() else ""


def _kind(error: Exception) -> str:
    found = _ERROR_CLASS.search(str(error))
    return found[1] if found else type(error).__name__
