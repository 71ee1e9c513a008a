"""All peers of a Golf network in one process: every message as it would be, the same bits for any number of threads.

Problems of one-vs-rest classes meet nowhere, and share the messages: each is carried out by itself, in any order or at
once. Threads are the caller's: ``over`` may be an executor's ``map``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tallystick.algorithms.gossip.golf.examples import Examples, Floats
from tallystick.algorithms.gossip.golf.kernels import LOGISTIC, PEGASOS, gossip
from tallystick.algorithms.gossip.golf.schedule import Schedule, permutation, stream
from tallystick.algorithms.gossip.golf.settings import GolfSettings
from tallystick.core.errors import StudyError

Over = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
_MESSAGES_AT_ONCE = 1 << 20


class GolfNetwork:
    """Peers with an example and a model for each problem; :meth:`run` lets cycles pass.

    Models begin at zero with age 0. A test of poisoning gives ``initial`` models (problems, peers, columns), ``ages``
    and the ``fixed`` peers, which never learn and send theirs for ever.
    """

    def __init__(
        self,
        examples: Examples,
        settings: GolfSettings,
        *,
        seed: int,
        dtype: DTypeLike = np.float64,
        loss: float = 0.0,
        isolated: Collection[int] = (),
        initial: Floats | None = None,
        ages: NDArray[np.int64] | None = None,
        fixed: Collection[int] = (),
    ) -> None:
        shape = (examples.problems, examples.peers, examples.columns)
        self.examples, self.settings = examples, settings
        self._rows = examples.rows.astype(dtype, copy=False)
        self._fixed = np.zeros(examples.peers, bool)
        self._fixed[list(fixed)] = True
        if initial is None:
            self.models: Floats = np.zeros(shape, dtype)
        else:
            self.models = np.array(initial, dtype=dtype, order="C")
        if self.models.shape != shape:
            raise StudyError("initial models are not one for each problem and peer", remedy=f"Their shape is {shape}.")
        if initial is not None and not np.isfinite(self.models[:, ~self._fixed]).all():
            raise StudyError("a peer that learns begins with NaN or infinity", remedy="Begin with zeros.")
        self.ages = np.zeros(shape[:2], np.int64) if ages is None else np.array(ages, np.int64)
        self.refused = 0
        """Models that were not finite, and not taken."""
        self._schedule = Schedule(examples.peers, seed, loss=loss, isolated=isolated)
        self._sampling = stream(seed, "sampled peers")
        honest = examples.longest() / settings.lambda_  # see GolfSettings
        self._cap = settings.longest(examples.longest())
        self._within = self._cap >= honest
        self._measured = initial is not None or not self._within

    def run(self, cycles: int, *, over: Over = map) -> None:
        """Let ``cycles`` pass; ``over`` runs the problems, one after the other or in threads."""
        if cycles < 0:
            raise StudyError(f"{cycles} cycles cannot pass", remedy="Give 0 or more.")
        at_once = max(1, _MESSAGES_AT_ONCE // self.examples.peers)
        for done in range(0, cycles, at_once):
            messages = self._schedule.cycles(min(at_once, cycles - done))
            self.refused += sum(over(partial(self._carry_out, *messages), range(len(self.models))))

    def _carry_out(self, senders: NDArray[np.int32], receivers: NDArray[np.int32], problem: int) -> int:
        settings = self.settings
        return int(
            gossip(
                self.models[problem],
                self.ages[problem],
                self._rows[problem if len(self._rows) > 1 else 0],
                self.examples.signs[problem],
                self._fixed,
                senders,
                receivers,
                PEGASOS if settings.learner == "pegasos" else LOGISTIC,
                settings.merging == "merge-update",
                1.0 / settings.lambda_,
                settings.merge_weight,
                self._cap,
                self._measured,
                self._within,
                settings.age_lead or 0,
            )
        )

    def sampled(self, count: int) -> NDArray[np.int64]:
        """Different peers, drawn anew at every call and whatever the problem: where the network is looked at."""
        return permutation(self._sampling, self.examples.peers)[:count]

    def model_of(self, peer: int) -> NDArray[np.float64]:
        """One peer's weights, a row for each problem."""
        return self.models[:, peer].astype(np.float64)
