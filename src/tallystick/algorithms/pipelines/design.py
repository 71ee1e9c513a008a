"""The design of a pipeline: both programs' rounds after each other, each planned for its own part of the budget.

Parts add up: under zCDP (and pure ε) the rounds of the second program, which look at records through what the first
released, cost their own ρ besides, by adaptive composition [BS16, Lemma 2.3; DR14, Thm. 3.16]. Nothing is charged twice
and nothing is left out; the plan's rounds are those of one sum program.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.algorithms.components.design import design_pca, design_truncated_svd
from tallystick.algorithms.components.program import ComponentsProgram
from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.linear.descent_program import DescentProgram
from tallystick.algorithms.linear.losses import HingeProgram, LogisticProgram
from tallystick.algorithms.pipelines.program import WIDTH, PipelineProgram
from tallystick.algorithms.pipelines.settings import PipelineSettings
from tallystick.algorithms.program import Public

_REDUCTIONS = {"pca": design_pca, "truncated_svd": design_truncated_svd}
_MODELS: dict[str, type[DescentProgram]] = {"logistic_regression": LogisticProgram, "linear_svc": HingeProgram}
_SHARE = 0.3


def design_pipeline(public: Public, budget: PublicBudget, settings: PipelineSettings) -> SumDesign:
    """Both designs, one after the other."""
    share = settings.share if settings.share is not None else _SHARE
    own = public_of_components(public, settings.components.kept)
    # The second first: a target that is missing is said before anything about components.
    second = _MODELS[settings.model].design(own, budget.part(1 - share), settings.descent)
    first = _REDUCTIONS[settings.reduction](public, budget.part(share), settings.components)
    if not isinstance(first.program, ComponentsProgram) or not isinstance(second.program, DescentProgram):
        raise TypeError("a pipeline's designs are of its own programs")
    return SumDesign(
        program=PipelineProgram(first.program, second.program, own),
        groups=(*first.groups, *second.groups),
        weights=(*_scaled(first, share), *_scaled(second, 1 - share)),
        notes=(
            f"pipeline: {settings.reduction} has {share:.0%} of the budget, {settings.model} the other "
            f"{1 - share:.0%}, in {first.rounds} and {second.rounds} round(s); rows are projected on the released "
            f"components and cut at {WIDTH:g} standard deviations before anything of the model is computed from them",
            *first.notes,
        ),
        hopeless=first.hopeless or second.hopeless,
        split=first.split,
        details={
            "share": share,
            "phases": [
                {"program": settings.reduction, "rounds": first.rounds, **_apart(first)},
                {"program": settings.model, "rounds": second.rounds, **_apart(second)},
            ],
        },
    )


def public_of_components(public: Public, count: int) -> Public:
    """What the second program may know: numbers in [−1, 1], with a standard deviation of a third."""
    return replace(
        public,
        features=tuple(f"component {i + 1}" for i in range(count)),
        units=(("number", 0.0, 1.0, 0.0),) * count,
        blocks=(),
        integers=(),
        max_l2_squared=count / WIDTH**2,
        max_l1=float(count),
    )


def _apart(design: SumDesign) -> dict[str, object]:
    return {key: value for key, value in design.details.items() if key != "rounds"}


def _scaled(design: SumDesign, share: float) -> tuple[float, ...]:
    """A design's own split of its part."""
    weights = design.weights or (1.0,) * design.rounds
    whole = sum(weights)
    return tuple(share * weight / whole for weight in weights)
