"""A disk that is really full: ENOSPC from a small file system, not from a limit; it recovers when space returns.

Each role's state, or only a server's spool of shares, lies on a tmpfs of a few megabytes that the test fills to the
last byte at a step of a running study, and empties again. Mounting takes root; elsewhere these tests are skipped, and
``test_disk_faults`` shows the same with EFBIG.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from consortium_fixture import Parties, bits, health, wait_for
from crash_point_list import CrashPoint
from test_crash_points_of_roles import check_said_once

MEGABYTES = 8
TIMEOUT = 60  # seconds of a round: the disk is full for a part of it


class SmallDisk:
    """A tmpfs at a folder, and what fills it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self._ballast = folder, folder / "ballast"
        command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m,mode=0700", "tallystick-test", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except OSError as error:
            pytest.skip(f"no file system can be mounted here: {error}")
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip() or done.returncode}")

    def fill(self) -> None:
        """To the last byte; again, if something was freed meanwhile."""
        fd = os.open(self._ballast, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            for size in (65536, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(fd, bytes(size))
            with pytest.raises(OSError) as full:
                os.write(fd, b"!")
            assert full.value.errno == errno.ENOSPC
        finally:
            os.close(fd)

    def make_room(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def disks(parties: Parties) -> Iterator[list[SmallDisk]]:
    """Unmounted when everybody who writes to them has ended."""
    made: list[SmallDisk] = []
    try:
        yield made
    finally:
        parties.close()
        for disk in made:
            disk.close()


def red(address: str) -> dict[str, object]:
    said = wait_for(lambda: (now := health(address)) and now["green"] is False and now)
    assert said["status"] == 503
    assert "no space left" in said["reason"]
    return said


CASES = {
    "server-1": CrashPoint.SERVER_START_KEPT,
    "client-2": CrashPoint.CLIENT_START_KEPT,
    "aggregator": CrashPoint.AGGREGATOR_START_KEPT,
}


@pytest.mark.parametrize("name", CASES)
def test_a_full_state_disk_stops_the_role_and_space_brings_it_back(
    parties: Parties, disks: list[SmallDisk], name: str
) -> None:
    """The SQLite files: a server's noise, a client's ledger and contribution, the aggregator's rounds."""
    address = parties.monitor(name)
    disks.append(SmallDisk(parties.state(name)))
    parties.start()
    study = parties.study(round_timeout_s=TIMEOUT)
    parties.hold_at(name, CASES[name].value)
    running = parties.fit_in_background(study)
    parties.wait_held(name)
    disks[0].fill()
    parties.let_go(name)
    red(address)
    assert parties.alive(name)
    assert not running.over
    assert not parties.noted("partials", "server-1")  # nothing is summed while it cannot be kept
    disks[0].make_room()
    model = running.result()
    assert bits(model) == bits(parties.simulated(study)), parties.logs()
    assert all(names == () for names in model.dropped_)
    assert wait_for(lambda: health(address)["green"])
    # noise may have been drawn for a record that was never kept, and then is drawn again: but only one was used
    for server in ("server-1", "server-2"):
        sent = [tuple(line.split()) for line in parties.noted("partials", server)]
        assert len({line[:2] for line in sent}) == len(set(sent))


def test_a_full_spool_takes_no_share_and_loses_none(parties: Parties, disks: list[SmallDisk]) -> None:
    """Only the disk of the shares is full: no share is acknowledged that is not on it, and all come in the end."""
    address = parties.monitor("server-1")
    study = parties.study(round_timeout_s=TIMEOUT)
    disks.append(SmallDisk(parties.state("server-1") / study.hash.hex()))
    parties.start()
    parties.hold_at("server-1", CrashPoint.SERVER_NOISE_KEPT.value)
    running = parties.fit_in_background(study)
    parties.wait_held("server-1")
    disks[0].fill()
    parties.let_go("server-1")
    red(address)
    assert not running.over
    assert CrashPoint.SERVER_SHARE_ACCEPTED.value not in parties.noted("reached", "server-1")
    assert not parties.noted("partials", "server-1")
    disks[0].make_room()
    model = running.result()
    assert bits(model) == bits(parties.simulated(study)), parties.logs()
    assert all(names == () for names in model.dropped_)
    assert wait_for(lambda: health(address)["green"])
    check_said_once(parties, study, rounds=3)


def test_a_disk_that_is_full_at_the_start_is_told_and_nothing_is_counted(
    parties: Parties, disks: list[SmallDisk]
) -> None:
    disks.append(SmallDisk(parties.state("server-1")))
    disks[0].fill()
    parties.start("server-1")
    assert parties.wait_dead("server-1") == 1
    assert "no space left" in parties.log("server-1")
    disks[0].make_room()
    parties.start()
    study = parties.study(round_timeout_s=TIMEOUT)
    assert bits(parties.fit(study)) == bits(parties.simulated(study)), parties.logs()
    assert {line.split()[2] for line in parties.noted("partials", "server-1")} == {"1"}  # its first boot
