"""``tallystick bench gossip``: cycles of Golf, and peers' records perturbed.

``cycle``: everyone sends its model once, and learns from and merges what it receives: milliseconds of CPU at the shape
of Spambase, beside the plain NumPy loop in the same run, and beside 1.5 s that gossipy took elsewhere (stored, without
its evaluation). ``cycle-mnist``: 60,000 peers × 784 columns × 10 classes in float32, CPU seconds of all threads, and
the memory of the process. ``cost``: nanoseconds for each message and column, as peers and columns grow: the ratio to
the smallest is 1 where cost is linear. ``perturbed``: CPU seconds for one record of each of a million peers by
``subset``, 57 columns, two classes, ε = 1, each with candidates of its own (reference: three minutes of two cores).
Rows are made up; steps are the same whatever they hold.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.feature_maps.public_draws import PublicDraws
from tallystick.algorithms.gossip.design import public_words
from tallystick.algorithms.gossip.golf.examples import Examples
from tallystick.algorithms.gossip.golf.network import GolfNetwork
from tallystick.algorithms.gossip.golf.plain import straightforward
from tallystick.algorithms.gossip.golf.schedule import Schedule
from tallystick.algorithms.gossip.golf.settings import GolfSettings, Learner
from tallystick.bench.measuring import best_seconds, row
from tallystick.crypto.prg import system_stream
from tallystick.privacy.local.labels import label_code
from tallystick.privacy.local.randomiser import Randomiser
from tallystick.privacy.local.records import record_identity
from tallystick.privacy.local.subset import SubsetSelection
from tallystick.privacy.local.subset_moments import choose_subset

_GOSSIPY_SECONDS = 1.5
"""A cycle of 4,140 nodes of gossipy's Pegasos, without its evaluation (measurements of November 2026)."""
_MOST_SECONDS, _MOST_GIGABYTES, _MOST_PERTURBING = 1.5, 2.5, 360.0
LEARNERS: tuple[Learner, ...] = ("pegasos", "logistic")
_BLOCK = 4096
_STUDY = bytes(32)


def rows(quick: bool) -> list[dict[str, Any]]:
    """The rows of the bench."""
    out = []
    spambase, mnist = ((400, 57), (600, 784)) if quick else ((4140, 57), (60_000, 784))
    for learner in LEARNERS:
        out += _against_the_loop(*spambase, GolfSettings(learner=learner))
    out += _many_classes(*mnist, classes=10)
    out += _linear(quick)
    out.append(_perturbed(2_000 if quick else 1_000_000, 57))
    return out


def _made_up(peers: int, columns: int, classes: int, dtype: type) -> Examples:
    draws = PublicDraws(0, "gossip bench")
    labels = draws.below(classes, peers)
    # float32 from the start: at the size of MNIST a second copy is a tenth of the memory that is measured
    made: NDArray[Any] = np.empty((peers, columns), dtype)
    for start in range(0, peers, 1000):
        block = draws.uniform(min(1000, peers - start), columns)
        block[np.arange(len(block)), labels[start : start + 1000] % columns] += 0.2 * columns
        made[start : start + 1000] = block / block.sum(axis=1, keepdims=True)
    return Examples.labelled(made, labels, classes)


def _against_the_loop(peers: int, columns: int, settings: GolfSettings) -> list[dict[str, Any]]:
    examples, cycles = _made_up(peers, columns, 2, np.float64), 20
    network = GolfNetwork(examples, settings, seed=1)
    ours = best_seconds(lambda: network.run(cycles)) / cycles
    models, ages = np.zeros((peers, columns)), np.zeros(peers, np.int64)
    schedule = Schedule(peers, 1)
    loop = best_seconds(
        lambda: straightforward(models, ages, examples.rows_of(0), examples.signs[0], *schedule.cycles(1), settings)
    )
    case = f"cycle {peers:,} x {columns} {settings.learner}"
    made = [row(f"{case}, NumPy loop", round(1e3 * ours, 4), "ms CPU", round(1e3 * loop, 2), round(loop / ours, 1))]
    if (peers, settings.learner) == (4140, "pegasos"):
        made.append(
            row(
                f"{case}, gossipy",
                round(1e3 * ours, 4),
                "ms CPU",
                1e3 * _GOSSIPY_SECONDS,
                round(_GOSSIPY_SECONDS / ours),
            )
            | {"note": "gossipy: 1.5 s a cycle were measured on another day; it simulates queues and delays besides"}
        )
    return made


def _many_classes(peers: int, columns: int, *, classes: int) -> list[dict[str, Any]]:
    before = _gigabytes()
    network = GolfNetwork(_made_up(peers, columns, classes, np.float32), GolfSettings(), seed=1, dtype=np.float32)
    with ThreadPoolExecutor(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    ) as pool:
        network.run(1, over=pool.map)
        times = []
        for _ in range(3):
            started = time.process_time()
            network.run(1, over=pool.map)
            times.append(time.process_time() - started)
    case = f"cycle-mnist {peers:,} x {columns} x {classes}"
    seconds, memory = min(times), _gigabytes()
    note = f"cycle-mnist memory: the whole process; {before:.2f} GB before"
    return [
        row(case, round(seconds, 3), "s CPU (reference: the most)", _MOST_SECONDS, round(_MOST_SECONDS / seconds, 2)),
        row(
            f"{case} memory",
            round(memory, 2),
            "GB (reference: the most)",
            _MOST_GIGABYTES,
            round(_MOST_GIGABYTES / memory, 2),
        )
        | {"note": note},
    ]


def _gigabytes() -> float:
    """The most memory this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**30 if sys.platform == "darwin" else 2**20)


def _linear(quick: bool) -> list[dict[str, Any]]:
    shapes = (
        ((250, 64), (500, 64), (250, 128))
        if quick
        else ((2000, 64), (8000, 64), (32_000, 64), (2000, 256), (2000, 1024))
    )
    out, smallest = [], None
    for peers, columns in shapes:
        network = GolfNetwork(_made_up(peers, columns, 2, np.float32), GolfSettings(), seed=1, dtype=np.float32)
        cycles = max(1, 4_000_000 // (peers * columns))
        each = 1e9 * best_seconds(lambda: network.run(cycles)) / (cycles * peers * columns)  # noqa: B023 - run here
        smallest = smallest or each
        out.append(
            row(
                f"cost {peers:,} x {columns}",
                round(each, 3),
                "ns, message x column",
                round(smallest, 3),
                round(each / smallest, 2),
            )
        )
    return out


def _perturbed(peers: int, columns: int) -> dict[str, Any]:
    epsilon = Fraction(1)
    randomiser = Randomiser(
        label=label_code("sign", epsilon, 2),
        vector=SubsetSelection(
            epsilon=epsilon, dimension=columns, subset=choose_subset(epsilon, columns), public_words=public_words
        ),
    )
    draws = PublicDraws(0, "perturbed records")
    vectors = np.rint(draws.uniform(_BLOCK, columns) * 4096).astype(np.int64)
    labels = draws.below(2, _BLOCK)

    def some(start: int) -> int:
        many = min(_BLOCK, peers - start)
        identities = [record_identity(_STUDY, f"peer {i}") for i in range(start, start + many)]
        return len(randomiser.perturb_all(vectors[:many], labels[:many], identities, system_stream()))

    some(peers - 16)  # translates
    with ThreadPoolExecutor(2) as pool:
        wall, started = time.perf_counter(), time.process_time()
        done = sum(pool.map(some, range(0, peers, _BLOCK)))
        wall, seconds = time.perf_counter() - wall, time.process_time() - started
    return row(
        f"perturbed {done:,} peers x {columns}",
        round(seconds, 2),
        "s CPU (reference: the most)",
        _MOST_PERTURBING,
        round(_MOST_PERTURBING / seconds, 2),
    ) | {"note": f"perturbed: {wall:.3g} s passed, on two threads; {1e6 * seconds / done:.3g} us a record"}
