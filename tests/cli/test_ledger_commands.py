"""``tallystick data|budget|ledger``: what a steward types, reads and is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import get_type_hints

import pytest
from cli_runs import Run
from typer.models import OptionInfo

from tallystick.application.party_files import client_ledger
from tallystick.cli.budget import budget_app, ledger_app
from tallystick.cli.data_sets import data_app
from tallystick.privacy.accountant import ORDERS, rho_from_epsilon
from tallystick.privacy.totals import STEPS, Charge, steps

Runner = Callable[..., Run]


@pytest.fixture
def config(run: Runner, tmp_path: Path) -> Path:
    folder = tmp_path / "con"
    assert run("consortium", "create", "Trial", "--out", folder).code == 0
    for name, role, more in (
        ("server-1", "server", ("--address", "127.0.0.1:7001")),
        ("clinic", "client", ("--data", "clinic.csv")),
        ("other", "client", ("--data", "clinic.csv")),
    ):
        assert run("consortium", "enrol", name, "--role", role, "--in", folder, *more).code == 0
    return folder / "clinic" / "role.toml"


@pytest.fixture
def steward(run: Runner, config: Path) -> Runner:
    """Commands of this client's steward."""
    return lambda *words: run(*words, "--config", config)


@pytest.fixture
def patients(steward: Runner, data: Path) -> None:
    done = steward("data", "add", "patients", "--source", data, "--budget-epsilon", 1)
    assert done.code == 0, done.err


def charge(number: int, epsilon: float) -> Charge:
    rho = rho_from_epsilon(epsilon, 1e-6)
    curve = tuple(Fraction(steps(rho * order), STEPS) for order in ORDERS)
    return Charge(study=bytes([number]) * 32, curve=curve, rho=rho, pure_epsilon=None)


def spend(config: Path, *epsilons: float) -> None:
    with client_ledger(config) as ledger:
        for number, epsilon in enumerate(epsilons, start=1):
            ledger.reserve("patients", charge(number, epsilon), study_name=f"study {number}")
            ledger.release(bytes([number]) * 32)


# -- data --------------------------------------------------------------------------------------------------------------


def test_nothing_is_registered_yet(steward: Runner) -> None:
    assert "tallystick data add" in steward("data", "list").out
    assert "tallystick data add" in steward("budget", "show").out
    assert steward("data", "list", "--format", "json").json == {"action": "list", "datasets": []}


def test_add_list_and_describe(steward: Runner, data: Path, study: Path) -> None:
    done = steward(
        *("data", "add", "patients", "--source", data, "--budget-epsilon", 2, "--budget-delta", 1e-7),
        *("--unit", "person", "--person", "id", "--schema", study),
    )
    assert done.code == 0, done.err
    assert "is registered as 'patients'" in done.out
    assert "each person, named by the column 'id'" in done.out
    assert "age, sex, ill" in done.out
    assert 'dataset = "patients"' in done.out
    listed = steward("data", "list")
    assert "patients" in listed.out
    facts = steward("data", "list", "--format", "json").json["datasets"][0]
    assert (facts["budget"], facts["unit"], facts["person"]) == ({"epsilon": 2.0, "delta": 1e-7}, "person", "id")
    assert facts["left_epsilon"] == 2.0
    described = steward("data", "describe", "patients", "--format", "json").json
    assert described["fingerprint"]["location"] == str(data)
    assert described["columns"] == ["age", "sex", "ill"]
    text = steward("data", "describe", "patients").out
    assert facts["id"] in text
    assert "never the name, the place or the content" in text


def test_add_again_is_nothing_new(steward: Runner, patients: None, data: Path) -> None:
    again = steward("data", "add", "patients", "--source", data, "--budget-epsilon", 1, "--format", "json").json
    assert again["new"] is False
    assert len(steward("data", "list", "--format", "json").json["datasets"]) == 1


def test_the_same_records_are_refused_a_second_budget(steward: Runner, patients: None, data: Path) -> None:
    lines = data.read_text().splitlines()
    copy = data.with_name("copy.csv")
    copy.write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    refused = steward("data", "add", "again", "--source", copy, "--budget-epsilon", 1, "--format", "json")
    assert (refused.code, refused.error["rule"]) == (2, "source-registered-once")
    assert refused.error["remedy"] == "Let both share one budget: --group patients."
    shared = steward("data", "add", "again", "--source", copy, "--group", "patients")
    assert shared.code == 0
    assert "shares its budget with again" in steward("data", "describe", "patients").out


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("x", "--source", "missing.csv", "--budget-epsilon", 1), "DataError"),
        (("../x", "--source", "clinic.csv", "--budget-epsilon", 1), "data-set-name"),
        (("x", "--source", "clinic.csv"), "budget-stated"),
        (("x", "--source", "clinic.csv", "--budget-epsilon", 0), "budget-stated"),
        (("x", "--source", "clinic.csv", "--budget-epsilon", 1, "--unit", "person"), "unit-is-known"),
        (("x", "--source", "clinic.csv", "--budget-epsilon", 1, "--schema", "clinic.csv"), "schema"),
        (("x", "--source", "clinic.csv", "--budget-epsilon", 1, "--schema", "none.toml"), "StudyError"),
    ],
)
def test_what_cannot_be_registered(
    steward: Runner, data: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], rule: str
) -> None:
    monkeypatch.chdir(data.parent)
    done = steward("data", "add", *words, "--format", "json")
    assert (done.code, done.error["rule"]) == (2, rule)
    assert done.error["remedy"]


def test_only_a_client_has_data(run: Runner, config: Path) -> None:
    for words in (("data", "list"), ("budget", "show"), ("ledger", "verify")):
        done = run(*words, "--config", config.parent.parent / "server-1" / "role.toml", "--format", "json")
        assert (done.code, done.error["rule"]) == (2, "config")


# -- budget ------------------------------------------------------------------------------------------------------------


def test_show_says_for_whom(steward: Runner, config: Path, patients: None) -> None:
    """Units are listed, never added as they stand."""
    caps = {"person": "id", "max_records": 4, "max_institutions": 2}
    with client_ledger(config) as ledger:
        ledger.reserve("patients", replace(charge(9, 0.2), unit="person", **caps), study_name="for persons")
    assert "for replacing any one person (column 'id', up to 4 record(s)' worth" in steward("budget", "show").out
    spend(config, 0.3)
    shown = steward("budget", "show").out
    for words in (
        "2 fit(s) for different units, stated for each",
        "reserved (counts as spent), for any one person (column 'id'",
    ):
        assert words in shown
    (budget,) = steward("budget", "show", "--format", "json").json["budgets"]
    record, person = budget["spent"]["units"]
    assert (budget["spent"]["unit"], record["unit"], record["studies"]) == ("record", "record", 2)
    assert {key: person[key] for key in ("unit", *caps)} == {"unit": "person", **caps}
    assert (person["studies"], person["left_out"]) == (1, 1)
    assert {study["unit"] for study in budget["studies"]} == {"record", "person"}


def test_show_says_what_each_study_cost(steward: Runner, config: Path, patients: None) -> None:
    spend(config, 0.3, 0.4)
    with client_ledger(config) as ledger:
        ledger.commit(bytes([1]) * 32, bytes(32))
        ledger.reserve("patients", charge(3, 0.2), study_name="third")
    shown = steward("budget", "show").out
    for words in (
        "study 1",
        "epsilon 0.3 by itself, done",
        "released, no result here yet",
        "reserved (counts as spent)",
    ):
        assert words in shown
    facts = steward("budget", "show", "patients", "--format", "json").json["budgets"][0]
    assert facts["spent"]["studies"] == 3
    assert 0.4 < facts["spent"]["epsilon"] < 0.9  # composed, not added
    assert [entry["state"] for entry in facts["studies"]] == ["committed", "released", "reserved"]


def test_grant(steward: Runner, config: Path, patients: None) -> None:
    spend(config, 0.9)
    done = steward("budget", "grant", "patients", "--epsilon", 2, "--by", "Dr. A", "--reason", "renewed consent")
    assert done.code == 0
    assert "was epsilon = 1, delta = 1e-06" in done.out
    assert "The budget is epsilon = 2" in done.out
    refused = steward("budget", "grant", "patients", "--epsilon", 0.5, "--format", "json")
    assert (refused.code, refused.error["rule"]) == (3, "grant-covers-spent")
    unknown = steward("budget", "grant", "nothing", "--epsilon", 1, "--format", "json")
    assert (unknown.code, unknown.error["rule"]) == (2, "unknown-data-set")
    with client_ledger(config) as ledger, ledger.file.reading() as account:
        assert [(g.by, g.reason) for g in account.groups["patients"].grants][1:] == [("Dr. A", "renewed consent")]


# -- ledger ------------------------------------------------------------------------------------------------------------


def test_verify(steward: Runner, config: Path, patients: None) -> None:
    spend(config, 0.5)
    assert "The ledger is in order. All 4 links follow each other" in steward("ledger", "verify").out
    facts = steward("ledger", "verify", "--format", "json").json
    assert (facts["links"], facts["countersigned"], facts["recovered"]) == (4, {}, 0)
    assert (facts["asked"], facts["silent"]) == ({}, ["server-1"])  # nobody listens there
    assert "NO ANSWER from server-1" in steward("ledger", "verify").out
    assert "The servers were not asked." in steward("ledger", "verify", "--offline").out


def test_a_tampered_ledger_is_exit_6_everywhere(steward: Runner, config: Path, patients: None, data: Path) -> None:
    spend(config, 0.5)
    (config.parent / "state" / "ledger.anchor").unlink()
    for words in (
        ("ledger", "verify"),
        ("budget", "show"),
        ("data", "list"),
        ("budget", "grant", "patients", "--epsilon", 2),
        ("ledger", "export", "--out", data.with_name("x")),
    ):
        done = steward(*words, "--format", "json")
        assert (done.code, done.error["rule"], done.error["party"]) == (6, "ledger-anchor", "clinic"), words
        assert "tallystick ledger recover" in done.error["remedy"]


def test_recover(steward: Runner, config: Path, patients: None) -> None:
    spend(config, 0.5)
    fine = steward("ledger", "recover", "--reason", "curious", "--yes", "--format", "json")
    assert (fine.code, fine.error["rule"]) == (2, "ledger-in-order")
    (config.parent / "state" / "ledger.anchor").unlink()
    warned = steward("ledger", "recover", "--reason", "a disk", "--format", "json")
    assert (warned.code, warned.error["rule"]) == (2, "confirm")
    assert "closes every budget" in warned.error["cause"]
    done = steward("ledger", "recover", "--reason", "a disk", "--yes")
    assert done.code == 0, done.err
    assert "Closed until a new grant: patients" in done.out
    assert "CLOSED" in steward("budget", "show").out
    assert steward("ledger", "verify", "--format", "json").json["recovered"] == 1
    assert steward("budget", "grant", "patients", "--epsilon", 1, "--reason", "looked into it").code == 0
    assert "CLOSED" not in steward("budget", "show").out


def test_export_and_check_elsewhere(steward: Runner, run: Runner, config: Path, patients: None, tmp_path: Path) -> None:
    spend(config, 0.5)
    events, chain = tmp_path / "events.json", tmp_path / "chain.json"
    consortium = config.parent.parent / "consortium.toml"
    assert "dp-accounting events" in steward("ledger", "export", "--out", events).out
    told = json.loads(events.read_text())
    assert (told["schema"], told["events"][0]["event"]) == ("tallystick/ledger-events/1", "ZCDpEvent")
    assert steward("ledger", "export", "--chain", "--out", chain).code == 0
    checked = run("ledger", "verify", "--file", chain, "--consortium", consortium)
    assert "1 fit(s) together: epsilon = 0.5" in checked.out
    chain.write_bytes(chain.read_bytes().replace(b'"study 1"', b'"study 2"'))
    changed = run("ledger", "verify", "--file", chain, "--consortium", consortium, "--format", "json")
    assert (changed.code, changed.error["rule"]) == (6, "ledger-export")
    assert "link 3 says something else" in changed.error["cause"]
    gone = run("ledger", "verify", "--file", tmp_path / "none", "--consortium", consortium)
    assert gone.code == 2


def test_verify_needs_to_know_what(run: Runner, config: Path) -> None:
    for words in ((), ("--config", config, "--file", config), ("--file", config)):
        done = run("ledger", "verify", *words, "--format", "json")
        assert (done.code, done.error["rule"]) == (2, "usage")


def test_another_clients_ledger_is_refused(run: Runner, config: Path, steward: Runner, patients: None) -> None:
    """The files of one institution put into another's folder."""
    other = config.parent.parent / "other"
    (other / "state").mkdir()
    for file in (config.parent / "state").glob("ledger.*"):
        (other / "state" / file.name).write_bytes(file.read_bytes())
    done = run("ledger", "verify", "--config", other / "role.toml", "--format", "json")
    assert (done.code, done.error["rule"]) == (6, "ledger-owner")
    assert "belongs to 'clinic'" in done.error["cause"]


def test_every_option_has_words() -> None:
    for app in (data_app, budget_app, ledger_app):
        for command in app.registered_commands:
            assert command.callback.__doc__
            hints = get_type_hints(command.callback, include_extras=True)
            assert "format" in hints
            for hint in hints.values():
                for option in getattr(hint, "__metadata__", ()):
                    assert not isinstance(option, OptionInfo) or option.help
