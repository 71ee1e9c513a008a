"""What an analyst says of institutions with different columns, and what it is told if something is missing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tallystick as ts
from tallystick.core.errors import TallystickError
from tallystick.roles.identity import enrolment

SCHEMA = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Number(-1, 1), "z": ts.Number(0, 4)})
HOLDERS: dict[str, Any] = {"bank": {"columns": ["x", "y"], "people": 80}, "hospital": {"columns": ["z"], "people": 70}}
WHOLE: dict[str, Any] = {"holders": HOLDERS, "identifier": "id", "dealer": "dealer", "records": 60, "schema": SCHEMA}
PASTE = 'holders={"bank": {"columns": ["…"], "people": …}, "hospital": {"columns": ["…"], "people": …}}'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium on paper: nobody of it runs."""
    made, now = tmp_path_factory.mktemp("paper") / "consortium", datetime.now(UTC)
    enrolment.create("paper", made, now=now)
    for name, role in {"s1": "server", "s2": "server", "board": "aggregator", "dealer": "dealer"}.items():
        enrolment.enrol(name, role, made, now=now, address="127.0.0.1:1")
    for name in ("bank", "hospital"):
        enrolment.enrol(name, "client", made, now=now, data="/nowhere.csv", budget=1.0)
    enrolment.enrol("analyst", "analyst", made, now=now)
    return made


def connect(home: Path, **stated: Any) -> ts.Federation:
    return ts.Federation.connect(home / "consortium.toml", connect_timeout_s=0.1, progress=False, **stated)


def without(key: str, **changed: Any) -> dict[str, Any]:
    return {**{k: v for k, v in WHOLE.items() if k != key}, **changed}


def held(**changed: Any) -> dict[str, Any]:
    return {**WHOLE, "holders": {**HOLDERS, "hospital": {**HOLDERS["hospital"], **changed}}}


@pytest.mark.parametrize(
    ("stated", "rule", "cause", "paste"),
    [
        (without("holders"), "holders-are-named", "at whom is not said", PASTE),
        (without("holders", identifier=None), "holders-are-named", "at whom is not said", PASTE),
        (without("holders", holders=["bank"]), "holders-are-the-institutions", "a list", PASTE),
        (without("holders", holders={}), "holders-are-the-institutions", "nobody", PASTE),
        (without("holders", holders={"bank": HOLDERS["bank"]}), "holders-are-the-institutions", "at bank, and", PASTE),
        (without("identifier"), "identifier-is-named", "no column says", 'identifier="id"'),
        (without("dealer", dealer="deeler"), "dealer-is-named", "'deeler' is no dealer", "Dealers are: dealer."),
        ({**WHOLE, "trust": "masks"}, "dealer-is-named", "for trust = 'masks'", "Leave dealer out"),
        (held(people=None), "lists-have-lengths", "'hospital'", 'Add "people": … to "hospital"'),
        (held(columns=[]), "every-column-has-a-holder", "'hospital'", '"columns": ["…"]'),
        (held(columns="z"), "every-column-has-a-holder", "'hospital'", '"columns": ["…"]'),
        (held(norms=1.0), "unknown-key", "'norms' of 'hospital'", "columns, people, norm"),
        (held(columns=["zz"]), None, "column of 'hospital', 'zz' is not declared", "Did you mean 'z'?"),
        (without("holders", holders={**HOLDERS, "hospital": 7}), "every-column-has-a-holder", "not a table", "{"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_when_connecting(
    home: Path, stated: dict[str, Any], rule: str | None, cause: str, paste: str
) -> None:
    with pytest.raises(ts.StudyError) as caught:
        connect(home, **stated)
    assert caught.value.rule == rule
    assert cause in caught.value.cause
    assert paste in caught.value.remedy


@pytest.mark.parametrize(
    ("stated", "rule", "paste"),
    [
        (without("dealer"), "dealer-is-named", 'Add dealer="dealer" to connect(…)'),
        (without("records"), "replace-one-needs-records", "as many people as they may have in common"),
        ({**WHOLE, "min_clients": 3}, "holders-take-part", "min_clients = 2"),
        (without("holders", identifier=None, dealer=None), "holders-are-named", "connect(…, holders={"),
        (held(columns=["z", "x"]), "a-column-at-one-party", "at one institution"),
        (held(columns=["y"]), "labels-at-one-party", "Let one institution"),
        (held(norm=-1.0), "blocks-have-norms", "norm = "),
        (held(people=0), "wrong-value", ""),
        (held(people=10**8), "people-fit-in-memory", "10,000,000"),
    ],
)  # fmt: skip
def test_what_only_a_study_shows_is_refused_before_anybody_is_asked(
    home: Path, stated: dict[str, Any], rule: str | None, paste: str
) -> None:
    """Nobody of the consortium runs: with anybody asked, it would be the connection that fails."""
    fed = connect(home, **stated)
    with pytest.raises(TallystickError) as caught:
        ts.VerticalRidge(epsilon=5.0, delta=1e-6).fit(fed, target="y")
    assert caught.value.rule == rule, caught.value
    assert paste in caught.value.remedy
    assert fed.spent.fits == 0


def test_the_study_is_the_simulations_but_for_who_is_there(home: Path) -> None:
    fed = connect(home, **WHOLE)
    model = ts.VerticalRidge(epsilon=5.0, delta=1e-6)
    made = model.study_for(fed, target="y", features=None)
    frames = [{"id": [1], "x": [0.0], "y": [0.0]}, {"id": [1], "z": [0.0]}]
    alone = ts.Federation.simulate(frames, schema=SCHEMA, names=list(HOLDERS), vertical=True)
    same = model.study_for(alone, target="y", features=None)
    assert made.data.holders is not None
    assert same.data.holders is not None
    assert made.data.identifier == same.data.identifier
    for name, held in made.data.holders.items():
        assert (held.columns, held.norm) == (same.data.holders[name].columns, same.data.holders[name].norm)
        assert held.people == HOLDERS[name]["people"]
    assert (made.trust.min_clients, made.trust.model_dump()["dealer"]) == (2, "dealer")


def test_columns_that_a_study_does_not_use_stay_out_of_it(home: Path) -> None:
    made = ts.PCA(n_components=1).study_for(connect(home, **WHOLE), target=None, features=["x", "z"])
    assert made.data.holders is not None
    assert [held.columns for held in made.data.holders.values()] == [("x",), ("z",)]
