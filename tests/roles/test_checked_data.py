"""What the data hold is told on the client's own screen, and nothing that leaves depends on it until a person acts.

A whole client process, but for its sockets: all it hands to the network is recorded, and what a probe of its health is
told. A hospital that writes YES where the study declares yes must look from outside like one that does not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tallystick.application import data_check, doctor, studies
from tallystick.application.party_files import PartyFiles
from tallystick.core.errors import StudyError
from tallystick.data.encoding import study_records
from tallystick.engines.data_check import study_quality
from tallystick.engines.setup import set_up
from tallystick.protocol.governance.statements import Statement, decode
from tallystick.roles.governance.messages import Op, pack_parts, unpack_parts
from tallystick.roles.governance.review import BY_POLICY, proposal_statement
from tallystick.roles.governance.store import STATEMENTS
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.identity_files import load_identity, read_consortium, unix_time, wall_clock
from tallystick.roles.identity.places import members_of
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.processes import client as client_module
from tallystick.roles.processes.process import RoleProcess
from tallystick.roles.processes.start import build
from tallystick.roles.steward.acceptances import Acceptances
from tallystick.study import Study
from tallystick.study.read_columns import columns_read

TEXT = """
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
min_clients = 3
[data]
records = 3000
[data.columns]
age = { type = "number", lower = 0, upper = 100 }
ill = { type = "category", values = ["no", "yes"] }
"""
CLEAN = "age,ill\n" + "".join(f"{age},{'yes' if age > 50 else 'no'}\n" for age in range(20, 80))
DATA = {
    "miscoded": CLEAN.replace("yes", "YES").replace("no", "NO"),
    "one record": CLEAN.replace("79,yes", "79,perhaps"),
    "clamped": CLEAN.replace("\n", "\n9"),
    "empty column": "age,ill\n" + "".join(f",{line.split(',')[1]}\n" for line in CLEAN.split()[1:]),
}


class Place:
    """A consortium, and the folder of one of its clients."""

    def __init__(self, folder: Path) -> None:
        self.home, now = folder / "consortium", datetime.now(UTC)
        enrolment.create("checked", self.home, now=now)
        for at, (name, role) in enumerate([("server-1", "server"), ("server-2", "server"), ("hub", "aggregator")]):
            enrolment.enrol(name, role, self.home, now=now, address=f"127.0.0.1:{40001 + at}")
        self.data = folder / "records.csv"
        self.data.write_text(CLEAN)
        for name in ("north", "south", "west"):
            enrolment.enrol(name, "client", self.home, now=now, data=str(self.data), decide="approve")
        self.config = self.home / "north" / "role.toml"
        analyst = load_role_config(enrolment.enrol("analyst", "analyst", self.home, now=now)[1])
        consortium = read_consortium(analyst.consortium)
        self.study = Study.parse(TEXT)
        with closing(set_up(self.study.canonical(), "")) as setup:
            self.proposal: Statement = proposal_statement(
                self.study,
                setup.plan,
                "",
                analyst="analyst",
                key=load_identity(analyst, consortium, wall_clock()).signing,
                consortium=members_of(consortium).consortium_hash,
                now=unix_time(),
            )

    def clear(self, data: str) -> None:
        """The client as on its first day, with these records."""
        shutil.rmtree(self.config.parent / "state", ignore_errors=True)
        self.data.write_text(data)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("checked"))


@pytest.fixture
def north(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    """Start the client on these records; the same opaque names, keys and hour every time."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes(size))
    running: list[Running] = []

    def start(data: str = CLEAN) -> Running:
        while running:
            running.pop().process.close()
        place.clear(data)
        running.append(Running(place))
        return running[-1]

    yield start
    for one in running:
        one.process.close()


class Running:
    """A client's process; ``left`` is all that it has handed to the network."""

    def __init__(self, place: Place) -> None:
        self.place, self.now = place, 0.0
        self.left: list[tuple[str, bytes]] = []
        self.process: RoleProcess = build(place.config, "client")
        self.process._backlog.send = lambda to, raw, length=None: self.left.append((to, bytes(raw)))  # type: ignore[method-assign]
        self.process.exchange.wall = lambda: place.proposal.body["created"] + 60.0
        self.process._guarded(self.process._register)  # type: ignore[attr-defined]
        for peer in ("hub", "server-1", "server-2"):
            self.process._connected(peer)
        self.process.exchange.receive("hub", Op.STATEMENTS, pack_parts([place.proposal.encode()]))
        self.turn()

    def turn(self) -> None:
        """As much of its loop as there is to do, some time later."""
        for _ in range(3):
            self.now += 100.0
            self.process.due(self.process.now() + self.now)
        while self.process.puts_off:
            self.process.between()

    def seen_outside(self) -> tuple[Any, ...]:
        """What anybody but its own institution can see of it."""
        return self.left, asdict(self.process.health)

    def decisions(self) -> list[Statement]:
        return [
            statement
            for _, raw in self.left
            if raw[33] == Op.STATEMENTS
            for statement in map(decode, unpack_parts(raw[34:], "north"))
            if statement.kind == "decision"
        ]


@pytest.mark.parametrize("name", DATA)
def test_nothing_that_leaves_depends_on_the_data_until_a_person_acts(
    place: Place, north: Callable[..., Running], name: str
) -> None:
    clean = north()
    before = clean.seen_outside()
    assert len(before[0]) >= 3  # it has greeted everybody
    assert not clean.decisions()
    spoilt = north(DATA[name])
    assert spoilt.seen_outside() == before
    for one in (doctor.examine, lambda config: studies.show(place.study.printed_hash, config)):  # a look is no act
        one(place.config)
    spoilt.turn()
    assert spoilt.seen_outside() == before
    data_check.check(place.study.printed_hash, place.config, accept=True, by="Dr. Abel")  # a person acts
    spoilt.turn()
    (decision,) = spoilt.decisions()
    assert (decision.body["decision"], decision.body["by"]) == ("approve", f"{BY_POLICY}default")
    after = spoilt.seen_outside()
    again = north()
    data_check.accept_columns(place.study, place.config, by="Dr. Abel")
    again.turn()
    assert again.seen_outside() == after  # and what follows from it is the same for clean records, to the byte


@pytest.mark.parametrize("planted", ["declines", "waits"])
def test_a_rule_that_looks_at_the_data_is_caught(
    place: Place, north: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """The planted bugs: a client that declines, or waits, because a record is not what the study declares."""
    real = client_module.review

    def looking(proposal: Statement, config: Any, *others: Any, **options: Any) -> Any:
        seen = real(proposal, config, *others, **options)
        study = Study.from_canonical(proposal.body["study"])
        quality = study_quality(study, study_records(study, config.data, lenient=True).tallies)
        if planted == "declines":
            decision = seen.verdict.decision if quality.fine else "reject"
        else:
            decision = "approve" if quality.fine else "ask"
        return replace(seen, verdict=replace(seen.verdict, decision=decision))

    monkeypatch.setattr(client_module, "review", looking)
    clean = north().seen_outside()
    assert north(DATA["one record"]).seen_outside() != clean


def test_the_steward_is_told_before_anybody_approves(place: Place, north: Callable[..., Running]) -> None:
    north(DATA["miscoded"])
    said = "60 of 60 targets are NO/YES; the study declares no, yes"
    shown = studies.words.show(studies.show("illness", place.config))
    assert said in " ".join(shown.split())
    assert "nobody has accepted how it reads age, ill" in " ".join(shown.split())
    found = data_check.check("illness", place.config)
    assert said in data_check.describe(found)
    assert "NOTHING CAN BE LEARNED" in data_check.describe(found)
    assert found["unaccepted"] == ["age", "ill"]
    findings = [f for f in doctor.examine(place.config)["findings"] if f["check"] == "records"]
    assert [said in f["what"] for f in findings] == [True]
    assert "tallystick data check 'illness'" in findings[0]["remedy"]


# -- what is accepted -------------------------------------------------------------------------------------------------


def lacking(place: Place, study: Study) -> list[str]:
    found: list[str] = data_check.check(str(write(place, study)), place.config)["unaccepted"]
    return found


def write(place: Place, study: Study) -> Path:
    path = place.data.parent / "another.toml"
    columns = study.model_dump(mode="json", exclude_none=True)["data"]["columns"]
    head, _, _ = TEXT.partition("[data.columns]")
    lines = [f"{n} = {{ {', '.join(f'{k} = {_toml(v)}' for k, v in c.items())} }}" for n, c in columns.items()]
    path.write_text("\n".join([head, "[data.columns]", *lines]))
    return path


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


def test_an_acceptance_is_of_these_columns_bounds_and_categories(place: Place) -> None:
    place.clear(DATA["miscoded"])
    data_check.accept_columns(place.study, place.config, by="Dr. Abel")  # before the client has ever run
    assert lacking(place, place.study) == []
    columns = place.study.model_dump()["data"]["columns"]
    changes: list[tuple[str, dict[str, Any]]] = [
        ("age", {"upper": 101.0}),
        ("age", {"missing": "drop"}),
        ("ill", {"values": ["no", "yes", "perhaps"]}),
        ("ill", {"values": ["yes", "no"]}),
    ]
    for name, change in changes:
        other = place.study.replace("data", columns={**columns, name: {**columns[name], **change}})
        assert lacking(place, other) == [name]


def test_an_acceptance_belongs_to_a_registration_and_outlives_its_content(place: Place) -> None:
    """If changed records ended it, others would see that records have changed."""
    place.clear(CLEAN)
    data_check.accept_columns(place.study, place.config, by="Dr. Abel")
    place.data.write_text(DATA["miscoded"])
    assert lacking(place, place.study) == []
    config = load_role_config(place.config)
    with closing(Acceptances(config.state / STATEMENTS, party="north")) as kept:
        with PartyFiles.of(place.config) as files, files.ledger() as ledger:
            ident = ledger.dataset("default").ident
        assert kept.lacking(ident, columns_read(place.study)) == []
        assert kept.lacking("another data set", columns_read(place.study)) == ["age", "ill"]
        assert kept.count() == 2


@pytest.mark.parametrize("by", ["", "policy: default"])
def test_only_a_person_accepts(place: Place, by: str) -> None:
    place.clear(CLEAN)
    with pytest.raises(StudyError, match="nobody is called"):
        data_check.accept_columns(place.study, place.config, by=by)
