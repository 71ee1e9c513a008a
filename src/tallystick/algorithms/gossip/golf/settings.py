"""How a model learns at a peer and merges with the model there, and what a peer takes from a stranger."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from tallystick.core.errors import StudyError

Learner = Literal["pegasos", "logistic"]
Merging = Literal["update-merge", "merge-update"]


@dataclass(frozen=True, kw_only=True)
class GolfSettings:
    """One step of Golf: model w of age a arrives at a peer that has the example (x, y) and the model m of age b.

    ``update-merge`` (the paper's): w learns, then m ← (1 − μ)m + μw. ``merge-update``: first m ← (1 − μ)m + μw, then m
    learns. To learn is, with t the age after it, w ← (1 − 1/t)w + yx·s/(λt), where s is 1[y w·x < 1] (``pegasos``, a
    support vector machine) or 1/(1 + e^(y w·x)) (``logistic``). Of two merged models the greater age is kept.

    Against poisoning: a model that is not finite is refused; ``merge_weight`` is μ; a model longer than ``norm_cap`` is
    shortened to it when it arrives, and a peer's own after the step; a stranger's age counts as at most ``age_lead``
    more than the peer's own (a huge one would end all learning, as steps are 1/(λt)). An honest model is never longer
    than R/λ, R being the longest example: each step is a mean, with weights 1 − 1/t and 1/t, of w and something of
    length at most R/λ. So that is the cap where none is given, and it changes nothing among honest peers.
    """

    learner: Learner = "pegasos"
    lambda_: float = 1e-4
    merging: Merging = "update-merge"
    merge_weight: float = 0.5
    norm_cap: float | None = None
    age_lead: int | None = None

    def __post_init__(self) -> None:
        if self.learner not in get_args(Learner):
            raise _wrong("learner", self.learner, f"one of {', '.join(get_args(Learner))}")
        if self.merging not in get_args(Merging):
            raise _wrong("merging", self.merging, f"one of {', '.join(get_args(Merging))}")
        if not (_number(self.lambda_) and 1e-12 <= self.lambda_ <= 1e12):
            raise _wrong("lambda_", self.lambda_, "a number from 1e-12 to 1e12")
        if not (_number(self.merge_weight) and 0 < self.merge_weight <= 0.5):
            raise _wrong("merge_weight", self.merge_weight, "above 0 and at most 1/2, the paper's")
        if self.norm_cap is not None and not (_number(self.norm_cap) and self.norm_cap > 0):
            raise _wrong("norm_cap", self.norm_cap, "a positive number, or None")
        if self.age_lead is not None and not (type(self.age_lead) is int and self.age_lead >= 1):
            raise _wrong("age_lead", self.age_lead, "a whole number of at least 1, or None")

    def longest(self, example: float) -> float:
        """The norm no model may exceed, where ``example`` is the norm of the longest example."""
        return self.norm_cap if self.norm_cap is not None else max(example, 1e-300) / self.lambda_


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _wrong(name: str, value: object, wanted: str) -> StudyError:
    return StudyError(f"{name} = {value!r} is not possible for gossip", remedy=f"Give {wanted}.")
