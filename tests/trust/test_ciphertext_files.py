"""A proxy's ciphertext files: whole or not there, read by parts, erased and not only unlinked, found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.roles.storage import erasure
from tallystick.trust.proxy.ciphertext_files import CiphertextFiles


def files(folder: Path) -> CiphertextFiles:
    return CiphertextFiles(folder, chunk_bytes=8, party="proxy")


def test_an_upload_counts_once_it_is_whole(tmp_path: Path) -> None:
    kept = files(tmp_path)
    kept.begin(1, 0)
    kept.put(1, 0, 0, b"12345678")
    assert list(kept.whole(1)) == []
    assert list(files(tmp_path).whole(1)) == []  # after a crash neither
    kept.put(1, 0, 1, b"abc")
    kept.complete(1, 0)
    for again in (kept, files(tmp_path)):
        assert list(again.whole(1)) == [0]
        assert list(again.whole(2)) == []
        assert again.get(1, 0, 0, 2, 4) == b"3456"
        assert again.get(1, 0, 1, 0, 8) == b"abc"


def test_a_new_upload_forgets_what_there_was_of_an_unfinished_one(tmp_path: Path) -> None:
    kept = files(tmp_path)
    kept.begin(1, 3)
    kept.put(1, 3, 0, b"12345678")
    kept.put(1, 3, 1, b"12345678")
    kept.begin(1, 3)
    kept.put(1, 3, 0, b"abcd")
    kept.complete(1, 3)
    assert kept.get(1, 3, 0, 0, 100) == b"abcd"
    kept.close()
    assert [path.name for path in tmp_path.iterdir()] == ["round-1.owner-3.upload"]


def test_what_is_dropped_is_overwritten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    unlink = Path.unlink

    def watched(path: Path, missing_ok: bool = False) -> None:
        seen.append(path.read_bytes())
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(erasure.Path, "unlink", watched)
    kept = files(tmp_path)
    for round in (1, 2):
        kept.begin(round, 0)
        kept.put(round, 0, 0, b"secret!!")
        kept.complete(round, 0)
    kept.put_sum(1, 0, b"noised")
    kept.complete_sum(1)
    kept.drop(1, sums=False)
    kept.close()
    assert seen == [bytes(8)]
    assert kept.get_sum(1, 0) == b"noised"
    assert list(kept.whole(2)) == [0]
    kept.drop(2, sums=True)
    kept.close()
    assert list(tmp_path.iterdir()) == []
