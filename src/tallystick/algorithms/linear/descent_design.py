"""What a private descent costs, round by round, and whether it is worth running: from public facts alone."""

from __future__ import annotations

import math
from typing import Any

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.linear.descent import DescentSettings, noise_of_mean
from tallystick.algorithms.linear.descent_program import DescentProgram
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.privacy.grid import Group

__all__ = ["design_descent"]

_DROWNED = 1.5
"""Measured: with noise at 1.3 times the largest mean gradient (wdbc at epsilon = 0.1) a model still beats the majority
class by 12 points; well above that, at a few hundred records, it falls below."""


def design_descent(
    kind: type[DescentProgram], public: Public, budget: PublicBudget, settings: DescentSettings
) -> Design:
    """The program and its rounds, from public facts alone."""
    title = kind.title
    if public.records is None and not settings.standardise:
        raise StudyError(
            f"{title} divides by the public number of records, and the study does not state it",
            remedy="Add `records = …` under [data] (with add-remove a planning figure will do), or leave standardise "
            "on: its round counts the records, with noise.",
        )
    if public.records is not None and public.records < 1:
        raise StudyError(f"records = {public.records} is not a number of records", remedy="State how many there are.")
    if len(public.classes) < 1:
        raise StudyError(
            f"{title} needs a category as its target",
            remedy='Declare the target as a category, e.g. income = { type = "category", values = ["<=50K", ">50K"] }.',
        )
    if settings.schedule not in ("auto", "constant", "inverse-sqrt"):
        raise StudyError(f"schedule = {settings.schedule!r} is not known", remedy="Use auto, constant or inverse-sqrt.")
    if settings.clip is not None and not 2.0**-30 <= settings.clip <= 2.0**30:
        raise StudyError(f"clip = {settings.clip} is out of range", remedy='Use "auto", or a number from 1e-9 to 1e9.')
    program = kind(public, budget, settings)
    gradient = Group(name="gradient", size=program.outputs * (program.shapes.size + 1), bound=1.0)
    groups: tuple[tuple[Group, ...], ...] = ((gradient,),) * program.steps
    weights: tuple[float, ...] = (1.0,) * program.steps
    if settings.standardise:
        groups = ((program.moments.group(),), *groups)
        weights = program.moments.weights(program.steps)
    details: dict[str, Any] = {"steps": program.steps, "columns": program.shapes.size}
    if public.records is not None:
        details["noise_of_mean_gradient"] = noise_of_mean(budget, program.share, 0.5, public.records)
    return Design(
        program=program,
        groups=groups,
        weights=weights,
        fraction_bits=program.fraction_bits,
        hopeless=_hopeless(program, budget),
        details=details,
    )


def _hopeless(program: DescentProgram, budget: PublicBudget) -> str | None:
    """Compare the noise, over √d coordinates, with the most a mean gradient can be: a norm of C·√tr."""
    if program.records is None:
        return None
    low, _, _ = program.loss.residual_bounds(program.classes, l1=program.l1)
    steps = math.sqrt(program.steps) if budget.mechanism == "laplace" else 1.0
    bound = program.settings.clip or low * program.typical_row
    noise = noise_of_mean(budget, program.share, bound, program.records) * steps
    noise *= math.sqrt(program.outputs * (program.shapes.size + 1))
    signal = low * math.sqrt(program.public_trace)
    if noise <= _DROWNED * signal:
        return None
    return (
        f"the noise on the mean gradient is {noise / signal:.1f} times the largest gradient there can be, with "
        f"{program.records} records and {program.shapes.size} columns"
    )
