"""What the program's thread of an aggregator is given: the total of the round it asked for, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tallystick.core.errors import RoundAborted
from tallystick.engines.totals import NoisyTotal
from tallystick.roles.processes.coordinated_rounds import pack_total
from tallystick.roles.processes.coordinator import CoordinatorSession


class Session(CoordinatorSession):
    """Its loop runs when the test says so."""

    def __init__(self) -> None:
        import queue

        self.study_hash, self._answers, self._clock, self._awaited = b"s" * 32, queue.Queue(), None, None
        self.kept: dict[int, bytes] = {}
        self.posted: list[Callable[[], None]] = []
        self.part: Any = SimpleNamespace(round=2)
        store = SimpleNamespace(release=lambda _study, round: self.kept.get(round), records=lambda _study: {})
        self.process: Any = SimpleNamespace(store=store)

    def _post(self, work: Callable[[], None]) -> None:
        self.posted.append(work)


def total(value: int) -> NoisyTotal:
    return NoisyTotal(values=np.array([value], dtype=np.int64), participants=("a", "b"), dropped=())


def request(round: int) -> Any:
    return SimpleNamespace(round=round, plan=SimpleNamespace(grid=SimpleNamespace(size=1)), model=b"")


def test_a_round_that_is_answered_twice_is_not_taken_for_the_next() -> None:
    """A restarted aggregator's round may end just when the program asks for it: both answer.

    Seen once in a run of all tests: the total of round 1 was used again as that of round 2.
    """
    session = Session()
    session._answers.put((1, total(1)))  # its end
    session.kept[1] = pack_total(total(1))
    session._open(request(1))  # the question, carried out after it
    del session.kept[1]
    assert session.noisy_total(request(1)).values[0] == 1
    session._answers.put((2, total(2)))
    assert session.noisy_total(request(2)).values[0] == 2


def test_the_failure_of_a_round_is_its_own() -> None:
    session = Session()
    session._answers.put((1, RoundAborted("an old one")))
    session._answers.put((2, RoundAborted("this one")))
    with pytest.raises(RoundAborted, match="this one"):
        session.noisy_total(request(2))


def test_of_a_running_stream_only_what_was_seen_to_be_paid_for_is_told() -> None:
    """The program's thread may add a tick just then, of somebody whose charge is not known here yet."""
    session = Session()
    session._clock = object()  # type: ignore[assignment]
    first, second = total(1), NoisyTotal(values=np.array([2]), participants=("a", "b", "unpaid"), dropped=())
    session._released = [(np.zeros(1), first)]

    def payment(participants: Any) -> Any:
        session._released.append((np.ones(1), second))
        return None if any("unpaid" in names for names in participants) else "paid"

    session._payment = payment  # type: ignore[method-assign]
    told = session.interim()
    assert told is not None
    assert json.loads(told)["contributors"] == [["a", "b"]]
    assert session.interim() is None  # now it is seen, and not paid for
