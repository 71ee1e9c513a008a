"""How large the sums of a study are, what its scheme needs for them, and what drowning errors costs: public facts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tallystick.core.errors import PrivacyRefused
from tallystick.crypto.homomorphic.bfv_parameters import (
    DEGREE,
    budget_left,
    check_budget,
    ciphertext_bytes,
    coefficients,
)
from tallystick.crypto.homomorphic.flooding import Flooding, flooding_for
from tallystick.crypto.homomorphic.packing import KEY_BITS, slots_for
from tallystick.crypto.homomorphic.scheme import Extent
from tallystick.engines.round_vectors import result_limit
from tallystick.privacy.plan import Plan
from tallystick.privacy.sum_plan import SumPlan

if TYPE_CHECKING:
    from tallystick.trust.proxy.section import ProxySection

EXACT_DELTA = 1e-6
"""Where a study has no δ, because it has no noise: errors are drowned all the same, as if it had this one."""

_MOST = 1 << 60
"""No total is larger: beyond it a scheme has room in which what is out of range stays out of range."""


def flooding_of(section: ProxySection, plan: SumPlan, limit: int) -> Flooding | None:
    """What drowns the errors of this study's sums; None where the scheme has none."""
    if section.scheme != "bfv":
        return None
    claim = plan.claim
    return flooding_for(
        coefficients=coefficients(size_of(plan), limit),
        rounds=claim.rounds,
        degree=DEGREE,
        owners=section.max_clients,
        epsilon=claim.epsilon if plan.differentially_private else 1.0,
        delta=claim.delta if plan.differentially_private and claim.delta else EXACT_DELTA,
    )


def size_of(plan: SumPlan) -> int:
    """Entries of every vector of the study."""
    return max(r.grid.size for r in plan.rounds)


def extent_of(section: ProxySection, plan: SumPlan, records: int | None) -> Extent:
    """The extent of the study's sums: the same at every party that has the study."""
    limit = _MOST if records is None else min(result_limit(plan, records), _MOST)
    flooding = flooding_of(section, plan, limit)
    return Extent(
        size=size_of(plan),
        limit=limit,
        owners=section.max_clients,
        flood_bits=flooding.bits if flooding is not None else 0,
    )


def upload_bytes(section: ProxySection, plan: Plan, records: int | None) -> int:
    """What an owner's ciphertexts of one round take."""
    if not isinstance(plan, SumPlan):
        return 0
    extent = extent_of(section, plan, records)
    if section.scheme == "bfv":
        return -(-extent.size // DEGREE) * ciphertext_bytes(extent.limit)
    return -(-extent.size // slots_for(extent.limit)) * (KEY_BITS // 4)


def fit(section: ProxySection, plan: Plan, records: int | None) -> Plan:
    """The plan with what its scheme adds to it; refused if it does not fit, before anything is encrypted."""
    if not isinstance(plan, SumPlan) or section.scheme != "bfv":
        return plan
    if plan.claim.mechanism == "laplace":
        raise PrivacyRefused(
            "pure epsilon leaves no delta for what the errors of BFV ciphertexts could tell the data user",
            rule="flooding-needs-delta",
            remedy='Use scheme = "paillier" under [trust], which has no errors, or mechanism = "gaussian".',
        )
    extent = extent_of(section, plan, records)
    check_budget(extent)
    flooding = flooding_of(section, plan, extent.limit)
    if flooding is None:
        return plan
    note = f"{flooding.words} {budget_left(extent)} bits of noise budget are left, for {extent.owners} clients."
    return replace(plan, notes=(*plan.notes, note))
