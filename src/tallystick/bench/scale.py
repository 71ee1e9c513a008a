"""``tallystick bench scale``: a round of logistic regression over records on disk, a server's sum of stored shares.

* ``local-round``: rows a second of one round out of core, read from a folder of Parquet files; beside it a bare NumPy
  matrix product over the same files in the same run. Memory is the peak of the process that did it.
* ``local-stream``: one pass of encoding and one round over ten gigabytes of them, and the peak of its memory.
* ``spark-round``: the round on ``local-cluster`` with two executors, encoded records in their cache, beside ``local``.
  Left out where Java or PySpark is not there, unless it is asked for by name.
* ``server-sum``: stored shares summed by one worker process and by two.

Each can be asked for by itself (``--case``). Walls, not CPU seconds: several cores take part. On a machine that is not
quiet the ratios say little. What is generated lies in the folder of temporary files (``TMPDIR``), and is removed.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.algorithms.program import pack_state
from tallystick.bench.measuring import row
from tallystick.core.errors import DataError
from tallystick.crypto.field import to_bytes, to_real
from tallystick.crypto.prg import system_stream
from tallystick.engines.client_map import AnyMap, ClientMaps
from tallystick.engines.record_engine import LocalEngine, RecordEngine
from tallystick.engines.setup import Setup, set_up
from tallystick.roles.shares.sharded_sum import SpoolSum, SumJob
from tallystick.roles.shares.spool import Place
from tallystick.study import Study

_FEATURES = 10
_FILE_ROWS = 1_000_000
_QUICK, _FULL = 200_000, 20_000_000
_ROW_BYTES = 100
"""Of a row as it lies on disk."""
_STREAM_QUICK, _STREAM_BYTES = 50_000_000, 10_000_000_000
_SPARE = 2_000_000_000
_CLUSTER = ("local-cluster[2,1,1500]", {"spark.log.level": "OFF", "spark.executor.memory": "1000m"})


CASES = ("local-round", "local-stream", "spark-round", "server-sum")


def rows(quick: bool = False, cases: Collection[str] = CASES) -> list[dict[str, Any]]:
    """The cases above."""
    from tallystick.engines.spark.session import java_is_missing

    there = find_spec("pyspark") is not None and not java_is_missing()
    if not there and set(cases) == {"spark-round"}:
        raise DataError(
            "a round in Spark is asked for, and Java or PySpark is not here",
            rule="spark-session",
            remedy='Install Java 17 or later, and: pip install "tallystick[spark]".',
        )
    count = _QUICK if quick else _FULL
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tallystick-scale-") as folder:
        records = Path(folder) / "records"
        if "local-round" in cases or "spark-round" in cases:
            _room(folder, _ROW_BYTES * count)
            _generate(records, count)
        seconds: float | None = None
        if "local-round" in cases:
            seconds, peak, plain = _apart(_local, str(records), count)
            found += [
                row("local-round", round(count / seconds), "rows/s", round(count / plain), round(plain / seconds, 3)),
                row("local-memory", round(peak), "MB at most", None, None),
            ]
        if "spark-round" in cases and there:
            if seconds is None:
                seconds = _apart(_local, str(records), count)[0]
            spark = _apart(_spark, str(records), count)[0]
            ratio = round(seconds / spark, 3)
            found.append(row("spark-round", round(count / spark), "rows/s", round(count / seconds), ratio))
        shutil.rmtree(records, ignore_errors=True)
        if "local-stream" in cases:
            found += _streamed(Path(folder), (_STREAM_QUICK if quick else _STREAM_BYTES) // _ROW_BYTES)
        if "server-sum" in cases:
            found.append(_server_sum(Path(folder), 200 if quick else 10_000, 20_000 if quick else 100_000))
    return found


def _room(folder: Path | str, size: int) -> None:
    """Refuse before a disk is full."""
    free = shutil.disk_usage(folder).free
    if free < size + _SPARE:
        raise DataError(
            f"{size / 1e9:.1f} GB are to be generated, and {free / 1e9:.1f} GB are free",
            rule="no-disk-space",
            remedy="Set TMPDIR to a folder on a larger disk, or choose cases: --case local-round.",
        )


def _streamed(folder: Path, count: int) -> list[dict[str, Any]]:
    """Records that no memory should hold."""
    _room(folder, _ROW_BYTES * count)
    records = folder / "stream"
    _generate(records, count)
    size = sum(file.stat().st_size for file in records.iterdir())
    seconds, peak, _ = _apart(_stream, str(records), count)
    shutil.rmtree(records)
    case = f"local-stream of {size / 1e9:.2g} GB"
    return [
        row(case, round(2 * count / seconds), "rows/s, read twice", None, None),
        row("local-stream-memory", round(peak), "MB at most", round(size / 1e6), round(peak / (size / 1e6), 3)),
    ]


def _generate(folder: Path, count: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for first in range(0, count, _FILE_ROWS):
        n = min(_FILE_ROWS, count - first)
        words = system_stream().words(n * (_FEATURES + 1))
        cells = (words >> np.uint64(11)).astype(np.float64).reshape(_FEATURES + 1, n) * 2.0**-53
        columns = {f"x{i}": cells[i] for i in range(_FEATURES)} | {"y": (cells[-1] < cells[0]).astype(np.int8)}
        pq.write_table(pa.table(columns), folder / f"part-{first // _FILE_ROWS:05d}.parquet", row_group_size=1 << 17)


def _setup(count: int) -> Setup:
    columns: dict[str, Any] = {f"x{i}": {"type": "number", "lower": 0, "upper": 1} for i in range(_FEATURES)}
    study = Study.from_dict(
        {
            "study": {"name": "scale", "program": "logistic_regression", "target": "y"},
            "program": {"rounds": 3},
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "trust": {"model": "servers"},
            "data": {"records": count, "columns": columns | {"y": {"type": "category", "values": ["0", "1"]}}},
        }
    )
    return set_up(study.canonical(), "")


def _answers(engine: RecordEngine, folder: str, count: int) -> tuple[Setup, AnyMap]:
    setup = _setup(count)
    records = engine.records(setup.study, folder, party=None, lenient=True)
    maps = ClientMaps(setup.study, setup.design.program, setup.template)
    return setup, maps.of(records, lambda *_labels: system_stream(), "client")


def _round_seconds(engine: RecordEngine, folder: str, count: int) -> float:
    """The wall of one round, after one that warms up."""
    setup, answers = _answers(engine, folder, count)
    program, plans = setup.design.program, setup.sum_plan.rounds
    total = answers.contribute(pack_state(program.query(setup.template)), plans[0], 1)  # moments, before the first step
    state = program.reduce_in_aggregator(to_real(total, plans[0].grid.fraction_bits), setup.template)
    times = []
    for _ in range(2):
        started = time.perf_counter()
        answers.contribute(pack_state(program.query(state)), plans[1], 2)
        times.append(time.perf_counter() - started)
    return times[-1]


def _numpy_seconds(folder: str) -> float:
    """The same reading, and the matrix products of a gradient in plain float64."""
    import pyarrow.parquet as pq

    started = time.perf_counter()
    weights, total = np.ones(_FEATURES), np.zeros(_FEATURES)
    for file in sorted(Path(folder).glob("*.parquet")):
        for batch in pq.ParquetFile(file, memory_map=True).iter_batches(batch_size=1 << 17):
            matrix = np.column_stack([batch.column(i).to_numpy() for i in range(_FEATURES)])
            total += matrix.T @ (matrix @ weights)
    return time.perf_counter() - started


def _local(folder: str, count: int) -> tuple[float, float, float]:
    # Nothing is kept from one round to the next.
    seconds = _round_seconds(LocalEngine(memory=0), folder, count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return seconds, peak, min(_numpy_seconds(folder) for _ in range(2))


def _stream(folder: str, count: int) -> tuple[float, float, float]:
    """The first round, and the pass before it that counts; how many bytes of memory are there is not asked."""
    started = time.perf_counter()
    setup, answers = _answers(LocalEngine(memory=0), folder, count)
    answers.contribute(pack_state(setup.design.program.query(setup.template)), setup.sum_plan.rounds[0], 1)
    seconds = time.perf_counter() - started
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 0.0


def _spark(folder: str, count: int) -> tuple[float, float, float]:
    from tallystick.engines.spark.records import SparkEngine

    return _round_seconds(SparkEngine(master=_CLUSTER[0], conf=_CLUSTER[1]), folder, count), 0.0, 0.0


def _apart(work: Callable[[str, int], tuple[float, float, float]], folder: str, count: int) -> tuple[float, ...]:
    """In a process of its own, so that its peak of memory is its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    child = spawn.Process(target=_told, args=(there, work, folder, count))
    child.start()
    there.close()
    found: tuple[float, ...] | None = None
    with suppress(EOFError):
        found = here.recv()
    child.join()
    if found is None:
        raise DataError(
            "the process that measures ended without an answer; what it said is above",
            rule="bench-unfinished",
            remedy="If it said nothing, its memory may have run out: choose other cases with --case, or add --quick.",
        )
    return found


def _told(line: Connection, work: Callable[[str, int], tuple[float, float, float]], folder: str, count: int) -> None:
    line.send(work(folder, count))


def _server_sum(folder: Path, clients: int, size: int) -> dict[str, Any]:
    """One server's stored shares: a vector of every client, one behind the other in a file."""
    _room(folder, 8 * clients * size)
    file = folder / "spool"
    vector = to_bytes(system_stream().words(size) >> np.uint64(1))  # field elements, as uniform as it takes
    with file.open("wb") as spool:
        for _ in range(clients):
            spool.write(vector)
    job = SumJob(
        size=size,
        vectors=tuple(Place(path=str(file), offset=8 * size * i, size=size) for i in range(clients)),
        seeds=(),
    )
    walls = []
    for workers in (1, 2):
        with SpoolSum(workers) as summer:
            if workers > 1:
                summer.start()
            summer.run(job)
            started = time.perf_counter()
            summer.run(job)
            walls.append(time.perf_counter() - started)
    case = f"server-sum of {clients:,} x {size:,}"
    return row(case, round(walls[1], 4), "s with two workers", round(walls[0], 4), round(walls[0] / walls[1], 3))
