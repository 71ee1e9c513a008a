"""Which method answers a study of frequent itemsets, what each round costs, and whether it is worth running.

``method="auto"`` counts every set (``levels``) only where the noise on each of them lies far below the threshold:
threshold ≥ 32 s at every length (there the two err alike on Adult). Otherwise sets come from a model of the records
(``basis``), whose error does not grow with the number of sets. Both are judged before anything is spent, from public
facts alone:

* levels is hopeless where the threshold lies below 4 standard deviations of a count of any length;
* basis is hopeless where even the whole budget leaves single items a noise of more than an eighth of the records;
* either is, below a support of one record.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.itemsets.basis import BasisProgram
from tallystick.algorithms.itemsets.geometry import fraction_bits, noise_of_counts
from tallystick.algorithms.itemsets.items import ItemLayout
from tallystick.algorithms.itemsets.levels import LevelsProgram
from tallystick.algorithms.itemsets.settings import ItemsetSettings
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError

_CLEAR = 32.0
"""Threshold over noise from which on counting every set is chosen by itself."""
_USEFUL = 4.0
"""Threshold over noise below which counting every set is refused."""
_DROWNED = 1 / 8
"""Noise of a single item over the records from which on nothing can be learned."""


def design_itemsets(public: Public, budget: PublicBudget, settings: ItemsetSettings) -> SumDesign:
    """The program and its rounds, from public facts alone."""
    if public.records is not None and public.records < 1:
        raise StudyError(f"records = {public.records} is not a number of records", remedy="State how many there are.")
    if settings.method == "basis":
        return _basis(public, budget, settings)
    if settings.method == "levels":
        return _levels(public, budget, settings)
    if budget.mechanism == "none":
        return _levels(public, budget, settings)
    if public.records is not None and (settings.singles or ItemLayout.of(public).possible(2) <= 2**18):
        design = _levels(public, budget, settings)
        if _CLEAR * max(design.details["noise_of_a_count"].values()) <= settings.min_support * public.records:
            return design
    return _basis(public, budget, settings)


def _levels(public: Public, budget: PublicBudget, settings: ItemsetSettings) -> SumDesign:
    program = LevelsProgram(public, budget, settings)
    weights = [1.0] * program.rounds
    if settings.split == "auto":
        weights = [_sensitivity(min(2 * c, s), budget) for c, s in zip(program.caps, program.sizes)]
    whole = sum(weights)
    noise = {
        str(k): noise_of_counts(budget, w / whole, ones, size)
        for k, w, ones, size in zip(program.lengths, weights, _ones(program), program.sizes)
    }
    notes = [
        "method: levels (every candidate set of every length is counted)",
        "at most "
        + ", ".join(f"{s:,} sets of length {k}" for k, s in zip(program.lengths, program.sizes))
        + " are counted: public limits, the most frequent go on where more qualify",
        "a record counts at most " + ", ".join(f"{c:,} of length {k}" for k, c in zip(program.lengths, program.caps)),
    ]
    return SumDesign(
        program=program,
        groups=tuple(program.groups_of(at) for at in range(program.rounds)),
        weights=tuple(w / whole for w in weights),
        fraction_bits=fraction_bits(budget),
        notes=tuple(notes),
        hopeless=_lost_levels(noise, public.records, settings.min_support),
        details={"method": "levels", "noise_of_a_count": noise},
    )


def _ones(program: LevelsProgram) -> list[int]:
    return [cap + int(program.counts_records and at == 0) for at, cap in enumerate(program.caps)]


def _sensitivity(moved: int, budget: PublicBudget) -> float:
    """Up to a common factor. Shares in proportion to it keep the noise of long sets, of which there are most, in check
    (under the Gaussian they are the ones that make Σ s² over lengths least)."""
    return float(moved) if budget.mechanism == "laplace" else math.sqrt(moved)


def _lost_levels(noise: Mapping[str, float], records: int | None, min_support: float) -> str | None:
    if records is not None and min_support * records < 1:
        return _less_than_a_record(records)
    worst = max(noise, key=lambda k: noise[k])
    if records is None or min_support * records >= _USEFUL * noise[worst]:
        return None
    useful = _USEFUL * noise[worst] / records
    advice = f"the smallest useful min_support is {useful:.2g}" if useful <= 1 else "no min_support is useful"
    return (
        f"a set is frequent from {min_support * records:,.0f} records on, and the noise on a count of length {worst} "
        f'has a standard deviation of {noise[worst]:,.0f}: {advice} (4 standard deviations); or use method = "basis"'
    )


def _basis(public: Public, budget: PublicBudget, settings: ItemsetSettings) -> SumDesign:
    program = BasisProgram(public, budget, settings)
    noise = {name: program.noise(at) for at, name in enumerate(("singles", "pairs", "classes")[: program.rounds])}
    if program.rounds == 1:
        what = (
            "method: basis, with single items alone: the noise leaves no room for classes, items count as independent"
        )
    else:
        what = f"method: basis (single items, pairs, then {program.classes} latent classes; sets follow from the model)"
    notes = [what]
    if program.paired < len(program.items):
        notes.append(f"the {program.paired} most frequent items are paired: a public limit")
    return SumDesign(
        program=program,
        groups=tuple(program.groups_of(at) for at in range(program.rounds)),
        weights=program.shares,
        fraction_bits=fraction_bits(budget),
        notes=tuple(notes),
        hopeless=_lost_basis(program, public.records, settings.min_support),
        details={"method": "basis", "classes": program.classes, "noise_of_a_count": noise},
    )


def _lost_basis(program: BasisProgram, records: int | None, min_support: float) -> str | None:
    if records is None:
        return None
    if min_support * records < 1:
        return _less_than_a_record(records)
    least = noise_of_counts(program.budget, 1.0, program.ones[0], program.sizes[0])
    if least <= _DROWNED * records:
        return None
    return (
        f"the noise on the count of a single item has a standard deviation of {least:,.0f} at least, with {records:,} "
        "records: no support can be told from none"
    )


def _less_than_a_record(records: int) -> str:
    return f"min_support is less than one of {records:,} records: the smallest useful min_support is {1 / records:.2g}"
