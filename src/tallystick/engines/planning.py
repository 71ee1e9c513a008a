"""From a study to its plan: the public facts a program may know, the budget a designer divides, the plan itself.

Every party derives all of it by itself, from the study alone; no record is read, nothing is spent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

from tallystick.algorithms.design import Design, PublicBudget
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError, TrustModelError
from tallystick.engines.record_choice import sampling_notes
from tallystick.engines.thresholding import threshold_notes
from tallystick.privacy.accountant import ORDERS
from tallystick.privacy.mechanisms.names import PURE
from tallystick.privacy.plan import Plan
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sampling import sampled_budget
from tallystick.privacy.sum_plan import SumPlan, curve_budget
from tallystick.study import Study
from tallystick.study.columns import Column, Integer, Items
from tallystick.study.holders import label_holder
from tallystick.study.schema import FeatureLayout
from tallystick.study.trust import registered

DEFAULT_MIN_CLIENTS = 3


def layout_of(study: Study) -> FeatureLayout:
    """How the study's records are encoded."""
    return study.schema_of_data().layout(
        study.study.features, target=study.study.target, missing=study.missing_policy()
    )


def public_facts(study: Study, layout: FeatureLayout) -> Public:
    """What programs may know."""
    schema = study.schema_of_data()

    def most_ones(column: Column) -> int:
        return column.max_per_record if isinstance(column, Items) else 1

    return Public(
        features=layout.names,
        records=study.data.records if study.stream is None else study.stream.records_per_tick,
        target=study.study.target,
        classes=tuple(layout.classes or ()),
        target_bounds=layout.target_bounds,
        max_l2_squared=layout.max_l2_squared,
        max_l1=layout.max_l1,
        units=tuple(zip(layout.kinds, layout.centre, layout.scale, layout.offset)),
        blocks=tuple((b.column, b.start, b.stop, b.kind, most_ones(schema[b.column])) for b in layout.blocks),
        integers=tuple(
            (b.column, c.lower, c.step, c.last_step + 1)
            for b in layout.blocks
            if isinstance(c := schema[b.column], Integer)
        ),
        salt=int.from_bytes(study.hash[:4], "big"),
        drops_incomplete=study.drops_incomplete,
        records_are_exact=study.counts_are_public,
        holders=_holders(study, layout),
        label_holder=label_holder(study),
    )


def _holders(study: Study, layout: FeatureLayout) -> tuple[tuple[str, tuple[int, ...], float], ...]:
    """Which encoded features are at whom, where institutions hold different columns."""
    found = []
    for name, held in (study.data.holders or {}).items():
        own = [range(block.start, block.stop) for block in layout.blocks if block.column in held.columns]
        places = tuple(place for block in own for place in block)
        found.append((name, places, float(held.norm or 0.0) if places else 0.0))
    return tuple(found)


def public_budget(study: Study, *, rounds: int | None = None) -> PublicBudget:
    """The budget a designer divides, with the trust model's price; ``rounds`` where the study states them."""
    claim = study.claim(rounds=1, allow_not_private=True)
    pure, makers = claim.mechanism in PURE, claim.trust.makers
    private = claim.mechanism != "none"
    rho = float(curve_budget(claim)) if private and not pure else math.inf
    if claim.sampling is not None and claim.sampling < 1 and private and not pure:
        rho = _sampled_rho(claim, makers.honest, rounds)
    ticks = 1 if study.stream is None else study.stream.ticks
    return PublicBudget(
        mechanism=claim.mechanism,
        rho=rho * ticks,  # designers divide by the rounds; each tick of a stream has the whole budget
        epsilon=claim.epsilon * ticks if private else math.inf,
        ticks=None if study.stream is None else ticks,
        neighbours=claim.neighbours,
        variance_factor=makers.variance_factor(splits=not pure),
        person_factor=claim.max_records * claim.max_institutions,
    )


def _sampled_rho(claim: Claim, honest: int, rounds: int | None) -> float:
    """What the designer has: after the total is divided by the rate q, noise variance is that of q²·Σρ."""
    if rounds is None:
        raise StudyError(
            "a sampled study states its number of rounds",
            rule="sampling-needs-rounds",
            remedy="Add `rounds = …` under [program] if the program takes it: what a sample saves depends on how often "
            "it is drawn. A program of one or few rounds gains nothing by it: leave sampling out.",
        )
    rate = claim.sampling or 1.0
    check_claim(claim)
    whole = sampled_budget(
        claim.epsilon,
        claim.noise_delta,
        rate=rate,
        shares=[Fraction(1, rounds)] * rounds,
        orders=ORDERS,
        honest=honest,
    )
    return float(whole) * rate**2


def plan_study(study: Study, design: Design, *, allow_not_private: bool) -> Plan:
    """The plan of a designed study; refused by the first privacy rule that does not hold."""
    if design.kind not in study.trust_model.computes:
        able = [model.name for model in registered() if design.kind in model.computes]
        method = study.program.get("method")  # of quantiles: another one may be what this trust model computes
        as_set = f" with method = {method!r}" if method else ""
        raise TrustModelError(
            f"{study.study.program}{as_set} does not run under trust = {study.trust.model!r}",
            remedy=f"It runs{as_set} under: {', '.join(able)}.",
        )
    _check_columns_are_together(study, design)
    _check_one_reducer(study, design)
    study.person_column()
    thresholds = threshold_notes(study)
    claim = study.claim(rounds=design.rounds, allow_not_private=allow_not_private)
    made = design.plan(claim, threshold=study.privacy.threshold)
    sampled = sampling_notes(made) if isinstance(made, SumPlan) else ()
    noted = replace(made, notes=(*made.notes, *thresholds, *sampled))
    return study.trust_model.fitted(study.trust, noted, records=study.data.records)


def _check_one_reducer(study: Study, design: Design) -> None:
    """Labels are told to one party: where each adds up itself, each would need them."""
    if design.tells_of_people and getattr(study.trust, "every_peer", False):
        holder = label_holder(study)
        raise StudyError(
            f"every client adds up itself, and {study.study.program} goes on from a sum with the labels, which "
            f"{holder} tells one party",
            rule="one-reducer",
            remedy=f'Set reducer = "{holder}" under [trust], and have {holder} run the reducer.',
        )


def _check_columns_are_together(study: Study, design: Design) -> None:
    """A program that takes whole records is not for holders of parts of them, and the other way round."""
    if study.vertical and not design.joint:
        raise StudyError(
            f"{study.study.program} learns from whole records, and these are split by columns over the institutions",
            rule="records-are-split",
            remedy="Programs for that: vertical_ridge, vertical_classifier, pca, vertical_svc.",
        )
    if design.joint and not study.vertical:
        raise StudyError(
            f"{study.study.program} is for institutions that hold different columns of the same people",
            rule="holders-are-named",
            remedy="Name them under [data.holders]; in Python, simulate(…, vertical=True) or connect(…, holders={…}). "
            "With the same columns everywhere use ridge, logistic_regression, linear_svc or consensus_svc.",
        )
