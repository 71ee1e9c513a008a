"""The measurement of alignment and joint products runs, on a few people."""

from __future__ import annotations

from benchmarks.vertical_times import PARTIES, aligned, multiplied


def test_it_runs_every_message_through() -> None:
    clocks, shared = aligned(20)
    assert shared == 10
    assert set(clocks.seconds) == set(PARTIES)
    assert all(clocks.sent[name] > 2 * 20 * 32 for name in PARTIES)
    clocks = multiplied(30, 3)
    assert set(clocks.seconds) == {*PARTIES, "dealer"}
    assert all(clocks.sent[name] > 30 * 3 * 8 for name in PARTIES)
