"""Totals that tell of single people are kept like releases, and go with the study's secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.core.errors import VerificationError
from tallystick.roles.storage.stores import RoleStore

STUDY = bytes(range(32))


def test_a_secret_total_is_read_like_any_other_until_the_study_ends(tmp_path: Path) -> None:
    with RoleStore(tmp_path / "role.sqlite", party="reducer") as store:
        store.add_study(STUDY, b"{}", "")
        store.put_release(STUDY, 10, b"ten, of everybody", secret=True)
        store.put_release(STUDY, 2, b"two")
        store.put_release(STUDY, 10, b"ten, of everybody", secret=True)
        with pytest.raises(VerificationError):
            store.put_release(STUDY, 10, b"another", secret=True)
        assert store.releases(STUDY) == ((2, b"two"), (10, b"ten, of everybody"))
    with RoleStore(tmp_path / "role.sqlite", party="reducer") as store:
        assert store.release(STUDY, 10) == b"ten, of everybody"
        assert "10" not in store.records(STUDY)
        assert b"ten, of everybody" not in (tmp_path / "role.sqlite").read_bytes()
        store.erase_secrets(STUDY)
        assert store.release(STUDY, 10) is None
        assert store.releases(STUDY) == ((2, b"two"),)
    assert not (tmp_path / STUDY.hex()).exists()
