"""What a client and a coordinator do when an aggregator pauses only some, or dies in a pause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from secure_sum_examples import opening, parameters

from tallystick.core.errors import NotApproved
from tallystick.protocol.instructions import Compute
from tallystick.protocol.secure_sum import ClientMachine
from tallystick.protocol.secure_sum.messages import StillIn
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.processes.participant import ParticipantSession
from tallystick.trust.servers.parts import ServersClientPart

P = parameters(holds=True)


class Said:
    """A client's session as far as its part sees it; it keeps what is sent and whether it has left."""

    def __init__(self, *, rejected: bool) -> None:
        self.rejected, self.out, self.left = rejected, [], []
        self.study_hash, self.seals, self.keeps = P.study_hash, None, False
        self.process: Any = SimpleNamespace(send=lambda to, raw: self.out.append(to), now=lambda: 1.0)

    def still_approved(self) -> None:
        if self.rejected:
            raise NotApproved("its steward has rejected the study", rule="own-approval")

    def leave(self, error: Exception) -> None:
        self.left.append(error)

    goes_on = ParticipantSession.goes_on


@pytest.mark.parametrize("rejected", [False, True])
def test_servers_paused_behind_a_clients_back_do_not_get_its_word(rejected: bool) -> None:
    """The aggregator pauses the servers alone, for days: the client, which still runs, looks at its own decision."""
    session = Said(rejected=rejected)
    part: Any = ServersClientPart.__new__(ServersClientPart)
    part.session, part.parameters = session, P
    part.machine = ClientMachine(P, "c0")
    part.drive = Driver(session, ROUNDS, send=part.send, other=part.step)  # type: ignore[arg-type]
    part.machine.receive("aggregator", opening(P), 0.0)
    part.drive(part.machine.receive("s0", StillIn(study_hash=P.study_hash, round=1, mark=bytes(16)), 1.0))
    assert session.out == ([] if rejected else ["s0"])
    assert len(session.left) == rejected


def test_what_waited_for_a_countersignature_is_not_answered_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked at one model; after the pause the aggregator may open the round with another."""
    monkeypatch.setattr(ParticipantSession, "_pause", lambda self: None)
    session: Any = ClientSession.__new__(ClientSession)
    session._held = Compute(1, b"the model of before")
    session._pause()
    session.part = SimpleNamespace(round=1)
    answered: list[Compute] = []
    session.compute = answered.append
    session.cleared()
    assert answered == []
