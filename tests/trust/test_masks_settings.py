"""What a study under ``masks`` says, refuses and leaves out; that its bits are those of ``servers``: test_same_bits."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyRefused, StudyError, TallystickError, TooFewParties, TrustModelError
from tallystick.study import Study


def frames(clients: int = 5, records: int = 20) -> list[dict[str, Any]]:
    return [
        {"x": [math.sin(i * 7 + j) for j in range(records)], "y": ["a", "b"] * (records // 2)} for i in range(clients)
    ]


def federation(clients: int = 5, **trust: Any) -> ts.Federation:
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    return ts.Federation.simulate(frames(clients), schema=schema, trust="masks", seed=1, **trust)


def fit(fed: ts.Federation, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = ts.LogisticRegression(**{"epsilon": 1.0, "delta": 1e-6, "rounds": 6, **settings})
        return made.fit(fed, target="y")


def histograms(made: Any) -> list[float]:
    return [row["estimate"] for row in made.table_ if row["statistic"] == "histogram"]


def test_those_who_drop_out_are_left_out_whether_they_have_dealt_or_not() -> None:
    """Two of the four are gone from the beginning, two fall silent once they have dealt: their masks are recovered."""
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    fed = ts.Federation.simulate(frames(12), schema=schema, trust="masks", seed=5, drop=0.2)
    made = ts.Summary(mechanism="none", neighbours="add-remove").fit(fed)
    (gone,) = made.dropped_
    assert len(gone) == 4
    left = [frame for i, frame in enumerate(frames(12), start=1) if f"client-{i:02d}" not in gone]
    alone = ts.Summary(mechanism="none", neighbours="add-remove").fit(
        ts.Federation.simulate(left, schema=schema, seed=5)
    )
    assert histograms(made) == histograms(alone)
    assert sum(histograms(made)) > 0


def test_the_statement_says_against_whom_and_whose_noise() -> None:
    privacy = fit(federation(colluding=1, min_clients=4)).privacy_
    assert privacy.trust == {
        "model": "masks", "clients": 5, "colluding": 1, "reducer": "reducer", "min_clients": 4, "honest": 3,
    }  # fmt: skip
    assert "against the reducer together with any 1 client" in privacy.statement
    assert "noise of 4 clients or more, of whom the 3 honest ones' alone carries it" in privacy.statement
    ratio = privacy.noise_std["total"] / privacy.noise_std["per_client"]
    assert ratio == pytest.approx(math.sqrt(5))


@pytest.mark.parametrize(
    ("trust", "honest"),
    [({"min_clients": 5}, 4), ({"min_clients": 5, "colluding": 2}, 3), ({"min_clients": 5, "colluding": 0}, 4),
     ({"min_clients": 5, "colluding": 1, "reducer": "client-1"}, 3),
     ({"min_clients": 5, "colluding": 0, "reducer": "every-peer"}, 4),
     ({"min_clients": 5, "colluding": 2, "reducer": "every-peer"}, 2)],
)  # fmt: skip
def test_noise_is_sized_for_the_honest_clients_of_the_smallest_total(trust: dict[str, Any], honest: int) -> None:
    """Variance s²/h each, h = min_clients − max(1, c), or min_clients − (c + 1) where a client runs the reducer."""
    one = fit(federation(**trust)).privacy_
    central = fit(federation(min_clients=5)).privacy_.noise_std["per_client"] ** 2 * 4
    assert one.trust["honest"] == honest
    assert one.noise_std["per_client"] ** 2 * honest == pytest.approx(central, rel=1e-6)


@pytest.mark.parametrize(
    ("clients", "trust", "rule"),
    [
        (2, {}, "three-clients-at-least"),
        (5, {"min_clients": 2}, "three-clients-at-least"),
        (5, {"colluding": 2, "min_clients": 3}, "two-honest-clients"),
        (5, {"reducer": "client-1", "min_clients": 3}, "two-honest-clients"),
        (5, {"reducer": "every-peer", "min_clients": 3}, "two-honest-clients"),
        (5, {"reducer": "every-peer", "min_clients": 5, "colluding": 3}, "two-honest-clients"),
        (5, {"colluding": -1}, "two-honest-clients"),
        (5, {"colluding": 4, "min_clients": 5}, "two-honest-clients"),
        (5, {"colluding": 4, "min_clients": 7}, None),
    ],
)
def test_settings_that_cannot_be_are_refused(clients: int, trust: dict[str, Any], rule: str | None) -> None:
    with pytest.raises(TallystickError) as caught:
        fit(federation(clients, **trust))
    if rule is not None:
        assert caught.value.rule == rule


def test_laplace_cannot_be_split() -> None:
    with pytest.raises(PrivacyRefused, match="cannot be split") as caught:
        fit(federation(), mechanism="laplace", delta=None)
    assert caught.value.rule == "laplace-cannot-be-split"


def test_too_few_survivors_release_nothing() -> None:
    with pytest.raises(TooFewParties):
        fit(federation(4, drop=0.6))


def test_more_clients_than_planned_for_are_refused() -> None:
    fed = federation(5)
    fed.trust["clients"] = 4  # type: ignore[attr-defined]
    with pytest.raises(StudyError, match="planned for 4 clients"):
        fit(fed)


def test_streams_are_refused_in_words() -> None:
    text = {
        "study": {"name": "stream", "program": "summary"},
        "privacy": {"neighbours": "add-remove"},
        "trust": {"model": "masks", "clients": 5},
        "stream": {"ticks": 1, "tick_seconds": 1, "records_per_tick": 10},
        "data": {"columns": {"x": {"type": "number", "lower": 0, "upper": 1}}},
    }
    from tallystick.engines.designs import design_of
    from tallystick.engines.planning import layout_of, plan_study

    study = Study.from_dict(text)
    with pytest.raises(TrustModelError, match="stream"):
        plan_study(study, design_of(study, layout_of(study), None), allow_not_private=True)


def test_beyond_a_hundred_clients_each_masks_with_neighbours_on_a_circle() -> None:
    schema = ts.Schema({"x": ts.Number(-1, 1)})
    some = [{"x": [math.sin(i), math.cos(i)]} for i in range(120)]
    fed = ts.Federation.simulate(some, schema=schema, trust="masks", seed=3, drop=0.03, min_clients=60, dropout=0.1)
    made = ts.Summary(mechanism="none", neighbours="add-remove").fit(fed)
    (gone,) = made.dropped_
    assert gone
    left = [frame for i, frame in enumerate(some, start=1) if f"client-{i:03d}" not in gone]
    alone = ts.Summary(mechanism="none", neighbours="add-remove").fit(ts.Federation.simulate(left, schema=schema))
    assert histograms(made) == histograms(alone)
    notes = " ".join(made.plan_.notes)
    assert "18 neighbours on a random circle" in notes
    assert "2^-40 with 1 colluding" in notes


def test_prices_that_are_left_open_are_checked_by_every_client_against_its_own_filter() -> None:
    """A zoom whose rounds are priced as they come: each client admits them itself."""
    schema = ts.Schema({"age": ts.Integer(0, 1000)})
    ages = [{"age": [(37 * i + 11 * j) % 900 for j in range(60)]} for i in range(4)]
    made = ts.Quantiles(q=[0.5], epsilon=2.0, delta=1e-6).fit(
        ts.Federation.simulate(ages, schema=schema, trust="masks", seed=2)
    )
    assert made.plan_.open is not None
    assert made.privacy_.trust["model"] == "masks"


@pytest.mark.parametrize(
    ("roles", "missing"),
    [((), ["aggregator", "server"]), (("server",), ["aggregator"]), (("reducer",), []), (("proxy",), ["data-user"]),
     (("aggregator", "server"), [])],
)  # fmt: skip
def test_doctor_misses_only_what_some_trust_model_needs(roles: tuple[str, ...], missing: list[str]) -> None:
    from types import SimpleNamespace

    from tallystick.application.doctor import _missing_roles

    consortium: Any = SimpleNamespace(by_role=lambda role: [role] if role in roles else [])
    assert _missing_roles(consortium) == missing


# -- every peer its own reducer ----------------------------------------------------------------------------------------


def test_the_statement_of_every_peer_says_that_nobody_adds_up_for_the_others() -> None:
    made = fit(federation(colluding=1, min_clients=4, reducer="every-peer"))
    assert made.privacy_.trust["honest"] == 2
    assert (
        "every client, who adds up itself, together with any 1 other client, and everybody" in made.privacy_.statement
    )
    assert any("No party adds up for the others" in note for note in made.plan_.notes)


def test_peers_that_drop_out_are_left_out_and_every_total_is_that_of_servers() -> None:
    schema = ts.Schema({"x": ts.Number(-1, 1), "y": ts.Category(["a", "b"])})
    fed = ts.Federation.simulate(
        frames(12), schema=schema, trust="masks", seed=9, drop=0.2, min_clients=4, reducer="every-peer"
    )
    made = ts.Summary(mechanism="none", neighbours="add-remove").fit(fed)
    (gone,) = made.dropped_
    assert len(gone) == 4
    left = [frame for i, frame in enumerate(frames(12), start=1) if f"client-{i:02d}" not in gone]
    alone = ts.Summary(mechanism="none", neighbours="add-remove").fit(
        ts.Federation.simulate(left, schema=schema, seed=5)
    )
    assert histograms(made) == histograms(alone)


@pytest.mark.parametrize("reducer", ["reducer", "every-peer"])
def test_masks_that_are_left_out_of_a_large_simulation_change_no_bit(
    reducer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same study with the machines' masks and without, noise on, some dropping out before and after dealing."""
    from tallystick.trust.masks import simulation

    found = []
    for most in (128, 5):
        monkeypatch.setattr(simulation, "MASKED_UP_TO", most)
        fed = federation(12, min_clients=7, reducer=reducer, drop=0.15)
        made = fit(fed, rounds=3)
        found.append((made.coef_.tobytes(), made.intercept_.tobytes(), made.dropped_, made.contributors_))
    assert found[0] == found[1]
    assert any(found[0][2])


@pytest.mark.parametrize(("reducer", "clients"), [("reducer", 12), ("every-peer", 12), ("reducer", 110)])
def test_what_a_large_simulation_says_was_sent_is_what_the_machines_send(
    reducer: str, clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.trust.masks import simulation

    schema = ts.Schema({"x": ts.Number(-1, 1)})
    some = [{"x": [math.sin(i)]} for i in range(clients)]
    found = []
    for most in (128, 5):
        monkeypatch.setattr(simulation, "MASKED_UP_TO", most)
        fed = ts.Federation.simulate(
            some, schema=schema, trust="masks", seed=3, min_clients=clients - 2, reducer=reducer, dropout=0.05
        )
        made = ts.Summary(mechanism="none", neighbours="add-remove").fit(fed)
        found.append((made.cost_["bytes_up_per_client"], made.cost_["bytes_down_per_client"]))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=0.01)


def test_too_few_peers_release_nothing_in_a_large_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.trust.masks import simulation

    monkeypatch.setattr(simulation, "MASKED_UP_TO", 3)
    with pytest.raises(TooFewParties):
        fit(federation(4, drop=0.6, min_clients=4, reducer="every-peer"))
