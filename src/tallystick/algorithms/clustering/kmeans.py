"""k-means as rounds of secure sums.

    round 1          moments of the columns                                        → fine centres (:mod:`…start`)
    rounds 2, 3      per fine cluster: how many records, the sum of record − centre → they move; then k of them are made
    rounds 4 … T+1   per cluster: the same                                         → centres move

Lloyd's iteration ends in the valley it starts in. So where the noise allows it begins with m·k fine clusters, m ≤ 4:
their noisy counts and means are a coarse picture of the records, in which k-means without privacy finds the k centres
to go on with. m is the most that keeps the noise of a fine centre small; with much noise it is 1, and the k centres
come from round 1 directly.

Each record goes to its nearest centre and adds there (1, (x − c)/R): a count, and its difference to that centre in
units of a radius R, shortened to length 1 where it is longer. The platform enforces that a record adds to one cluster
only and counts once (:class:`tallystick.privacy.grid.Group`), so sums and counts are calibrated together and the counts
cost nothing (:func:`tallystick.privacy.sensitivity.blocks_sensitivity`). Differences to the record's own centre are
shorter than the record itself, and R follows them down: R² is the mean squared distance that the released quantities
imply. Where the budget is ample R is larger, in the end so large that nothing is shortened.

What the aggregator does with a noisy sum S_j and count N_j, all of it post-processing of a release:

* one-hot blocks of a difference sum to zero: the noise in that direction is removed;
* with records public, counts are moved so that they sum to it;
* a centre moves by S_j/N_j times James and Stein's factor (1 − m σ²/‖S_j‖²)₊, σ² the known noise, m the free
  coordinates: a sum that is all noise moves nothing;
* where a round is very noisy, no centre moves unless the sums of all clusters together are beyond what noise alone
  would give (:meth:`KMeansProgram._signal`);
* a cluster whose count is not two standard deviations above zero keeps its centre;
* centres stay where means of records can lie.

``method = "plain"`` is Lloyd's iteration as PEM writes it [PEM §6.2]: sums of records and counts in two groups with
half the budget each, divided by each other, nothing more.

Row independence: records are put on the grid once, their scores with the centres are exact there, and the rest is
element by element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.clustering.rules import KMeansRules, KMeansSettings
from tallystick.algorithms.clustering.start import (
    condensed,
    into_domain,
    random_centres,
    spread_from_moments,
    start_centres,
    without_block_sums,
)
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.elementwise import grid_scores
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution, GridRows, Sparse
from tallystick.privacy.grid import Group

_ROW_BITS = 20
_SMALLEST_RADIUS = 2.0**-14
_TIGHTEST = 0.02
"""Clusters are not taken to be smaller than this part of the whole spread: the estimate is a noisy difference."""
_NOISY = 0.1
"""A round is very noisy when the noise on one of its centres is above this part of the records' spread (powers)."""
_BEYOND_NOISE = 2.0
"""How many standard deviations above pure noise all sums together must be in such a round."""
_LARGEST = 2.0**100
"""Beyond any honest centre, and far from overflow."""
_BLOCK = 8192


class _Query(NamedTuple):
    """What clients map at."""

    stage: float
    centres: NDArray[np.float64]
    radius: float


class _State(NamedTuple):
    """Everything released so far that the next step needs."""

    stage: float
    centres: NDArray[np.float64]
    radius: float
    counts: NDArray[np.float64]
    records: float
    whole: float
    """E‖x − mean‖², all clusters together."""
    length: float
    """E‖x − mean‖₁."""


@dataclass(repr=False)
class _Prepared:
    features: NDArray[np.float64]
    rows: GridRows


def design_kmeans(public: Public, budget: PublicBudget, settings: KMeansSettings) -> SumDesign:
    """The program and its rounds, from public facts alone."""
    program = KMeansProgram(public, budget, settings)
    k, d = settings.n_clusters, program.shapes.size
    if public.records is not None and k > public.records:
        raise StudyError(
            f"{k} clusters for {public.records} records",
            rule="clusters-within-records",
            remedy="Use fewer clusters than records.",
        )
    if program.plain:
        bound = public.max_l1 if program.l1 else math.sqrt(public.max_l2_squared)
        if not math.isfinite(bound):
            bound = float(d) if program.l1 else math.sqrt(d)
        sums = Group(name="sums", size=k * d, bound=bound, share=0.5)
        counts = Group(name="counts", size=k, bound=1.0, share=0.5)
        return SumDesign(program=program, groups=((sums, counts),) * program.steps, details=program.details())
    first = int(program.moments is not None)
    parts = [program.parts_at(first + t) for t in range(program.steps)]
    groups: tuple[tuple[Group, ...], ...] = tuple(
        (Group(name="clusters", size=c * (d + 1), bound=1.0, one_of=c, count=program.count),) for c in parts
    )
    weights: tuple[float, ...] = (1.0,) * program.steps
    if program.moments is not None:
        groups = ((program.moments.group(),), *groups)
        weights = program.moments.weights(program.steps)
    return SumDesign(
        program=program,
        groups=groups,
        weights=weights,
        notes=program.notes(),
        hopeless=program.hopeless(),
        details=program.details(),
    )


class KMeansProgram(KMeansRules, BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    interim = True
    block_records = _BLOCK

    # -- the three functions ----------------------------------------------------------------------------------------

    def init(self, public: Public) -> _State:
        k, d = self.clusters, self.shapes.size
        centres = np.zeros((self.fine, d))
        if self.moments is None:
            given = self.settings.start
            centres = random_centres(self.shapes, k, self.settings.seed) if isinstance(given, str) else np.array(given)
            if centres.shape != (k, d):
                raise StudyError(
                    f"start is {' x '.join(map(str, centres.shape))}, the centres are {k} x {d}",
                    remedy="Give one row per cluster and one number per encoded column.",
                )
        return _State(
            stage=0.0,
            centres=centres,
            radius=self._radius(self.public.total, self.public.length, self.public.total),
            counts=np.zeros(self.fine),
            records=float(self.records or 0),
            whole=self.public.total,
            length=self.public.length,
        )

    def query(self, state: _State | _Query) -> _Query:
        return _Query(stage=state.stage, centres=state.centres, radius=state.radius)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> _Prepared:
        # No encoded number is beyond ±1, so no row is longer than √d and none is shortened.
        limit = math.sqrt(max(1, features.shape[1])) * (1 + 2.0**-20)
        return _Prepared(features=features, rows=GridRows.make(features, bits=_ROW_BITS, limit=limit))

    def map_block(self, prepared: Any, state: _Query) -> Contribution:
        self._check(state)
        if self.moments is not None and state.stage == 0:
            return self.moments.contribution(prepared.features)
        labels = nearest(prepared.rows, state.centres[: self.parts_at(state.stage)])
        if self.plain:
            return self._plain_sums(prepared.features, labels)
        n, d = prepared.features.shape
        values = np.empty((n, d + 1))
        values[:, 0] = self.count
        values[:, 1:] = (prepared.features - state.centres[labels]) / state.radius
        indices = labels[:, None] * (d + 1) + np.arange(d + 1)
        return _sparse(indices, values, self.parts_at(state.stage) * (d + 1))

    def _plain_sums(self, features: NDArray[np.float64], labels: NDArray[np.int64]) -> Contribution:
        n, d = features.shape
        values = np.hstack([features, np.ones((n, 1))])
        indices = np.hstack([labels[:, None] * d + np.arange(d), self.clusters * d + labels[:, None]])
        return _sparse(indices, values, self.clusters * (d + 1))

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: _State) -> _State:
        if self.moments is not None and state.stage == 0:
            return self._started(self.moments.means(total, state.records), state)
        if self.plain:
            return self._divided(total, state)
        return self._moved(total, state)

    def _check(self, query: _Query) -> None:
        """Refuse a query no honest aggregator sends, by public facts alone: within these ranges nothing overflows."""
        farthest = _LARGEST if self.plain else 1.0 if not isinstance(self.settings.start, tuple) else _LARGEST
        honest = np.all(np.abs(query.centres) <= farthest) and _SMALLEST_RADIUS <= query.radius <= _LARGEST
        if not honest:
            raise RemoteProtocolError(
                "the centres lie outside the declared bounds",
                remedy="The aggregator is faulty. Nothing was shared.",
            )

    # -- steps ------------------------------------------------------------------------------------------------------

    def _started(self, learned: tuple[NDArray[np.float64], float, float], state: _State) -> _State:
        means, noise, records = learned
        spread = spread_from_moments(means, noise, self.shapes)
        return state._replace(
            stage=1.0,
            centres=start_centres(spread, self.shapes, self.fine, self.settings.seed),
            records=records,
            whole=spread.total,
            length=spread.length,
            radius=self._radius(spread.total, spread.length, spread.total),
        )

    def _radius(self, whole: float, length: float, within: float) -> float:
        """The typical length of record − centre, when E‖record − centre‖² is ``within`` of ``whole``, or more."""
        size = length * math.sqrt(within / max(whole, 1e-300)) if self.l1 else math.sqrt(within)
        return max(min(self.ample * size, self.longest), _SMALLEST_RADIUS)

    def _moved(self, total: NDArray[np.float64], state: _State) -> _State:
        k, d = self.parts_at(state.stage), self.shapes.size
        blocks = total[: k * (d + 1)].reshape(k, d + 1)
        noise = self._noise(self.share / self.steps)
        counts, counts_noise = blocks[:, 0] / self.count, noise / self.count
        if self.records is not None and not self.counts:
            counts = counts + (self.records - counts.sum()) / k
        sums = without_block_sums(blocks[:, 1:], self.shapes)
        square = np.einsum("ij,ij->i", sums, sums)
        kept = np.where(square > 0, np.maximum(0.0, 1 - self.free * noise**2 / np.maximum(square, 1e-300)), 0.0)
        kept *= (counts > 2 * counts_noise) * self._signal(square, noise)
        step = sums * (kept * state.radius / np.maximum(counts, max(1.0, 2 * counts_noise)))[:, None]
        centres = into_domain(state.centres[:k] + step, self.shapes)
        weights = np.maximum(counts, 0.0)
        if k > self.parts_at(state.stage + 1):
            certain = np.maximum(counts - counts_noise, 0.0)
            centres = condensed(centres, certain, self.shapes, self.clusters, self.settings.seed)
            weights = np.full(self.clusters, float(weights.sum()) / self.clusters)
        whole_counts, whole_centres = np.zeros(self.fine), np.zeros((self.fine, d))
        whole_counts[: len(weights)], whole_centres[: len(centres)] = weights, centres
        return state._replace(
            stage=state.stage + 1,
            centres=whole_centres,
            counts=whole_counts,
            records=state.records if not self.counts else max(1.0, float(counts.sum())),
            radius=self._radius(state.whole, state.length, self._within(centres, weights, state.whole)),
        )

    def _signal(self, square: NDArray[np.float64], noise: float) -> bool:
        """Whether a round has anything to say: taken for granted unless it is very noisy.

        Without a signal Σ‖S_j‖²/σ² is χ² with k·m degrees of freedom: mean k·m, standard deviation √(2km); for Laplace
        noise, whose kurtosis is 6, at most √(5km). James and Stein's factor looks at one cluster and m coordinates and
        lets noise through about every second time; k clusters together tell a start that is already right from one that
        is not. Where noise is small a false step costs little and a missed one, round after round, more: nothing is
        asked there. Nor where the noise of the whole budget on one centre is beyond the spread: then the start is a
        guess too, from moments that are noise, and has no claim to stay. All of it is released or public.
        """
        if not (self.round_noise > _NOISY and self.noise_on_a_centre() <= 1):  # also where they are not known
            return True
        freedom = len(square) * self.free
        deviation = math.sqrt((5 if self.l1 else 2) * freedom)
        return float(square.sum()) > (freedom + _BEYOND_NOISE * deviation) * noise**2

    @staticmethod
    def _within(centres: NDArray[np.float64], counts: NDArray[np.float64], whole: float) -> float:
        """Whole − between the clusters (the law of total variance), whose centres are near their means."""
        mass = float(counts.sum())
        weights = counts / mass if mass > 0 else np.full(len(counts), 1 / len(counts))
        between = float(weights @ ((centres - weights @ centres) ** 2).sum(axis=1))
        return float(np.clip(whole - between, _TIGHTEST * whole, whole))

    def usable(self, state: _State) -> bool:
        return bool(state.counts.any()) and self.parts_at(state.stage) == self.clusters

    def model(self, state: _State) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(centres in the encoded columns, noisy counts) from a final state."""
        return state.centres[: self.clusters].copy(), state.counts[: self.clusters].copy()

    def _divided(self, total: NDArray[np.float64], state: _State) -> _State:
        """[PEM Alg. 2]: c_i = v_i / n_i, as it comes; a count of exactly zero keeps the centre."""
        k, d = self.clusters, self.shapes.size
        sums, counts = total[: k * d].reshape(k, d), total[k * d :]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            moved = np.where(counts[:, None] != 0, sums / counts[:, None], state.centres)
        centres = np.clip(moved, -_LARGEST, _LARGEST)
        return state._replace(stage=state.stage + 1, centres=centres, counts=counts.copy())


def nearest(rows: GridRows, centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearest centre of every row, the first of equals: least ½‖c‖² − x·c, with x·c exact on the grid."""
    half = 0.5 * np.einsum("ij,ij->i", centres, centres)
    return np.asarray((half - grid_scores(rows, centres)).argmin(axis=1).astype(np.int64))


def _sparse(indices: NDArray[np.int64], values: NDArray[np.float64], size: int) -> Sparse:
    n, per = values.shape
    return Sparse(
        indptr=np.arange(n + 1, dtype=np.int64) * per, indices=indices.reshape(-1), values=values.reshape(-1), size=size
    )
