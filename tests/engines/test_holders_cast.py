"""Which studies among institutions with different columns a consortium can run: refused by name, before anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.trust import learners_deployment as learners
from tests.trust.vertical_deployment import LISTENING, study, text

from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.crypto.signing import SigningKey
from tallystick.engines.setup import set_up
from tallystick.protocol.governance.policy import facts_of
from tallystick.protocol.members import Cast, Members
from tallystick.roles.ledger.account import DataSet, Fingerprint
from tallystick.roles.ledger.datasets import check_fits
from tallystick.study import Study
from tallystick.study.holders import as_seen_by
from tallystick.study.read_columns import columns_read
from tallystick.study.schema import Number, Schema


def members(*clients: str) -> Members:
    roles: dict[str, tuple[str, ...]] = {"client": clients, "analyst": ("analyst",)}
    for name, role in LISTENING.items():
        roles[role] = (*roles.get(role, ()), name)
    names = [name for parties in roles.values() for name in parties]
    keys = {name: SigningKey(bytes([i]) * 32).public for i, name in enumerate(names, 1)}
    return Members(consortium_hash=bytes(32), board="aggregator", roles=roles, identities=keys)


def cast_of(wanted: Study, *clients: str) -> Cast:
    there = members(*(clients or ("bank", "hospital")))
    return there.cast(wanted.trust_model, wanted.trust.model_dump())


def refused(wanted: Study, *clients: str) -> StudyError:
    with pytest.raises(StudyError) as caught:
        set_up(wanted.canonical(), "").check_cast(cast_of(wanted, *clients))
    return caught.value


def changed(section: str, **values: Any) -> Study:
    return study().replace(section, **values)


def test_a_study_that_says_everything_may_be_run() -> None:
    wanted = study()
    cast = cast_of(wanted)
    set_up(wanted.canonical(), "").check_cast(cast)
    assert cast.helpers == ("server-1", "server-2", "dealer")
    assert cast.makers == ("server-1", "server-2")  # the dealer makes no noise
    assert cast.among(cast.members) == cast


def test_a_dealer_is_a_party_of_a_study_only_if_it_is_named() -> None:
    whole = study().replace("trust", dealer=None)
    assert cast_of(whole).helpers == ("server-1", "server-2")
    found = refused(whole)
    assert found.rule == "dealer-is-named"
    assert "Dealers are: dealer" in str(found.remedy)
    assert refused(changed("trust", dealer="server-1")).rule == "dealer-is-named"  # it has another part
    assert refused(changed("trust", dealer="bank")).rule == "dealer-is-named"
    named = members("bank", "hospital").helpers_by_model
    assert ("server-1", "server-2") in named
    assert ("server-1", "server-2", "dealer") in named


def test_a_dealer_where_nothing_is_dealt() -> None:
    plain = study().model_dump()
    plain["study"] |= {"program": "summary", "target": None, "features": ["x"]}
    plain["data"] |= {"holders": None, "identifier": None}
    assert refused(Study.from_dict(plain)).rule == "dealer-is-named"


@pytest.mark.parametrize(
    ("section", "values", "rule"),
    [
        ("trust", {"min_clients": None}, "holders-take-part"),
        ("trust", {"min_clients": 3}, "holders-take-part"),
        ("data", {"identifier": None}, "identifier-is-named"),
    ],
)
def test_what_is_missing_is_asked_for(section: str, values: dict[str, Any], rule: str) -> None:
    assert refused(changed(section, **values)).rule == rule


def test_every_list_has_a_length_and_every_institution_is_a_client() -> None:
    shorter = Study.parse(text().replace("people = 70", "").replace(', "label"]', "]").replace(
        'label = { type = "category", values = ["no", "yes"] }\n', ""
    ))  # fmt: skip
    found = refused(shorter)
    assert found.rule == "lists-have-lengths"
    assert "[data.holders.hospital]" in str(found.remedy)
    assert refused(study(), "bank").rule == "holders-are-the-institutions"
    assert refused(study(), "bank", "hospital", "school").rule == "holders-are-the-institutions"


@pytest.mark.parametrize("more", ["people = 10000001", "records = 10000001"])
def test_what_no_memory_holds_is_refused_before_anything_is_kept(more: str) -> None:
    key = more.split(" = ")[0]
    least = text().replace("delta = 1e-6", "delta = 1e-9")  # far below one record, however many there are
    wanted = Study.parse(re.sub(rf"\b{key} = [0-9]+", more, least, count=1))
    found = refused(wanted)
    assert found.rule == "people-fit-in-memory"
    assert "10,000,001 people" in found.cause


def test_rules_see_by_what_people_are_compared() -> None:
    """Else a rule that refuses a column of names would never see that they are told apart by it."""
    facts = facts_of(json.loads(study().canonical()), analyst="analyst", delta=1e-6, budget_share=None)
    assert facts.columns[-1] == "id"
    assert (
        "id"
        not in facts_of(
            json.loads(study().replace("data", identifier=None).canonical()),
            analyst="analyst",
            delta=1e-6,
            budget_share=None,
        ).columns
    )


def test_people_are_told_apart_by_a_registered_column_only() -> None:
    registered = {name: Number(0, 1) for name in ("x", "c", "y")}
    dataset = DataSet(
        name="own", source="x.csv", schema=Schema(registered), fingerprint=Fingerprint(location="x.csv"), group="own"
    )
    with pytest.raises(PrivacyRefused, match="the column 'id' is not registered"):
        check_fits(dataset, study(), "bank")
    check_fits(replace(dataset, schema=Schema(registered | {"id": Number(0, 1)})), study(), "bank")


def machine_of(**trust: Any) -> Study:
    """A support vector machine of the same columns."""
    made = study(program="vertical_svc", target="label").replace("privacy", mechanism="none")
    return made.replace("trust", dealer=None, **trust)


def test_a_support_vector_machine_needs_no_dealer_and_everybody_else() -> None:
    def check(wanted: Study, *clients: str) -> None:
        set_up(wanted.canonical(), "", allow_not_private=True).check_cast(cast_of(wanted, *clients))

    def rule(wanted: Study, *clients: str) -> str | None:
        with pytest.raises(StudyError) as caught:
            check(wanted, *clients)
        return caught.value.rule

    check(machine_of())
    assert cast_of(machine_of()).helpers == ("server-1", "server-2")
    assert rule(machine_of().replace("trust", dealer="dealer")) == "dealer-is-named"  # and nothing is dealt
    assert rule(machine_of(), "bank") == "holders-are-the-institutions"
    assert rule(machine_of(min_clients=3)) == "holders-take-part"
    assert rule(machine_of().replace("data", identifier=None)) == "identifier-is-named"


def test_labels_are_told_to_one_party_and_not_to_every_peer() -> None:
    wanted = learners.study("peers").replace("trust", reducer="every-peer", colluding=0)
    keys = {name: SigningKey(bytes([i]) * 32).public for i, name in enumerate(("hub", *learners.CLIENTS), 1)}
    roles = {"reducer": ("hub",), "client": learners.CLIENTS}
    there = Members(consortium_hash=bytes(32), board="hub", roles=roles, identities=keys)

    def check(wanted: Study, there: Members) -> None:
        cast = there.cast(wanted.trust_model, wanted.trust.model_dump())
        set_up(wanted.canonical(), "", allow_not_private=True).check_cast(cast)

    check(learners.study("one"), there)
    with pytest.raises(StudyError) as caught:  # by everybody who derives it, before it is proposed
        check(wanted, there)
    assert caught.value.rule == "one-reducer"
    assert 'reducer = "clinic"' in str(caught.value.remedy)
    elsewhere = replace(there, board="aggregator", roles={**roles, "aggregator": ("aggregator",)})
    with pytest.raises(StudyError) as caught:
        check(learners.study("one"), elsewhere)
    assert caught.value.rule == "coordinator-passes-on"


def test_studies_from_before_keep_their_hash() -> None:
    """What nobody says is in no canonical form."""
    said = study().replace("trust", dealer=None).canonical().decode()
    assert '"people":80' in said
    assert "dealer" not in said
    older = study().model_dump()
    for held in older["data"]["holders"].values():
        held["people"] = None
    assert "people" not in Study.from_dict(older).canonical().decode()


def test_an_institution_accepts_what_is_read_there() -> None:
    wanted = study()
    assert [name for name, _ in columns_read(wanted, "bank")] == ["x", "c", "y", "id"]
    assert [name for name, _ in columns_read(wanted, "hospital")] == ["z", "id"]
    exact = wanted.replace("data", identifier={"column": "id"})
    assert dict(columns_read(exact, "bank"))["id"] != dict(columns_read(wanted, "bank"))["id"]
    assert as_seen_by(wanted, "bank").study.target == "y"
    assert not as_seen_by(wanted, "hospital").vertical
    assert as_seen_by(wanted, "somebody") is wanted
