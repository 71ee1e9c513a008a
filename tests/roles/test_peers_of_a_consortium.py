"""Peers in a consortium file: with or without an address, some lines each, and role files that are a client's."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tallystick.application.party_files import PartyFiles
from tallystick.core.errors import StudyError
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.consortium import LINES, Consortium, dials
from tallystick.roles.identity.identity_files import read_consortium
from tallystick.roles.identity.places import members_of, peers_of
from tallystick.roles.identity.role_config import load_role_config

NOW = datetime.now(UTC)
PEERS = 14


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("peers") / "consortium"
    enrolment.create("peers", folder, now=NOW)
    enrolment.enrol("relay", "relay", folder, now=NOW, address="relay.example.org:7000")
    for i in range(PEERS):
        address = f"peer-{i:02}.example.org:7000" if i < PEERS - 2 else None
        enrolment.enrol(f"peer-{i:02}", "peer", folder, now=NOW, data="records.csv", address=address)
    enrolment.enrol("analyst", "analyst", folder, now=NOW)
    return folder


@pytest.fixture(scope="module")
def consortium(home: Path) -> Consortium:
    return read_consortium(home / "consortium.toml")


def test_peers_hold_the_records_and_the_relay_keeps_the_board(consortium: Consortium) -> None:
    members = members_of(consortium)
    assert len(members.clients) == PEERS
    assert members.board == "relay"
    assert members.helpers == ()
    assert set(members.witnesses) == set(members.clients)


def test_each_peer_has_some_lines_to_others_and_no_line_is_opened_twice(consortium: Consortium) -> None:
    opened = {p.name: [q.name for q in dials(consortium, p.name)] for p in consortium.by_role("peer")}
    for name, others in opened.items():
        assert others[0] == "relay"
        assert len(others) <= LINES + 1
        assert name not in others
        assert not any(name in opened.get(other, ()) for other in others)
    assert dials(consortium, "relay") == ()
    assert [p.name for p in dials(consortium, "analyst")] == ["relay"]


def test_everybody_is_connected_without_the_relay(consortium: Consortium) -> None:
    lines = [(p.name, q.name) for p in consortium.by_role("peer") for q in dials(consortium, p.name)[1:]]
    met, waiting = {"peer-00"}, ["peer-00"]
    while waiting:
        one = waiting.pop()
        for a, b in lines:
            other = b if a == one else a if b == one else None
            if other is not None and other not in met:
                met.add(other)
                waiting.append(other)
    assert len(met) == PEERS


def test_a_peer_without_an_address_listens_nowhere_and_pins_whom_it_dials(home: Path, consortium: Consortium) -> None:
    last = f"peer-{PEERS - 1:02}"
    config = load_role_config(home / last / "role.toml", role="peer")
    assert config.listen is None
    assert config.holds_records
    assert config.policy is not None
    known, wanted = peers_of(consortium, last, listening=False)
    assert {p.name for p in known} == set(wanted)
    assert load_role_config(home / "peer-00" / "role.toml").listen == "0.0.0.0:7000"


def test_what_a_client_does_with_its_ledger_a_peer_does_too(home: Path) -> None:
    with PartyFiles.of(home / "peer-00" / "role.toml", holder=True) as files:
        assert files.config.role == "peer"
    with pytest.raises(StudyError, match="not of 'client'"):
        PartyFiles.of(home / "relay" / "role.toml", holder=True)


def test_clients_still_have_no_address(home: Path) -> None:
    with pytest.raises(StudyError, match="has an address"):
        enrolment.enrol("ward", "client", home, now=NOW, data="r.csv", address="ward.example.org:7000")
