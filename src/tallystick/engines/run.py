"""Running a program: the same loop for every algorithm and every trust model.

    reserve → for each round: state out, noisy total in, reduce → commit → release

The charge is reserved before the first round and stays spent from the first noisy total on, whatever happens then. If
nothing noised has left (the first round aborted), the reservation is withdrawn.

A stream goes on past a tick whose round was given up (:func:`is_lost_tick`): the tick releases nothing, its records are
in no other (clients keep a watermark), and the charge stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tallystick.algorithms.program import Program, Public, State, pack_state
from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.crypto.fixed_point import to_real
from tallystick.engines.thresholding import thresholded
from tallystick.engines.totals import NoisyTotal, NoisyTotals, RoundRequest
from tallystick.engines.user_code import next_state, run_user_code, start_of
from tallystick.privacy.ledger import Ledger, charge_of
from tallystick.privacy.payment import Payment, paid_from
from tallystick.privacy.plan import Plan
from tallystick.privacy.release import Release, release

__all__ = ["Outcome", "Progress", "Released", "Rounds", "is_lost_tick", "run_program", "run_rounds"]

Progress = Callable[[int, int], None]
"""Called with (round, rounds) after every round."""
Released = Callable[[State, NoisyTotal | None], None]
"""Called with the state after every round, and the total it followed from; None if a tick was lost."""
_LOST = frozenset({"missing-server", "too-few-clients"})
"""Why a round may be given up without anybody being at fault; after anything else a person looks first."""


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What came of the rounds: the state after each, and who took part. Nothing of it leaves before it is paid for."""

    history: tuple[State, ...]
    contributors: tuple[tuple[str, ...], ...]
    dropped: tuple[tuple[str, ...], ...]

    def paid(self, plan: Plan, study: bytes, payment: Payment) -> Outcome:
        """The same, released."""
        out = release(self.history[-1], plan=plan, study=study, payment=payment)
        return Outcome(release=out, history=self.history, contributors=self.contributors, dropped=self.dropped)


@dataclass(frozen=True, kw_only=True)
class Outcome(Rounds):
    """A finished run: the released final state, the released states before it, and who took part."""

    release: Release

    @property
    def lost(self) -> tuple[int, ...]:
        """Ticks of a stream that released nothing."""
        return tuple([number for number, names in enumerate(self.contributors, start=1) if not names])


def is_lost_tick(plan: Plan, error: TallystickError) -> bool:
    """Whether a stream goes on after its round ended so.

    The state stays, and the program asks in the next tick what it asked in this one; so the next must have the same
    grid and noise. A tick of another kind (moments, before the first step) cannot be made up for.
    """
    if not plan.claim.parallel or error.rule not in _LOST or error.round is None:
        return False
    this, following = plan.rounds[error.round - 1], plan.rounds[error.round : error.round + 1]
    return all(this == other for other in following)


def run_rounds(
    program: Program,
    public: Public,
    plan: Plan,
    totals: NoisyTotals,
    *,
    progress: Progress | None = None,
    released: Released | None = None,
) -> Rounds:
    """Run every round of the plan, or until the program says it is finished on released state. Releases nothing."""
    state = start_of(program, public)
    history: list[State] = []
    contributors: list[tuple[str, ...]] = []
    dropped: list[tuple[str, ...]] = []
    for number, round_plan in enumerate(plan.rounds, start=1):
        model = pack_state(run_user_code(program, "query", partial(program.query, state), round=number))
        noisy: NoisyTotal | None = None
        try:
            noisy = totals.noisy_total(RoundRequest(round=number, model=model, plan=round_plan))
        except RoundAborted as error:
            last_chance = number == len(plan.rounds) and not any(contributors)
            if last_chance or not is_lost_tick(plan, error):
                raise
        if noisy is not None:
            if plan.threshold is not None:
                noisy = thresholded(noisy, round_plan, plan.threshold)
            total = to_real(noisy.values, round_plan.grid.fraction_bits)
            if plan.claim.sampling is not None:
                total = total / plan.claim.sampling  # of the sample to that of all records; by the public rate
            state = next_state(program, public, total, state, round=number)
        if not np.isfinite(np.frombuffer(pack_state(state), dtype="<f8")).all():
            raise RoundAborted(
                "the program's state holds NaN or infinity after this round",
                rule="state-is-finite",
                round=number,
                remedy="Take smaller steps or bound the update. What was spent stays spent.",
            )
        history.append(state)
        contributors.append(() if noisy is None else noisy.participants)
        dropped.append(() if noisy is None else noisy.dropped)
        if released is not None:
            released(state, noisy)
        if progress is not None:
            progress(number, len(plan.rounds))
        if run_user_code(program, "finished", partial(program.finished, state), round=number):
            break
    return Rounds(history=tuple(history), contributors=tuple(contributors), dropped=tuple(dropped))


def run_program(
    program: Program,
    public: Public,
    plan: Plan,
    totals: NoisyTotals,
    *,
    study: bytes,
    ledger: Ledger,
    progress: Progress | None = None,
    released: Released | None = None,
) -> Outcome:
    """All rounds on the account of one ledger: reserve, run, commit, release."""
    entry = ledger.reserve(charge_of(study, plan))
    try:
        rounds = run_rounds(program, public, plan, totals, progress=progress, released=released)
    except RoundAborted as error:
        # Nothing noised has left. (A stream's records are spent with their watermark.)
        if error.round == 1 and error.rule != "state-is-finite" and not plan.claim.parallel:
            ledger.withdraw(entry)
        raise
    return rounds.paid(plan, study, paid_from(ledger.commit(entry)))
