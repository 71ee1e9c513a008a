"""Which programs go on after a round that was spent in a pause: not those that pay as they go, or count their steps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.core.errors import RoundAborted
from tallystick.engines import rounds
from tallystick.privacy.draws import DrawRound

SPENT = RoundAborted("lost in a pause", rule=rounds.SPENT, round=1)


def plan(*planned: Any, priced: object = None) -> Any:
    return SimpleNamespace(claim=SimpleNamespace(parallel=False), rounds=planned, open=priced)


@pytest.mark.parametrize(
    ("study", "goes_on"),
    [
        (plan("a", "a"), True),  # the next round asks the same
        (plan("a", "b"), False),
        (plan("a", "a", priced=object()), False),  # its price was admitted: the rest would be refused at the end
        (plan(DrawRound.__new__(DrawRound)), False),  # the last draw: there is no place to tell
    ],
    ids=["steps", "other rounds", "open prices", "draws"],
)
def test_a_spent_round_is_skipped_only_where_another_makes_up_for_it(study: Any, goes_on: bool) -> None:
    assert rounds.is_lost_tick(study, SPENT) is goes_on
