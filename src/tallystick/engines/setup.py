"""What every party derives from a study by itself, before anything is computed: the same at each of them.

The study's canonical bytes and the text of its program file are all there is to agree on. Plan, noise, vector length
and model size follow from them; a party that derives something else has another study, and its hash says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tallystick.algorithms.design import Design
from tallystick.algorithms.program import Public, State
from tallystick.core.errors import LocalProtocolError, StudyError, TallystickError
from tallystick.engines.designs import design_of, program_of
from tallystick.engines.holders_cast import check_holders_cast
from tallystick.engines.planning import DEFAULT_MIN_CLIENTS, layout_of, plan_study, public_facts
from tallystick.engines.round_vectors import result_limit
from tallystick.engines.sandbox.program import SandboxedProgram
from tallystick.privacy.plan import Plan
from tallystick.privacy.rules import check_claim
from tallystick.privacy.sum_plan import SumPlan
from tallystick.protocol.governance.plan_summary import summarise
from tallystick.protocol.members import Cast
from tallystick.study import Study
from tallystick.study.schema import FeatureLayout


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A study made ready to run: public facts only."""

    study: Study
    layout: FeatureLayout
    design: Design
    plan: Plan
    public: Public
    template: State

    @property
    def sum_plan(self) -> SumPlan:
        """The plan of a study that sums, as what it is."""
        if not isinstance(self.plan, SumPlan):
            raise LocalProtocolError(f"{self.study.study.program} does not sum")
        return self.plan

    @property
    def size(self) -> int:
        """Entries of every vector of a study that sums."""
        return self.sum_plan.size

    @property
    def min_clients(self) -> int:
        """Fewer clients abort a round."""
        stated = self.study.trust.min_clients
        return DEFAULT_MIN_CLIENTS if stated is None else stated

    def check_cast(self, cast: Cast) -> None:
        """Refuse a study that was planned for other parties than there are."""
        check_holders_cast(self.study, self.design, cast)
        if self.design.only_simulated is not None:
            raise self.design.only_simulated
        cast.model.check_cast(self.study.trust, cast.counts())
        short = [name for name in cast.clients if cast.countersigners_of(name) > len(cast.witnesses_of(name))]
        if short:
            raise StudyError(
                f"{cast.countersigners_of(short[0])} have to countersign the ledger of {short[0]}, and the consortium "
                f"has {len(cast.witnesses_of(short[0]))} of the witnesses for it",
                rule="witnesses",
                remedy="Name witnesses that are in the consortium, under [trust].",
            )

    def close(self) -> None:
        """End the locked children of a program file, if it is one. They come back if they are asked again."""
        if isinstance(self.design.program, SandboxedProgram):
            self.design.program.close()


def set_up(canonical: bytes, program: str, *, allow_not_private: bool = False) -> Setup:
    """From what travelled; refuses what this party could not stand by. A program file's code never runs in here.

    Derived once in a process: reviewed, answered, started and attested, a study has the same set-up.
    """
    made = _set_up(canonical, program)
    if not allow_not_private:  # asked anew: what one role may be allowed another may not
        check_claim(replace(made.plan.claim, allow_not_private=False))
    return made


@lru_cache(maxsize=8)
def _set_up(canonical: bytes, program: str) -> Setup:
    try:
        return _derived(canonical, program)
    except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError, MemoryError) as error:
        if isinstance(error, TallystickError):
            raise
        # Whoever proposed it found numbers that no rule of ours names. It is refused all the same, by everybody alike.
        raise StudyError(
            f"no plan can be made of this study ({type(error).__name__})",
            rule="study-without-plan",
            remedy="Use ordinary figures; if they are, please report it.",
        ) from error


def _derived(canonical: bytes, program: str) -> Setup:
    study = Study.from_canonical(canonical)
    if study.canonical() != canonical:
        raise StudyError("the study is not in canonical form", remedy="Propose it with this version of tallystick.")
    own, complete = program_of(study, lambda _name: program, sandboxed=True)
    if complete.canonical() != canonical:
        raise StudyError("the study does not state the hash of its program", remedy="Propose it anew.")
    layout = layout_of(study)
    design = design_of(study, layout, own)
    plan = plan_study(study, design, allow_not_private=True)
    summarise(plan)  # what is shown, signed and attested can be written down
    if study.data.records is not None and isinstance(plan, SumPlan):
        result_limit(plan, study.data.records)  # a sum that could wrap around is refused before it is approved
    public = public_facts(study, layout)
    return Setup(
        study=study,
        layout=layout,
        design=design,
        plan=plan,
        public=public,
        template=design.program.init(public),
    )
