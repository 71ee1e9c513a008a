"""Models on a random walk (Golf): who receives one averages it with its own, trains it one step, and sends it on.

A model is whatever its senders say it is, so what one peer can do to another's is bounded here, whoever sends it:

* a model of another length, with NaN or infinity, or ``HUGE`` times longer than any honest one, is refused;
* the rest is scaled into the ball in which honest models stay (for Pegasos 1/√λ [SSSC11, §2.2]);
* one model of each sender counts in a cycle, and its weight in the average is a half, as everybody's;
* an age raises ours by at most ``AGE_STEP``: with an age of a billion the step sizes, which fall with it, would end.

What is trained on is perturbed records (or nothing else that is not charged): a walk is post-processing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

HUGE = 1e3
AGE_STEP = 100


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model and how many training steps it has behind it."""

    age: int
    weights: NDArray[np.float64] = field(repr=False)


Train = Callable[[Model], Model]
"""One step of training on what this peer holds."""


class ModelWalks:
    """One peer's model. ``radius`` is the public norm that honest models do not exceed."""

    def __init__(self, size: int, radius: float, train: Train) -> None:
        self.size, self.radius = size, radius
        self._train = train
        self.model = Model(0, np.zeros(size))
        self._met: set[str] = set()

    def new_cycle(self) -> None:
        """One model of each sender counts in a cycle."""
        self._met.clear()

    def take(self, sender: str, model: Model) -> str | None:
        """Merge a model that came in and train the result; why it is refused otherwise."""
        weights = model.weights
        if weights.shape != (self.size,):
            return f"a model of {weights.size} entries instead of {self.size}"
        if not np.isfinite(weights).all():
            return "a model with NaN or infinity"
        norm = float(np.sqrt(np.sum(np.square(np.clip(weights, -1e150, 1e150)))))
        if norm > HUGE * self.radius:
            return "a model that no training could have made so large"
        if sender in self._met:
            return None
        self._met.add(sender)
        own = self.model
        scaled = weights if norm <= self.radius else weights * (self.radius / norm)
        age = max(own.age, min(model.age, own.age + AGE_STEP))
        self.model = self._clipped(self._train(Model(age, (own.weights + scaled) / 2)))
        return None

    def train_alone(self) -> None:
        """A step without having met anybody."""
        self.model = self._clipped(self._train(self.model))

    def _clipped(self, model: Model) -> Model:
        norm = float(np.linalg.norm(model.weights))
        if not np.isfinite(norm):
            return self.model
        return model if norm <= self.radius else Model(model.age, model.weights * (self.radius / norm))
