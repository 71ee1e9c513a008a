"""What was wrong in a round that went on stands in the log of whoever runs the process, and nowhere else."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tallystick.protocol.instructions import NoisySum
from tallystick.roles.processes.coordinated_rounds import CoordinatedRounds, unpack_total


@pytest.mark.parametrize("faults", ["", "b dealt or told wrong shares, if no more than 1 of the clients did"])
def test_the_faults_of_a_round_are_logged(faults: str, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[bytes] = []
    store = SimpleNamespace(
        transaction=nullcontext,
        put_release=lambda _study, _round, body, **_: kept.append(body),
    )
    session: Any = SimpleNamespace(
        process=SimpleNamespace(store=store, health=SimpleNamespace(rounds=0)),
        study_hash=bytes(32),
        secret_rounds=False,
        _clock=None,
    )
    total = np.arange(3, dtype=np.int64)
    result = NoisySum(round=4, total=total, participants=("a", "b", "c"), dropped=(), faults=faults)
    with caplog.at_level(logging.WARNING, logger="tallystick.roles"):
        CoordinatedRounds._keep(session, result)
    assert [r.getMessage() for r in caplog.records] == ([f"round 4 has its total, and yet: {faults}"] if faults else [])
    assert (unpack_total(kept[0]).values == total).all()
    assert b"wrong shares" not in kept[0]
