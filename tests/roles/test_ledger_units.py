"""A client's ledger tells units apart: what is admitted, written, shown, verified and recovered."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_examples import BUDGET, IDENTITIES, KEY, PARTY, WHOLE, charge, database, dataset, open_ledger, study

from tallystick.core.errors import BudgetExceeded, PrivacyRefused, VerificationError
from tallystick.core.identifiers import canonical
from tallystick.privacy.chain import make_link, parse_body, signed_bytes
from tallystick.privacy.totals import Charge
from tallystick.privacy.units import RECORD, Unit
from tallystick.protocol.governance.statements import make
from tallystick.roles.ledger.account import _charge, charge_facts
from tallystick.roles.ledger.recovery import _carried, _unit_of
from tallystick.roles.ledger.report import events as spent_events
from tallystick.roles.ledger.salvage import Salvage
from tallystick.roles.ledger.store import LedgerStore
from tallystick.study import Study

PID = Unit(kind="person", person="pid", max_records=4, max_institutions=3)


def person(number: int, rho: Fraction = WHOLE / 16, column: str = "pid") -> Charge:
    return replace(charge(number, rho), unit="person", person=column, max_records=4, max_institutions=3)


def persons(name: str = "default", column: str = "pid", **more: str) -> Any:
    return replace(dataset(name, **more), unit="person", person=column)


def test_units_are_told_apart_and_the_budget_is_held_against_a_converted_figure(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", charge(1, WHOLE / 2))
        ledger.reserve("default", person(2, WHOLE / 16))
        view = ledger.view("default")
        assert [one.unit for one in view.spent.units] == [RECORD, PID]
        assert view.totals.rho == WHOLE / 2 + 4 * WHOLE / 16
        assert "stated for each" in view.words
        assert "held against the figure for one record" in view.words
        assert view.share_of(person(3, WHOLE / 32)) == pytest.approx(0.5)
        assert view.share_of(charge(3, WHOLE / 8)) == pytest.approx(0.5)
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", person(3, WHOLE / 15))  # the plain sum is below 2/3 of the budget
        ledger.reserve("default", person(3, WHOLE / 16))
        assert ledger.view("default").left_epsilon == 0.0
        assert Fraction(ledger.charge_body(study(3))["spent_rho"]) == WHOLE
        assert ledger.verify(IDENTITIES).links == 5
        with ledger.file.reading() as account:
            known = account.studies[study(2)].charge
    assert known.protects == PID


def test_the_ledger_comes_back_with_its_units(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", person(1))
        ledger.reserve("default", charge(2, WHOLE / 16))
        before = ledger.view("default").spent
        events = spent_events(ledger.file)
    with open_ledger(tmp_path) as ledger:
        assert ledger.view("default").spent == before
        ledger.void(study(1))
        assert ledger.view("default").spent.unit == RECORD
    assert (events[0]["person"], events[0]["max_records"], events[0]["max_institutions"]) == ("pid", 4, 3)
    assert "person" not in events[1]


def test_records_registered_for_persons_take_no_other_charge_under_any_name(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(persons(), BUDGET)
        ledger.register(dataset("again", "default", location="/default.csv"))
        for name in ("default", "again"):
            for wrong in (charge(1), person(1, column="household")):
                for act in (ledger.reserve, ledger.preview):
                    with pytest.raises(PrivacyRefused) as caught:
                        act(name, wrong)
                    assert caught.value.rule == "unit-of-the-data-set"
        ledger.reserve("again", person(1))
        assert ledger.view("default").spent.unit == PID


# -- ledgers of earlier versions ---------------------------------------------------------------------------------------


def as_before(ledger: LedgerStore, number: int, rho: Fraction) -> None:
    """A reservation for persons as versions wrote it that did not note the column."""
    with ledger.file.turn() as account:
        facts = charge_facts(person(number, rho))
        for key in ("person", "max_records", "max_institutions"):
            del facts[key]
        ident = account.datasets["default"].ident
        ledger.file.append(("reserve", {"dataset": ident, "group": "default", "study_name": "", **facts}))


def test_a_ledger_from_before_units_were_noted_is_read_and_verified(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", charge(1, WHOLE / 2))
        as_before(ledger, 2, WHOLE / 2)  # half and half were within the budget by the plain sum
        assert ledger.verify(IDENTITIES).links == 4
        spent = ledger.view("default").spent
        assert [one.unit.noted for one in spent.units] == [True, False]
        assert spent.rho == pytest.approx(float(WHOLE / 2 + 4 * WHOLE / 2))
        assert "did not note" in spent.statement
        assert ledger.view("default").left_epsilon == 0.0
        assert ledger.reserve("default", person(2, WHOLE / 2)).number == 4  # asked for again after the upgrade
        with pytest.raises(BudgetExceeded):
            ledger.reserve("default", charge(3, WHOLE / 100))


def test_an_overspent_ledger_of_today_does_not_verify(tmp_path: Path) -> None:
    """The planted bug: had the admission gone by the plain sum, this is what verification would find."""
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", charge(1, WHOLE / 2))
        with ledger.file.turn() as account:
            ident = account.datasets["default"].ident
            facts = {"dataset": ident, "group": "default", "study_name": "", **charge_facts(person(2, WHOLE / 2))}
            ledger.file.append(("reserve", facts))
        with pytest.raises(VerificationError) as caught:
            ledger.verify(IDENTITIES)
        assert caught.value.rule == "ledger-overspent"


# -- recovery ----------------------------------------------------------------------------------------------------------


def proposed(unit: str, **more: str) -> Study:
    privacy = {"unit": unit, "person": "pid", "max_records": 4, "max_institutions": 3, "epsilon": 1.0, **more}
    column = {"type": "number", "lower": 0, "upper": 1}
    return Study.from_dict(
        {"study": {"name": "s", "program": "summary"}, "privacy": privacy, "data": {"columns": {"x": column}}}
    )


def test_a_recovered_charge_is_for_whom_the_study_was(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.register(persons("wards"), BUDGET)
        bodies = []
        for number, name in ((1, "default"), (2, "default"), (3, "wards"), (4, "default")):
            ledger.reserve(name, person(number) if number != 4 else charge(4))
            bodies.append(ledger.charge_body(study(number)))
        statements = [make("charge", PARTY, body, KEY) for body in bodies]
        with ledger.file.reading() as account:
            account.studies.clear()  # lost with their links
            found = Salvage(ledger=ledger.file.ledger, kept=(), loose=(), account=account, head=ledger.head())
            units = {bodies[0]["hash"]: _unit_of(proposed("person").canonical().decode())}
            units |= {bodies[1]["hash"]: _unit_of("{}"), bodies[3]["hash"]: _unit_of("not JSON")}
            carried = _carried(found, statements, units)
    told = [{k: c["body"].get(k) for k in ("unit", "person", "max_institutions")} for c in carried]
    assert told[0] == {"unit": "person", "person": "pid", "max_institutions": 3}
    assert [one["unit"] for one in told] == ["person", "record", "person", "record"]
    assert _unit_of(proposed("record").canonical().decode()) == {"unit": "record"}
    assert json.dumps(carried)


@pytest.mark.parametrize(
    ("more", "relation", "private"),
    [
        ({}, "replace-one", True),
        ({"neighbours": "add-remove"}, "add-remove", True),
        ({"mechanism": "none"}, None, False),
    ],
)
def test_a_recovered_charge_promises_no_more_than_the_study_did(
    tmp_path: Path, more: dict[str, str], relation: str | None, private: bool
) -> None:
    """One of an add-remove study, read as replace-one, would count a quarter; one without noise, as nothing at all."""
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", charge(1))
        body = ledger.charge_body(study(1))
        text = proposed("record", **more).canonical().decode()
        with ledger.file.reading() as account:
            account.studies.clear()
            found = Salvage(ledger=ledger.file.ledger, kept=(), loose=(), account=account, head=ledger.head())
            (carried,) = _carried(found, [make("charge", PARTY, body, KEY)], {body["hash"]: _unit_of(text)})
    known = _charge(carried["body"])
    assert known.private is private
    assert relation in (None, known.neighbours)


def test_a_link_with_half_a_unit_is_refused(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", person(1))
        head = ledger.head()
        (link,) = ledger.file.links(2)
    with database(tmp_path) as db:
        body = parse_body(link) | {"max_institutions": 0}
        forged = make_link(replace(head, sequence=2, hash=link.previous), "reserve", body)
        mark = KEY.sign(signed_bytes(replace(head, hash=forged.hash)))
        db.execute(
            "UPDATE links SET body = ?, hash = ?, signature = ? WHERE sequence = 3",
            (canonical(body), forged.hash, mark),
        )
    with pytest.raises(VerificationError), open_ledger(tmp_path) as ledger:
        ledger.verify(IDENTITIES)
