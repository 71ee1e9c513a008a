"""The notice board with many clients: everybody is told what concerns it, and the work grows with what is said."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from governance_examples import HASH, KEYS, PROPOSAL, T0, charge, decision, members, proposal, study_text

from tallystick.core.identifiers import parse_hash
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.statements import Statement, decode
from tallystick.roles.governance.exchange import SHARED_DECISIONS, Exchange
from tallystick.roles.governance.messages import Op, unpack_parts
from tallystick.roles.governance.store import GovernanceStore
from tallystick.transport.wire import HEADER_BYTES

MANY = SHARED_DECISIONS + 20
STUDY = parse_hash(HASH)


class Board:
    """One party's exchange, and what it sent."""

    def __init__(self, folder: Path, name: str, clients: int) -> None:
        self.members = members(clients)
        self.store = GovernanceStore(folder / f"{name}.sqlite", party=name, identities=self.members.identities)
        self.sent: list[tuple[str, Op, bytes]] = []
        self.exchange = Exchange(
            self.store, self.members, name, KEYS[name], send=self._send, wall=lambda: float(T0 + 200)
        )

    def _send(self, to: str, raw: bytes) -> None:
        self.sent.append((to, Op(raw[HEADER_BYTES]), raw[HEADER_BYTES + 1 :]))

    def hear(self, sender: str, statement: Statement) -> None:
        raw = statement.encode()
        self.exchange.receive(sender, Op.STATEMENTS, len(raw).to_bytes(4, "little") + raw)

    def told(self, party: str) -> set[str]:
        bodies = [body for to, op, body in self.sent if to == party and op == Op.STATEMENTS]
        return {decode(raw, party="hub").ident for body in bodies for raw in unpack_parts(body, "hub")}


@pytest.fixture(params=[4, MANY])
def hub(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Board]:
    board = Board(tmp_path, "hub", request.param)
    yield board
    board.store.close()


def everything(board: Board) -> tuple[list[Statement], list[Statement]]:
    decisions = [decision(name) for name in board.members.clients]
    charges = [charge(name) for name in board.members.clients]
    board.hear("ana", PROPOSAL)
    for statement in (*decisions, *charges):
        board.hear(statement.signer, statement)
    return decisions, charges


def test_everybody_is_told_what_concerns_it(hub: Board) -> None:
    decisions, charges = everything(hub)
    all_said = {s.ident for s in (*decisions, *charges)}
    assert hub.told("s0") == hub.told("bob") == {PROPOSAL.ident, *all_said}
    own = {decisions[0].ident, charges[0].ident}
    few = len(hub.members.clients) <= SHARED_DECISIONS
    assert hub.told("c0") == {PROPOSAL.ident, *(all_said - own if few else ())}
    hub.sent.clear()
    hub.exchange.tell_docket(STUDY, "c0")
    hub.exchange.tell_docket(STUDY, "s0")
    quorum = {d.ident for d in decisions[:3]}
    assert hub.told("c0") == ({PROPOSAL.ident, *all_said} if few else {PROPOSAL.ident, *own, *quorum})
    assert hub.told("s0") == {PROPOSAL.ident, *all_said}


def test_a_line_that_comes_back_is_told_what_it_lacks_and_no_more(hub: Board) -> None:
    decisions, charges = everything(hub)
    hub.sent.clear()
    hub.exchange.connected("c1")
    ((_, op, body),) = hub.sent
    own = {decisions[1].ident, charges[1].ident}
    few = len(hub.members.clients) <= SHARED_DECISIONS
    concerns = {PROPOSAL.ident, *own, *((s.ident for s in (*decisions, *charges)) if few else ())}
    assert op == Op.HAVE
    assert body == b"".join(map(parse_hash, sorted(concerns)))
    hub.sent.clear()
    hub.exchange.receive("c1", Op.HAVE, parse_hash(decisions[1].ident))
    assert hub.told("c1") == concerns - {decisions[1].ident}
    hub.sent.clear()
    hub.exchange.receive("c1", Op.WANT, parse_hash(decisions[1].ident) + parse_hash(decisions[2].ident))
    assert hub.told("c1") == {decisions[1].ident, *([decisions[2].ident] if few else [])}


def test_a_docket_is_what_the_file_says_and_looks_at_each_statement_once(
    hub: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: Counter[str] = Counter()
    apply = Docket.apply
    monkeypatch.setattr(Docket, "apply", lambda self, s: looked.update([s.ident]) or apply(self, s))
    hub.hear("ana", PROPOSAL)
    for name in hub.members.clients:
        hub.hear(name, decision(name))
        assert hub.exchange.standing(STUDY).approvals.keys() >= {name}
    assert max(looked.values()) == 1
    later = proposal(study=study_text(2), supersedes=HASH, created=T0 + 150)
    hub.store.add(later.encode())  # by another process of this party
    assert hub.exchange.standing(STUDY).state == "superseded"
    monkeypatch.undo()
    again = Docket.of(STUDY, hub.members, hub.store.statements(STUDY))
    assert again.statements() == hub.exchange.docket(STUDY).statements()
    assert hub.exchange.docket(later.study_hash).statements() == (later,)


def test_what_comes_in_within_a_turn_is_passed_on_in_one_go(hub: Board) -> None:
    with hub.exchange.turn():
        decisions, charges = everything(hub)
        assert hub.sent == []
    told = [to for to, op, _ in hub.sent if op == Op.STATEMENTS]
    assert told.count("s0") == told.count("bob") == told.count("c0") == 1
    assert hub.told("s1") == {s.ident for s in (PROPOSAL, *decisions, *charges)}
    hub.sent.clear()
    hub.hear("ana", proposal(study=study_text(2)))  # and at once outside of one
    assert {to for to, _, _ in hub.sent} == {"s0", "s1", "bob", *hub.members.clients}
