"""``Quantiles(by=…, method="exponential")``: medians of groups that parties draw, of several columns, simulated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick as ts

SCHEMA = {
    "sex": ts.Category(["f", "m", "other"]),
    "age": ts.Integer(0, 120),
    "income": ts.Integer(0, 10**6),
}


def frames(records: int = 2000, parts: int = 3) -> list[dict[str, Any]]:
    """Women of about 40, men of about 60; nobody else."""
    out = []
    for seed in range(parts):
        die = np.random.default_rng(seed)
        sex = die.choice(["f", "m"], records)
        age = np.where(sex == "f", die.normal(40, 5, records), die.normal(60, 5, records)).round()
        income = np.where(sex == "f", die.normal(4e5, 5e4, records), die.normal(6e5, 1e4, records))
        out.append({"sex": sex, "age": age.clip(0, 120).astype(int), "income": income.clip(0, 10**6).astype(int)})
    return out


def federation(data: Any = None, **options: Any) -> ts.Federation:
    return ts.Federation.simulate(
        frames() if data is None else data, schema=ts.Schema(SCHEMA), trust="parties", seed=1, **options
    )


def medians(**options: Any) -> ts.Quantiles:
    return ts.Quantiles(**{"column": "age", "by": "sex", "method": "exponential", "epsilon": 1.0, **options})


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
def test_every_group_has_its_median_and_an_empty_one_has_none(neighbours: str) -> None:
    fed = federation()
    found = medians(neighbours=neighbours).fit(fed)
    assert found.quantiles_["f"][0.5] in (39, 40, 41)
    assert found.quantiles_["m"][0.5] in (59, 60, 61)
    assert found.quantiles_["other"] == {0.5: None}
    assert found.interval_["f"] == {0.5: None}
    assert abs(found.counts_["f"] - 3000) < 400  # noised
    assert found.counts_["f"] != 3000
    assert any("fewer records than the noise" in note for note in found.answer().notes)
    assert any("No interval" in note for note in found.answer().notes)
    assert 0.97 < fed.spent.epsilon <= 1
    times = {"replace-one": 2, "add-remove": 1}[neighbours]
    ((_, drawn),) = found.plan_.draws
    assert (drawn.choice.groups, drawn.choice.times) == (3, times)


def test_several_columns_and_quantiles_and_a_wide_domain() -> None:
    fed = federation()
    found = medians(column=["age", "income"], q=(0.25, 0.5), epsilon=4.0).fit(fed)
    assert set(found.quantiles_) == {"age", "income"}
    assert abs(found.quantiles_["income"]["f"][0.5] - 4e5) < 6000
    assert abs(found.quantiles_["income"]["m"][0.5] - 6e5) < 2000
    assert found.quantiles_["income"]["f"][0.25] < found.quantiles_["income"]["f"][0.5]
    assert fed.spent.epsilon <= 4
    counted = [r for r in found.plan_.rounds if r not in [d for _, d in found.plan_.draws]]
    assert len(counted) > 2  # wide: levels of counts for every group at once


def test_the_number_of_clients_changes_no_bit() -> None:
    whole = frames()
    parts = [{k: v[i::2] for k, v in f.items()} for f in whole for i in range(2)]
    few, many = medians().fit(federation(whole)), medians().fit(federation(parts))
    assert few.quantiles_ == many.quantiles_
    assert few.counts_ == many.counts_


def test_groups_of_nobody_at_all() -> None:
    empty = [{"sex": np.array([], dtype=str), "age": np.array([], dtype=int), "income": np.array([], dtype=int)}] * 3
    found = medians(neighbours="add-remove").fit(federation(empty))
    assert found.quantiles_ == {g: {0.5: None} for g in ("f", "m", "other")}


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"by": "age", "column": "income"}, "by-is-a-category"),
        ({"by": "shoe"}, None),
        ({"by": 3}, "by-is-a-category"),
        ({"method": "subranges"}, "draws-have-no-groups"),
    ],
)
def test_what_is_no_group_is_refused(asked: dict[str, Any], rule: str | None) -> None:
    with pytest.raises(ts.StudyError) as refused:
        medians(**asked).fit(federation())
    assert rule is None or refused.value.rule == rule
