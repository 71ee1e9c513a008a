"""The design of a component study: its rounds, groups and budget, from public facts alone."""

from __future__ import annotations

import math

from tallystick.algorithms.components.choices import choose, describe
from tallystick.algorithms.components.program import NUMBER_SHARES, ComponentsProgram
from tallystick.algorithms.components.row_space import RowSpace
from tallystick.algorithms.components.settings import ComponentSettings
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.privacy.grid import Group, outer_groups_for
from tallystick.privacy.ranges import check_coordinates

_ROW_UNIT = 2.0**-15
"""Of the grid that rows of the scatter live on."""
_DROWNED = 40.0
"""R beyond which not even the directions of largest square stand out."""


def design_pca(public: Public, budget: PublicBudget, settings: ComponentSettings) -> SumDesign:
    """Principal components: rows around their mean."""
    return design_components(public, budget, settings, centred=True)


def design_truncated_svd(public: Public, budget: PublicBudget, settings: ComponentSettings) -> SumDesign:
    """Singular vectors: rows around the origin, no mean."""
    return design_components(public, budget, settings, centred=False)


def design_components(public: Public, budget: PublicBudget, settings: ComponentSettings, *, centred: bool) -> SumDesign:
    """Choose, then say what each round sums."""
    notes = _checked(public, settings)
    d = len(public.features)
    space = RowSpace.of(public, unit=settings.rows == "unit", l1=budget.mechanism == "laplace")
    counts = public.counts_records or budget.neighbours == "add-remove" or budget.person_factor > 1
    choices = choose(
        public,
        budget,
        settings,
        centred=centred,
        nonnegative=space.nonnegative,
        stretch=(2.0 if settings.rows == "unit" else 2 * space.longest / space.typical) if budget.rho < math.inf else 1,
    )
    if choices.selected == d:
        check_coordinates(f"the products of {d} columns", d * (d + 1) // 2)
    program = ComponentsProgram(public, budget, settings, choices, space, counts=counts)
    rounds = []
    for number, stage in enumerate(choices.stages):
        share = program.main_share(stage)
        numbers = [_number(name) for name in program.numbers()] if number == 0 else []
        if stage == "scatter":
            # Half a unit of rounding in every number of a row must not push it over its bound.
            bound = (1 + 0.5 * math.sqrt(choices.selected) * 2 * _ROW_UNIT) ** 2
            equal = settings.noise == "equal"
            products = outer_groups_for("scatter", choices.selected, bound, share=share, equal=equal)
            rounds.append((*numbers, *products))
        else:
            positive = stage == "squares" or space.nonnegative
            rounds.append((Group(name=stage, size=d, bound=1.0, share=share, nonnegative=positive), *numbers))
    weights = tuple(choices.weight(stage) for stage in choices.stages)
    details = {
        "components": settings.n_components,
        "columns": d,
        "rounds": dict(zip(choices.stages, weights)),
        "selected": choices.selected,
        "bounded": choices.bounded,
        "noise_over_signal": choices.ratio,
    }
    return SumDesign(
        program=program,
        groups=tuple(rounds),
        weights=weights,
        notes=(*notes, *describe(choices, settings, d)),
        hopeless=_hopeless(choices.ratio),
        split="fixed: one number needs little",
        details=details,
    )


def _number(name: str) -> Group:
    return Group(name=name, size=1, bound=1.0, share=NUMBER_SHARES[name], nonnegative=True)


def _hopeless(ratio: float | None) -> str | None:
    if ratio is None or ratio <= _DROWNED:
        return None
    return f"the noise on the scatter is {ratio:.0f} times what the components would explain"


def _checked(public: Public, settings: ComponentSettings) -> tuple[str, ...]:
    """Refuse what cannot be asked for; a note on what is odd."""
    d, k = len(public.features), settings.n_components
    if k > d:
        raise StudyError(
            f"{k} components of {d} encoded columns",
            rule="components-within-columns",
            remedy=f"Use n_components from 1 to {d}.",
        )
    if public.records is not None and k > public.records:
        raise StudyError(
            f"{k} components of {public.records} records",
            rule="components-within-records",
            remedy="Use fewer components than records.",
        )
    if settings.shape is not None and (settings.basis is None or math.prod(settings.shape) != d):
        raise StudyError(
            f"shape = {list(settings.shape)} is not a grid of {d} encoded columns"
            if settings.basis
            else "shape is for a basis, and there is none",
            rule="shape-is-the-columns",
            remedy='Give the sides of the grid, whose product is the number of columns, with basis = "dct".',
        )
    if settings.basis and settings.shape is None and not ordered(public):
        return (
            'basis = "dct" is for ordered columns (a spectrum, a time series, an image), and these look unordered: not '
            "all are numbers with the same bounds. Give shape = [...] if they are ordered.",
        )
    return ()


def ordered(public: Public) -> bool:
    """Whether the columns could be one signal: numbers that share their bounds."""
    kinds = {kind for *_, kind, _ in public.columns}
    return kinds == {"number"} and len(set(public.units)) <= 1
