"""What a relay passes on: between the members of a study that is under way, and of each of them so much at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.core.errors import RemoteProtocolError
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.study.gathering import AggregatorState
from tallystick.roles.operations.conduct import Conduct
from tallystick.roles.processes import backlog
from tallystick.roles.processes.backlog import Backlog
from tallystick.roles.processes.coordinator import CoordinatorProcess, CoordinatorSession
from tallystick.transport.link import Envelope
from tallystick.transport.relayed import wrap
from tallystick.transport.wire import GOVERNANCE, SEALED, head
from tallystick.trust.gossip.relay import RelayProcess

KEY, STUDY = SigningKey(b"k" * 32), b"s" * 32
CLIENTS = ("bank", "hospital", "shop")


class Hub:
    """Whoever coordinates, without its files and sockets; ``room`` is how many messages each line takes."""

    def __init__(self, kind: type[CoordinatorProcess] = CoordinatorProcess, *, vertical: bool = True) -> None:
        self.room = dict.fromkeys(CLIENTS, 0)
        self.taken: list[tuple[str, bytes]] = []
        self.lost: list[str] = []
        self.machine = SimpleNamespace(
            state=AggregatorState.RUNNING, roster=SimpleNamespace(clients=("bank", "hospital"))
        )
        session: Any = object.__new__(CoordinatorSession)
        session._machine, session.setup = self.machine, SimpleNamespace(study=SimpleNamespace(vertical=vertical))
        self.process: Any = object.__new__(kind)
        self.process.members = SimpleNamespace(clients=CLIENTS)
        self.process.sessions = {STUDY: session}
        self.process.node = SimpleNamespace(connected=lambda: set(self.room))
        self.process.conduct = Conduct()
        self.backlog = self.process._backlog = Backlog(self.offer, self.lost.append, lambda: set(self.room))
        self.backlog._moving = True  # no thread: the test moves it

    def offer(self, to: str, raw: bytes, _length: int | None) -> bool:
        if self.room[to] > 0:
            self.room[to] -= 1
            self.taken.append((to, raw))
            return True
        return False

    def say(self, sender: str, to: str, text: bytes = b"sealed", *, kind: int = SEALED, study: bytes = STUDY) -> bytes:
        raw = wrap(sender, to, head(kind, study) + text, KEY)
        self.process._message(Envelope(sender=sender, to="hub", raw=raw))
        return raw


def test_members_of_a_study_that_runs_reach_each_other() -> None:
    hub = Hub()
    hub.room["hospital"] = 1
    raw = hub.say("bank", "hospital")
    assert hub.taken == [("hospital", raw)]
    assert hub.process.conduct.counts() == {}


@pytest.mark.parametrize("state", sorted(set(AggregatorState) - {AggregatorState.RUNNING}, key=str))
def test_nothing_is_passed_on_in_a_study_that_is_not_under_way(state: AggregatorState) -> None:
    """Nor is it anybody's fault: what was said as it ended comes a little late."""
    hub = Hub()
    hub.machine.state, hub.room["hospital"] = state, 9
    hub.say("bank", "hospital")
    assert hub.taken == []
    assert hub.backlog._waiting == {}


@pytest.mark.parametrize(("sender", "to"), [("shop", "hospital"), ("bank", "shop")])
def test_nobody_who_is_not_in_the_study_speaks_or_is_spoken_to(sender: str, to: str) -> None:
    hub = Hub()
    hub.room |= dict.fromkeys(CLIENTS, 9)
    with pytest.raises(RemoteProtocolError) as caught:
        hub.say(sender, to)
    assert (caught.value.rule, caught.value.party) == ("unknown-study", sender)
    assert hub.taken == []


def test_nothing_is_passed_on_where_clients_say_nothing_to_each_other() -> None:
    for hub, study in ((Hub(vertical=False), STUDY), (Hub(), b"o" * 32)):
        with pytest.raises(RemoteProtocolError) as caught:
            hub.say("bank", "hospital", study=study)
        assert caught.value.rule == "unknown-study"


def test_peers_speak_in_every_study_that_runs_and_witnesses_whenever_they_are_asked() -> None:
    hub = Hub(RelayProcess, vertical=False)
    hub.room["hospital"] = 9
    assert hub.taken == [("hospital", hub.say("bank", "hospital"))]
    hub.machine.state = AggregatorState.FINISHED
    hub.say("bank", "hospital")
    assert len(hub.taken) == 1
    asked = hub.say("shop", "hospital", kind=GOVERNANCE, study=bytes(32))
    assert hub.taken[1:] == [("hospital", asked)]


def test_a_member_fills_its_own_share_of_anothers_backlog_and_nobody_elses() -> None:
    hub = Hub()
    hub.machine.roster.clients = CLIENTS
    for _ in range(2 * backlog.MESSAGES):
        hub.say("bank", "hospital", b"flood")
    share = backlog.MESSAGES // backlog.SHARES
    assert len(hub.backlog._waiting["hospital"]) == share
    assert hub.process.conduct.counts() == {"bank": {"relayed-messages": 2 * backlog.MESSAGES - share}}
    assert hub.lost == []  # the receiver is not to blame
    said = hub.say("shop", "hospital")
    for i in range(backlog.MESSAGES):
        assert hub.backlog.send("hospital", b"%d" % i)  # the relay's own words have all the room they ever had
    assert not hub.backlog.send("hospital", b"more")
    assert hub.lost == ["hospital"]
    hub.room["hospital"] = 2 * backlog.MESSAGES
    assert hub.backlog.move()
    assert ("hospital", said) in hub.taken
    assert len(hub.taken) == share + 1 + backlog.MESSAGES


def test_a_share_is_bounded_in_bytes_too_and_one_message_always_has_room() -> None:
    hub = Hub()
    hub.say("bank", "hospital", bytes(backlog.BYTES // backlog.SHARES + 1))
    hub.say("bank", "hospital", b"one more")
    hub.say("hospital", "bank", b"the other way")
    assert [len(waiting) for waiting in hub.backlog._waiting.values()] == [1, 1]
    assert hub.process.conduct.counts() == {"bank": {"relayed-messages": 1}}
