"""Files whose content must go: overwritten on disk before they are unlinked, also when a crash comes in between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spool_shares import make_shares

from tallystick.core.errors import LocalProtocolError
from tallystick.core.redaction import Secret
from tallystick.roles.shares.spool import SpoolShares
from tallystick.roles.storage import erasure
from tallystick.roles.storage.erasure import BackgroundEraser, SecretFiles, overwrite, set_aside
from tallystick.roles.storage.stores import RoleStore

SECRET, OTHER = bytes(range(1, 256)) * 10, b"another secret, as long as that" * 9
SIZE = 3000


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes, bool]]:
    """Every file at the moment it is unlinked: its name, its content, and whether that was made durable before."""
    gone, synced = [], set()
    unlink, fsync = Path.unlink, os.fsync

    def noted_fsync(fd: int) -> None:
        fsync(fd)
        synced.add(os.fstat(fd).st_ino)

    def noted_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.exists():
            gone.append((path.name, path.read_bytes(), path.stat().st_ino in synced))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted_unlink)
    monkeypatch.setattr(erasure.os, "fsync", noted_fsync)
    return gone


def test_a_file_is_overwritten_in_full_and_on_disk_before_it_goes(tmp_path: Path, seen: list) -> None:
    for size in (0, 1, 4096, (1 << 20) + 3):
        path = tmp_path / f"{size}"
        path.write_bytes(os.urandom(size))
        overwrite(path)
        assert seen.pop() == (f"{size}", bytes(size), True)
        assert not path.exists()
    overwrite(tmp_path / "absent")
    assert set_aside(tmp_path / "absent") is None
    assert seen == []


def test_secrets_are_kept_replaced_and_erased(tmp_path: Path, seen: list) -> None:
    files = SecretFiles(tmp_path / "state" / "study")
    assert files.get("noise.secret") is None
    assert files.names(".secret") == ()
    files.put("noise.secret", SECRET)
    files.put("x25519.key", OTHER)
    assert (files.get("noise.secret"), files.names(".secret")) == (SECRET, ("noise.secret",))
    assert ((tmp_path / "state" / "study" / "x25519.key").stat().st_mode & 0o777) == 0o600
    files.put("noise.secret", OTHER)  # the one that is replaced is erased, not just unlinked
    assert seen == [("noise.secret.erasing", bytes(len(SECRET)), True)]
    assert files.get("noise.secret") == OTHER
    files.erase("noise.secret")
    files.erase("noise.secret")
    assert files.get("noise.secret") is None
    assert files.get("x25519.key") == OTHER
    files.erase_folder()
    files.erase_folder()
    assert not (tmp_path / "state" / "study").exists()
    assert all(not any(content) and durable for _, content, durable in seen)
    assert len(seen) == 3


@pytest.mark.parametrize("left", ["noise.secret.new", "noise.secret.erasing"])
@pytest.mark.parametrize("by", ["put", "erase", "erase_folder"])
def test_what_a_crash_left_is_not_read_and_is_erased(tmp_path: Path, seen: list, left: str, by: str) -> None:
    """Killed while a secret was being written, or between setting it aside and overwriting it."""
    files = SecretFiles(tmp_path)
    (tmp_path / left).write_bytes(SECRET)
    assert files.get("noise.secret") is None
    assert files.names(".secret") == ()
    {
        "put": lambda: (files.put("noise.secret", OTHER), files.put("noise.secret", OTHER)),
        "erase": lambda: files.erase("noise.secret"),
        "erase_folder": files.erase_folder,
    }[by]()
    assert all(not any(content) and durable for _, content, durable in seen)
    assert not [f for f in tmp_path.rglob("*") if SECRET[:16] in f.read_bytes()]


def test_a_name_that_came_back_after_a_loss_of_power_is_no_secret(tmp_path: Path) -> None:
    """The zeros were durable, the name was not yet gone."""
    (tmp_path / "seed.secret").write_bytes(bytes(40))
    assert SecretFiles(tmp_path).get("seed.secret") is None


def test_a_disk_that_does_not_take_the_zeros_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eraser, path = BackgroundEraser(), tmp_path / "round.spool.erasing"
    path.write_bytes(SECRET)

    def broken(fd: int) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(erasure.os, "fsync", broken)
        eraser.add(path)
        with pytest.raises(OSError, match="input/output"):
            eraser.wait()
    assert path.exists()  # for the next try
    eraser.add(path)
    eraser.add(None)
    eraser.wait()
    eraser.wait()
    assert not path.exists()


def test_the_end_of_a_study_erases_open_rounds_too(tmp_path: Path, seen: list) -> None:
    """Shares that were put, one on its way in, and what an earlier process had set aside."""
    shares = make_shares(0, SIZE)
    (tmp_path / "round-0000000001.spool.erasing").write_bytes(SECRET)
    spool = SpoolShares(tmp_path)
    spool.put(make_shares(1, SIZE, round=2)[0])
    spool.put(make_shares(2, SIZE, round=3)[1])
    spool.sync()
    sink = spool.begin(3, 0, 200)
    sink.write(shares[0].payload[:100])
    payload = bytes(make_shares(1, SIZE, round=2)[0].payload[:16])
    assert payload in (tmp_path / "round-0000000002.spool").read_bytes()
    spool.erase()
    assert sorted(name for name, _, _ in seen) == [f"round-000000000{i}.spool.erasing" for i in (1, 2, 3)]
    assert all(not any(content) and durable for _, content, durable in seen)
    assert list(tmp_path.iterdir()) == []
    for late in (lambda: sink.write(b"x"), lambda: spool.begin(4, 0, 200)):
        with pytest.raises(LocalProtocolError):
            late()
    assert list(tmp_path.iterdir()) == []


def test_the_torn_end_of_a_spool_is_overwritten_before_it_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = SpoolShares(tmp_path)
    spool.put(make_shares(0, SIZE)[0])
    spool.sync()
    path = tmp_path / "round-0000000001.spool"
    whole = path.stat().st_size
    sink = spool.begin(1, 1, 4000)
    sink.write(b"\xa5" * 3000)
    spool._rounds[1].write(spool._rounds[1].end, b"\xa5" * 40)  # a frame that is none: killed in the middle of one
    cut = []
    truncate = os.ftruncate

    def noted(fd: int, length: int) -> None:
        cut.append(path.read_bytes()[length:])
        truncate(fd, length)

    monkeypatch.setattr(os, "ftruncate", noted)
    SpoolShares(tmp_path).close()
    assert [any(end) for end in cut] == [False]
    assert path.stat().st_size >= whole


def test_no_secret_ever_comes_into_the_database(tmp_path: Path) -> None:
    """Not for a moment: what SQLite deletes may stay in the gaps of a page, and in its log."""
    study = bytes(32)
    with RoleStore(tmp_path / "role.sqlite", party="s0") as store:
        store.add_study(study, b"{}", "")
        store.put_key(study, "x25519", Secret(OTHER))
        store.persist(study, "noise", SECRET, secret=True)
        store.persist(study, "round", b"public")
        assert store.records(study) == {"noise": SECRET, "round": b"public"}
        for file in tmp_path.glob("role.sqlite*"):
            assert SECRET[:16] not in file.read_bytes()
            assert OTHER[:16] not in file.read_bytes()
        store.forget(study, "noise")
        store.forget(study, "noise")
        assert store.records(study) == {"round": b"public"}
        assert store.key(study, "x25519").reveal() == OTHER
        store.erase_secrets(study)
        assert store.key(study, "x25519") is None
        assert not store.folder(study).exists()
