"""What one client's notices of charges may cost a server: neither the others' countersignatures, nor disk, nor time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from governance_examples import HASH, LEDGER, PROPOSAL, charge, decision
from test_limits_of_members import Board

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import digest, format_hash, parse_hash
from tallystick.privacy.chain import extend, genesis
from tallystick.protocol.governance.docket import Docket
from tallystick.roles.governance import witness as server
from tallystick.roles.governance.messages import Op, pack_parts
from tallystick.roles.governance.witness import Witness
from tallystick.roles.ledger.seen_heads import SeenHeads

STUDY = parse_hash(HASH)


class Ledger:
    """A client's chain, as long as its owner likes."""

    def __init__(self, client: str) -> None:
        self.client, self.hashes, self.contents = client, [genesis(bytes.fromhex(LEDGER), client)], list[bytes]()

    def grow(self, links: int) -> None:
        new = [digest(self.client.encode(), (len(self.contents) + i).to_bytes(8, "little")) for i in range(links)]
        self.hashes += extend(self.hashes[-1], new)
        self.contents += new

    def notice(self, since: int) -> bytes:
        head = format_hash(self.hashes[-1])
        said = charge(self.client, sequence=len(self.contents), head=head)
        return pack_parts([said.encode(), b"".join(self.contents[since:])])


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    made = Board(tmp_path, "s0")
    made.hear("hub", PROPOSAL, *(decision(client) for client in made.members.clients))
    made.seen = SeenHeads(tmp_path / "s0.sqlite", party="s0")  # type: ignore[attr-defined]
    yield made
    made.seen.close()  # type: ignore[attr-defined]
    made.store.close()


@pytest.fixture
def process(board: Board) -> Witness:
    """A server without a network: its statements and what it has seen are real files."""
    return Witness(board.exchange, board.seen, board.conduct, lambda: board.clock)  # type: ignore[attr-defined]


def signed(board: Board, client: str) -> int:
    return sum(s.kind == "countersignature" and s.body["client"] == client for s in board.store.statements(STUDY))


def test_one_client_cannot_use_up_the_countersignatures_of_a_study(board: Board, process: Witness) -> None:
    """A server's countersignatures of one study are limited: one client's ever longer ledger once took them all."""
    rogue, honest = Ledger("c3"), Ledger("c0")
    for _ in range(150):
        rogue.grow(1)
        try:
            process.receive("c3", STUDY, Op.NOTICE, rogue.notice(len(rogue.contents) - 1))
        except RemoteProtocolError as error:
            assert error.party == "c3"  # noqa: PT017
    honest.grow(3)
    process.receive("c0", STUDY, Op.NOTICE, honest.notice(0))
    assert signed(board, "c0") == 1
    assert 1 <= signed(board, "c3") <= server.HEADS_OF_A_STUDY


def test_a_notice_that_is_shown_again_is_answered_again(board: Board, process: Witness) -> None:
    honest = Ledger("c0")
    honest.grow(3)
    for _ in range(20):
        process.receive("c0", STUDY, Op.NOTICE, honest.notice(0))
    assert signed(board, "c0") == 1
    answers = [to for to, op, _ in board.sent if op == Op.STATEMENTS and to == "c0"]
    assert len(answers) == 20
    assert board.conduct.counts() == {}


def test_a_notice_costs_the_same_however_many_clients_there_are(
    board: Board, process: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each notice once had all statements of the study read and all decisions weighed: minutes, for 1,000 clients."""

    def notice(client: str) -> None:
        ledger = Ledger(client)
        ledger.grow(3)
        process.receive(client, STUDY, Op.NOTICE, ledger.notice(0))

    def refuse(*_arguments: Any) -> Any:
        raise AssertionError("all there is about the study is looked at")

    notice("c0")
    with monkeypatch.context() as patch:
        patch.setattr(board.store, "statements", refuse)
        patch.setattr(Docket, "_standing", refuse)
        for client in ("c1", "c2", "c1"):
            notice(client)
    assert [signed(board, client) for client in ("c0", "c1", "c2")] == [1, 1, 1]


def test_a_decision_that_was_taken_back_is_seen_however_often_the_standing_was_asked(
    board: Board, process: Witness
) -> None:
    """How the study stands is kept between notices: what is said in between counts from that moment on."""
    ledgers = {client: Ledger(client) for client in ("c0", "c1", "c2")}

    def notice(client: str) -> None:
        ledgers[client].grow(3)
        process.receive(client, STUDY, Op.NOTICE, ledgers[client].notice(0))

    notice("c0")
    board.hear("hub", decision("c1", "reject", 2))
    with pytest.raises(RemoteProtocolError, match="not approved"):
        notice("c1")
    notice("c2")
    board.hear("hub", decision("c1", "approve", 3))
    notice("c1")
    assert [signed(board, client) for client in ledgers] == [1, 1, 1]


def test_a_charge_of_somebody_elses_or_of_another_study_is_not_countersigned(board: Board, process: Witness) -> None:
    ledger = Ledger("c0")
    ledger.grow(3)
    with pytest.raises(RemoteProtocolError, match="client's own charge"):
        process.receive("c1", STUDY, Op.NOTICE, ledger.notice(0))
    with pytest.raises(RemoteProtocolError, match="client's own charge"):
        process.receive("c0", bytes(32), Op.NOTICE, ledger.notice(0))
    assert board.store.statements(STUDY)[-1].kind == "decision"


def test_a_ledger_fills_a_server_at_a_rate(board: Board, process: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notice may hold as many links as a message does: eight of them a second were kept, for ever."""
    monkeypatch.setattr(server, "HEADS_OF_A_STUDY", 1000)
    monkeypatch.setattr(process.links, "burst", 500.0)
    rogue, shown = Ledger("c3"), 0
    for _ in range(20):
        rogue.grow(400)
        process.receive("c3", STUDY, Op.NOTICE, rogue.notice(shown))
        last = process.seen.last("c3")
        shown = 0 if last is None else last.sequence
    assert shown <= 1200
    assert board.limits("c3") == {"ledger-links": 18}
    board.clock += 1e6
    process.receive("c3", STUDY, Op.NOTICE, rogue.notice(shown))
    last = process.seen.last("c3")
    assert last is not None
    assert last.sequence == len(rogue.contents)  # later it is heard


def test_following_one_ledger_takes_a_tenth_of_a_servers_time(
    board: Board, process: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADS_OF_A_STUDY", 1000)
    accept = process.seen.accept

    def slow(*arguments: Any) -> Any:
        board.clock += 1.0
        return accept(*arguments)

    monkeypatch.setattr(process.seen, "accept", slow)
    rogue = Ledger("c3")
    for _ in range(100):
        rogue.grow(1)
        process.receive("c3", STUDY, Op.NOTICE, rogue.notice(0))
    assert board.clock < 10.0
    assert board.limits("c3")["ledger-links"] > 80
