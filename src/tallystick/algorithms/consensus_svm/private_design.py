"""The rounds of a private consensus, and what one record moves in each: from public facts alone."""

from __future__ import annotations

import math

from tallystick.algorithms.consensus_svm.private_consensus import (
    MOST_PULL,
    PRECISION,
    SPAN,
    PrivateConsensusProgram,
    largest_weight,
)
from tallystick.algorithms.consensus_svm.settings import ConsensusSettings
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.feature_maps.feature_map import FeatureMap
from tallystick.algorithms.local_program import LocalDesign
from tallystick.algorithms.program import Public
from tallystick.core.errors import PrivacyRefused, StudyError

MOST_ROUNDS = 20
"""Sensitivities grow with the rounds: T of them cost T³/3 times the budget of one."""
_ROUNDS = 5
_GRID = 2.0**16
"""The smallest sensitivity in units of the rounding that is added to it."""
_LEAST_LARGEST = 2.0
"""Weights up to this must be certifiable, or a study would end half-way."""
_DROWNED = 300.0


def step_sensitivity(C: float, longest: float, rho: float, budget: PublicBudget, outputs: int) -> float:
    """√K·(D + 4η), add-remove √K·(D + 2η): how much further one record moves the sum with every round."""
    return math.sqrt(outputs) * budget.sensitivity_factor * (1 + 4 * PRECISION) * C * longest / rho


def design_private(
    public: Public,
    budget: PublicBudget,
    settings: ConsensusSettings,
    *,
    made: FeatureMap | None,
    size: int,
    rows: object,
    typical: float,
) -> LocalDesign:
    """The program and its rounds."""
    averaged = settings.privacy == "output"
    if budget.mechanism != "gaussian":
        raise PrivacyRefused(
            f'privacy = "{settings.privacy}" with mechanism = "{budget.mechanism}"',
            rule="private-consensus-is-gaussian",
            remedy='Use mechanism = "gaussian": it is lengths that are bounded here. Or leave privacy out for an exact '
            'consensus, with mechanism = "none".',
        )
    _refuse_unused(settings)
    rounds = 1 if averaged else (_ROUNDS if settings.max_iter == "auto" else int(settings.max_iter))
    if rounds > MOST_ROUNDS:
        raise StudyError(
            f"max_iter = {rounds}: a private consensus has at most {MOST_ROUNDS} rounds",
            rule="private-consensus-rounds",
            remedy="What one record moves grows with every round. Use 3 to 10, or ts.LinearSVC: its rounds cost less.",
        )
    outputs = 1 if len(public.classes) <= 2 else len(public.classes)
    rho = (
        1.0
        if averaged
        else (_chosen_rho(public, settings.C, rounds) if settings.rho == "auto" else float(settings.rho))
    )
    # Rows longer than a typical one are shortened: a record's pull is C·R whatever its length, and noise with it.
    longest = math.sqrt(1 + (typical if made is None else made.norm**2))
    step = step_sensitivity(settings.C, longest, rho, budget, outputs)
    entries = 1 + outputs * (size + 1)
    bits = min(40, max(4, math.ceil(math.log2(_GRID * math.sqrt(entries) / step))))
    records = _records(public)
    # Under add-remove nobody may learn how many records a client has, so each is planned for whatever it has: by the
    # taper n·c(n) ≤ B·C/4, and n·√(c(n)/C) ≤ 0.39·B, which is what numbers of 64 bits have to bear.
    span = float(SPAN * records) if budget.neighbours == "add-remove" else None
    pull = (records if span is None else span / 4) * settings.C * longest**2 / rho
    if pull > MOST_PULL:
        raise StudyError(
            f"the steps of this consensus could take hours or not be solved at all: C·records·(length of a row)² is "
            f"{pull:.3g} times rho, and at most {MOST_PULL:.3g} is certain",
            rule="private-consensus-precision",
            remedy=f"Use C = {settings.C * MOST_PULL / pull / 2:.1g}"
            + (": noise is in proportion to it." if averaged else ", or a larger rho."),
        )
    most = records if span is None else math.ceil(span / 2)
    largest = largest_weight(most, size, C=settings.C, longest=longest, rho=rho)
    if not largest >= _LEAST_LARGEST:
        raise StudyError(
            "the steps of this consensus would have to be solved more exactly than numbers of 64 bits allow",
            rule="private-consensus-precision",
            remedy="Use a smaller rho or a larger C, or ts.LinearSVC, which solves nothing.",
        )
    program = PrivateConsensusProgram(
        public,
        C=settings.C,
        rho=rho,
        rounds=rounds,
        size=size,
        rows=rows,  # type: ignore[arg-type]
        longest=longest,
        fraction_bits=bits,
        averaged=averaged,
        largest=largest,
        span=span,
    )
    program.feature_map = made  # type: ignore[attr-defined]
    times = range(1, rounds + 1)
    return LocalDesign(
        program=program,
        sizes=(entries,) * rounds,
        fraction_bits=bits,
        # The plan adds the rounding of one client; a record that moves from one client to another has that of two.
        sensitivities=tuple(t * step + math.ldexp(math.sqrt(entries), -bits) for t in times),
        weights=tuple(float(t * t) for t in times),
        notes=(*_notes(settings, rounds, rho, longest, step, made), *_taper_note(span)),
        hopeless=_hopeless(budget, step, rounds, entries),
        details={
            "solver": settings.privacy,
            "numbers_told": rounds * program.numbers,
            "numbers_held": None if public.records is None else public.records * (len(public.features) + 1),
            "rho": rho,
            "sensitivity_of_round_1": step,
        },
    )


def _refuse_unused(settings: ConsensusSettings) -> None:
    """What was asked for and would change nothing; "interior-point" cannot be told from a solver left out."""
    unused = ["relaxation", "tolerance", "reveal"]
    unused += ["solver", "max_iter", "rho"] if settings.privacy == "output" else []
    asked = [name for name in unused if getattr(settings, name) != getattr(ConsensusSettings, name)]
    asked += ["feature_map"] if settings.feature_map == "landmarks" else []
    if asked:
        uses = "one round of its own" if settings.privacy == "output" else "max_iter and rho alone of an exact solver's"
        raise StudyError(
            f'privacy = "{settings.privacy}" has {uses}: {", ".join(asked)} would change nothing',
            rule="private-consensus-settings",
            remedy=f"Leave {', '.join(asked)} out.",
        )


def _taper_note(span: float | None) -> tuple[str, ...]:
    if span is None:
        return ()
    return (
        f"nobody learns how many records an institution has: one that has n weighs each by C(1 - n/{span:,.0f}), so "
        "that its steps end in the time they were planned for",
    )


def _chosen_rho(public: Public, C: float, rounds: int) -> float:
    """ρ = C·n/T: a record's pull C/ρ is then T/n, so that all of them together move w by about a row in each round."""
    return min(max(C * _records(public) / rounds, 2.0**-20), 2.0**30)


def _records(public: Public) -> int:
    if public.records is None:
        raise StudyError(
            "a private consensus is planned for a number of records, and the study does not state it",
            rule="private-consensus-records",
            remedy="Add `records = …` under [data]; with add-remove a planning figure will do.",
        )
    return public.records


def _hopeless(budget: PublicBudget, step: float, rounds: int, entries: int) -> str | None:
    """Compare the noise of the sum with what the sum of learners could be: margins of 1 on rows of length 1."""
    noise = budget.noise(step, 1.0) * math.sqrt(sum(t * t for t in range(1, rounds + 1))) * math.sqrt(entries)
    if noise <= _DROWNED:
        return None
    return f"the noise on the summed weights has a length of {noise:.3g}, where weights of a length near 10 are learned"


def _notes(
    settings: ConsensusSettings, rounds: int, rho: float, longest: float, step: float, made: FeatureMap | None
) -> tuple[str, ...]:
    notes = () if made is None else (made.describe(),)
    if settings.privacy == "output":
        return (
            *notes,
            f"each institution solves its own problem with C = {settings.C:g}, and the noisy mean of the solutions is "
            f"released: one record moves one solution by at most {step:.4g}. It is not the solution of all records "
            "together, which nobody could compute without seeing them",
        )
    return (
        *notes,
        f"private consensus: in round t one record moves the sum by at most t times {step:.4g} (rho = {rho:.4g}, rows "
        f"of length up to {longest:.4g}), because each institution remembers earlier rounds; all {rounds} rounds have "
        "the same noise, and later ones cost more",
    )
