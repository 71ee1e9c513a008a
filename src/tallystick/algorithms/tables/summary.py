"""A table of what the records are like: counts, histograms, means, variances and correlations in one round.

A record adds, per column of the study:

    histograms     1 in the bin or category it falls in (items: in each of its items); no coordinate is negative
    moments        x and x² − ½ of a number x in [−1, 1]:  max over x of x² + (x² − ½)² = 5/4,  |x| + |x² − ½| ≤ 3/2
    correlations   x·x' of every pair of numbers that cannot be missing: at most 1 each
    count          1, where the number of complete records is not public

Nothing is clipped: the bounds are the longest vectors there can be (√ of the sums above, or the sums themselves in L1).
Replacing a record moves the histograms by √2 times their bound (no coordinate is negative), the others by twice.
The budget is split over the groups so that the squared standard errors of all numbers of the table, counts as shares of
the records, add up to the least (:mod:`…budget_split`). What the noisy sums say is in :mod:`…summary_table`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.budget_split import LEAST_ERROR, least_error
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.keywords import flag
from tallystick.algorithms.linear.descent import noise_of_mean
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import StudyError
from tallystick.privacy.contribution import Contribution, Dense
from tallystick.privacy.grid import Group

_MOST_BINS = 1000
_MOST_CORRELATED = 2000
"""Two million pairs: each is a column of every record's vector."""
_BLOCK_NUMBERS = 1 << 22
_DROWNED = 0.25
"""A share of the records known to ±¼ (one standard error) says nothing."""
_WITHIN = 1 + 2.0**-20
"""Bounds are this much longer than any vector: rounding on the grid must not push one over."""


@dataclass(frozen=True, kw_only=True)
class SummarisedColumn:
    """One column of the study: where it is encoded, and which coordinates of the vector are its own."""

    name: str
    start: int
    stop: int
    number: bool
    """Encoded as one scaled number; else as indicators."""
    labels: tuple[str, ...]
    """Of its cells: bins, categories, items; the missing mark last."""
    cuts: tuple[float, ...]
    """Of a number, encoded: ascending, in (−1, 1)."""
    first_cell: int
    marked: bool
    ones: int
    unit: tuple[str, float, float, float] = ("number", 0.0, 1.0, 0.0)

    @property
    def cells(self) -> slice:
        """Its cells among the histograms."""
        return slice(self.first_cell, self.first_cell + len(self.labels))


def design_summary(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> SumDesign:
    """One round, from public facts alone."""
    # Under add-remove, and where persons are the unit, a stated number of records is a planning figure.
    counts = public.counts_records or budget.neighbours == "add-remove" or budget.person_factor > 1
    program = SummaryProgram(
        _columns(keywords, public), correlations=flag("correlations", keywords.get("correlations", True)), counts=counts
    )
    l1 = budget.mechanism == "laplace"
    ones = sum(c.ones for c in program.columns)
    numbers, pairs = len(program.numbers), len(program.pairs)
    norms = {
        "histograms": float(ones) if l1 else math.sqrt(ones),
        "moments": 1.5 * numbers if l1 else math.sqrt(1.25 * numbers),
        "correlations": float(pairs) if l1 else math.sqrt(pairs),
        "count": 1.0,
    }
    groups = [
        Group(name=name, size=size, bound=_WITHIN * norms[name], nonnegative=name in ("histograms", "count"))
        for name, size in program.sizes.items()
    ]
    chosen = least_error(groups, budget)
    hopeless = None
    if public.records is not None:
        unit = norms["histograms"] * (1.0 if l1 else 1 / math.sqrt(2))
        error = noise_of_mean(budget, chosen[0].share, unit, public.records)
        if error > _DROWNED:
            hopeless = f"a share of the records would have a standard error of {error:.2g}"
    details = {"columns": len(program.columns), "numbers": numbers}
    return SumDesign(program=program, groups=(chosen,), hopeless=hopeless, split=LEAST_ERROR, details=details)


class SummaryProgram(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    rounds = 1

    def __init__(self, columns: tuple[SummarisedColumn, ...], *, correlations: bool, counts: bool) -> None:
        self.columns = columns
        self.numbers = tuple(c for c in columns if c.number)
        """In the order of their moments: x of all of them, then x² − ½."""
        sure = [i for i, c in enumerate(self.numbers) if not c.marked]
        if correlations and len(sure) > _MOST_CORRELATED:
            raise StudyError(
                f"correlations of {len(sure)} numbers are {len(sure) * (len(sure) - 1) // 2} pairs",
                rule="vector-size",
                remedy=f"Summarise at most {_MOST_CORRELATED} numbers, or say correlations = false.",
            )
        self.pairs = tuple((i, j) for at, j in enumerate(sure) for i in sure[:at]) if correlations else ()
        sizes = {
            "histograms": sum(len(c.labels) for c in columns),
            "moments": 2 * len(self.numbers),
            "correlations": len(self.pairs),
            "count": int(counts),
        }
        self.sizes = {name: size for name, size in sizes.items() if size}
        self.size = sum(sizes.values())
        self.block_records = max(64, _BLOCK_NUMBERS // self.size)

    def init(self, public: Public) -> NDArray[np.float64]:
        return np.zeros(self.size)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> NDArray[np.float64]:
        return features

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        n = len(prepared)
        out = np.zeros((n, self.size))
        rows = np.arange(n)
        for column in self.columns:
            cells = column.cells
            if not column.number:
                out[:, cells] = prepared[:, column.start : column.stop]
                continue
            x = prepared[:, column.start]
            bins = np.searchsorted(np.array(column.cuts), x, side="right")
            if column.marked:  # a missing number is 0 with its mark at 1: it falls in the last cell
                bins = np.where(prepared[:, column.stop - 1] > 0, len(column.labels) - 1, bins)
            out[rows, cells.start + bins] = 1.0
        at = self.sizes["histograms"]
        q = len(self.numbers)
        x = np.ascontiguousarray(prepared[:, [c.start for c in self.numbers]])
        out[:, at : at + q] = x
        out[:, at + q : at + 2 * q] = x * x - 0.5
        at += 2 * q
        for k, (i, j) in enumerate(self.pairs):
            out[:, at + k] = x[:, i] * x[:, j]
        if "count" in self.sizes:
            out[:, -1] = 1.0
        return Dense(values=out)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> NDArray[np.float64]:
        return total


def _columns(keywords: Mapping[str, Any], public: Public) -> tuple[SummarisedColumn, ...]:
    """The columns to summarise, with their public cut points and labels."""
    known = dict.fromkeys(block[0] for block in public.blocks)
    wanted = keywords.get("columns")
    chosen = list(known) if wanted is None else [wanted] if isinstance(wanted, str) else _listed(wanted)
    unknown = [c for c in chosen if c not in known]
    if unknown or not chosen or len(set(chosen)) != len(chosen):
        raise StudyError(
            f"columns names {unknown[0]!r}, which the study does not have"
            if unknown
            else "columns is empty or repeats",
            rule="columns-are-declared",
            remedy=f"Columns are: {', '.join(known)}.",
        )
    given = keywords.get("cuts") or {}
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise StudyError("cuts is not a table of columns", remedy="Write cuts = { age = [30, 50] }.")
    bins = keywords.get("bins", 10)
    if isinstance(bins, bool) or not isinstance(bins, (int, np.integer)) or not 1 <= bins <= _MOST_BINS:
        raise StudyError(
            f"bins = {bins!r} is not a number of bins", remedy=f"Use a whole number from 1 to {_MOST_BINS}."
        )
    out: list[SummarisedColumn] = []
    cell = 0
    taken = set(chosen)
    for name, start, stop, kind, ones in public.blocks:
        if name not in taken:
            continue
        number = kind == "number"
        unit = public.units[start] if public.units else ("number", 0.0, 1.0, 0.0)
        marked = public.units[stop - 1][0] == "missing" if public.units else number and stop - start > 1
        if number:
            values, cuts = _cuts(name, given.get(name), int(bins), unit)
            labels = [f"{a:g} to {b:g}" for a, b in itertools.pairwise(values)]
            labels += [public.features[stop - 1].removeprefix(f"{name}=")] if marked else []
        else:
            cuts = ()
            labels = [f.removeprefix(f"{name}=") for f in public.features[start:stop]]
        out.append(
            SummarisedColumn(
                name=name,
                start=start,
                stop=stop,
                number=number,
                labels=tuple(labels),
                cuts=cuts,
                first_cell=cell,
                marked=marked,
                ones=1 if number else min(ones, stop - start),
                unit=unit,
            )
        )
        cell += len(labels)
    return tuple(out)


def _listed(wanted: Any) -> list[str]:
    if not isinstance(wanted, Sequence) or not all(isinstance(name, str) for name in wanted):
        raise StudyError("columns is not a list of columns", remedy='Write columns = ["age"], or leave it out.')
    return list(wanted)


def _cuts(
    name: str, given: Any, bins: int, unit: tuple[str, float, float, float]
) -> tuple[list[float], tuple[float, ...]]:
    """(edges in the column's units, cut points as encoded): the declared ones, or bins of equal width."""
    kind, centre, scale, offset = unit
    low, high = _value(-1.0, unit), _value(1.0, unit)
    if given is None:
        encoded = np.linspace(-1, 1, bins + 1)[1:-1]
        return [low, *(_value(float(x), unit) for x in encoded), high], tuple(map(float, encoded))
    try:
        edges = [float(v) for v in given]
    except (TypeError, ValueError, OverflowError):
        edges = [math.nan]
    if not all(a < b for a, b in zip([low, *edges], [*edges, high])):
        raise StudyError(
            f"cuts of {name!r} do not increase strictly between its bounds {low:g} and {high:g}",
            rule="cuts-increase",
            remedy="Declare cut points within the column's bounds.",
        )
    points = [(math.log1p(v - offset) if kind == "log" else v) for v in edges]
    # A value at a cut belongs to the bin above it; encoding it may round the other way.
    return [low, *edges, high], tuple((p - centre) / scale - 1e-12 for p in points)


def _value(x: float, unit: tuple[str, float, float, float]) -> float:
    kind, centre, scale, offset = unit
    plain = centre + scale * x
    return offset + math.expm1(plain) if kind == "log" else plain
