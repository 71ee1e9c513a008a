"""From public facts to the rounds of quantiles that parties select.

A tenth of ε goes into noisy counts that narrow a window (levels whose budgets grow from one to the next), the rest into
one draw over about a thousand equal cells of that window for each quantile. Where the domain has few values, or where
nε is so small that counts would say nothing, there are no counts, and the draw is over equal cells of the whole domain,
up to 131,072 of them: nothing has narrowed it, and a cell that holds several records would hide their order.

Prices are fixed beforehand, not chosen as the rounds come: the window has to be found only to within some hundred times
what the draw then tells apart, so there is little to gain, and every step's cost can be read in the plan.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tallystick.algorithms.design import PublicBudget, SelectionDesign
from tallystick.algorithms.program import Public
from tallystick.algorithms.quantiles.design import groups_of, records_guessed, records_known
from tallystick.algorithms.quantiles.grid import value_grid
from tallystick.algorithms.quantiles.posterior import Target
from tallystick.algorithms.quantiles.program import UNKNOWN_RECORDS, Series
from tallystick.algorithms.quantiles.settings import QuantileSettings, with_columns
from tallystick.algorithms.selection.quantiles import Look, SelectedQuantiles
from tallystick.core.errors import StudyError
from tallystick.privacy.draws import MOST_CELLS, MOST_PLACES
from tallystick.privacy.selection_plan import CountStep, DrawStep, Step

CELLS = 1000
"""Of a window that counts have narrowed."""
SUBRANGES = 10
"""Of each step of the recursive method [BK20]."""
_HALVINGS = {"epsilon": None, "ln2": 0, "ln2/2^d": -1}
COUNTS = Fraction(1, 10)
"""Of ε, for counts."""
_GROWTH, _PARTS = 4, 1 << 16
_ENOUGH = 1000.0
"""Below this nε counts at a tenth of ε say nothing that a draw over the whole domain would gain by."""
_FEW_DRAWS, _MOST_GROUPS = 4, 256
_MOST_LEVELS = 14
_FINEST = 10_000
"""Denominators of quantiles go up to here: ranks are compared in units of 1/denominator."""


def design_selected_quantiles(public: Public, budget: PublicBudget, settings: QuantileSettings) -> SelectionDesign:
    """Rounds of counts, if they pay, and a draw for each quantile of each column."""
    settings = with_columns(settings, public)
    subranges = settings.method == "subranges"
    labels, by = groups_of(settings, public)
    if by is not None and (subranges or len(labels) > _MOST_GROUPS):
        raise StudyError(
            f'method = "{settings.method}" with by = {settings.by!r}, which has {len(labels)} groups',
            rule="draws-have-no-groups",
            remedy=f'Use method = "exponential", with a category of at most {_MOST_GROUPS} values, or leave by out.',
        )
    blocks = {block[0]: block for block in public.columns}
    records = float(public.records) if public.records else UNKNOWN_RECORDS
    share = Fraction(1, len(settings.column))
    targets = tuple(Target(share=q) for q in settings.q)
    fan = 8 if len(targets) == 1 else 4
    expected = records / len(labels)
    part = float(share) / len(targets)  # of ε, for one draw
    ends = _ends(settings, expected, budget, part, known=bool(public.records))
    series, columns, looks, cells = [], [], [], []
    steps: list[Step] = []
    for at, name in enumerate(settings.column):
        grid = value_grid(public, name)
        start, stop = blocks[name][1:3]
        columns.append((start, stop - 1 if stop - start > 1 else None))
        series += [Series(grid=grid, group=g, label=label, targets=targets) for g, label in enumerate(labels)]
        whole = subranges or grid.size <= MOST_CELLS or expected * budget.epsilon * float(share) < _ENOUGH
        draws_in_all = len(settings.column) * len(targets)
        most = whole_cells(budget, draws_in_all, len(labels))
        cells.append(min(grid.size, SUBRANGES if subranges else most if whole else min(CELLS, most)))
        draws = math.ceil(math.log(grid.size, cells[-1]) - 1e-9) if subranges else 1
        levels: list[Fraction] = []
        if not whole:
            levels = level_shares(expected, grid.size, fan, budget, share * COUNTS)
        elif by is not None:
            levels = [share * COUNTS]  # how many records each group has, so that one without any is not answered for
        width = max(17, (fan + 1) * len(targets) + 1)
        for level in levels:
            looks.append(Look(column=at, variance=count_variance(budget, level), sizes=whole))
            steps.append(CountStep(cells=width * len(labels), share=level))
        left = share - sum(levels, Fraction(0))
        for number, q in enumerate(settings.q):
            step = DrawStep(
                kind="ranks",
                cells=cells[-1],
                share=left / len(targets) / draws,
                rank=_rank(q, expected, budget, part),
                groups=0 if by is None else len(labels),
                halvings=_HALVINGS[settings.weights] if subranges else None,
            )
            looks += [Look(column=at, target=number, refines=n > 0) for n in range(draws)]
            steps += [step] * draws
    program = SelectedQuantiles(
        series=series,
        columns=columns,
        by=by,
        looks=looks,
        fan=fan,
        cells=cells,
        records=records,
        public_count=records_known(public, budget) and by is None and all(mark is None for _, mark in columns),
        guessed=records_guessed(public, budget),
        notes=ends,
    )
    return SelectionDesign(
        program=program,
        steps=tuple(steps),
        notes=(*ends, *_groups_note(settings, budget)),
        hopeless=_hopeless(public, expected, budget, part),
        details={
            "quantiles": list(settings.q),
            "columns": list(settings.column),
            "cells": cells,
            **({"groups": len(labels)} if by is not None else {}),
        },
    )


def whole_cells(budget: PublicBudget, draws: int, groups: int = 1) -> int:
    """Cells, for each group, of a domain that nothing has narrowed: as many as the parties compute in seconds.

    Half as many from five parties on, and a quarter from seven on (every party adds all of the Laplace noise, so their
    number is the factor by which its variance is larger); fewer the more draws there are, each of which then has less
    of ε.
    """
    parties = round(budget.variance_factor)
    most = MOST_PLACES // (1 if parties <= 4 else 2 if parties <= 6 else 4)
    return min(most, max(MOST_CELLS * groups, most // math.ceil(draws / _FEW_DRAWS))) // groups


def count_variance(budget: PublicBudget, share: Fraction) -> float:
    """Of one cell's count that has this share of ε: every party adds discrete Laplace noise of the whole scale."""
    scale = budget.sensitivity_factor * budget.person_factor / (float(share) * budget.epsilon)
    return 2 * scale**2 * budget.variance_factor


def level_shares(records: float, size: int, fan: int, budget: PublicBudget, share: Fraction) -> list[Fraction]:
    """Shares of the levels of counts.

    Wide domains need levels that only find where the records are at all: those are cheap, noise of a twentieth of the
    records. The last ones grow four times each, as the ranks in question get fewer.
    """
    whole = math.sqrt(count_variance(budget, share))  # a count's noise if one level had all of it
    wide = math.ceil(math.log(max(size / CELLS, 1.0), fan))
    number = min(_MOST_LEVELS, max(1, wide + math.floor(math.log(max(records / 10 / whole, 1.0), _GROWTH))))
    base = min(20 * whole / records, 0.5 / number)
    low, high = 0.0, 1.0
    for _ in range(60):
        last = (low + high) / 2
        spent = sum(max(base, last / _GROWTH**k) for k in range(number))
        low, high = (last, high) if spent <= 1 else (low, last)
    parts = [max(base, low / _GROWTH**k) for k in reversed(range(number))]
    return [share * Fraction(max(1, math.floor(part * _PARTS)), _PARTS + number) for part in parts]


def _rank(q: float, records: float, budget: PublicBudget, part: float = 1.0) -> tuple[int, int]:
    """q as a fraction; the smallest and the largest value are looked for as far inside as a draw can tell."""
    inside = _inside(records, budget, part) / records
    exact = Fraction(repr(min(max(q, inside), 1 - inside))).limit_denominator(_FINEST)
    exact = min(max(exact, Fraction(1, _FINEST)), 1 - Fraction(1, _FINEST))
    return exact.numerator, exact.denominator


def _inside(records: float, budget: PublicBudget, part: float) -> float:
    """How many records beyond the smallest value that is still told from those with none."""
    return min(records / 4, 4 * budget.sensitivity_factor * budget.person_factor / (part * budget.epsilon))


def _ends(
    settings: QuantileSettings, records: float, budget: PublicBudget, part: float = 1.0, *, known: bool = True
) -> tuple[str, ...]:
    """Which quantiles are drawn further inside than asked for; ``known``: their records are a stated number."""
    notes = []
    if {0.0, 1.0} & set(settings.q):
        beyond = max(_inside(records, budget, part), records / _FINEST)
        many = f"{max(1.0, beyond):,.0f}" if known else f"{beyond / records:.2%} of the"
        notes.append(f"min and max are the values with about {many} records beyond them: one record is hidden")
    for q in sorted(set(settings.q) - {0.0, 1.0}):
        numerator, denominator = _rank(q, records, budget, part)
        if abs(numerator / denominator - q) > 1e-3 * min(q, 1 - q):
            notes.append(f"q = {q:g} is drawn as {numerator / denominator:.4g}: nearer to the end a draw cannot tell")
    return tuple(notes)


def _hopeless(public: Public, records: float, budget: PublicBudget, part: float) -> str | None:
    """A draw tells places apart whose ranks differ by Δ·2/ε or so: with fewer records, all are nearly as likely."""
    apart = 2 * budget.sensitivity_factor * budget.person_factor / (part * budget.epsilon)
    if public.records is None or apart <= records:
        return None
    return f"a draw tells ranks to about {apart:,.0f} records, and there are {public.records:,}"


def _groups_note(settings: QuantileSettings, budget: PublicBudget) -> tuple[str, ...]:
    if settings.by is None or budget.neighbours == "add-remove":
        return ()
    return (
        f"groups of {settings.by}: a replaced record may leave one and enter another, so both are paid for; under "
        "add-remove groups cost once",
    )
