"""A study over pooled records with any number of noises: what Figure 2 of PEM is measured with.

The program, the plan, the clipping and the exact samplers are the product's; only who adds up is left out, because the
sum is exact: with a seed, a pooled run with the plan's own noise gives the bits of ``tallystick simulate`` over any
number of clients (tested). That makes a thousand rounds affordable, and it lets the noise be that of somebody else:

* PEM and ours: one noise from every server;
* *noise-only* [PEM §7]: every one of n clients adds the full noise a server would. Up to 32 noises are drawn singly;
  more are one discrete Gaussian of n times the variance, the law their sum is close to (excess kurtosis 3/n).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.application.simulation import evaluate_split, split_source
from tallystick.application.study_files import load_study, read_program_from
from tallystick.core.errors import DataError
from tallystick.core.randomness import WordSource
from tallystick.data.partitions import fold_indices
from tallystick.data.sources import read_table
from tallystick.engines.engine import Computation, SimulatedStudy
from tallystick.engines.federation import Federation, SimulatedFederation
from tallystick.engines.planning import layout_of
from tallystick.engines.rounds import SimulatedRounds
from tallystick.engines.totals import NoisyTotal, SumRequest
from tallystick.estimators.from_study import estimator_for
from tallystick.privacy.mechanisms import discrete_gaussian
from tallystick.privacy.noise import draw_noise
from tallystick.privacy.round_plan import RoundPlan

__all__ = ["MOST_DRAWN", "PooledFederation", "data_file", "noise_of", "pooled"]

MOST_DRAWN = 32
"""So many noises are drawn singly."""


def data_file(name: str) -> Path:
    """A public data set of the benchmarks, in ../shared/data or data."""
    for folder in ("../shared/data", "data"):
        path = Path(folder) / name
        if path.is_file():
            return path
    raise DataError(
        f"the public data set {name} is not here",
        rule="bench-data",
        remedy=f"Put {name} into ../shared/data or data, beside the folder this is run in; --quick needs none.",
    )


def noise_of(plan: RoundPlan, noises: int, sources: list[WordSource]) -> NDArray[np.int64]:
    """The sum of ``noises`` independent noises, each what one server adds in this round."""
    if noises <= MOST_DRAWN or plan.mechanism == "none":
        drawn = [draw_noise(plan, source) for source in sources[:noises]]
        return np.asarray(np.sum(drawn, axis=0, dtype=np.int64))
    parts = [
        discrete_gaussian.sample(Fraction(int(noises * n.variance) + 1), n.group.size, sources[0]) for n in plan.noise
    ]
    return np.concatenate(parts)


class _Pooled(SimulatedRounds):
    """All records in one map; the noise of so many parties."""

    def __init__(self, simulated: SimulatedStudy, noises: int | None) -> None:
        super().__init__(simulated)
        (self._client,) = simulated.maps().values()
        self._noises = self.plan.claim.trust.makers.count if noises is None else noises

    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        number = request.round.to_bytes(8, "little")
        sources = [
            self.simulated.keyed(b"noise", number, f"server-{i}".encode())
            for i in range(1, 1 + min(self._noises, MOST_DRAWN))
        ]
        exact = self._client.contribute(request.model, request.plan, request.round)
        return NoisyTotal(
            values=exact + noise_of(request.plan, self._noises, sources), participants=("pooled",), dropped=()
        )


@dataclass(kw_only=True)
class PooledFederation(SimulatedFederation):
    """One institution that holds everything, and ``noises`` noises on its sums; None means the plan's own."""

    noises: int | None = None

    def computation(self, simulated: SimulatedStudy) -> Computation:
        return _Pooled(simulated, self.noises)


def pooled(
    path: Path,
    data: Path,
    *,
    settings: tuple[str, ...] = (),
    seed: int = 1,
    noises: int | None = None,
    fold: int | None = None,
    folds: int = 10,
    rows: int | None = None,
) -> dict[str, float]:
    """The study's own measures: on fold number ``fold`` of ``folds``, or without one on all records."""
    study, folder = load_study(path, settings)
    estimator, study = estimator_for(study, read_program_from(folder))
    layout = layout_of(study)
    wanted = list(dict.fromkeys((*layout.columns, *((study.study.target,) if study.study.target else ()))))
    table: Any = read_table(data, wanted)
    table = table if rows is None else table.slice(0, rows)
    train = test = np.arange(table.num_rows)
    if fold is not None:
        train, test = list(fold_indices(table.num_rows, folds, split_source(seed, b"split")))[fold]
    fed = Federation.simulate([table.take(train)], schema=study.schema_of_data(), min_clients=1)
    estimator.fit_study(
        PooledFederation(
            frames=fed.frames,
            schema=fed.schema,
            trust=fed.trust,
            seed=seed + 1_000_003 * (fold or 0),
            noises=noises,
        ),
        study,
    )
    return evaluate_split(estimator, study, table.take(train), table.take(test))
