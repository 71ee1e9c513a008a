"""``tallystick bench masks``, small: every row is there, totals are checked, and Flower is left out where it is not."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tallystick import bench as benchmarks
from tallystick.bench import flower_peer, masks
from tallystick.bench.masked_round import MaskedRound
from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.masking import RoundKey

ROWS = [
    "round",
    "round",
    "a client",
    "the reducer",
    "keys, once a study",
    "signed survivor set",
    "machines",
    "machines, noise",
    "machines, upload",
]


@pytest.fixture(autouse=True)
def without_flower(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        if name.startswith("flwr"):
            raise ImportError(name)
        return import_module(name)

    monkeypatch.setattr(flower_peer, "import_module", missing)


def test_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masks, "QUICK", (masks.Case(20, 500, 8), masks.Case(12, 500, None)))
    result = benchmarks.run("masks", quick=True)
    cases = [row["case"] for row in result["rows"]]
    assert cases == [f"{name} {what}" for name in ("20 x 500 k=8", "12 x 500 complete") for what in ROWS]
    assert all(row["value"] > 0 for row in result["rows"])
    assert [row["reference"] for row in result["rows"] if row["unit"].endswith("Flower")] == [None, None]
    assert "signed survivor set" in benchmarks.describe(result)


def test_flowers_stored_figure_stands_in_where_it_was_measured() -> None:
    assert masks._flower(masks.FULL[0]) == (21.0, masks._STORED)
    assert masks._flower(masks.FULL[1]) == masks._flower(masks.FULL[2]) == (None, None)


def test_the_cases_keep_their_bounds() -> None:
    assert [case.plan.degree for case in masks.FULL] == [24, 99, 46, 146]
    assert masks.FULL[3].plan.window > 0
    smaller = masks.Case(1000, 10, 144, deployed=True)
    with pytest.raises(LocalProtocolError, match="too few"):
        _ = smaller.plan
    with pytest.raises(LocalProtocolError, match="too few"):
        _ = masks.Case(1000, 10, 20).plan


def test_a_wrong_total_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MaskedRound(masks.Case(12, 50, None).plan, 50)
    world.run(1)
    assert world.seconds.keys() == {"deal", "open", "mask", "add", "unmask"}
    monkeypatch.setattr(RoundKey, "remove", lambda self, acc, party: None)  # a drop-out's masks stay in the sum
    with pytest.raises(LocalProtocolError, match="not the sum"):
        world.run(2)


def test_a_tenth_is_lost() -> None:
    world = MaskedRound(masks.Case(20, 5, 8).plan, 5)
    assert len(world.dropped) == 2
    want = sum(world.vectors[at] for at, name in enumerate(world.names) if name not in world.dropped)
    assert np.array_equal(world.plain_sum(), want)
