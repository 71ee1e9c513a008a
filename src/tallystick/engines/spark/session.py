"""A Spark session: one that is there already, or one made from the role's file; and whether its executors fit.

What goes wrong in a cluster is told in our words: no PySpark, no Java, another version of tallystick or Python on the
executors, a job that failed. Spark's own messages may quote records and are not repeated.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import tallystick
from tallystick.core.errors import DataError, TallystickError

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("tallystick.engines")
_Answer = TypeVar("_Answer")
_POLL_SECONDS = 2.0
_ERROR_CLASS = re.compile(r"\b(PYTHON_VERSION_MISMATCH|JAVA_GATEWAY_EXITED)\b")
_checked: set[str] = set()


def start_session(master: str, conf: Mapping[str, str]) -> Any:
    """The session of this process, made if there is none."""
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
    failed = ""
    try:
        return builder.getOrCreate()
    except Exception as error:  # Spark raises what its gateway finds
        failed = _kind(error)
    raise DataError(
        f"no Spark session could be had from {master!a} ({failed})",
        rule="spark-session",
        remedy="Look at [spark] master and conf, at the Java there (17 or later), and at the cluster's own log.",
    )


def check_executors(frame: Any) -> None:
    """That executors have this tallystick and this Python: the bits depend on them. Once for every session."""
    session = frame.sparkSession
    key = str(id(session))
    if key in _checked:
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
    _checked.add(key)


def job(action: Callable[[], _Answer], session: Any, what: str) -> _Answer:
    """Run a Spark action; its stages go to the log, and a failure becomes a typed error without Spark's words."""
    failed = ""
    try:
        with _watched(session, what):
            return action()
    except TallystickError:
        raise
    except Exception as error:  # Spark wraps whatever happened in classes of its own
        failed = _kind(error)
    if failed == "PYTHON_VERSION_MISMATCH":
        raise DataError(
            "Spark's executors run another Python than this process",
            rule="spark-versions",
            remedy="Set PYSPARK_PYTHON to the same version of Python on every worker.",
        )
    raise DataError(
        f"Spark could not finish: {what} ({failed})",
        rule="spark-job",
        remedy="Executors that are lost are replaced and change nothing; this job was given up after Spark's own "
        "retries. Look at the executors' logs: Spark's message is not repeated here, for it may quote records.",
    )


def _kind(error: Exception) -> str:
    found = _ERROR_CLASS.search(str(error))
    return found[1] if found else type(error).__name__


@contextmanager
def _watched(session: Any, what: str) -> Iterator[None]:
    """Tell this machine's log how far the stages of a job are."""
    try:
        context = session.sparkContext
        context.setJobDescription(f"tallystick: {what}")
    except Exception:  # Spark Connect has none
        yield
        return
    over = threading.Event()

    def watch() -> None:
        tracker = context.statusTracker()
        while not over.wait(_POLL_SECONDS):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    _log.info("%s: %d of %d tasks", what, info.numCompletedTasks, info.numTasks)

    watcher = threading.Thread(target=watch, name="tallystick-spark", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
