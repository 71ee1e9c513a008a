"""Sets from a model of the records: three cheap totals instead of a count for every set.

    round 1   single items                       √l ones in a record     → frequencies, and which items to pair
    round 2   pairs of items                     √C(l,2)                 → a latent class model (:mod:`…profiles`)
    round 3   (class, item), at the model's classes: √(l+1)              → the same model, fitted anew to all of it

l is the most items a record holds. Counting all sets of length 4 would put C(l,4) ones into a record; here the largest
round has C(l,2) and the last, which tells the most about long sets, l + 1: every record belongs to one class of the
released model, and what is counted is each class's profile. This is the basis of PrivBasis [LQSC12] with classes in the
place of item subsets: a public partition of the records learned from released pairs, then counts per part.

How many classes the noise leaves room for is a rule on public facts: see :func:`choose_classes`. If that is one, rounds
2 and 3 are left out and the whole budget goes to the single items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.itemsets.contained import rows_of
from tallystick.algorithms.itemsets.exact import Level, least_count
from tallystick.algorithms.itemsets.geometry import count_group, noise_of_counts
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.profiles import (
    ClassCounts,
    PairCounts,
    Profiles,
    ProfileShape,
    classes_that_show,
    fit,
    independent,
)
from tallystick.algorithms.itemsets.settings import ItemsetSettings
from tallystick.algorithms.itemsets.supports import sets_of_model
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group

_SHARES = (0.15, 0.6, 0.25)
"""Of the budget, to the three rounds. Chosen on Mushroom (docs/decisions); between half and twice it matters little."""
_PAIRED = 512
"""Items that are paired: 130,816 pairs, 1 MB of vector for a client."""
_MOST_CLASSES = 64
_VISIBLE, _POWER = 8.0, 0.6
_UNKNOWN_CLASSES = 8
"""Without a public number of records the noise cannot be judged beforehand."""
_SCORE_BITS = 16
_LEAST = 1e-3
_LARGEST_SCORE = 2.0**45
_FAULTY = RemoteProtocolError(
    "the released model is not one that this study can have reached",
    remedy="The aggregator is faulty or runs another version; nothing was shared.",
)


def choose_classes(items: ItemLayout, budget: PublicBudget, records: int | None) -> int:
    """K from public facts: x^0.6, x = l/(ν√d), at most 64; 1 where x < 8.

    ν is the noise of a pair over the number of records, when pairs get their share. Two classes of n/2 records that
    differ in half of what their l columns can differ show in the d × d matrix of pairs as an eigenvalue n·l/4, and the
    noise's largest eigenvalue is 2·ν·n·√d: below x = 8 not even they stand out [BBP05]. Above, classes of n/K records
    give K ~ x if all are of a size; the power allows for sizes that fall off (chosen on Mushroom: docs/decisions).
    """
    if len(items) < 2 or items.most < 2:
        return 1
    if records is None:
        return _UNKNOWN_CLASSES
    noise = noise_of_counts(budget, _SHARES[1], items.in_one_record(2), items.possible(2)) / records
    if noise == 0:
        return _MOST_CLASSES
    room = items.most / (noise * math.sqrt(len(items)))
    return 1 if room < _VISIBLE else int(min(max(2, round(room**_POWER)), _MOST_CLASSES))


class _Query(NamedTuple):
    """What clients map at: the stage, the items to pair, and the classes' scores on the grid."""

    stage: float
    paired: NDArray[np.float64]
    scores: NDArray[np.float64]
    offsets: NDArray[np.float64]


class _State(NamedTuple):
    """The query, what was released, and the model."""

    stage: float
    paired: NDArray[np.float64]
    scores: NDArray[np.float64]
    offsets: NDArray[np.float64]
    records: float
    singles: NDArray[np.float64]
    pairs: NDArray[np.float64]
    weights: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@dataclass(repr=False)
class _Prepared:
    present: NDArray[np.bool_]
    starts: NDArray[np.int64]
    items: NDArray[np.int64]


class BasisProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    def __init__(self, public: Public, budget: PublicBudget, settings: ItemsetSettings) -> None:
        self.items = ItemLayout.of(public)
        self.shape = ProfileShape.of(self.items.block)
        self.budget = budget
        self.settings = settings
        self.records = public.records
        self.counts_records = public.counts_records
        """No public number of complete records: the first round counts them too, with its noise."""
        self.classes = settings.classes or choose_classes(self.items, budget, public.records)
        if len(self.items) < 2 or self.items.most < 2:
            self.classes = 1
        self.rounds = 1 if self.classes == 1 else 3
        self.shares = (1.0,) if self.rounds == 1 else _SHARES
        self.paired = min(len(self.items), _PAIRED)
        most = self.items.most
        self.ones = (most + int(self.counts_records), math.comb(most, 2), most + 1)[: self.rounds]
        sizes = (
            len(self.items) + int(self.counts_records),
            self.paired * (self.paired - 1) // 2,
            self.classes * (len(self.items) + 1),
        )
        self.sizes = sizes[: self.rounds]

    def groups_of(self, at: int) -> tuple[Group, ...]:
        """The group of round ``at``."""
        name = ("singles", "pairs", "classes")[at]
        ones = min(self.ones[at], self.sizes[at])
        return (count_group(name, size=self.sizes[at], ones=ones, budget=self.budget),)

    def noise(self, at: int) -> float:
        """Standard deviation of one count of round ``at``."""
        return noise_of_counts(self.budget, self.shares[at], min(self.ones[at], self.sizes[at]), self.sizes[at])

    # -- the three functions --------------------------------------------------------------------------------------

    def init(self, public: Public) -> _State:
        d, k = len(self.items), self.classes
        return _State(
            stage=0.0,
            paired=np.arange(self.paired, dtype=np.float64),
            scores=np.zeros((d, k)),
            offsets=np.zeros(k),
            records=float(self.records or 0),
            singles=np.zeros(d),
            pairs=np.zeros(self.sizes[1] if self.rounds > 1 else 1),
            weights=np.full(k, 1 / k),
            probabilities=np.zeros((self.shape.rows, k)),
        )

    def query(self, state: _State | _Query) -> _Query:
        return _Query(*(getattr(state, name) for name in _Query._fields))

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> _Prepared:
        present = self.items.present(features)
        starts, items = rows_of(present)
        return _Prepared(present=present, starts=starts, items=items)

    def map_block(self, prepared: Any, state: _Query) -> Contribution:
        self._check(state)
        if state.stage == 0:
            indptr, indices = prepared.starts, prepared.items
            if self.counts_records:
                indices = np.insert(indices, indptr[1:], len(self.items))
                indptr = indptr + np.arange(len(indptr))
        elif state.stage == 1:
            starts, items = rows_of(prepared.present[:, state.paired.astype(np.int64)])
            indptr, indices = pair_counts(starts, items, self.paired)
        else:
            scores, offsets = state.scores.astype(np.int64), state.offsets.astype(np.int64)
            indptr, indices = class_counts(prepared.starts, prepared.items, scores, offsets)
        return Sparse(indptr=indptr, indices=indices, values=np.ones(len(indices)), size=self.sizes[int(state.stage)])

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: _State) -> _State:
        if state.stage == 0:
            state = self._with_singles(total, state)
        elif state.stage == 1:
            state = self._with_pairs(total, state)
        else:
            state = self._with_classes(total, state)
        return state._replace(stage=state.stage + 1)

    def levels(self, state: _State) -> tuple[list[Level], float]:
        """The frequent sets of a released state with expected counts, and the least support in effect."""
        least, counts = sets_of_model(
            state.weights * state.records,
            state.probabilities[self.shape.item],
            self.items.block,
            least=least_count(self.settings.min_support, state.records),
            longest=min(self.settings.max_length, self.items.most),
        )[::-1]
        return counts, least / state.records

    def _check(self, query: _Query) -> None:
        """Refuse a query no honest aggregator sends, by public facts alone; within it nothing overflows."""
        honest = (
            query.stage in range(self.rounds)
            and np.all((query.paired >= 0) & (query.paired < len(self.items)) & (query.paired == query.paired.round()))
            and np.all(np.diff(query.paired) > 0)
            and np.all(np.abs(query.scores) <= _LARGEST_SCORE)
            and np.all(np.abs(query.offsets) <= _LARGEST_SCORE)
        )
        if not honest:
            raise _FAULTY

    # -- steps ------------------------------------------------------------------------------------------------------

    def _with_singles(self, total: NDArray[np.float64], state: _State) -> _State:
        d = len(self.items)
        if self.counts_records:
            state = state._replace(records=max(1.0, float(total[d])))
        singles = total[:d] / state.records
        # The items to pair: the most frequent ones, in the layout's order.
        paired = np.sort(np.argsort(-singles, kind="stable")[: self.paired]).astype(np.float64)
        state = state._replace(singles=singles, paired=paired)
        alone = independent(self.shape, singles, self._unit(0, state))
        return state._replace(
            probabilities=np.repeat(alone.probabilities, self.classes, axis=1),
            weights=np.full(self.classes, 1 / self.classes),
        )

    def _with_pairs(self, total: NDArray[np.float64], state: _State) -> _State:
        state = state._replace(pairs=total / state.records)
        return self._with_model(self._fit(state), state)

    def _with_classes(self, total: NDArray[np.float64], state: _State) -> _State:
        cells = total.reshape(self.classes, len(self.items) + 1).T / state.records
        used = int(np.count_nonzero(state.weights))
        counted = ClassCounts(frequencies=cells[:-1, :used], sizes=cells[-1, :used], noise=self._unit(2, state))
        start = Profiles(weights=state.weights[:used], probabilities=state.probabilities[:, :used])
        return self._with_model(self._fit(state, counted, start), state)

    def _fit(self, state: _State, counted: ClassCounts | None = None, start: Profiles | None = None) -> Profiles:
        paired = state.paired.astype(np.int64)
        matrix = np.zeros((self.paired, self.paired))
        matrix[np.triu_indices(self.paired, 1)] = state.pairs
        block = self.items.block[paired]
        known = block[:, None] != block[None, :]
        pairs = PairCounts(
            items=paired, frequencies=(matrix + matrix.T) * known, known=known, noise=self._unit(1, state)
        )
        classes = classes_that_show(self.shape, state.singles, self._unit(0, state), pairs, self.classes)
        return fit(
            self.shape,
            classes=classes,
            singles=state.singles,
            noise=self._unit(0, state),
            pairs=pairs,
            counted=counted,
            start=start,
        )

    def _unit(self, at: int, state: _State) -> float:
        """Noise of a frequency; without noise as if a quarter of a record were uncertain."""
        return max(self.noise(at), 0.25) / state.records

    def _with_model(self, model: Profiles, state: _State) -> _State:
        """The model, and the classes it gives a record: scores on the grid, so that they add up exactly.

        Classes beyond those that showed are there, the state having one shape, and no record is in them.
        """
        used = len(model.weights)
        spare = self.classes - used
        model = Profiles(
            weights=np.append(model.weights, np.zeros(spare)),
            probabilities=np.hstack([model.probabilities, np.repeat(model.probabilities[:, :1], spare, axis=1)]),
        )
        logs = np.log(np.maximum(model.probabilities, _LEAST))
        none = logs[self.shape.none]
        there = model.probabilities[self.shape.none].max(axis=1) > 0
        none[~there] = 0.0  # a column without "none": an unknown value tells nothing
        scores = logs[self.shape.item] - none[self.items.block]
        offsets = np.log(np.maximum(model.weights, _LEAST)) + none.sum(axis=0)
        grid = 2.0**_SCORE_BITS
        offsets[used:] = -_LARGEST_SCORE / grid
        return state._replace(
            weights=model.weights,
            probabilities=model.probabilities,
            scores=np.rint(scores * grid),
            offsets=np.rint(offsets * grid),
        )


# The 0/1 vectors, one record at a time. Integers only and a fixed order, so that a record's vector is the same bits
# alone or in any block.


@njit(cache=True, nogil=True)
def pair_counts(starts, items, many):  # type: ignore[no-untyped-def]
    """(indptr, indices) of every record's pairs; the pair a < b of ``many`` items has number a·many − a(a+1)/2 + b−a−1.

    That is the row-major order of the upper triangle, so indices ascend with (a, b).
    """
    records = starts.shape[0] - 1
    indptr = np.zeros(records + 1, np.int64)
    for r in range(records):
        held = starts[r + 1] - starts[r]
        indptr[r + 1] = indptr[r] + held * (held - 1) // 2
    indices = np.empty(indptr[records], np.int64)
    at = 0
    for r in range(records):
        for x in range(starts[r], starts[r + 1]):
            a = items[x]
            for y in range(x + 1, starts[r + 1]):
                indices[at] = a * many - a * (a + 1) // 2 + items[y] - a - 1
                at += 1
    return indptr, indices


@njit(cache=True, nogil=True)
def class_counts(starts, items, scores, offsets):  # type: ignore[no-untyped-def]
    """(indptr, indices) of every record's class and items: class k has coordinates k·(d+1) … for the items and, last,
    for itself. The class is the one of the largest integer score, the first among equals.
    """
    records = starts.shape[0] - 1
    d, classes = scores.shape
    indptr = np.zeros(records + 1, np.int64)
    indices = np.empty(starts[records] + records, np.int64)
    at = 0
    for r in range(records):
        best, most = 0, np.int64(0)
        for k in range(classes):
            score = offsets[k]
            for x in range(starts[r], starts[r + 1]):
                score += scores[items[x], k]
            if k == 0 or score > most:
                best, most = k, score
        for x in range(starts[r], starts[r + 1]):
            indices[at] = best * (d + 1) + items[x]
            at += 1
        indices[at] = best * (d + 1) + d
        at += 1
        indptr[r + 1] = at
    return indptr, indices
