"""A study that was planned for another number of servers than the consortium has is taken up by nobody.

Planned for four servers of which two may collude, two honest ones carry the noise. In a consortium of three, the same
study would leave one honest server with half of the variance that the claim needs. Each party refuses by itself: the
server, the client before it reserves anything, the aggregator, and the parameters of the sum, whoever forgot to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.core.errors import StudyError, TallystickError
from tallystick.crypto.signing import SigningKey
from tallystick.engines.setup import Setup, set_up
from tallystick.protocol.secure_sum import SumParameters
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.processes.coordinator import CoordinatorSession
from tallystick.roles.processes.helper import HelperSession
from tallystick.study import Study
from tallystick.trust.servers import SERVERS, Servers
from tallystick.trust.servers.parts import parameters_of
from tallystick.trust.servers.section import ServersSection

STUDY = """
[study]
name = "illness"
program = "logistic_regression"
target = "ill"
[program]
rounds = 2
[privacy]
epsilon = 0.5
delta = 1e-6
[trust]
servers = {servers}
colluding = {colluding}
[data]
records = 120
[data.columns]
age = {{ type = "number", lower = 0, upper = 100 }}
ill = {{ type = "category", values = ["no", "yes"] }}
"""
SIZES = range(2, 6)
CLIENTS = ("a", "b", "c")


def names(count: int) -> tuple[str, ...]:
    return tuple(f"s{i}" for i in range(count))


def setup_for(servers: int, colluding: int) -> Setup:
    return set_up(Study.parse(STUDY.format(servers=servers, colluding=colluding)).canonical(), "")


class Reached(Exception):  # noqa: N818
    """The party went on to its next question: it had nothing against the number of servers."""


def asked(name: str) -> Any:
    def ask(*_: object, **__: object) -> None:
        raise Reached

    return ask


def server(setup: Setup, members: Any) -> None:
    HelperSession.decide(SimpleNamespace(cast=members), setup)  # type: ignore[arg-type]
    raise Reached


def client(setup: Setup, members: Any) -> None:
    """Before its approval and its ledger are looked at, and so before anything is reserved."""
    exchange = SimpleNamespace(standing=asked("standing"))
    process = SimpleNamespace(name="a", exchange=exchange, check_ledger=asked("ledger"))
    session: Any = SimpleNamespace(own=process, process=process, study_hash=bytes(32), cast=members)
    ClientSession.decide(session, setup)


def aggregator(setup: Setup, members: Any) -> None:
    def reject(error: TallystickError) -> tuple[()]:
        raise error

    study = setup.study.canonical()
    session: Any = SimpleNamespace(
        cast=members,
        _approved=asked("approved"),
        _machine=SimpleNamespace(reject=reject),
        _study=lambda steps: None,
    )
    CoordinatorSession._review(session, SimpleNamespace(study=study, program=""))  # type: ignore[arg-type]


@pytest.mark.parametrize("party", [server, client, aggregator], ids=lambda p: p.__name__)
def test_a_party_takes_up_a_study_for_exactly_its_servers(party: Callable[[Setup, Any], None]) -> None:
    for planned in SIZES:
        setup = setup_for(planned, planned - 1)
        for there in SIZES:
            with pytest.raises(Reached if there == planned else StudyError) as caught:
                party(setup, cast(there))
            if there != planned:
                assert caught.value.rule == "number-of-servers", (planned, there)


def cast(servers: int) -> Any:
    return SimpleNamespace(model=SERVERS, counts=lambda: {"server": servers}, clients=())


def roster(servers: int) -> Roster:
    keys = tuple(SigningKey(bytes([i + 1]) * 32).public for i in range(servers))
    return Roster(
        study_hash=bytes(32),
        attempt=1,
        consortium_hash=bytes(32),
        coordinator="agg",
        helpers=names(servers),
        clients=CLIENTS,
        min_clients=3,
        helper_identities=keys,
        keys=dict.fromkeys((*names(servers), *CLIENTS), SimpleNamespace(public=bytes(32))),  # type: ignore[arg-type]
    )


def test_the_parameters_of_a_sum_fit_the_servers_that_there_are() -> None:
    """Whatever was asked before: no machine is made for other servers than the noise was planned for."""
    for planned in SIZES:
        for colluding in range(planned):
            setup = setup_for(planned, colluding)
            for there in SIZES:
                if there == planned:
                    made = parameters_of(setup, roster(there))
                    assert (made.honest, made.colluding) == (planned - max(1, colluding), colluding)
                else:
                    with pytest.raises(StudyError, match="honest"):
                        parameters_of(setup, roster(there))


def test_the_case_of_the_review() -> None:
    """Three servers, a study for four with two colluding: h = 2 is possible for three, and it is not this study's."""
    keys = tuple(SigningKey(bytes([i + 1]) * 32).public for i in range(3))
    facts: dict[str, Any] = {
        "study_hash": bytes(32), "size": 4, "servers": names(3), "clients": CLIENTS, "server_keys": keys,
        "min_clients": 3, "result_limit": 10, "aggregator": "agg",
    }  # fmt: skip
    assert SumParameters(**facts, honest=2, colluding=1).honest == 2
    assert SumParameters(**facts, honest=2, colluding=0).honest == 2
    for honest, colluding in ((2, 2), (1, 1), (1, 0), (3, 0), (0, 2), (0, 3)):
        with pytest.raises(StudyError, match="honest"):
            SumParameters(**facts, honest=honest, colluding=colluding)


def only_too_few(self: Servers, section: ServersSection, there: Mapping[str, int]) -> None:
    if there["server"] < section.servers:
        raise StudyError("too few", rule="number-of-servers")


@pytest.mark.parametrize("wrong", [lambda self, section, there: None, only_too_few], ids=["not asked", "at least"])
@pytest.mark.parametrize("party", [server, client, aggregator], ids=lambda p: p.__name__)
def test_planted_bugs_are_caught(monkeypatch: pytest.MonkeyPatch, party: Any, wrong: Any) -> None:
    monkeypatch.setattr(Servers, "check_cast", wrong)
    with pytest.raises(Reached):  # where a refusal was expected
        test_a_party_takes_up_a_study_for_exactly_its_servers(party)
