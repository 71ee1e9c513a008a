"""What is left of a study that a client turned down, or was killed on the way into: no key, no budget set aside."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_hostile_proposals import KEYS, MEMBERS, NOW, Client, approval, changed, proposal

from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol import study as studies
from tallystick.protocol.governance.statements import make
from tallystick.protocol.study.messages import StudyOpen
from tallystick.roles.processes.client import ClientProcess
from tallystick.roles.processes.client_session import ClientSession
from tallystick.roles.processes.session import Health
from tallystick.roles.steward.refusals import Refusals
from tallystick.roles.storage.stores import RoleStore
from tallystick.study import study_digest
from tallystick.transport.wire import STUDY

RAW = changed()
HASH = study_digest(RAW)
ASKED = proposal(RAW)


class Killed(BaseException):
    """The process is gone."""


class Place:
    """A client's folder, and the process that runs on it now."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder, self.client, self.streams = folder, client, itertools.count()
        self.process = self.start()

    def start(self) -> Any:
        made: Any = ClientProcess.__new__(ClientProcess)
        given = self.client.process
        made.role, made.witness = "client", None
        made.name, made.members, made.exchange, made.ledger = "c0", MEMBERS, given.exchange, given.ledger
        made.store = RoleStore(self.folder / "state" / "role.sqlite", party="c0")
        made.refusals = Refusals(self.folder / "refusals.sqlite", party="c0")
        made.parts = SimpleNamespace(
            config=replace(self.client.config, state=self.folder),
            clock=SimpleNamespace(now=lambda: 0.0),
            identity=SimpleNamespace(signing=KEYS["c0"]),
            streams=lambda *_: AesStream(derive(bytes(32), b"declined", bytes([next(self.streams)]))),
        )
        made.health, made.sessions, made.seen_by, made.sent = Health(), {}, {}, []
        made._laid_down, made._wakes, made.fault = set(), [], None
        made._tie = itertools.count()
        made.send = lambda to, raw, length=None: made.sent.append((to, raw))
        made.check_ledger = lambda: None
        return made

    def kill(self) -> None:
        self.process.store.close()
        self.process.refusals.close()

    def restart(self) -> None:
        self.kill()
        self.process = self.start()
        self.process.resume()

    def session(self) -> ClientSession:
        made = self.process.make_session(HASH, "hub")
        assert isinstance(made, ClientSession)
        self.process.sessions[HASH] = made
        return made

    def open(self, session: ClientSession, *, min_clients: int = 3) -> None:
        asked = StudyOpen(
            study_hash=HASH, attempt=1, ready_ms=60_000, min_clients=min_clients,
            consortium_hash=MEMBERS.consortium_hash, study=RAW, program="",
        )  # fmt: skip
        session.receive("hub", STUDY, memoryview(studies.encode(asked)))

    def keys(self) -> list[str]:
        return [path.name for path in self.process.store.folder(HASH).glob("*")]

    def status(self) -> str:
        kept = self.process.store.study(HASH)
        return "" if kept is None else str(kept.status)

    def clean(self) -> bool:
        """Whether nothing of the study is left but that it was turned down."""
        return self.keys() == [] and self.client.ledger.standing(HASH) in (None, "voided")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Client(tmp_path) as client:
        client.hear(ASKED)
        for other in ("c1", "c2"):
            client.hear(approval(ASKED, other))
        made = Place(tmp_path, client)
        yield made
        made.kill()


def take_back(place: Place) -> None:
    body = {**approval(ASKED, "c0").body, "decision": "reject", "sequence": 2, "at": int(NOW)}
    place.client.process.exchange.add(make("decision", "c0", body, KEYS["c0"]))


def test_ready_and_turned_down(place: Place) -> None:
    """The control: a key and a reservation, and neither after the approval was taken back."""
    session = place.session()
    place.open(session)
    assert (place.status(), place.keys()) == ("ready", ["x25519.key"])
    assert place.client.ledger.standing(HASH) == "reserved"
    take_back(place)
    session.tick("study")
    assert (place.status(), place.clean()) == ("declined", True)


def test_asked_with_another_number_of_clients(place: Place) -> None:
    """An aggregator that lies about min_clients is turned down: once with a key and a reservation left behind."""
    session = place.session()
    place.open(session, min_clients=2)
    assert session.idle
    assert place.clean()
    assert place.status() in ("", "declined")


def test_killed_after_it_has_declined_and_before_it_has_erased(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    place.open(session)
    take_back(place)

    def killed(_self: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ClientSession, "_erase", killed)
        with pytest.raises(Killed):
            session.tick("study")
    assert place.keys() == ["x25519.key"]
    place.restart()
    assert (place.status(), place.clean()) == ("declined", True)


@pytest.mark.parametrize("step", ["add_study", "put_key", "set_status", "persist"])
@pytest.mark.parametrize("done", [False, True])
def test_killed_on_the_way_to_being_ready(place: Place, monkeypatch: pytest.MonkeyPatch, step: str, done: bool) -> None:
    """The aggregator has heard nothing and never asks again: nothing is kept for it."""
    carried_out = getattr(RoleStore, step)

    def killed(*arguments: Any, **named: Any) -> None:
        if done:
            carried_out(*arguments, **named)
        raise Killed

    session = place.session()
    with monkeypatch.context() as patch:
        patch.setattr(RoleStore, step, killed)
        with pytest.raises(Killed):
            place.open(session)
    place.restart()
    if (step, done) == ("persist", True):
        assert place.status() == "ready"  # it is, and says so again
        take_back(place)
        place.process.sessions[HASH].tick("study")
    assert place.clean()
