"""What a client could not keep does not leave by another way: a full disk is no reason to sit a round out and go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.core.errors import RoundAborted
from tallystick.protocol.instructions import Compute
from tallystick.roles.processes.client_session import ClientSession


@pytest.fixture
def session() -> Any:
    made: Any = ClientSession.__new__(ClientSession)
    made.setup = SimpleNamespace()
    made._clearance = SimpleNamespace(given=lambda _setup: True)
    made._may_start = made._may_use_records = lambda *_step: True
    made._records = lambda: "records"
    made._map, made.withdrawn = None, []
    return made


def answering(session: Any, rule: str) -> None:
    def answer(*_step: Any) -> None:
        raise RoundAborted("it could not be done", rule=rule)

    session.part = SimpleNamespace(answer=answer, withdraw=session.withdrawn.append)


def test_what_could_not_be_kept_ends_the_session_and_not_the_round(session: Any) -> None:
    answering(session, "storage-full")
    with pytest.raises(RoundAborted):  # the loop lays the session down, and begins it again from what is kept
        session.compute(Compute(3, b""))
    assert session.withdrawn == []


def test_a_learner_that_was_away_sits_the_round_out(session: Any) -> None:
    answering(session, "a-learner-dropped-out")
    session.compute(Compute(3, b""))
    assert session.withdrawn == [3]
