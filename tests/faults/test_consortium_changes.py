"""``consortium remove`` under running roles: whoever is removed has no line any more, and nobody is restarted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from consortium_fixture import Parties, health, wait_for
from crash_point_list import CrashPoint

from tallystick.core.errors import RoundAborted
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.places import node_for
from tallystick.roles.identity.role_config import load_role_config
from tallystick.transport.network.frames import Reason
from tallystick.transport.network.options import Options

STAY = ("server-1", "aggregator", "client-1", "client-2", "client-3")


@pytest.fixture
def parties(tmp_path: Path) -> object:
    made = Parties(tmp_path, clients=4, servers=3)
    try:
        yield made
    finally:
        made.close()


def in_force(parties: Parties, *names: str, without: str) -> None:
    """Until these roles have taken the file without this party."""
    wait_for(lambda: all(f"no longer in it: {without}" in parties.log(name) for name in names))


def test_a_removed_party_has_no_line_and_the_others_go_on(parties: Parties) -> None:
    place = parties.monitor("aggregator")
    role = parties.configs["server-1"][1]  # has a copy of the file of its own
    role.write_text(role.read_text().replace("../consortium.toml", "consortium.toml"))
    own = role.parent / "consortium.toml"
    shutil.copy(parties.home / "consortium.toml", own)
    config = load_role_config(parties.configs["client-4"][1])
    old = read_consortium(config.consortium)
    identity = load_identity(config, old, wall_clock())
    parties.start()
    wait_for(lambda: "client-4" in health(place).get("connected", ()))

    # A client is removed in the middle of a study: the study goes on without it.
    parties.hold_at("client-4", CrashPoint.CLIENT_SHARE_SENT.value)
    study = parties.fit_in_background(parties.study(rounds=1, round_timeout_s=4))
    parties.wait_held("client-4")
    enrolment.remove("client-4", parties.home)
    in_force(parties, "aggregator", "server-2", "server-3", without="client-4")
    wait_for(lambda: "client-4" not in health(place)["connected"])
    parties.let_go("client-4")
    model = study.result()
    assert {"client-1", "client-2", "client-3"} <= set(model.contributors_)
    assert any("client-4" in names for names in model.dropped_)

    # It is not let in again, though its certificate is as good as ever.
    node = node_for(identity, old, listen=None, options=Options(first_backoff=0.05, longest_backoff=0.25))
    node.start()
    wait_for(lambda: node.counters.ends().get(Reason.LOST, 0) >= 3)  # it has called server-2, server-3, aggregator
    assert node.connected() <= {"server-1"}
    node.stop()

    # server-1 has the old file yet: it takes part in nothing the others start, and says why.
    assert health(place)["consortium"] == read_consortium(parties.home / "consortium.toml").printed_hash
    with pytest.raises(RoundAborted) as refused:
        parties.fit(parties.study(rounds=1, round_timeout_s=4))
    assert refused.value.party == "server-1"
    assert "consortium file" in refused.value.cause
    shutil.copy(parties.home / "consortium.toml", own)
    in_force(parties, "server-1", without="client-4")
    again = parties.fit(parties.study(rounds=1, round_timeout_s=4))
    assert set(again.contributors_) == {"client-1", "client-2", "client-3"}

    # A server is removed in the middle of a study: the study ends, and names it.
    parties.hold_at("server-3", CrashPoint.SERVER_SHARE_SYNCED.value)
    study = parties.fit_in_background(parties.study(rounds=1, round_timeout_s=20))
    parties.wait_held("server-3")
    enrolment.remove("server-3", parties.home)
    shutil.copy(parties.home / "consortium.toml", own)
    failed = study.error()
    assert failed.rule == "other-consortium"
    assert "server-3 has left the consortium" in failed.cause  # the first to notice has said so
    in_force(parties, *STAY, "server-2", without="server-3")
    last = parties.fit(parties.study(rounds=1, round_timeout_s=4))
    assert set(last.contributors_) == {"client-1", "client-2", "client-3"}
    assert all(parties.log(name).count(" is up") == 1 for name in STAY)  # nobody was restarted
