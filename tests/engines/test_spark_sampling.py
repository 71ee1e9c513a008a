"""Sampling where Spark has the records: every block tosses coins of its own, from a seed of the round.

No cluster is needed: what executors run are functions over Arrow batches. That a cluster gives the same sums is
tried in ``test_spark_engine``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tallystick.algorithms.program import pack_state
from tallystick.engines.setup import Setup, set_up
from tallystick.engines.spark import executor
from tallystick.study import Study

RATES = {"no": 0.25, "yes": 0.75}


def sampled_study(records: int) -> Setup:
    """Logistic regression on a sample that takes one class three times as often as the other."""
    study = Study.from_dict(
        {
            "study": {"name": "s", "program": "logistic_regression", "target": "ill", "accept_noise": True},
            "program": {"rounds": 2},
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "sampling": RATES, "neighbours": "add-remove"},
            "trust": {"model": "servers"},
            "data": {
                "records": records,
                "columns": {
                    "age": {"type": "integer", "lower": 0, "upper": 100},
                    "ill": {"type": "category", "values": ["no", "yes"]},
                },
            },
        }
    )
    return set_up(study.canonical(), "")


def order_of(setup: Setup, coins: bytes | None) -> executor.RoundOrder:
    """A round of it, as a client sends it to executors."""
    shipped = executor.Shipped(study=setup.study.canonical(), program="", lenient=True)
    return executor.RoundOrder(
        shipped=shipped,
        model=pack_state(setup.design.program.query(setup.template)),
        plan=setup.sum_plan.rounds[0],
        features=len(setup.layout),
        targeted=True,
        by_person=False,
        coins=coins,
    )


@pytest.fixture(scope="module")
def setup() -> Setup:
    return sampled_study(20_000)


def frame(count: int, bad: int | None = None) -> pa.Table:
    rng = np.random.default_rng(3)
    ages = rng.integers(0, 100, count).tolist()
    if bad is not None:
        ages[bad] = None
    return pa.table({"age": pa.array(ages, pa.int64()), "ill": rng.choice(["no", "yes"], count).tolist()})


def encoded(setup: Setup, table: pa.Table, part: int = 0) -> list[pa.RecordBatch]:
    """A partition's blocks, as they lie in the executors' cache."""
    pytest.importorskip("pyspark", reason='PySpark is not installed: pip install "tallystick[spark]"')
    order = order_of(setup, None)
    made = list(executor.encoding(order.shipped, len(setup.layout) + 2)(table.to_batches()))
    parts = pa.array([part], pa.int64())
    return [batch.set_column(0, "part", parts) for batch in made]


def places(setup: Setup, blocks: list[pa.RecordBatch], coins: bytes) -> list[Any]:
    """Which places of every block come up."""
    order = order_of(setup, coins)
    chosen: Iterator[Any] = executor._chosen(order, executor._blocks(order, blocks))
    return [records.rows.tolist() for records in chosen]


def test_every_record_has_a_coin_of_its_class(setup: Setup) -> None:
    table = frame(20_000)
    (rows,) = places(setup, encoded(setup, table), b"1" * 32)
    ill = np.array(table.column("ill").to_pylist())
    for name, rate in RATES.items():
        count, came_up = int((ill == name).sum()), int((ill[rows] == name).sum())
        assert abs(came_up - rate * count) < 5 * np.sqrt(rate * (1 - rate) * count)
    # Neighbours' coins are no one's business: successes right after successes are as many as chance has it.
    up = np.isin(np.arange(len(ill)), rows).astype(float) - np.array([RATES[i] for i in ill])
    assert abs((up[1:] * up[:-1]).sum()) < 5 * np.sqrt((up[1:] ** 2 * up[:-1] ** 2).sum())


def test_a_task_that_is_repeated_tosses_the_same_coins_and_another_round_others(setup: Setup) -> None:
    blocks = encoded(setup, frame(2000))
    assert places(setup, blocks, b"1" * 32) == places(setup, blocks, b"1" * 32)
    assert places(setup, blocks, b"1" * 32) != places(setup, blocks, b"2" * 32)


def test_two_blocks_of_the_same_records_are_two_samples(setup: Setup) -> None:
    """With one stream for all blocks, records at the same place would come up together."""
    table = frame(2000)
    first, second = places(setup, [*encoded(setup, table, 0), *encoded(setup, table, 1)], b"1" * 32)
    both, rates = len(set(first) & set(second)), np.array([RATES[i] for i in table.column("ill").to_pylist()])
    assert abs(both - (rates**2).sum()) < 5 * np.sqrt((rates**2).sum())
    (planted, same) = places(setup, [*encoded(setup, table, 0), *encoded(setup, table, 0)], b"1" * 32)
    assert planted == same  # what would be seen


def test_a_record_that_is_left_out_moves_no_other_s_coin(setup: Setup) -> None:
    (whole,) = places(setup, encoded(setup, frame(2000)), b"1" * 32)
    for bad in (0, whole[5]):
        (without,) = places(setup, encoded(setup, frame(2000, bad)), b"1" * 32)
        assert without == [row for row in whole if row != bad]


def test_partial_sums_of_a_sample_add_up_to_its_sum(setup: Setup) -> None:
    """Two partitions, each of them mapped by itself, and both by one task."""
    parts = [encoded(setup, frame(3000), 0), encoded(setup, frame(500), 1)]
    order = order_of(setup, b"1" * 32)
    rows = [row for part in parts for out in executor.summing(order)(part) for row in out.to_pylist()]
    (whole,) = [row for out in executor.summing(order)([*parts[0], *parts[1]]) for row in out.to_pylist()]
    size = order.plan.grid.size
    assert (executor.total_of(rows, size) == executor.total_of([whole], size)).all()
    assert sum(row["mapped"] for row in rows) == whole["mapped"] < 3500
    every = order_of(setup, None)
    (all_of_them,) = [row for out in executor.summing(every)([*parts[0], *parts[1]]) for row in out.to_pylist()]
    assert all_of_them["mapped"] == 3500
