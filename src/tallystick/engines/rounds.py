"""Rounds of sums: the same loop for every program and every trust model that sums.

    for each round: state out, noisy total in, reduce

A stream goes on past a tick whose round was given up (:func:`is_lost_tick`): the tick releases nothing, its records are
in no other (clients keep a watermark), and the charge stays as it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.local_program import Labels, ReducedAtLabels
from tallystick.algorithms.program import BuiltInProgram, Program, Public, State, pack_state
from tallystick.core.errors import LocalProtocolError, RoundAborted, TallystickError
from tallystick.crypto.field import to_real
from tallystick.engines.engine import Computation, Computed, Progress, Released, SimulatedStudy
from tallystick.engines.sandbox.messages import same_shape
from tallystick.engines.thresholding import thresholded
from tallystick.engines.totals import NoisyTotal, NoisyTotals, SumRequest
from tallystick.engines.user_code import remedy_for, start_of, user_code
from tallystick.privacy.client_vectors import ClientRound
from tallystick.privacy.draws import DrawRound
from tallystick.privacy.round_plan import RoundPlan
from tallystick.privacy.sum_plan import SumPlan

SPENT = "round-spent"
"""A round of a study that was paused in it, and could not be gone on with: it has no total, and never will have."""
LOST = frozenset({"missing-server", "missing-proxy", "missing-data-user", "too-few-clients", "threshold"})
"""Why a round may be given up without anybody being at fault; after anything else a person looks first."""


class SimulatedRounds(Computation):
    """Base of a trust model's simulation that sums: it answers for all parties (``noisy_total``)."""

    def __init__(self, simulated: SimulatedStudy) -> None:
        self.simulated = simulated

    @property
    def plan(self) -> SumPlan:
        """The plan, as what it is."""
        return cast(SumPlan, self.simulated.plan)

    @abstractmethod
    def noisy_total(self, request: SumRequest) -> NoisyTotal:
        """The round's noisy total, or RoundAborted with nothing released."""

    def compute(self, *, progress: Progress | None = None, released: Released | None = None) -> Computed:
        program, public = self.simulated.design.program, self.simulated.public
        held = self.simulated.held.get(public.label_holder or "")
        if not isinstance(program, ReducedAtLabels) or held is None:
            return run_rounds(program, public, self.plan, self, progress=progress, released=released)
        labels = held.among(program.records).labels
        if labels is None:
            raise LocalProtocolError("the labels are not here", party=public.label_holder)
        return run_at_labels(program, lambda: labels, public, self.plan, self, progress=progress)


def answer_of(plan: RoundPlan, total: NDArray[np.int64], round: int) -> NDArray[np.int64]:
    """What a round's total says: its coordinates without padding; of a draw, the one place that was drawn; of a
    comparison, 1 for each count that reaches the threshold.

    After a draw every noise maker has written in its own entries what it saw. They all saw the same, or somebody's
    computation was disturbed and nothing is believed.
    """
    if not isinstance(plan, DrawRound):
        return total[: plan.grid.size]
    digits = plan.choice.digits
    said, rest = total[: plan.makers * digits].reshape(plan.makers, digits), total[plan.makers * digits :]
    found = plan.choice.decoded(said[0])
    if found is None or (said != said[0]).any() or rest.any():
        raise RoundAborted(
            "the parties do not agree on which place was drawn",
            rule="draw-disagreement",
            round=round,
            remedy="Nothing was released, and what the study costs stays charged. Have the parties' operators compare "
            "their logs; then propose the study as a new version.",
        )
    return found


def is_lost_tick(plan: SumPlan, error: TallystickError) -> bool:
    """Whether a stream goes on after its round ended so, or a study that was paused in it.

    The state stays, and the program asks in the next tick what it asked in this one; so the next must have the same
    grid and noise. A tick of another kind (moments, before the first step) cannot be made up for.
    """
    skipped = error.rule == SPENT or (plan.claim.parallel and error.rule in LOST)
    if not skipped or error.round is None:
        return False
    if plan.open is not None or any(isinstance(r, DrawRound) for r in plan.rounds):
        return False  # a search that is priced as it goes, or counts its steps, has paid for what it did not hear
    if any(isinstance(r, ClientRound) for r in plan.rounds):
        return False  # what clients remember goes on from round to round
    this, following = plan.rounds[error.round - 1], plan.rounds[error.round : error.round + 1]
    return all(this == other for other in following)


def run_rounds(
    program: Program,
    public: Public,
    plan: SumPlan,
    totals: NoisyTotals,
    *,
    progress: Progress | None = None,
    released: Released | None = None,
) -> Computed:
    """Run every round of the plan, or until the program says it is finished on released state. Releases nothing."""
    steps = program_steps(program, public, plan, progress=progress, released=released)
    answer: NoisyTotal | RoundAborted | None = None
    while True:
        try:
            request = steps.send(answer)  # type: ignore[arg-type]  # None starts it
        except StopIteration as stop:
            computed: Computed = stop.value
            return computed
        try:
            answer = totals.noisy_total(request)
            totals.answered = True
        except RoundAborted as error:
            answer = error


def run_at_labels(
    program: ReducedAtLabels,
    labels: Labels,
    public: Public,
    plan: SumPlan,
    totals: NoisyTotals,
    *,
    progress: Progress | None = None,
) -> Computed:
    """The same for who reduces with the labels. What it sees on the way, a number a person and round, stays there:
    nothing is released before the last state, and nothing but that."""
    found = run_rounds(program.reducing(labels), public, plan, totals, progress=progress)
    return replace(found, history=found.history[-1:])


def program_steps(
    program: Program,
    public: Public,
    plan: SumPlan,
    *,
    progress: Progress | None = None,
    released: Released | None = None,
) -> Generator[SumRequest, NoisyTotal | RoundAborted, Computed]:
    """The program, step by step: it asks for a round's total and is sent it, or why there is none."""
    state = start_of(program, public)
    history: list[State] = []
    contributors: list[tuple[str, ...]] = []
    dropped: list[tuple[str, ...]] = []
    for number in range(1, len(plan.rounds) + 1):
        with user_code(program, "query", round=number):
            model = pack_state(program.query(state))
        round_plan = plan.round_at(number, model)
        answer = yield SumRequest(round=number, model=model, plan=round_plan)
        noisy = None if isinstance(answer, RoundAborted) else answer
        if isinstance(answer, RoundAborted):
            last_chance = number == len(plan.rounds) and not any(contributors)
            if last_chance or not is_lost_tick(plan, answer):
                raise answer
        if noisy is not None:
            if plan.threshold is not None:
                noisy = thresholded(noisy, round_plan, plan.threshold)
            total = to_real(noisy.values, round_plan.grid.fraction_bits)
            if plan.claim.sampling is not None:
                total = total / plan.claim.sampling  # of the sample to that of all records; by the public rate
            state = _next_state(program, public, total, state, round=number)
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
        with user_code(program, "finished", round=number):
            finished = program.finished(state)
        if finished:
            break
    return Computed(history=tuple(history), contributors=tuple(contributors), dropped=tuple(dropped))


def _next_state(program: Program, public: Public, total: NDArray[np.float64], state: State, *, round: int) -> State:
    """``reduce_in_aggregator``, and that it is a state of the shape it was given."""
    with user_code(program, "reduce_in_aggregator", round=round, remedy=remedy_for(public)):
        after = program.reduce_in_aggregator(total, state)
    pack_state(after)  # refuses what is no state
    if not isinstance(program, BuiltInProgram) and not same_shape(after, state):
        raise RoundAborted(
            "the program's reduce_in_aggregator returned a state of another shape than it was given",
            rule="state",
            round=round,
            remedy=f"{remedy_for(public)} What was spent stays spent.",
        )
    return after
