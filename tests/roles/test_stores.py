"""The role store: what it keeps through restarts, and what a bad disk does to it."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.core.errors import LocalProtocolError, RoundAborted, VerificationError
from tallystick.core.redaction import Secret
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.secure_sum import Witness
from tallystick.roles.storage.database import is_storage_failure, storage_error
from tallystick.roles.storage.stores import RoleStore

STUDY, OTHER = b"\x01" * 32, b"\x02" * 32


def open_store(path: Path, party: str = "s0") -> RoleStore:
    return RoleStore(path / "state" / "role.db", party=party)


@pytest.fixture
def store(tmp_path: Path):
    with open_store(tmp_path) as store:
        store.add_study(STUDY, b'{"a":1}', "program text", started=5.0)
        yield store


def test_everything_survives_closing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.boot == 1
        store.add_study(STUDY, b'{"a":1}', "text", started=1.5)
        store.persist(STUDY, "round", b"first")
        store.persist(STUDY, "round", b"second")
        store.persist(STUDY, "list", bytes(range(256)))
        store.put_key(STUDY, "x25519", Secret(b"k" * 32))
        store.put_release(STUDY, 2, b"two")
        store.put_release(STUDY, 1, b"one")
        store.set_status(STUDY, "finished", ended=9.0)
    with open_store(tmp_path) as store:
        assert store.boot == 2
        assert store.records(STUDY) == {"round": b"second", "list": bytes(range(256))}
        assert store.records(OTHER) == {}
        assert store.key(STUDY, "x25519").reveal() == b"k" * 32
        assert store.releases(STUDY) == ((1, b"one"), (2, b"two"))
        (study,) = store.studies()
        assert (study.canonical, study.program, study.status) == (b'{"a":1}', "text", "finished")
        assert (study.started, study.ended) == (1.5, 9.0)
        store.set_status(STUDY, "finished")
        assert store.study(STUDY).ended == 9.0


def test_settings_are_the_durable_ones(store: RoleStore) -> None:
    pragma = {name: store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert pragma == {"journal_mode": "wal", "synchronous": 2}
    assert store._db.execute("PRAGMA foreign_keys").fetchone()[0] == 1
    for name in ("role.db", "role.db.lock", "role.db-wal"):
        mode = stat.S_IMODE((store._path.parent / name).stat().st_mode)
        assert mode == 0o600, name


def test_records_belong_to_a_study(store: RoleStore) -> None:
    with pytest.raises(LocalProtocolError):
        store.persist(OTHER, "round", b"x")
    with pytest.raises(LocalProtocolError):
        store.put_key(OTHER, "x25519", Secret(b"k"))
    with pytest.raises(LocalProtocolError):
        store.set_status(OTHER, "running")
    with pytest.raises(LocalProtocolError):
        store.set_status(STUDY, "dreaming")
    with pytest.raises(LocalProtocolError):
        store.add_study(b"short", b"", "")


def test_nothing_is_released_or_defined_twice(store: RoleStore) -> None:
    store.add_study(STUDY, b'{"a":1}', "program text")
    for change in ((b'{"a":2}', "program text"), (b'{"a":1}', "other text")):
        with pytest.raises(VerificationError):
            store.add_study(STUDY, *change)
    store.put_release(STUDY, 1, b"one")
    store.put_release(STUDY, 1, b"one")
    with pytest.raises(VerificationError):
        store.put_release(STUDY, 1, b"other")
    assert store.releases(STUDY) == ((1, b"one"),)


def test_a_transaction_is_all_or_nothing(store: RoleStore) -> None:
    def broken() -> None:
        with store.transaction():
            store.persist(STUDY, "a", b"1")
            with store.transaction():
                store.persist(STUDY, "b", b"2")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert store.records(STUDY) == {}
    with store.transaction():
        store.persist(STUDY, "a", b"1")
        store.persist(STUDY, "b", b"2")
    assert len(store.records(STUDY)) == 2


def test_erased_keys_are_in_no_file(store: RoleStore) -> None:
    secret = b"a key to be forgotten, wherever!"
    store.put_key(STUDY, "x25519", Secret(secret))
    files = lambda: b"".join(f.read_bytes() for f in store._path.parent.rglob("*") if f.is_file())  # noqa: E731
    assert secret in files()  # the test can fail
    store.erase_secrets(STUDY)
    assert store.key(STUDY, "x25519") is None
    assert secret not in files()


def test_full_disk_keeps_nothing_by_halves_and_recovers(store: RoleStore) -> None:
    """``max_page_count`` makes SQLite meet a full disk."""
    store.persist(STUDY, "round", b"old")
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")

    def too_much() -> None:
        with store.transaction():
            store.persist(STUDY, "small", b"x")
            store.persist(STUDY, "round", bytes(1_000_000))

    with pytest.raises(RoundAborted) as full:
        too_much()
    assert full.value.rule == "storage-full"
    assert full.value.party == "s0"
    assert full.value.remedy
    assert is_storage_failure(full.value)
    assert store.records(STUDY) == {"round": b"old"}
    store._db.execute("PRAGMA max_page_count = 1000000")  # space returns
    store.persist(STUDY, "round", bytes(1_000_000))
    assert len(store.records(STUDY)["round"]) == 1_000_000


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from tallystick.core.errors import RoundAborted
from tallystick.roles.storage.stores import RoleStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = RoleStore(Path(sys.argv[1]), party="s0")
store.add_study(bytes(32), b"{}", "")
store.persist(bytes(32), "kept", b"before")
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
try:
    store.persist(bytes(32), "lost", bytes(1_000_000))
except RoundAborted as error:
    assert error.rule in ("storage-full", "storage-failed"), error.rule
    assert dict(store.records(bytes(32))) == {"kept": b"before"}
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store.persist(bytes(32), "later", bytes(1_000_000))
    print("typed")
"""


def test_writes_the_kernel_refuses(tmp_path: Path) -> None:
    path = tmp_path / "role.db"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, path], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "typed", done.stderr
    with RoleStore(path, party="s0") as store:
        assert sorted(store.records(bytes(32))) == ["kept", "later"]


def test_a_read_only_disk(store: RoleStore) -> None:
    store._db.execute("PRAGMA query_only = ON")
    with pytest.raises(RoundAborted) as refused:
        store.persist(STUDY, "round", b"x")
    assert refused.value.rule == "storage-read-only"


def test_errno_and_sqlite_codes_are_typed() -> None:
    for number, rule in ((28, "storage-full"), (30, "storage-read-only"), (5, "storage-failed")):
        error = storage_error(OSError(number, os.strerror(number), "/secret/path"), "a share", party="s1")
        assert error.rule == rule
        assert "/secret/path" not in str(error)
    assert not is_storage_failure(ValueError())
    assert not is_storage_failure(RoundAborted("x", rule="missing-server"))


@pytest.mark.parametrize("damage", ["header", "middle"])
def test_a_damaged_file_is_not_opened(tmp_path: Path, damage: str) -> None:
    with open_store(tmp_path) as store:
        store.add_study(STUDY, b"{}" * 5000, "")
        for i in range(200):
            store.persist(STUDY, f"key {i}", bytes([i]) * 300)
        path = store._path
    raw = bytearray(path.read_bytes())
    if damage == "header":
        raw[:100] = bytes(100)
    else:
        for page in range(2 * 4096, len(raw), 4096):
            raw[page : page + 200] = b"\xa5" * 200
    path.write_bytes(raw)
    with pytest.raises(VerificationError) as refused:
        open_store(tmp_path)
    assert refused.value.rule == "storage-corrupt"
    path.unlink()
    with open_store(tmp_path) as store:  # the lock was given back
        assert store.boot == 1


def test_a_second_copy_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with pytest.raises(RoundAborted) as refused:
            open_store(tmp_path)
        assert refused.value.rule == "storage-in-use"
        assert store.boot == 1
    with open_store(tmp_path) as store:
        assert store.boot == 2  # the refused start counted for nothing
        store.close()
        store.close()


def test_state_of_another_party_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path, "s0").close()
    with pytest.raises(VerificationError, match="s0"):
        open_store(tmp_path, "s1")


KILLED = """
import os, signal, sys
from pathlib import Path
from tallystick.roles.storage.stores import RoleStore
store = RoleStore(Path(sys.argv[1]), party="s0")
store.add_study(bytes(32), b"{}", "")
store.persist(bytes(32), "kept", b"x" * 10_000)
print(store.boot, flush=True)
store._db.execute("BEGIN IMMEDIATE")
store._db.execute("INSERT INTO records VALUES (?, 'half', x'00')", (bytes(32),))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_keeps_what_was_committed_and_counts_the_boot(tmp_path: Path) -> None:
    path = tmp_path / "role.db"
    for boot in (1, 2):
        done = subprocess.run([sys.executable, "-c", KILLED, path], capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
        assert done.stdout.strip() == str(boot)
    with RoleStore(path, party="s0") as store:
        assert store.boot == 3
        assert dict(store.records(bytes(32))) == {"kept": b"x" * 10_000}


def test_a_snapshot_brings_the_old_counter_back_with_another_value(tmp_path: Path) -> None:
    """This file alone cannot know; the peers that met the same start with another value can (``STALE_SERVER``)."""
    open_store(tmp_path).close()
    path = tmp_path / "state" / "role.db"
    snapshot = path.read_bytes()
    values = []
    for boot in (2, 3):
        with open_store(tmp_path) as store:
            assert store.boot == boot
            values.append(store.boot_value)
    path.write_bytes(snapshot)
    with open_store(tmp_path) as store:
        assert store.boot == 2
        assert len({*values, store.boot_value}) == 3
        kept = store._read("SELECT value FROM meta WHERE key = 'boot_value'")
        assert kept == [(store.boot_value,)]  # on disk before anything is said under it
        assert len(store.boot_value) == 16


def test_boots_of_others_are_remembered_over_studies_and_restarts(tmp_path: Path) -> None:
    server, other = (SigningKey(bytes([i]) * 32).public for i in (1, 2))
    one, two = b"1" * 16, b"2" * 16
    with open_store(tmp_path) as store:
        for study in (STUDY, OTHER):
            store.add_study(study, b"{}", "")
        here, there = store.boots(STUDY), store.boots(OTHER)
        assert here.last(server) is None
        assert here.value(server, 3) is None
        here.note(Witness(server, 3, one))
        here.note(Witness(server, 3, one))
        assert there.last(server) == (3, one)  # known from the other study
        there.note(Witness(server, 4, two))
    with open_store(tmp_path) as store:
        here, there = store.boots(STUDY), store.boots(OTHER)
        assert here.last(server) == (3, one)  # a study goes by what it has met itself
        assert there.last(server) == (4, two)
        assert store.boots(b"\x03" * 32).last(server) == (4, two)
        assert (here.value(server, 4), there.value(server, 3)) == (two, one)
        assert here.last(other) is None


def test_errors_of_sqlite_without_a_code_are_typed() -> None:
    assert storage_error(sqlite3.ProgrammingError("x"), "a record").rule == "storage-failed"
