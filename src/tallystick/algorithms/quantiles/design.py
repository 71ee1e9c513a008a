"""From public facts to the rounds of a search for quantiles."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.program import Public
from tallystick.algorithms.quantiles.grid import value_grid
from tallystick.algorithms.quantiles.posterior import Target
from tallystick.algorithms.quantiles.program import QuantileProgram, Series
from tallystick.algorithms.quantiles.schedule import LEAST_PRICE, MOST_ROUNDS, Noise, Schedule
from tallystick.algorithms.quantiles.settings import QuantileSettings, with_columns
from tallystick.privacy.accountant import pure_rho
from tallystick.privacy.gaussian_curve import gaussian_rho
from tallystick.privacy.grid import Group
from tallystick.privacy.open_budget import PARTS

_FRACTION_BITS = 20
_INSIDE = 3.0
"""Standard deviations of a cell's count at half of the budget: with fewer, a domain's empty end passes for data."""
_DELTA = 1e-6
"""What the Gaussian is compared at where a study promises pure ε."""


def design_quantiles(public: Public, budget: PublicBudget, settings: QuantileSettings) -> SumDesign:
    """At most 15 rounds whose prices the program chooses as it goes, within the whole budget."""
    settings = with_columns(settings, public)
    blocks = {block[0]: block for block in public.columns}
    labels, groups = groups_of(settings, public)
    columns, marked = [], False
    for name in settings.column:
        start, stop = blocks[name][1:3]
        mark = stop - 1 if stop - start > 1 else None
        marked = marked or mark is not None
        columns.append((start, mark))
    public_count = records_known(public, budget) and groups is None and not marked
    laplace = budget.mechanism == "laplace"
    noise = Noise(whole=cell_noise(budget, len(columns)), laplace=laplace)
    many = len(settings.q)
    fan = 8 if many == 1 else 4
    schedule = Schedule(
        noise=noise, fan=fan, wide=max(fan, min(64, 160 // many)), lone=0.5 if laplace and many == 1 else 1.0
    )
    targets = tuple(_target(q, noise, public.records) for q in settings.q)
    series = [
        Series(grid=value_grid(public, name), group=g, label=label, targets=targets)
        for name in settings.column
        for g, label in enumerate(labels)
    ]
    program = QuantileProgram(
        series=series,
        columns=columns,
        by=groups,
        schedule=schedule,
        records=None if public.records is None else float(public.records),
        public_count=public_count,
        guessed=records_guessed(public, budget),
    )
    size = (program.edges + 1) * len(labels)
    share = 1 / len(columns)
    bound = 0.5 if laplace else 1.0
    of_round = tuple(
        Group(name=name, size=size, bound=bound, share=share, nonnegative=not laplace) for name in settings.column
    )
    return SumDesign(
        program=program,
        groups=(of_round,) * MOST_ROUNDS,
        fraction_bits=_FRACTION_BITS,
        least_price=LEAST_PRICE,
        split="one for each column",
        notes=_notes(settings, budget, noise, targets),
        hopeless=_hopeless(noise, public, len(labels)),
        details={"quantiles": list(settings.q), "columns": list(settings.column), "groups": len(labels)},
    )


def records_known(public: Public, budget: PublicBudget) -> bool:
    """Whether ``public.records`` is how many records add to a count of all of them."""
    return not public.counts_records and not records_guessed(public, budget)


def records_guessed(public: Public, budget: PublicBudget) -> bool:
    """Whether nobody may know how many records there are, so that ``public.records`` is what somebody states."""
    return not public.records_are_exact or budget.neighbours == "add-remove" or budget.person_factor > 1


def _notes(
    settings: QuantileSettings, budget: PublicBudget, noise: Noise, targets: tuple[Target, ...]
) -> tuple[str, ...]:
    """What analysts and stewards read before anything is spent."""
    notes = [
        f"at most {MOST_ROUNDS} rounds, whose prices are chosen as they come, from released figures alone, within what "
        f"is reserved: the noise above is that of the least price; at the whole price a count has {noise.whole:.3g}"
    ]
    pure, normal = pure_rho(Fraction(budget.epsilon)) if math.isfinite(budget.epsilon) else None, budget.rho
    if pure is not None and budget.mechanism == "laplace":
        normal = float(gaussian_rho(budget.epsilon, _DELTA))
    if pure is not None:
        of_delta = f" at delta = {_DELTA:g}" if budget.mechanism == "laplace" else ""
        notes.append(
            f"on a ledger of Rényi curves laplace at epsilon = {budget.epsilon:g} weighs rho = {float(pure):.3g}, "
            f"gaussian{of_delta} rho = {normal:.3g}; this study is {budget.mechanism}"
        )
        both = [
            cell_noise(replace(budget, mechanism=mechanism, rho=normal), len(settings.column))
            for mechanism in ("laplace", "gaussian")
        ]
        notes.append(
            f"a count at the whole price has a noise of {both[0]:.3g} with laplace, {both[1]:.3g} with gaussian"
        )
    beyond = next((abs(t.shift) for t in targets if t.shift), None)
    if beyond is not None:
        notes.append(
            f"0 and 1 of q are the values with about {beyond:,.0f} records beyond them: closer to the end one record "
            "could be told"
        )
    if settings.by is not None and budget.neighbours != "add-remove":
        notes.append(
            f"groups of {settings.by}: a replaced record may leave one and enter another, so both are paid for; under "
            "add-remove groups cost once"
        )
    return tuple(notes)


def _hopeless(noise: Noise, public: Public, groups: int) -> str | None:
    """Where a count of all records drowns in its noise, ranks are not worth looking for."""
    if public.records is None or noise.whole <= public.records / groups:
        return None
    return f"a count would have a noise of {noise.whole:.3g}, and there are {public.records:,} records"


def cell_noise(budget: PublicBudget, columns: int) -> float:
    """Standard deviation of one cell's count, if one round had the whole budget."""
    if budget.mechanism == "none":
        return 0.0
    replaced = budget.neighbours != "add-remove"
    sensitivity = (2.0 if budget.mechanism == "laplace" else math.sqrt(2)) if replaced else 1.0
    return budget.noise(sensitivity, 1 / columns) * budget.person_factor


def groups_of(settings: QuantileSettings, public: Public) -> tuple[list[str | None], tuple[int, int] | None]:
    """Names of the groups, and where their encoded features are; one without a name if there are none."""
    if settings.by is None:
        return [None], None
    _, start, stop, _, _ = next(block for block in public.columns if block[0] == settings.by)
    return [f.removeprefix(f"{settings.by}=") for f in public.features[start:stop]], (start, stop)


def _target(q: float, noise: Noise, records: int | None) -> Target:
    """The smallest and the largest value are asked for so far inside that noise is seldom taken for records."""
    inside = _INSIDE * noise.std(PARTS // 2) if 0 < noise.whole < math.inf else 0.5
    if records is not None:
        inside = min(inside, records / 4)
    return Target(share=q, shift=inside if q == 0 else -inside if q == 1 else 0.0)


def laplace_is_better(laplace: PublicBudget, gaussian: PublicBudget, *, columns: int, quantiles: int) -> bool:
    """Which noise tells a rank better at half of the budget, about what the last look has: from public facts alone."""
    half = PARTS // 2
    pure = Noise(whole=cell_noise(laplace, columns), laplace=True).std(half)
    normal = Noise(whole=cell_noise(gaussian, columns), laplace=False).std(half)
    return pure / 2 < normal / math.sqrt(2) if quantiles == 1 else pure < normal
