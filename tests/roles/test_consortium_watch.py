"""A consortium file that is replaced under a running role: taken if it may be, and said if not."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tallystick.crypto.signing import SigningKey
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.consortium_watch import ConsortiumWatch, change_of_members, left
from tallystick.roles.identity.identity_files import Identity, load_identity, read_consortium, wall_clock
from tallystick.roles.identity.places import members_of
from tallystick.roles.identity.role_config import load_role_config

FRESH = SigningKey(bytes(range(32))).public
World = tuple[Path, Consortium, Identity]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The authority's folder, its consortium, and server-1's identity."""
    home, now = tmp_path_factory.mktemp("consortium"), datetime.now(UTC)
    enrolment.create("trial", home / "c", now=now)
    for name, role, address in (
        ("server-1", "server", "127.0.0.1:7101"),
        ("server-2", "server", "127.0.0.1:7102"),
        ("aggregator", "aggregator", "127.0.0.1:7100"),
        ("client-1", "client", None),
        ("client-2", "client", None),
    ):
        data = {"data": "records.csv"} if role == "client" else {}
        consortium, config = enrolment.enrol(name, role, home / "c", now=now, address=address, **data)
        if name == "server-1":
            mine = config
    return home / "c", consortium, load_identity(load_role_config(mine), consortium, wall_clock())


@pytest.fixture
def watch(made: World, tmp_path: Path) -> ConsortiumWatch:
    _, consortium, _ = made
    path = tmp_path / "consortium.toml"
    path.write_text(consortium.to_toml())
    return ConsortiumWatch(path, consortium)


def install(watch: ConsortiumWatch, text: str) -> None:
    """As an operator would: a new file under the old name, some other time than the last one."""
    scratch = watch.path.with_suffix(".new")
    scratch.write_text(text)
    scratch.rename(watch.path)


def test_a_file_without_a_party_is_taken(made: World, watch: ConsortiumWatch) -> None:
    _, old, identity = made
    assert watch.look(identity) is None
    new = old.without_party("client-2")
    install(watch, new.to_toml())
    taken = watch.look(identity)
    assert taken is not None
    assert taken.hash == new.hash == watch.current.hash
    assert left(members_of(old), members_of(taken)) == ("client-2",)
    assert watch.look(identity) is None
    assert watch.problem == ""


def test_the_same_content_again_is_nothing_new(made: World, watch: ConsortiumWatch) -> None:
    _, old, identity = made
    install(watch, "# another spelling\n" + old.to_toml())
    assert watch.look(identity) is None
    assert watch.look(identity, always=True) is None
    assert watch.problem == ""


def changed(old: Consortium, how: str, home: Path) -> str:
    me = old.party("server-1")
    if how == "another consortium":
        enrolment.create("trial", home, now=datetime.now(UTC) + timedelta(days=1))
        return replace(old, ca_certificate=read_consortium(home / "consortium.toml").ca_certificate).to_toml()
    new = {
        "older": replace(old, version=old.version - 1),
        "same version": replace(old.without_party("client-2"), version=old.version),
        "without me": old.without_party("server-1"),
        "another identity": old.with_party(replace(me, identity=FRESH)),
        "another role": old.with_party(replace(me, role="client", address=None)),
        "another certificate": old.with_party(replace(me, fingerprints=("sha256:" + "0" * 64,))),
        "no notice board": old.without_party("aggregator"),
    }.get(how, old)
    return {"half copied": old.to_toml()[:300], "not TOML": "\x00", "empty": ""}.get(how, new.to_toml())


@pytest.mark.parametrize(
    "how",
    [
        "another consortium",
        "older",
        "same version",
        "without me",
        "another identity",
        "another role",
        "another certificate",
        "no notice board",
        "half copied",
        "not TOML",
        "empty",
    ],
)
def test_a_file_that_may_not_be_taken_is_said_and_the_old_one_stays(
    made: World, watch: ConsortiumWatch, tmp_path: Path, how: str
) -> None:
    _, old, identity = made
    install(watch, changed(old, how, tmp_path / "other"))
    assert watch.look(identity) is None
    assert watch.problem
    assert watch.current.hash == old.hash
    install(watch, old.without_party("client-2").to_toml())
    assert watch.look(identity) is not None
    assert watch.problem == ""


def test_a_file_that_is_gone_is_said(made: World, watch: ConsortiumWatch) -> None:
    _, old, identity = made
    os.remove(watch.path)  # noqa: PTH107
    assert watch.look(identity) is None
    assert "cannot read" in watch.problem
    install(watch, old.to_toml())
    assert watch.look(identity) is None
    assert watch.problem == ""


def test_who_has_left(made: World) -> None:
    _, old, _ = made
    new = old.without_party("client-1").with_party(replace(old.party("server-2"), identity=FRESH))
    assert left(members_of(old), members_of(new)) == ("server-2", "client-1")
    assert left(members_of(old), members_of(old)) == ()
    assert change_of_members(["server-2"])[1] == "server-2"
    assert change_of_members([])[1] is None
