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
from tallystick.engines.spark.failures import JAVA_EXITED, KNOWN, STOPPED, kind_of, reason_of
from tallystick.engines.spark.watching import Watch

if TYPE_CHECKING:
    import pyarrow as pa

_Answer = TypeVar("_Answer")
WITHOUT_EXECUTORS_SECONDS = 300.0
"""For so long a job waits for somebody to work on it: a cluster that is full would else hold a round up for ever."""
_SECRET = re.compile(
    r"secret|passw|pwd|token|credential|private|access.?key|account.?key|[.-]key\b|\.sas\b", re.IGNORECASE
)
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
    _hush()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the system's, without tallystick
    builder = SparkSession.builder.appName("tallystick")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",  # of this process's Java: what it writes of tasks that fail may quote records
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # Beyond it PySpark would hand an order to executors as a file in /tmp, with the seeds that are in it.
        "spark.broadcast.UDFCompressionThreshold": str((1 << 31) - 1),
        **conf,
    }
    if master.startswith("local"):
        settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", **settings}
    for key, value in settings.items():
        builder = builder.config(key, value)
    kind = failed = needs = ""
    _bury()
    for _ in range(_TRIES):
        try:
            with _own_interrupts():
                if not master.startswith("sc://"):
                    _launch({"spark.master": master, "spark.app.name": "tallystick", **settings})
                session = builder.getOrCreate()
                if _has_ended(session):
                    session.stop()
                    session = builder.getOrCreate()
            return session
        except ImportError:
            needs = "Spark Connect needs packages that are not installed here"
        except Exception as error:  # Spark raises what its gateway finds
            kind, failed = kind_of(error), ascii(kind_of(error) + reason_of(error))[1:-1]
        if failed != JAVA_EXITED:
            break
    if needs:
        raise DataError(
            needs, rule="extra-not-installed", remedy='Install them: pip install "pyspark[connect]" beside tallystick.'
        )
    remedy = "Look at [spark] master and conf, at the Java there (17 or later), and at the cluster's own log."
    if kind in KNOWN:
        _, failed, remedy = KNOWN[kind]
    shown = master.partition(";")[0]  # behind it Spark Connect has its token
    raise DataError(f"no Spark session could be had from {shown!a} ({failed})", rule="spark-session", remedy=remedy)


def _hush() -> None:
    """Python's side of Spark writes what it is told, a database's password, and what went wrong, with the cell."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with suppress(ImportError):
        from pyspark.logger import PySparkLogger

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True


def _launch(settings: Mapping[str, str]) -> None:
    """Start Java, if there is none, without what is secret: PySpark puts all settings into its command line, which
    every account of this machine can read. The session is told the rest. And Spark's files in /tmp, encoded records
    among them, are this account's alone."""
    from pyspark import SparkConf, SparkContext

    if SparkContext._gateway is not None:
        return
    told = SparkConf(loadDefaults=False)
    told.setAll([(key, value) for key, value in settings.items() if not _SECRET.search(key)])
    before = os.umask(0o077)
    try:
        SparkContext._ensure_initialized(conf=told)
    finally:
        os.umask(before)


def _has_ended(session: Any) -> bool:
    """Whether Spark has given its context up, as it does when the master takes the application away."""
    try:
        context = session.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except Exception:  # Spark Connect has none; or Java is gone, which is told as it is
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
        failed = kind_of(error)
    if failed not in KNOWN and _has_ended(session):
        failed = STOPPED
    if watch.given_up:
        raise DataError(
            f"Spark has had no executor for {seconds:.0f} seconds: {what}",
            rule="spark-job",
            remedy="Look at the cluster: whether its workers are up, have cores and memory free, and can reach this "
            "machine (spark.driver.host). [spark] conf says how much is asked for.",
        )
    if failed in KNOWN:
        rule, cause, remedy = KNOWN[failed]
        raise DataError(f"{cause} ({what})", rule=rule, remedy=remedy)
    raise DataError(
        f"Spark could not finish: {what} ({failed})",
        rule="spark-job",
        remedy="Executors that are lost are replaced and change nothing; this job was given up after Spark's own "
        "retries. Look at the executors' logs: Spark's message is not repeated here, for it may quote records "
        '("spark.log.level" = "WARN" in [spark] conf shows what this machine\'s Java has of it).',
    )
