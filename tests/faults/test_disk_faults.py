"""Real roles and a disk that takes nothing more. Nothing is released that is not durable; it recovers."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from consortium_fixture import Parties, bits, health, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once, die_and_come_back

ENOUGH_FOR_LOGS = 8192  # a commit needs more, the notes and the log of a test less


@contextmanager
def full_disk(parties: Parties, name: str) -> Iterator[None]:
    """Every file this role writes is full from here on: EFBIG, as a full disk or quota would say ENOSPC."""
    pid = parties.pids[name]
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (ENOUGH_FOR_LOGS, hard))
    try:
        yield
    finally:
        if parties.alive(name):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))


CASES = {
    "server-1": CrashPoint.SERVER_START_KEPT,
    "client-2": CrashPoint.CLIENT_START_KEPT,
    "aggregator": CrashPoint.AGGREGATOR_START_KEPT,
}


@pytest.mark.parametrize("name", CASES)
def test_full_disk_stops_before_releasing_and_recovers(parties: Parties, name: str) -> None:
    address = parties.monitor(name)
    parties.start()
    study = parties.study()
    parties.hold_at(name, CASES[name].value)
    running = parties.fit_in_background(study)
    parties.wait_held(name)
    with full_disk(parties, name):
        parties.let_go(name)
        red = wait_for(lambda: (said := health(address)) and said["green"] is False and said)
        assert red["status"] == 503
        assert "disk" in red["reason"] or "space" in red["reason"]
        assert parties.alive(name)
        assert not running.over
        assert not parties.noted("partials", "server-1")  # nothing is summed while it cannot be kept
    assert bits(running.result()) == bits(parties.simulated(study)), parties.logs()
    assert wait_for(lambda: health(address)["green"])
    for server in ("server-1", "server-2"):
        bodies = {tuple(line.split()[:2]): line for line in parties.noted("partials", server)}
        assert len(bodies) == len(set(parties.noted("partials", server)))


def test_noise_that_could_not_be_kept_is_never_released(parties: Parties) -> None:
    """Real randomness. The disk fails as the round's noise is to be kept; then it works; then the server is killed.

    A server that had gone on with the noise in its memory would draw another after the kill and send two partials.
    """
    address = parties.monitor("server-1")
    parties.start("server-2", "aggregator", *parties.clients)
    parties.start("server-1", seed=None)
    study = parties.study()
    parties.hold_at("aggregator", CrashPoint.AGGREGATOR_ROUND_KEPT.value)
    running = parties.fit_in_background(study)
    parties.wait_held("aggregator")
    wait_for(lambda: "running" in health(address).get("studies", {}).values())
    with full_disk(parties, "server-1"):
        parties.let_go("aggregator")
        wait_for(lambda: parties.noted("noise", "server-1"))  # drawn, and not kept
        wait_for(lambda: health(address)["green"] is False)
        parties.die_at("server-1", CrashPoint.SERVER_PARTIAL_SENT.value)
    die_and_come_back(parties, "server-1", CrashPoint.SERVER_PARTIAL_SENT, seed=None)
    running.result()
    sent = [line.split() for line in parties.noted("partials", "server-1")]
    bodies = {(study_hash, round): {line[3] for line in sent if line[1] == round} for study_hash, round, *_ in sent}
    assert len(bodies) == 3
    assert all(len(different) == 1 for different in bodies.values()), sent


def test_read_only_state_is_refused_at_the_start(parties: Parties) -> None:
    """A role that cannot count its boot does not start, and says why."""
    with parties.stored("server-1"):
        pass
    file = parties.state("server-1") / "role.sqlite"
    file.rename(file.with_suffix(".away"))
    file.mkdir()  # cannot be opened as a file, not even by root
    parties.start("server-1")
    assert parties.wait_dead("server-1") == 1
    assert "not started or ended: RoundAborted" in parties.log("server-1")
    file.rmdir()
    file.with_suffix(".away").rename(file)
    parties.start()
    study = parties.study()
    assert bits(parties.fit(study)) == bits(parties.simulated(study))
    check_said_once(parties, study, rounds=3)
