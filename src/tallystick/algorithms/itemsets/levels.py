"""Apriori with noise (PEM §6.3): a round per length counts that length's candidates.

    round of length k   every record: which candidates it holds, at most c_k   → noisy counts, those above the threshold
                        make the next round's candidates (apriori-gen, at every party)

Thresholding and everything after it is post-processing of released counts. Corrected where the paper is silent:
c_k is public and enforced (a record's first c_k candidates in a public order count), the norm is L2 under
the Gaussian, and the number of candidates is capped by a public limit: where more qualify, those whose sets were
counted most often go on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.itemsets.candidates import all_pairs, join, mask_words, pack_mask, unpack_mask
from tallystick.algorithms.itemsets.contained import contained, rows_of
from tallystick.algorithms.itemsets.exact import Level, least_count
from tallystick.algorithms.itemsets.geometry import count_group
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.settings import ItemsetSettings
from tallystick.algorithms.itemsets.supports import monotone
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Chunked, Contribution, Sparse
from tallystick.privacy.grid import Group

CANDIDATE_LIMIT = 2**18
"""Candidates of a level unless the study says otherwise: 2 MB of vector for a client and a round."""
_CHUNK = 2**21
"""Entries of the records mapped at once."""
_FAULTY = RemoteProtocolError(
    "the released sets are not what a miner of this study can have found",
    remedy="The aggregator is faulty or runs another version; nothing was shared.",
)


class _Query(NamedTuple):
    """What clients map at: how many rounds are done, the items' priority order, and which candidates were frequent."""

    done: float
    order: NDArray[np.float64]
    masks: NDArray[np.float64]


class _State(NamedTuple):
    """The query, the records (public or counted), and every level's noisy counts."""

    done: float
    order: NDArray[np.float64]
    masks: NDArray[np.float64]
    records: float
    counts: NDArray[np.float64]


@dataclass(repr=False)
class _Prepared:
    present: NDArray[np.bool_]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    made_for: bytes = b""


class LevelsProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    interim = True  # the frequent sets of the lengths that were counted

    def __init__(self, public: Public, budget: PublicBudget, settings: ItemsetSettings) -> None:
        self.items = ItemLayout.of(public)
        self.budget = budget
        self.settings = settings
        self.records = public.records
        self.counts_records = public.counts_records
        """No public number of complete records: the first round counts them too, with its noise."""
        self.block = self.items.block if settings.exclusive else np.arange(len(self.items))
        """Equal for items of which a candidate has at most one."""
        first = 1 if settings.singles else 2
        last = min(settings.max_length, self.items.most)
        self.lengths = tuple(range(min(first, last), last + 1))
        limit = settings.max_candidates or CANDIDATE_LIMIT
        self.sizes = tuple(len(self.items) if k == 1 else min(limit, self._possible(k)) for k in self.lengths)
        if self.lengths[0] == 2 and self.sizes[0] < self._possible(2):
            raise StudyError(
                f"there are {self._possible(2)} pairs of items and at most {limit} candidates",
                remedy="Count single items first (singles = true), or raise max_candidates.",
            )
        caps = (
            min(settings.cap or size, size, self.items.in_one_record(k)) for k, size in zip(self.lengths, self.sizes)
        )
        self.caps = tuple(caps)
        """c_k: the most candidates of each level that one record counts."""
        self.rounds = len(self.lengths)
        self._offsets = np.concatenate([[0], np.cumsum(self.sizes)])
        self._mask_offsets = np.concatenate([[0], np.cumsum([mask_words(s) for s in self.sizes])])
        self._memo: tuple[bytes, list[NDArray[np.int64]]] = (b"", [])

    def groups_of(self, at: int) -> tuple[Group, ...]:
        """The group of round ``at``; the count of records, where it is needed, is one more coordinate of the first."""
        extra = int(self.counts_records and at == 0)
        name = f"length {self.lengths[at]}"
        return (count_group(name, size=self.sizes[at] + extra, ones=self.caps[at] + extra, budget=self.budget),)

    # -- the three functions --------------------------------------------------------------------------------------

    def init(self, public: Public) -> _State:
        return _State(
            done=0.0,
            order=np.arange(len(self.items), dtype=np.float64),
            masks=np.zeros(int(self._mask_offsets[-1])),
            records=float(self.records or 0),
            counts=np.zeros(int(self._offsets[-1])),
        )

    def query(self, state: _State | _Query) -> _Query:
        return _Query(*(getattr(state, name) for name in _Query._fields))

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> _Prepared:
        return _Prepared(present=self.items.present(features))

    def map_block(self, prepared: Any, state: _Query) -> Contribution:
        at = int(state.done) if state.done in range(self.rounds) else -1
        if at < 0:
            raise _FAULTY
        candidates = self._candidates(state)[at]
        starts, items = self._rows(prepared, state)
        extra = int(self.counts_records and at == 0)
        size, cap = self.sizes[at] + extra, self.caps[at]
        each = max(1, _CHUNK // (cap + extra))

        def parts() -> Iterator[Sparse]:
            many = len(prepared.present)
            for first in range(0, max(1, many), each):
                last = min(many, first + each)
                indptr, indices = contained(starts, items, first, last, candidates, cap, 16 * (last - first))
                if extra:
                    indices = np.insert(indices, indptr[1:], size - 1)
                    indptr = indptr + np.arange(len(indptr))
                yield Sparse(indptr=indptr, indices=indices, values=np.ones(len(indices)), size=size)

        return Chunked(parts=parts)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: _State) -> _State:
        at = int(state.done)
        found = total[: self.sizes[at]].copy()
        if self.counts_records and at == 0:
            state = state._replace(records=max(1.0, float(total[self.sizes[0]])))
        candidates = self._candidates(self.query(state))[at]
        if self.lengths[at] == 1:
            order = np.argsort(-found, kind="stable")
            state = state._replace(order=order.astype(np.float64))
            found = found[order]
        found[len(candidates) :] = 0.0
        frequent = self._going_on(candidates, found[: len(candidates)], state, at)
        masks, counts = state.masks.copy(), state.counts.copy()
        mask = np.zeros(self.sizes[at], dtype=np.bool_)
        mask[: len(candidates)] = frequent
        masks[self._mask_offsets[at] : self._mask_offsets[at + 1]] = pack_mask(mask)
        counts[self._offsets[at] : self._offsets[at + 1]] = found
        return state._replace(done=float(at + 1), masks=masks, counts=counts)

    def finished(self, state: _State) -> bool:
        """Nothing is left to count: no released set can be made longer."""
        return int(state.done) >= self.rounds or len(self._candidates(self.query(state))[int(state.done)]) == 0

    def levels(self, state: _State) -> list[Level]:
        """The frequent sets of a released state, with noisy counts, items in the layout's order."""
        query = self.query(state)
        order = state.order.astype(np.int64)
        out = []
        for at, candidates in enumerate(self._candidates(query)[: int(state.done)]):
            counts = state.counts[self._offsets[at] : self._offsets[at] + len(candidates)]
            passed = counts >= least_count(self.settings.min_support, state.records)
            sets = np.sort(order[candidates[passed]], axis=1)
            lexicographic = np.lexsort(sets.T[::-1])
            out.append(Level(sets=sets[lexicographic], counts=counts[passed][lexicographic]))
        while out and not len(out[-1]):
            out.pop()
        return monotone(out, state.records) if self.settings.consistent else out

    def _possible(self, length: int) -> int:
        return self.items.possible(length) if self.settings.exclusive else math.comb(len(self.items), length)

    # -- candidates -------------------------------------------------------------------------------------------------

    def _going_on(
        self, candidates: NDArray[np.int64], found: NDArray[np.float64], state: _State, at: int
    ) -> NDArray[np.bool_]:
        """Which candidates make the next level: those above the threshold, the most counted if that is too many."""
        frequent = found >= least_count(self.settings.min_support, state.records)
        if at + 1 >= self.rounds:
            return frequent
        block = self.block[state.order.astype(np.int64)]
        limit = self.sizes[at + 1]
        if join(candidates[frequent], block, limit) is not None:
            return frequent
        ranked = np.flatnonzero(frequent)
        ranked = ranked[np.argsort(-found[ranked], kind="stable")]
        low, high = 0, len(ranked)  # with ``low`` of them there are few enough, with ``high`` too many
        while high - low > 1:
            middle = (low + high) // 2
            enough = join(candidates[np.sort(ranked[:middle])], block, limit) is None
            low, high = (low, middle) if enough else (middle, high)
        chosen = np.zeros(len(found), dtype=np.bool_)
        chosen[ranked[:low]] = True
        return chosen

    def _candidates(self, query: _Query) -> list[NDArray[np.int64]]:
        """The candidates of every round up to the one that ``query`` asks for, in priority positions.

        Public: made from released bits alone, so remembering them is no secret. Refuses what no honest aggregator
        sends, by public facts alone.
        """
        key = b"".join(np.asarray(part, dtype=np.float64).tobytes() for part in query)
        if self._memo[0] == key:
            return self._memo[1]
        order = query.order.astype(np.int64)
        if not np.array_equal(np.sort(query.order), np.arange(len(self.items))):
            raise _FAULTY
        block = self.block[order]
        start = np.arange(len(self.items))[:, None] if self.lengths[0] == 1 else all_pairs(block)
        out = [start.astype(np.int64)]
        for at in range(min(int(query.done), self.rounds - 1)):
            words = query.masks[self._mask_offsets[at] : self._mask_offsets[at + 1]]
            mask = unpack_mask(words, self.sizes[at])
            if mask is None or mask[len(out[at]) :].any():
                raise _FAULTY
            following = join(out[at][mask[: len(out[at])]], block, self.sizes[at + 1])
            if following is None:
                raise _FAULTY
            out.append(following)
        self._memo = (key, out)
        return out

    def _rows(self, prepared: _Prepared, query: _Query) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The records' items in priority order: made anew when the order changes."""
        key = query.order.tobytes()
        if prepared.rows is None or prepared.made_for != key:
            prepared.rows = rows_of(prepared.present[:, query.order.astype(np.int64)])
            prepared.made_for = key
        return prepared.rows
