"""A ledger written out for others: the chain, every byte of it covered, and dp-accounting events."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from ledger_examples import (
    BUDGET,
    IDENTITIES,
    KEY,
    PARTY,
    SERVER_KEYS,
    WHOLE,
    charge,
    countersign,
    dataset,
    open_ledger,
    short_charge,
    small_ledger,
    study,
)

from tallystick.application import ledger as ledger_room
from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import canonical
from tallystick.privacy.accountant import ORDERS, pure_rho
from tallystick.privacy.chain import Head, genesis, make_link, signed_bytes
from tallystick.privacy.ledger import Budget
from tallystick.privacy.totals import STEPS, Charge, steps
from tallystick.roles.ledger.account import dataset_facts
from tallystick.roles.ledger.report import check_export, export
from tallystick.roles.ledger.report import events as spent_events


@pytest.fixture
def exported(tmp_path: Path) -> bytes:
    small_ledger(tmp_path)
    with open_ledger(tmp_path) as ledger:
        ledger.reserve("default", short_charge(3))
        ledger.add_countersignature(countersign(ledger, 3).encode(), IDENTITIES)
        return export(ledger.file)


def test_an_export_can_be_checked_by_anyone(exported: bytes) -> None:
    head, account = check_export(exported, IDENTITIES)
    assert head.sequence == 8
    assert account.groups["default"].totals.rho == WHOLE / 4
    assert b"/default.csv" not in exported, "registrations stay at home"


def test_every_byte_of_an_export(exported: bytes) -> None:
    for place in range(len(exported)):
        bad = exported[:place] + bytes([exported[place] ^ (1 << (place % 7))]) + exported[place + 1 :]
        with pytest.raises(VerificationError) as caught:
            check_export(bad, IDENTITIES)
        assert "was changed" in caught.value.cause


def test_an_export_with_links_cut_off_or_left_out(exported: bytes) -> None:
    told = json.loads(exported)
    for change in (
        {"links": told["links"][:-1]},
        {"links": told["links"][1:]},
        {"links": [*told["links"][:3], *told["links"][4:]]},
        {"links": told["links"][::-1]},
        {"links": told["links"][:-1], "head": "sha256:" + told["links"][-1]["previous"]},  # a signed link missing
        {"party": "server-1"},
        {"party": "nobody"},
        {"more": 1},
        {"schema": "tallystick/ledger/2"},
    ):
        with pytest.raises(VerificationError):
            check_export(canonical({**told, **change}), IDENTITIES)
    for raw in (b"", b"[]", exported + b" ", json.dumps(told).encode()):
        with pytest.raises(VerificationError):
            check_export(raw, IDENTITIES)


def test_a_forged_export(exported: bytes) -> None:
    with pytest.raises(VerificationError):
        check_export(exported, {**IDENTITIES, PARTY: SERVER_KEYS["server-1"].public})
    told = json.loads(exported)
    head = Head(ledger=bytes.fromhex(told["ledger"]), sequence=7, hash=bytes.fromhex(told["links"][7]["previous"]))
    link = make_link(
        head, "void", {"study": "sha256:" + study(1).hex(), "reserved": 3, "reason": "", "at": 1, "salt": ""}
    )
    new = Head(ledger=head.ledger, sequence=8, hash=link.hash)
    entry = {
        "sequence": 8,
        "kind": "void",
        "body": json.loads(link.body),
        "content": link.content.hex(),
        "previous": link.previous.hex(),
        "signature": KEY.sign(signed_bytes(new)).hex(),
    }
    told |= {"links": [*told["links"][:7], entry], "head": f"sha256:{link.hash.hex()}", "countersignatures": []}
    with pytest.raises(VerificationError, match="says what cannot be"):  # signed by the owner, and yet impossible
        check_export(canonical(told), IDENTITIES)


def test_an_export_without_a_grant_is_told_all_the_same(exported: bytes, tmp_path: Path) -> None:
    """Its owner signed it; whoever checks it gets an answer, not a fault."""
    told = json.loads(exported)
    ledger = bytes.fromhex(told["ledger"])
    carried = {"kind": "register", "body": {**dataset_facts(dataset()), "at": 1}}
    body = {"by": "", "reason": "", "resumed": None, "carried": [carried], "at": 1, "salt": ""}
    link = make_link(Head(ledger=ledger, sequence=0, hash=genesis(ledger, PARTY)), "recovered", body)
    entry = {
        "sequence": 1,
        "kind": "recovered",
        "body": body,
        "content": link.content.hex(),
        "previous": link.previous.hex(),
        "signature": KEY.sign(signed_bytes(Head(ledger=ledger, sequence=1, hash=link.hash))).hex(),
    }
    told |= {"links": [entry], "head": f"sha256:{link.hash.hex()}", "countersignatures": []}
    _, account = check_export(canonical(told), IDENTITIES)
    assert [group.grants for group in account.groups.values()] == [()]
    file = tmp_path / "chain.json"
    file.write_bytes(canonical(told))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_room, "read_consortium", lambda _path: None)
        patch.setattr(ledger_room, "identities_of", lambda _consortium: IDENTITIES)
        said = ledger_room.verify_export(file, tmp_path / "consortium.toml")
    assert "no budget was ever granted" in said["statement"]


# -- events ------------------------------------------------------------------------------------------------------------


def pure_charge(number: int, epsilon: Fraction) -> Charge:
    rho = pure_rho(epsilon)
    curve = tuple(Fraction(steps(min(rho * order, epsilon)), STEPS) for order in ORDERS)
    return Charge(study=study(number), curve=curve, rho=rho, pure_epsilon=epsilon)


def composed(events: list[dict[str, Any]], kind: type[Any], **options: Any) -> Any:
    from dp_accounting import NeighboringRelation, dp_event

    accountant = kind(neighboring_relation=NeighboringRelation.REPLACE_ONE, **options)
    for entry in events:
        accountant.compose(getattr(dp_event, entry["event"])(**entry["arguments"]))
    return accountant


def test_events_compose_in_dp_accounting_as_the_ledger_says(tmp_path: Path) -> None:
    """Theirs and ours agree on Gaussian studies to their grid; what was given back is left out."""
    from dp_accounting.rdp import RdpAccountant

    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=3.0))
        for number, part in enumerate((3, 7, 50), start=1):
            ledger.reserve("default", charge(number, WHOLE / part), study_name=f"study {number}")
        ledger.void(study(3))
        events, spent = spent_events(ledger.file), ledger.view("default").spent
    assert [(e["name"], e["event"], e["state"]) for e in events] == [
        ("study 1", "ZCDpEvent", "reserved"),
        ("study 2", "ZCDpEvent", "reserved"),
    ]
    theirs = composed(events, RdpAccountant, orders=[float(a) for a in ORDERS]).get_epsilon(1e-6)
    assert theirs == pytest.approx(spent.epsilon, rel=2e-3)
    assert theirs >= spent.epsilon * (1 - 1e-9)  # a grid of orders is never below the minimum


def test_pure_studies_become_the_worst_mechanism_of_their_epsilon(tmp_path: Path) -> None:
    from dp_accounting.pld import PLDAccountant

    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=3.0, delta=0.0))
        for number, epsilon in enumerate((Fraction(1, 2), Fraction(3, 4))):
            ledger.reserve("default", pure_charge(number, epsilon))
        events = spent_events(ledger.file)
    assert {e["event"] for e in events} == {"RandomizedResponseDpEvent"}
    theirs = composed(events, PLDAccountant)
    assert theirs.get_epsilon(0.0) == pytest.approx(1.25, rel=1e-3)
    assert theirs.get_epsilon(0.1) < 1.25


def test_a_mixed_ledger_goes_into_one_accountant(tmp_path: Path) -> None:
    """At the ledger's own orders their curve is never above ours, so our admission never says more than theirs."""
    from dp_accounting.rdp import RdpAccountant

    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), Budget(epsilon=3.0))
        ledger.reserve("default", charge(1, WHOLE / 3))
        ledger.reserve("default", pure_charge(2, Fraction(1, 3)))
        events = spent_events(ledger.file)
        with ledger.file.reading() as account:
            ours = account.groups["default"].totals.curve
    theirs = composed(events, RdpAccountant, orders=[float(a) for a in ORDERS])
    assert all(their <= our / STEPS * (1 + 1e-9) for their, our in zip(theirs._rdp, ours))
    assert theirs.get_epsilon(1e-6) < 3.0


def test_exact_studies_are_events_too(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.register(dataset(), BUDGET)
        ledger.reserve("default", charge(1, Fraction(0), private=False), allow_not_private=True)
        (event,) = spent_events(ledger.file)
    assert (event["event"], event["arguments"]) == ("NonPrivateDpEvent", {})
    json.dumps(event)
