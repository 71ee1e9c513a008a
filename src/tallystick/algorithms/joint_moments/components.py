"""Principal components where the columns are at different institutions: from one round of joint moments.

The covariance is S/n − m·mᵀ with S = Σ z zᵀ and m = Σ z/n of the same noisy round: centring is post-processing. Rows
are bounded by their institutions' norms around public centres; there is no round that finds a better one, because rows
− mean would have to be cut again at each institution.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.components.program import State
from tallystick.algorithms.components.row_space import RowSpace
from tallystick.algorithms.components.settings import ComponentSettings
from tallystick.algorithms.components.spectrum import leading
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.joint_moments.program import JointDesign, JointMoments, joint_design, noise_of
from tallystick.algorithms.program import Public
from tallystick.core.errors import StudyError
from tallystick.privacy.outer_products import matrix_of

_DROWNED = 40.0
"""As for components of whole records: noise over the average of the k largest eigenvalues, if they held everything."""


def design_joint_components(public: Public, budget: PublicBudget, settings: ComponentSettings) -> JointDesign:
    """One round, from public facts alone."""
    if settings.basis is not None or settings.rows != "given":
        raise StudyError(
            "a basis and unit rows are for whole records, and these are split by columns over the institutions",
            rule="records-are-split",
            remedy='Leave basis and shape out, and rows = "given".',
        )
    program = JointComponents(public, settings)
    columns, n, k = program.columns, program.records, settings.n_components
    ratio = None
    if n and budget.mechanism != "none":
        typical = sum(norm**2 for *_, norm in public.holders)
        ratio = 2**0.5 * noise_of(program, budget) * columns**0.5 / (n * typical / k)
    told = f"the noise on the scatter is {ratio:.0f} times what the components would explain" if ratio else ""
    return joint_design(
        program,
        budget,
        equal=settings.noise == "equal",
        hopeless=told if ratio is not None and ratio > _DROWNED else None,
        details={"components": k, "noise_over_signal": ratio},
    )


class JointComponents(JointMoments):
    """See the module. Fields are public facts; records arrive as arguments."""

    centred = True

    def __init__(self, public: Public, settings: ComponentSettings) -> None:
        super().__init__(public, targets=0)
        self.columns, self.settings = len(public.features), settings
        plain = RowSpace.of(public, unit=False, l1=False)
        self.space = replace(plain, origin=np.zeros(self.columns), low=np.full(self.columns, -1.0))

    def init(self, public: Public) -> State:
        d, k = self.columns, self.settings.kept
        return State(
            stage=0.0,
            mean=np.zeros(d),
            chosen=np.arange(d, dtype=np.float64),
            radius=1.0,
            records=float(self.records),
            squares=np.zeros(d),
            total=0.0,
            components=np.zeros((k, d)),
            shares=np.zeros(k),
            noisy=np.zeros(k),
        )

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: Any) -> State:
        n = float(self.records)
        whole = matrix_of(total, self.rows.width)
        mean = np.clip(whole[0, 1:] / n, -2.0, 2.0)
        covariance = whole[1:, 1:] / n - np.outer(mean, mean)
        noisy, rows = leading(covariance, self.settings.kept)
        # Negative eigenvalues are noise; the variance of all columns is the trace, whose noise has no sign either.
        variance = max(float(np.trace(covariance)), float(np.maximum(noisy, 0.0).sum()), 2.0**-40)
        return state._replace(  # type: ignore[no-any-return]
            stage=1.0,
            mean=mean + np.array(self.rows.centre),
            total=variance,
            components=rows,
            shares=np.maximum(noisy, 0.0) / variance,
            noisy=noisy,
        )

    def mean_of(self, state: State) -> NDArray[np.float64]:
        """The released mean, in the encoded columns."""
        return state.mean
