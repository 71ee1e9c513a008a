"""A turn comes round: nobody who is awake keeps the ledger from somebody who waits."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from tallystick.core.errors import RoundAborted
from tallystick.roles.ledger import turn_lock
from tallystick.roles.ledger.turn_lock import TurnLock

A_BUSY_CLIENTS_TURNS = 2_000


def turns_before_the_other_had_one(lock_file: Path) -> int:
    """One takes turn after turn without a pause, while another waits for its first."""
    busy, other = TurnLock(lock_file), TurnLock(lock_file)
    had_one = threading.Event()

    def wait_for_a_turn() -> None:
        other.take(party="steward")
        had_one.set()
        other.give_back()

    busy.take(party="client")
    steward = threading.Thread(target=wait_for_a_turn)
    steward.start()
    while not busy._somebody_waits():
        time.sleep(0.001)
    turns = 0
    while not had_one.is_set() and turns < A_BUSY_CLIENTS_TURNS:
        busy.give_back()
        busy.take(party="client")
        turns += 1
    busy.give_back()
    steward.join()
    busy.close()
    other.close()
    return turns


def test_a_turn_comes_while_somebody_else_takes_one_after_another(tmp_path: Path) -> None:
    assert turns_before_the_other_had_one(tmp_path / "ledger.lock") < A_BUSY_CLIENTS_TURNS


def test_who_was_looked_past_once_is_seen_the_next_time(tmp_path: Path) -> None:
    """A look takes the queue for an instant; who comes in that instant would never be stepped back for."""
    busy, looking = TurnLock(tmp_path / "ledger.lock"), TurnLock(tmp_path / "ledger.lock")
    other = TurnLock(tmp_path / "ledger.lock")
    busy.take(party="client")
    fcntl.flock(looking._queue, fcntl.LOCK_EX)
    steward = threading.Thread(target=lambda: other.take(party="steward"))
    steward.start()
    time.sleep(0.05)
    fcntl.flock(looking._queue, fcntl.LOCK_UN)
    until = time.monotonic() + 10
    while not busy._somebody_waits() and time.monotonic() < until:
        time.sleep(0.001)
    assert busy._somebody_waits()
    busy.give_back()
    steward.join()
    for lock in (busy, looking, other):
        lock.close()


def test_who_keeps_a_turn_is_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_lock, "PATIENCE_SECONDS", 0.01)
    first, second = TurnLock(tmp_path / "ledger.lock"), TurnLock(tmp_path / "ledger.lock")
    first.take(party="client")
    with pytest.raises(RoundAborted, match="for too long") as raised:
        second.take(party="client")
    assert raised.value.rule == "storage-in-use"
    first.give_back()
    second.take(party="client")
    second.give_back()
    first.close()
    second.close()
