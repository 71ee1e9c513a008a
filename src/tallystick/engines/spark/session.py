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
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import tallystick
from tallystick.core.errors import DataError, TallystickError
from tallystick.engines.spark.sources import DRIVERS

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("tallystick.engines")
_Answer = TypeVar("_Answer")
_POLL_SECONDS = 2.0
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
    if not master.startswith("sc://") and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise DataError(
            "Spark is asked for, and there is no Java on this machine",
            rule="spark-session",
            remedy="Install Java 17 or later (Debian: apt-get install default-jre-headless), or set JAVA_HOME.",
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the system's, without tallystick
    builder = SparkSession.builder.appName("tallystick")
    builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        **conf,
    }
    if master.startswith("local"):
        settings = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", **settings}
    for key, value in settings.items():
        builder = builder.config(key, value)
    failed = needs = ""
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


def check_executors(frame: Any) -> None:
    """That executors have this tallystick and this Python: the bits depend on them. Once for every session."""
    session = frame.sparkSession
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

    rows = job(lambda: session.range(0, 4, 1, 4).mapInArrow(probe, "found string").collect(), session, "versions")
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


def job(action: Callable[[], _Answer], session: Any, what: str) -> _Answer:
    """Run a Spark action; its stages go to the log, and a failure becomes a typed error without Spark's words."""
    failed, watch = "", _Watch(session, what)
    try:
        with watch:
            return action()
    except TallystickError:
        raise
    except Exception as error:  # Spark wraps whatever happened in classes of its own
        failed = _kind(error)
    if watch.given_up:
        raise DataError(
            f"Spark has had no executor for {WITHOUT_EXECUTORS_SECONDS:.0f} seconds: {what}",
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


class _Watch:
    """Tells this machine's log how far the stages of a job are, and gives it up if nobody works on it."""

    def __init__(self, session: Any, what: str) -> None:
        self._what, self._group = what, f"tallystick-{uuid.uuid4()}"
        self._over = threading.Event()
        self._watcher: threading.Thread | None = None
        self.given_up = False
        try:
            self._context = session.sparkContext
        except Exception:  # Spark Connect has none
            self._context = None

    def __enter__(self) -> None:
        if self._context is None:
            return
        try:
            self._context.setJobGroup(self._group, f"tallystick: {self._what}")
        except Exception:  # the cluster is gone: the action will say so
            return
        self._watcher = threading.Thread(target=self._watch, name="tallystick-spark", daemon=True)
        self._watcher.start()

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        if self._watcher is None:
            return
        self._watcher.join()
        with suppress(Exception):  # a notebook's next job is its own
            self._context.setLocalProperty("spark.jobGroup.id", None)
            self._context.setLocalProperty("spark.job.description", None)

    def _watch(self) -> None:
        tracker, idle_since = self._context.statusTracker(), time.monotonic()
        while not self._over.wait(_POLL_SECONDS):
            try:
                stages = list(filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())))
                for info in stages:
                    _log.info("%s: %d of %d tasks", self._what, info.numCompletedTasks, info.numTasks)
                if not stages or any(info.numActiveTasks > 0 for info in stages):
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > WITHOUT_EXECUTORS_SECONDS:
                    self.given_up = True
                    self._context.cancelJobGroup(self._group)
                    return
            except Exception:  # the cluster is gone: the action says so
                return
