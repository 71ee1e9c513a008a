"""What one member can make another keep, answer and log: each limit by itself, without a socket."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from governance_examples import KEYS, PROPOSAL, T0, WEEK, charge, decision, digest_of, members, proposal, study_text

from tallystick.core.errors import RemoteProtocolError
from tallystick.core.identifiers import parse_hash
from tallystick.protocol.governance.statements import Statement, decode, make
from tallystick.roles.governance import early, exchange, messages, room
from tallystick.roles.governance.exchange import Exchange
from tallystick.roles.governance.messages import Op, pack_parts, unpack_parts
from tallystick.roles.governance.store import GovernanceStore
from tallystick.roles.operations import logs
from tallystick.roles.operations.conduct import Conduct
from tallystick.roles.processes import backlog
from tallystick.roles.processes.backlog import Backlog
from tallystick.roles.processes.process import RoleProcess
from tallystick.transport.network.admission import Unwanted
from tallystick.transport.wire import GOVERNANCE, HEADER_BYTES


class Board:
    """One party's exchange with a clock of its own; what it sent, and whom it limited."""

    def __init__(self, folder: Path, name: str = "hub") -> None:
        self.members = members(4)
        self.store = GovernanceStore(folder / f"{name}.sqlite", party=name, identities=self.members.identities)
        self.sent: list[tuple[str, Op, bytes]] = []
        self.heard: list[Statement] = []
        self.conduct = Conduct()
        self.clock, self.wall = 0.0, float(T0 + 200)
        self.exchange = Exchange(
            self.store,
            self.members,
            name,
            KEYS[name],
            send=lambda to, raw: self.sent.append((to, Op(raw[HEADER_BYTES]), raw[HEADER_BYTES + 1 :])),
            wall=lambda: self.wall,
            heard=self.heard.append,
            limited=self.conduct.note,
            now=lambda: self.clock,
        )

    def hear(self, sender: str, *statements: Statement) -> None:
        self.exchange.receive(sender, Op.STATEMENTS, pack_parts(s.encode() for s in statements))

    def bytes_to(self, party: str) -> int:
        return sum(len(body) for to, op, body in self.sent if to == party and op == Op.STATEMENTS)

    def limits(self, member: str) -> dict[str, int]:
        return self.conduct.counts().get(member, {})


@pytest.fixture
def hub(tmp_path: Path) -> Any:
    board = Board(tmp_path)
    yield board
    board.store.close()


def made_up(i: int, signer: str = "c3") -> Statement:
    return decision(signer, "reject", hash=digest_of(f"study {i}"), proposal=digest_of(f"proposal {i}"))


# -- statements --------------------------------------------------------------------------------------------------------


def test_statements_about_studies_nobody_proposed_are_not_kept_nor_passed_on(hub: Board) -> None:
    for i in range(0, 2000, 100):
        hub.hear("c3", *(made_up(i + j) for j in range(100)))
    assert hub.store.statements() == ()
    assert hub.sent == []
    assert hub.heard == []
    assert hub.store._known == {}  # not so much as remembered
    refused = hub.limits("c3")
    assert refused["statements"] + refused["statements-without-proposal"] >= 2000 - early.OF_A_SIGNER
    assert hub.conduct.counts().keys() == {"c3"}
    hub.hear("ana", PROPOSAL)
    hub.hear("c0", decision("c0"))  # nobody else has less room for it
    assert len(hub.store.statements()) == 2


def test_a_decision_that_overtook_its_proposal_counts_once_that_is_there(hub: Board) -> None:
    hub.hear("c0", decision("c0"))
    hub.hear("c1", decision("c1"))
    assert hub.store.statements() == ()
    hub.hear("ana", PROPOSAL)
    assert {s.signer for s in hub.store.statements()} == {"ana", "c0", "c1"}
    assert {s.signer for s in hub.heard} == {"ana", "c0", "c1"}
    assert hub.conduct.counts() == {}


def test_a_signer_pushes_out_only_its_own_early_statements(hub: Board) -> None:
    hub.hear("c0", decision("c0"))
    hub.hear("c3", *(made_up(i) for i in range(200)))
    hub.hear("ana", PROPOSAL)
    assert {s.signer for s in hub.store.statements()} == {"ana", "c0"}


def test_new_statements_of_one_party_are_taken_at_a_rate_and_the_rest_is_asked_for_later(
    hub: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "OF_A_KIND", 10_000)
    hub.hear("ana", PROPOSAL)
    said = [decision("c3", sequence=n) for n in range(1, 400)]
    hub.hear("c3", *said)
    most = exchange.STATEMENTS_AT_ONCE + 4 * len(hub.members.identities)
    assert len(hub.store.statements()) == 1 + most
    assert hub.limits("c3") == {"statements": len(said) - most}
    hub.hear("c3", *said[:most])  # what is known costs nothing
    hub.sent.clear()
    hub.clock += exchange.AGAIN_SECONDS
    hub.exchange.poll()
    assert [(to, op) for to, op, _ in hub.sent] == [("c3", Op.HAVE)]
    hub.clock += 100.0
    hub.hear("c3", *said[most:])
    assert len(hub.store.statements()) == 1 + len(said)


def test_what_a_member_may_not_say_is_not_kept(hub: Board) -> None:
    hub.hear("ana", PROPOSAL)
    stranger = make("decision", "eve", decision("c0").body, KEYS["eve"])
    for sender, statement in (
        ("c3", make("proposal", "c3", PROPOSAL.body, KEYS["c3"])),
        ("s0", make("charge", "s0", charge("c0").body, KEYS["s0"])),
        ("hub", stranger),
        ("c3", decision("c0")),
    ):
        with pytest.raises(RemoteProtocolError) as refusal:
            hub.hear(sender, statement)
        assert refusal.value.party == sender
    assert len(hub.store.statements()) == 1


def test_a_full_signer_makes_room_by_what_has_expired_and_by_nothing_else(
    hub: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "UNSTARTED_STATEMENTS", 3)
    old = [proposal(study=study_text(n)) for n in range(3)]
    hub.hear("ana", *old)
    with pytest.raises(RemoteProtocolError) as refusal:
        hub.hear("ana", proposal(study=study_text(7)))
    assert (refusal.value.rule, refusal.value.party) == ("too-many-statements", "ana")
    hub.hear("bob", proposal("bob", study=study_text(8)))
    hub.hear("c0", decision("c0", hash=old[0].body["hash"], proposal=old[0].ident))
    hub.wall += WEEK
    hub.clock += exchange.PRESSED_SECONDS
    newer = proposal(study=study_text(9), expires=T0 + 3 * WEEK)
    hub.hear("ana", newer)
    assert hub.store.statements() == (newer,)
    assert hub.exchange.proposed == {newer.study_hash}
    assert hub.exchange.standing(old[0].study_hash).state == "unknown"


def test_an_analyst_cannot_use_up_what_a_client_may_answer(hub: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's rules answer every proposal: a thousand of one analyst once left it no room to answer another's,
    nor to take back an approval."""
    monkeypatch.setattr(room, "UNSTARTED_STATEMENTS", 3)
    flood = [proposal(study=study_text(n)) for n in range(3)]
    hub.hear("ana", *flood)
    hub.hear("c0", *(decision("c0", "reject", hash=p.body["hash"], proposal=p.ident) for p in flood))
    honest = proposal("bob", study=study_text(8))
    hub.hear("bob", honest)
    about = {"hash": honest.body["hash"], "proposal": honest.ident}
    hub.hear("c0", decision("c0", **about))
    assert hub.exchange.standing(honest.study_hash).approvals.keys() == {"c0"}
    hub.hear("c0", decision("c0", "reject", 2, **about))
    assert hub.exchange.standing(honest.study_hash).rejections.keys() == {"c0"}
    with pytest.raises(RemoteProtocolError) as refusal:  # what a client says again and again is its own doing
        hub.hear("c0", *(decision("c0", "reject", n, **about) for n in range(3, 9)))
    assert (refusal.value.rule, refusal.value.party) == ("too-many-statements", "c0")


def test_old_statements_are_pruned_by_and_by(hub: Board) -> None:
    hub.hear("ana", PROPOSAL)
    hub.hear("c0", decision("c0"))
    hub.wall += WEEK + room.GRACE_SECONDS
    hub.exchange.poll()
    assert len(hub.store.statements()) == 2
    hub.clock += exchange.PRUNE_SECONDS
    hub.exchange.poll()
    assert hub.store.statements() == ()
    hub.sent.clear()
    hub.exchange.connected("c0")
    assert hub.sent == [("c0", Op.HAVE, b"")]


# -- questions ---------------------------------------------------------------------------------------------------------


def test_one_party_cannot_have_the_whole_board_told_again_and_again(hub: Board) -> None:
    hub.hear("ana", *(proposal(study=study_text(n)) for n in range(50)))
    hub.sent.clear()
    for _ in range(600):
        hub.exchange.receive("c3", Op.HAVE, b"")
    answers = exchange.COMPARISONS_AT_ONCE
    whole = sum(len(s.encode()) + 4 for s in hub.store.statements())
    assert hub.bytes_to("c3") == answers * whole
    assert hub.limits("c3") == {"comparisons": 600 - answers}
    assert hub.exchange.may_ask("c3")  # an analyst whose command runs in a loop still gets its result
    hub.exchange.receive("c0", Op.HAVE, b"")
    assert hub.bytes_to("c0") == whole  # others are answered


def test_a_long_list_of_idents_counts_as_many_questions(hub: Board) -> None:
    """Each ident takes time: a list as long as a message once cost no more than an empty one."""
    hub.hear("ana", PROPOSAL)
    hub.sent.clear()
    long = bytes(32) * (8 * exchange.IDENTS_OF_ONE)
    for _ in range(100):
        hub.exchange.receive("c3", Op.HAVE, long)
        hub.exchange.receive("s0", Op.WANT, long)
    heard = exchange.COMPARISONS_AT_ONCE // 8
    assert hub.limits("c3") == {"comparisons": 100 - heard}
    assert hub.limits("s0") == {"questions": 100 - exchange.QUESTIONS_AT_ONCE // 8}


def test_a_message_of_empty_parts_is_not_taken_apart(hub: Board) -> None:
    assert len(unpack_parts(bytes(4 * messages.MOST_PARTS), "c3")) == messages.MOST_PARTS
    with pytest.raises(RemoteProtocolError) as refusal:
        hub.exchange.receive("c3", Op.STATEMENTS, bytes(4 * messages.MOST_PARTS + 4))
    assert (refusal.value.rule, refusal.value.party) == ("malformed", "c3")
    assert min(len(s.encode()) for s in (PROPOSAL, decision("c0"), charge("c0"))) * messages.MOST_PARTS > (
        exchange.BATCH_BYTES
    )


@pytest.mark.parametrize(("sender", "length", "taken"), [("c3", 1 << 24, True), ("c3", 1 << 27, False)])
def test_a_running_studys_long_messages_are_not_for_governance(sender: str, length: int, taken: bool) -> None:
    conduct = Conduct()
    process: Any = SimpleNamespace(members=members(4), conduct=conduct, sessions={}, exchange=None)
    head = bytes([GOVERNANCE]) + bytes(HEADER_BYTES - 1)
    if taken:
        assert RoleProcess.sink_for(process, sender, length, head) is None
        return
    with pytest.raises(Unwanted):
        RoleProcess.sink_for(process, sender, length, head)
    assert conduct.counts() == {sender: {"governance-message": 1}}
    assert RoleProcess.sink_for(process, "hub", length, head) is None  # results and receipts


def test_what_one_party_is_given_in_answer_is_limited_in_bytes(hub: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.exchange._answers.burst = 10_000
    monkeypatch.setattr(hub.exchange._questions, "burst", 1e9)
    hub.hear("ana", *(proposal(study=study_text(n)) for n in range(50)))
    hub.sent.clear()
    wanted = b"".join(parse_hash(s.ident) for s in hub.store.statements())
    for _ in range(5):
        hub.exchange.receive("c3", Op.WANT, wanted)
    whole = sum(len(s.encode()) + 4 for s in hub.store.statements())
    assert hub.bytes_to("c3") == whole  # once: that was more than there was, and has to be waited for
    assert hub.limits("c3") == {"answers": 4}


def test_a_proposal_goes_before_what_is_said_of_it(hub: Board) -> None:
    hub.hear("c0", decision("c0"))
    hub.hear("ana", PROPOSAL)
    hub.sent.clear()
    hub.exchange.receive("s0", Op.HAVE, b"")
    ((_, _, body),) = [one for one in hub.sent if one[0] == "s0"]
    assert [decode(raw).kind for raw in unpack_parts(body, "hub")] == ["proposal", "decision"]


def test_a_newcomer_is_in_step_although_it_does_not_keep_everything(tmp_path: Path) -> None:
    analyst = Board(tmp_path, "bob")
    orphan = made_up(1)
    analyst.exchange.receive("hub", Op.HAVE, parse_hash(orphan.ident) + parse_hash(PROPOSAL.ident))
    assert not analyst.exchange.in_step("hub")
    analyst.hear("hub", PROPOSAL, orphan)
    assert analyst.exchange.in_step("hub")
    analyst.store.close()


# -- lines of the log --------------------------------------------------------------------------------------------------


def test_each_member_has_so_many_lines_and_what_is_left_out_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    limit = logs.LineLimit(lambda: now)

    def line(member: str | None, message: str = "refused") -> bool:
        record = logging.LogRecord("tallystick", logging.WARNING, "", 0, message, (), None)
        record.member = member
        passed = bool(limit.filter(record))
        lines.append(logs._message(record))
        return passed

    lines: list[str] = []
    assert sum(line("rogue") for _ in range(5000)) == logs.LINES_AT_ONCE
    assert line("honest")
    assert line(None)
    assert sum(line(None, "something of no member") for _ in range(5000)) == logs.LINES_AT_ONCE
    now += 1 / logs.LINES_A_SECOND
    assert line("rogue", "again")
    assert lines[-1] == f"again ({5000 - logs.LINES_AT_ONCE} more lines like this were left out)"
    assert limit.left_out() == {"something of no member": 5000 - logs.LINES_AT_ONCE}
    assert limit.left_out() == {}


def test_what_a_member_was_refused_is_counted_by_limit() -> None:
    conduct = Conduct()
    for i in range(200):
        conduct.note("rogue", f"limit {i}", 2, told=True)
    conduct.note("other", "statements", told=True)
    counts = conduct.counts()
    assert counts["other"] == {"statements": 1}
    assert len(counts["rogue"]) <= 65
    assert sum(counts["rogue"].values()) == 400


# -- messages for a peer that takes nothing ----------------------------------------------------------------------------


class Lines:
    """Lines with room for so many messages each."""

    def __init__(self, **room_of: int) -> None:
        self.room, self.taken, self.lost = room_of, [], []  # type: ignore[var-annotated]
        self.now = 0.0
        self.backlog = Backlog(self.offer, self.lost.append, lambda: set(self.room), lambda: self.now)
        self.backlog._moving = True  # no thread: the test moves it

    def offer(self, to: str, raw: bytes, _length: int | None) -> bool:
        if self.room.get(to, 0) > 0:
            self.room[to] -= 1
            self.taken.append((to, raw))
            return True
        return False


def test_a_peer_that_takes_nothing_holds_up_nobody_else() -> None:
    lines = Lines(rogue=0, honest=10)
    for i in range(5):
        lines.backlog.send("rogue", b"%d" % i)
        lines.backlog.send("honest", b"%d" % i)
    assert lines.taken == [("honest", b"%d" % i) for i in range(5)]
    lines.room["rogue"] = 3
    assert lines.backlog.move()
    lines.backlog.send("rogue", b"5")  # behind those that wait, though there may be room
    lines.room["rogue"] = 10
    assert lines.backlog.move()
    assert [raw for to, raw in lines.taken if to == "rogue"] == [b"%d" % i for i in range(6)]
    lines.backlog.send("rogue", b"6")
    assert lines.taken[-1] == ("rogue", b"6")
    assert lines.lost == []


def test_a_short_message_in_pieces_survives_waiting() -> None:
    """Its pieces are made once: to offer them to a full line took them away."""
    lines = Lines(slow=0)
    lines.backlog.send("slow", iter([b"one ", memoryview(b"message")]), 11)
    assert not lines.backlog.move()
    lines.room["slow"] = 1
    assert lines.backlog.move()
    assert lines.taken == [("slow", b"one message")]


def test_what_waits_for_a_peer_is_bounded_in_number_bytes_and_time() -> None:
    lines = Lines(rogue=0)
    for _ in range(backlog.MESSAGES + 7):
        lines.backlog.send("rogue", b"x")
    assert lines.lost == ["rogue"] * 7
    lines.now = 2 * backlog.SECONDS
    lines.backlog.move()
    assert len(lines.lost) == backlog.MESSAGES + 7
    for _ in range(3):
        lines.backlog.send("rogue", bytes(backlog.BYTES))
    assert len(lines.lost) == backlog.MESSAGES + 9
    lines.backlog.send("nobody", b"x")  # there is no line: lost, as ever, and nobody's fault
    del lines.room["rogue"]
    lines.backlog.move()
    assert lines.backlog._waiting == {}
    assert len(lines.lost) == backlog.MESSAGES + 9
