"""One round of joint moments: Σ u·uᵀ over records whose columns are at different institutions.

What is summed is the same as if one institution held all columns and cut each block to its norm; there the program is
an ordinary one (``map_block``), and gives the same bits. Where the columns are apart, each institution has its own
products and shares of the others' (:mod:`tallystick.protocol.joint_products`), and the round adds them up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget, SumDesign
from tallystick.algorithms.joint_moments.rows import JointRows
from tallystick.algorithms.program import BlockProgram, Public
from tallystick.core.errors import PrivacyRefused
from tallystick.privacy.contribution import Contribution
from tallystick.privacy.grid import Group, outer_groups_for
from tallystick.privacy.outer_products import OuterProducts
from tallystick.privacy.trust import SEMI_HONEST

GROUP = "moments"
_BLOCK_NUMBERS = 1 << 23


class JointMoments(BlockProgram):
    """See the module. Fields are public facts; records arrive as arguments."""

    rounds = 1

    def __init__(self, public: Public, *, targets: int) -> None:
        self.rows = JointRows.of(public, targets=targets)
        self.records = public.records or 0
        self.size = self.rows.width * (self.rows.width + 1) // 2
        self.block_records = max(64, _BLOCK_NUMBERS // self.rows.width)

    def init(self, public: Public) -> Any:
        return np.zeros(self.size)

    def query(self, state: Any) -> float:
        return 0.0  # clients map at nothing: there is one round

    def encoded_target(self, target: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        """The target as :class:`JointRows` takes it."""
        return target

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        return features, self.encoded_target(target)

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        return OuterProducts(rows=np.ldexp(self.rows.joined(*prepared), -self.rows.bits))

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> Any:
        return total


@dataclass(frozen=True, kw_only=True)
class JointDesign(SumDesign):
    """A round of joint moments."""

    kind = "joint moments"
    joint: ClassVar[bool] = True

    @property
    def if_a_party_is_lost(self) -> str:
        return "Every institution holds columns of its own: if one is lost, the study ends without a result."


def joint_groups(rows: JointRows, *, equal: bool = False) -> tuple[Group, ...]:
    """What the plan is told: products of a row that is no longer than the bound, by construction."""
    return tuple(outer_groups_for(GROUP, rows.width, float(np.ldexp(rows.row_bound**2, -2 * rows.bits)), equal=equal))


def joint_design(program: JointMoments, budget: PublicBudget, *, equal: bool = False, **told: Any) -> JointDesign:
    """One round; refused where the calibration does not hold."""
    if budget.mechanism == "laplace":
        raise PrivacyRefused(
            "joint moments are bounded in Frobenius norm, which is the Gaussian's",
            rule="joint-moments-are-gaussian",
            remedy='Use mechanism = "gaussian".',
        )
    rows = program.rows
    details = {
        "columns": rows.features,
        "norms": {name: norm for name, _, norm in rows.holders},
        "row_bound": float(np.ldexp(rows.row_bound, -rows.bits)),
    }
    notes = (*told.pop("notes", ()), SEMI_HONEST)
    return JointDesign(
        program=program,
        groups=(joint_groups(rows, equal=equal),),
        fraction_bits=2 * rows.bits,
        notes=notes,
        details={**details, **told.pop("details", {})},
        **told,
    )


def noise_of(program: JointMoments, budget: PublicBudget) -> float:
    """Standard deviation on a sum of squares, all noise makers together, in real units; 1/√2 of it beside them."""
    return budget.noise(2**0.5 * float(np.ldexp(program.rows.row_bound**2, -2 * program.rows.bits)), 1.0)
