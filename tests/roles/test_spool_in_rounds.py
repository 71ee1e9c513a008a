"""The server's machine on a real spool and a real store, under the secure sum's own fault schedules.

A crash cuts the file back to what was synced, as a power failure may; the unique-bucket oracle looks at every total.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

import secure_sum_world

from tallystick.roles.shares.spool import SpoolShares
from tallystick.roles.storage.stores import RoleStore


class SpoolOnDisk:
    """The world's share store, on disk: a crash loses the unsynced tail."""

    home: Path

    def __init__(self) -> None:
        self.directory = self.home / f"store-{len(list(self.home.iterdir()))}"
        self.spool = SpoolShares(self.directory)

    def crash(self) -> None:
        tails = [(file.path, file.synced) for file in self.spool._rounds.values()]
        self.spool.close()
        for path, synced in tails:
            with path.open("r+b") as file:
                file.truncate(synced)
        self.spool = SpoolShares(self.directory)

    def __getattr__(self, name: str):
        return getattr(self.spool, name)

    def __len__(self) -> int:
        return len(self.spool)


class RecordsOnDisk(dict):
    """The world's records, through the role store and back."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.store = RoleStore(path, party="any")
        self.store.add_study(bytes(32), b"{}", "")

    def __setitem__(self, key: str, value: bytes) -> None:
        self.store.persist(bytes(32), key, value)
        super().__setitem__(key, self.store.records(bytes(32))[key])


@pytest.mark.parametrize("batch", range(3))
def test_promises_hold_on_real_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr("os.fsync", lambda fd: None)
    monkeypatch.setattr(secure_sum_world, "CrashShares", SpoolOnDisk)
    crashes = 0
    for seed in range(1000 + batch, 1036, 3):
        home = tmp_path / str(seed)
        home.mkdir()
        monkeypatch.setattr(SpoolOnDisk, "home", home, raising=False)
        plan = secure_sum_world.schedule(seed)
        world = secure_sum_world.World(plan)
        disks = {name: RecordsOnDisk(tmp_path / f"{seed}.{name}.db") for name in world.parameters.servers}
        for name, disk in disks.items():
            disk.store._db.execute("PRAGMA synchronous = OFF")
            world.processes[name].records = disk
        try:
            world.run()
        except Exception as error:
            pytest.fail(f"seed {seed}: {error!r}")
        finally:
            for process in world.processes.values():
                process.shares.spool.close()
            for disk in disks.values():
                disk.store.close()
        crashes += sum(world.processes[name].boot > 1 for name in world.parameters.servers)
    assert crashes >= 1
