"""Members that change under a study, and clients that are ready without having approved: nobody spoils a start."""

from __future__ import annotations

from dataclasses import replace

import pytest
from study_examples import members, ready
from test_study_machines import gathering, only, party, running, sent

from tallystick.core.errors import RemoteProtocolError, RoundAborted
from tallystick.protocol.instructions import Persist
from tallystick.protocol.study.gathering import AggregatorState
from tallystick.protocol.study.instructions import Ended, Erase
from tallystick.protocol.study.messages import Failed, StudyCode, StudyDeclined, StudyStart
from tallystick.protocol.study.waiting import ParticipantState
from tallystick.trust.servers import SERVERS


def test_a_client_that_is_ready_and_has_not_approved_is_left_out_of_the_start() -> None:
    """It was in the roster, and the start named a party without an approval: no start, so no result for anybody."""
    hub, _ = gathering()
    hub.approvers = {"c0", "c1", "c2"}
    for name in ("s0", "s1", "c3", "c0", "c1"):
        assert not sent(hub.receive(name, ready(name), 1.0), StudyStart)
    out = hub.receive("c2", ready("c2"), 2.0)  # the last one that may: nobody waits for c3
    (_, start), *_ = sent(out, StudyStart)
    assert [t.party for t in start.tickets] == ["s0", "s1", "c0", "c1", "c2"]
    assert "c3" not in {to for to, _ in sent(out, StudyStart)}


def test_a_client_that_takes_its_approval_back_while_others_are_gathered_is_left_out() -> None:
    hub, _ = gathering()
    hub.approvers = {"c0", "c1", "c2", "c3"}
    for name in ("s0", "s1", "c0", "c1"):
        hub.receive(name, ready(name), 1.0)
    hub.approvers = {"c1", "c2", "c3"}
    hub.receive("c2", ready("c2"), 1.0)
    out = hub.receive("c3", ready("c3"), 2.0)
    (_, start), *_ = sent(out, StudyStart)
    assert [t.party for t in start.tickets] == ["s0", "s1", "c1", "c2", "c3"]


def test_an_approval_that_comes_late_counts_while_there_is_time() -> None:
    hub, _ = gathering()
    hub.approvers = {"c0", "c1"}
    for name in ("s0", "c3", "c0", "c1"):
        hub.receive(name, ready(name), 1.0)
    hub.approvers = {"c0", "c1", "c3"}
    hub.receive("c3", ready("c3"), 1.5)
    hub.receive("s1", ready("s1"), 1.5)
    out = hub.tick(1000.0)
    (_, start), *_ = sent(out, StudyStart)
    assert [t.party for t in start.tickets] == ["s0", "s1", "c0", "c1", "c3"]


def test_a_party_gives_up_once_and_says_why() -> None:
    for upto in ("reviewing", "ready", "running"):
        machine, _ = party("c0", upto)
        out = machine.give_up("s1 has left", "s1")
        ended = only(out, Ended)
        assert isinstance(ended.error, RoundAborted)
        assert (ended.error.party, ended.error.rule) == ("s1", "other-consortium")
        assert [type(step) for step in out][:2] == [Persist, Erase]
        ((to, said),) = sent(out, StudyDeclined)
        assert (to, said.code, said.cause) == ("hub", StudyCode.OTHER_CONSORTIUM, "s1 has left")
        assert machine.state is ParticipantState.ENDED
        assert machine.give_up("s1 has left", "s1") == []


def test_the_aggregator_gives_up_for_good_only_what_has_started() -> None:
    error = RoundAborted("s1 has left", party="s1", rule="other-consortium")
    for made, final in ((gathering, 0), (running, 1)):
        hub, _ = made()
        hub.give_up(error)
        assert hub.state is AggregatorState.FAILED
        assert isinstance(hub.ending, Failed)
        assert (hub.ending.final, hub.ending.party, hub.ending.rule) == (final, "s1", "other-consortium")
    assert members().role("c3") == "client"


def test_a_study_has_one_coordinator() -> None:
    """Of two that could open it, none would know of the other's rounds."""
    known = members().members
    assert known.cast(SERVERS).coordinator == known.board
    keys = {**known.identities, "hub2": known.identities["s0"]}
    for hubs in ((), ("hub", "hub2")):
        several = replace(known, roles={**known.roles, "aggregator": hubs}, identities=keys)
        with pytest.raises(RemoteProtocolError, match=f"{len(hubs)} aggregators"):
            several.cast(SERVERS)
