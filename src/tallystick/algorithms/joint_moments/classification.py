"""A classifier where the columns are at different institutions: least squares scores, then a normal model of them.

1. *Scores.* Least squares on ±1 (two classes) or on one-hot classes, solved from joint moments as ridge regression is:
   f = W·z. (For two classes the direction is Fisher's [HTF09, Ex. 4.2]; for more, discriminants of x are those of f
   [HTF09, §12.5].)
2. *Classes.* f given class k is taken as normal with mean m_k and the same variance v in every direction. m_k, v and
   the classes' frequencies π_k follow from the same moments: n_k·m_k = W Σ_{class k} z, and v is what is left of the
   mean square of f. One v for all directions: a whole matrix, inverted under noise, is worse (decision 18).

So log P(k | z) = m_k·f/v − ‖m_k‖²/(2v) + log π_k + …: linear in z, which is what is released. For two classes the
threshold lies where the two densities meet, not at 0, where least squares has it: on Adult that is worth .3 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.joint_moments.program import JointDesign, JointMoments, joint_design
from tallystick.algorithms.joint_moments.regression import drowned, sums_of
from tallystick.algorithms.keywords import wrong_target
from tallystick.algorithms.linear.ridge import penalty
from tallystick.algorithms.linear.ridge_solution import solve
from tallystick.algorithms.linear.second_moments import SecondMoments
from tallystick.algorithms.program import Public

_MOSTLY_NOISE = 0.3
"""Correlations of two columns are shrunk only where less than this part of their square is signal: on Adult shrinking
those that stand out costs .2 % at epsilon 1, and shrinking none 2 % at 0.1 (decision 18)."""
_RAREST = 0.1
"""No class is taken to be rarer than this part of an equal share, where the noise could have hidden it."""
_NARROWEST = 0.05
"""v is not taken below this part of the classes' own spread: scores that never fail are noise's."""


def design_vertical_classifier(keywords: Mapping[str, Any], public: Public, budget: PublicBudget) -> JointDesign:
    """One round, from public facts alone."""
    if len(public.classes) < 2:
        instead = 'ts.VerticalRidge (program = "vertical_ridge")'
        wanted = "a category of two classes or more"
        raise wrong_target("a vertical classifier", public.target, wanted, rule="target-is-a-category", instead=instead)
    program = JointClassifier(public, alpha=penalty(keywords.get("alpha", 1.0)))
    return joint_design(program, budget, hopeless=drowned(program, budget), details={"classes": len(public.classes)})


class JointClassifier(JointMoments):
    """See the module. Fields are public facts; records arrive as arguments."""

    def __init__(self, public: Public, *, alpha: float) -> None:
        self.classes = len(public.classes)
        super().__init__(public, targets=1 if self.classes == 2 else self.classes)
        self.alpha = alpha
        self.moments = SecondMoments.of(public, l1=False)

    def encoded_target(self, target: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
        return target if target is None or self.classes > 2 else 2.0 * target - 1.0

    def model(
        self, total: NDArray[np.float64], std: Mapping[str, float]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, coefficients) of the classes' log-odds in the encoded columns; one row for two classes."""
        sums = sums_of(self, self.moments, total, std)
        gram, n = sums.gram, float(self.records)
        weights = solve(
            self.moments,
            gram,
            sums.cross,
            gram_variance=sums.gram_variance,
            cross_variance=sums.cross_variance,
            alpha=self.alpha,
            shrunk_below=_MOSTLY_NOISE,
        ).T
        if self.classes == 2:
            # Σ over class 1 of z = (Σ z + Σ t z)/2, and class 0 the other half.
            sides = np.column_stack([gram[0] - sums.cross[:, 0], gram[0] + sums.cross[:, 0]]) / 2
            counts = sides[0]
        else:
            sides = sums.cross
            counts = sums.counts + (n - sums.counts.sum()) / self.classes
        counts = np.maximum(counts, _RAREST * n / self.classes)
        shares = counts / counts.sum()
        means = (weights @ sides) / counts  # column k is m_k
        between = float((shares * (means - means @ shares[:, None]) ** 2).sum())
        values, vectors = np.linalg.eigh(gram)
        half = (weights @ vectors) * np.sqrt(np.maximum(values, 0.0) / n)
        within = float((half**2).sum() - (shares * means**2).sum())
        v = max(within, _NARROWEST * between, 1e-12) / len(weights)
        logits = (means.T @ weights) / v
        intercepts = logits[:, 0] - (means**2).sum(axis=0) / (2 * v) + np.log(shares)
        if self.classes == 2:
            return intercepts[1:] - intercepts[:1], logits[1:, 1:] - logits[:1, 1:]
        return intercepts, logits[:, 1:]
