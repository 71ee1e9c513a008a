"""Every sampling rate is a probability, also one of several; groups of different rounds are not a split of one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tallystick as ts
from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.crypto.prg import AesStream
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of
from tallystick.engines.record_choice import CoinTosses

COLUMNS: dict[str, Any] = {
    "x": {"type": "number", "lower": 0, "upper": 1},
    "c": {"type": "category", "values": ["u", "v"]},
    "y": {"type": "category", "values": ["a", "b"]},
}


def study(program: str, privacy: dict[str, Any], own: dict[str, Any] | None = None) -> ts.Study:
    target = "y" if program in ("logistic_regression", "linear_svc") else None
    return ts.Study.from_dict(
        {
            "study": {"name": "n", "program": program, "target": target},
            "program": own or {},
            "privacy": {"delta": 1e-6, **privacy},
            "data": {"records": 5000, "columns": COLUMNS},
        }
    )


def designed(chosen: ts.Study) -> Any:
    return design_of(chosen, layout_of(chosen), None)


BAD = [-0.1, 0.0, -1e-300, 1.5, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_bad_rate_hides_behind_no_good_one(bad: float, first: str) -> None:
    """{a = 0.4, b = -0.1} would take every b and charge 0.4; the order of the table does not matter either."""
    rates = {first: bad, ("b" if first == "a" else "a"): 0.4}
    chosen = study("logistic_regression", {"neighbours": "add-remove", "sampling": rates}, {"rounds": 4})
    with pytest.raises(PrivacyRefused) as refused:
        designed(chosen)
    assert refused.value.rule == "sampling-is-a-probability"


@pytest.mark.parametrize("bad", [r for r in BAD if r != 0.0])
def test_coins_are_not_tossed_for_what_is_no_probability(bad: float) -> None:
    with pytest.raises(StudyError, match="not a probability"):
        CoinTosses(np.array([0.4, bad]), lambda _: AesStream(bytes(32)))
    assert not CoinTosses(np.array([0.0]), lambda _: AesStream(bytes(32))).rows(1).any()


@pytest.mark.parametrize(
    ("program", "groups"),
    [
        ("logistic_regression", {"moments": 0.1, "gradient": 0.9}),
        ("linear_svc", {"moments": 0.5, "gradient": 0.5}),
        ("kmeans", {"moments": 0.1, "clusters": 0.9}),
    ],
)
def test_groups_of_different_rounds_are_refused_with_the_way_out(program: str, groups: dict[str, float]) -> None:
    chosen = study(program, {"groups": [{"name": n, "share": s} for n, s in groups.items()]})
    with pytest.raises(StudyError, match=r"Leave \[privacy\] groups out") as refused:
        designed(chosen)
    assert refused.value.rule == "groups-share-a-round"


def test_groups_of_one_round_are_honoured() -> None:
    shares = {"histograms": 0.5, "moments": 0.5}
    chosen = study("summary", {"groups": [{"name": n, "share": s} for n, s in shares.items()]})
    assert {g.name: g.share for g in designed(chosen).groups[0]} == shares
