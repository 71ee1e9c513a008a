"""Clusters for tests: what they need, and a standalone master with two workers that dies with the test process."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tallystick.application.demo.free_ports import free_ports

JDBC_DRIVER = Path("/usr/share/java/postgresql.jar")
"""Where Debian's package (libpostgresql-jdbc-java) puts it."""
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Most of a JVM's work here would be to compile well what runs for seconds."""
CLUSTER = "local-cluster[2,1,1500]"
CONF = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.memory": "700m",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "OFF",
    "spark.executorEnv.NUMBA_NUM_THREADS": "1",
    "spark.python.worker.reuse": "true",
    **({"spark.jars": str(JDBC_DRIVER)} if JDBC_DRIVER.exists() else {}),
}
STANDALONE = {
    **CONF,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "500m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}
"""Two executors, one on each worker, and room for other applications beside them."""

_started: list[subprocess.Popen[bytes]] = []


def spark_home() -> Path:
    """Where PySpark is; skips the test without it or without Java."""
    found = pytest.importorskip("pyspark", reason='PySpark is not installed: pip install "tallystick[spark]"')
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed: make system (as root, where apt-get is)")
    return Path(found.__file__).parent


def free_port() -> int:
    """Spark takes the next port, without a word, where a connection has got first."""
    return free_ports(1)[0]


@functools.cache
def standalone_master() -> str:
    """The address of a master with two workers on this machine, started by the first test that asks."""
    home, port = spark_home(), free_port()
    address = f"spark://127.0.0.1:{port}"
    folder = tempfile.mkdtemp(prefix="tallystick-spark-")
    run, deploy = str(home / "bin" / "spark-class"), "org.apache.spark.deploy"
    _start(run, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    for number in range(2):
        where = ("--host", "127.0.0.1", "--webui-port", "0", "-d", f"{folder}/{number}")
        _start(run, f"{deploy}.worker.Worker", address, "-c", "8", "-m", "6g", *where)
    return address


def _start(*command: str) -> None:
    here = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _SHORT_LIVED,
        "PYSPARK_PYTHON": sys.executable,
    }
    started = subprocess.Popen(
        command, env=here, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG, kept through exec
    )  # fmt: skip
    _started.append(started)
    atexit.register(started.kill)


def executors_of(driver_port: Any) -> list[int]:
    """The executors that belong to the driver behind this port."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"java" in words[0] and any(w.endswith(b":%d" % int(driver_port)) and b"Scheduler@" in w for w in words):
            found.append(int(entry.parent.name))
    return found


def kill_an_executor(driver_port: Any) -> int:
    """End one of them, without a word; how many there were."""
    found = executors_of(driver_port)
    os.kill(found[0], signal.SIGKILL)
    return len(found)
