"""What executors run, without a cluster: a program file in its locked child; the reason, where none can be locked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.end_to_end.test_unchanged_results import ROOT
from tests.trust.test_same_bits import OWN, SCHEMA, frames

from tallystick.algorithms.program import pack_state
from tallystick.core.errors import StudyError
from tallystick.engines import setup as setups
from tallystick.engines.setup import set_up
from tallystick.engines.spark import executor
from tallystick.engines.spark.records import raise_told
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study

TEXT = (ROOT / "examples" / "programs" / OWN).read_text(encoding="utf-8")


@pytest.fixture
def order() -> executor.RoundOrder:
    raw = {
        "study": {"name": "own", "program": OWN, "features": ["dose"], "accept_noise": True},
        "privacy": {"mechanism": "none", "epsilon": 1.0},
        "trust": {"model": "servers"},
        "data": {"records": 120, "columns": {"dose": SCHEMA.to_dict()["dose"]}},
    }
    _, study = estimator_for(Study.from_dict(raw), lambda _: TEXT)
    setup = set_up(study.canonical(), TEXT, allow_not_private=True)
    return executor.RoundOrder(
        shipped=executor.Shipped(study=study.canonical(), program=TEXT, lenient=True),
        model=pack_state(setup.design.program.query(setup.template)),
        plan=setup.sum_plan.rounds[0],
        features=1,
        targeted=False,
        by_person=False,
    )


def test_a_program_file_that_cannot_be_locked_in_is_refused_there(
    order: executor.RoundOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason comes back as a value: Spark would retry what raises, and quote it."""
    pytest.importorskip("pyspark", reason='PySpark is not installed: pip install "tallystick[spark]"')
    table = pa.table({"dose": frames()[0]["dose"]})
    blocks = list(executor.encoding(order.shipped, 3)(table.to_batches()))
    (row,) = [row for out in executor.summing(order)(blocks) for row in out.to_pylist()]
    assert (row["error"], row["mapped"]) == (None, 30)
    monkeypatch.setattr("tallystick.engines.sandbox.children.architecture_here", lambda: None)
    monkeypatch.setattr("tallystick.engines.sandbox.children._shared", None)  # an executor that has just started
    setups._set_up.cache_clear()
    executor._set_up.cache_clear()
    (row,) = [row for out in executor.summing(order)(blocks) for row in out.to_pylist()]
    assert (row["total"], row["mapped"]) == (b"", 0)
    with pytest.raises(StudyError, match="program files cannot be run here") as caught:
        raise_told(row["error"])
    assert caught.value.rule == "sandbox-unavailable"
