"""Logistic regression and the support vector machine on perturbed records, by what is known of each record behind one.

From the moments of all published records (``moments``) every record's own law follows, as far as anybody can know it.
Let records of class k be normal with mean M_k and covariance S, of which z shows a·S and noise b·I (``SubsetMoments``):

    u | z, k  is normal, mean  û_k = M_k + K(z − M_k),  covariance P = S − K·S,      K = S(a·S + b·I)⁻¹
    P(k | z, ỹ)  is proportional to  π_k · P(published ỹ | k) · the density of z about M_k

(the best linear predictor of u, which is what is called regression calibration [CRSC06]). The weights minimise

    Σ_i Σ_k P(k | z_i, ỹ_i) · E ℓ(±(w·u + c)) + λ/2·‖w‖²,       w·u being normal with mean w·û_ik and variance wᵀPw,

one class against the rest; ℓ is the logistic loss ln(1 + e^-m), whose mean is a sum over nodes of Gauss and Hermite, or
the hinge max(0, 1 − m), whose mean is (1 − μ)Φ((1 − μ)/σ) + σφ((1 − μ)/σ). Both are convex in w. Without noise û is the
record and this is the usual machine. With much noise û hardly differs from M_k; then, whatever the loss, w is
proportional to S⁻¹ times the difference of the means (by Stein's lemma: E[ℓ′(w·u)u] = E ℓ′·M + E ℓ″·S w), which is what
``moments`` has without any of this. So there is something to win only where single records still show through.

S is the moments' within-class covariance with the penalty λ of theirs added: what is small against its noise is kept
small here as there. Two classes by the sign code: what is published is v = y·u, and one "class" of margins w·v, all
positive, is all there is. More classes need labels that are published: by the sign code alone a mean common to all
classes cannot be told from none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from tallystick.algorithms.gossip.moments import EXACT, GossipModel, RecordLaw, RecordMoments
from tallystick.privacy.local.randomiser import Decoded, Randomiser
from tallystick.privacy.local.subset_moments import SubsetMoments

NODES = 15
_STEPS = 500
_SMALLEST = 1e-9
"""No deviation of a score is taken to be smaller: the hinge has no slope at its corner."""
_HARDLY = 1e-6
"""A class less probable for a record is left out for it."""
Floats = NDArray[np.float64]


@dataclass
class KeptRecords(RecordMoments):
    """Moments, and the published records themselves: 8 bytes a number."""

    loss: str = "logistic"
    penalty: float = 1e-4
    kept: list[Decoded] = field(default_factory=list)

    def add(self, decoded: Decoded) -> None:
        """Take in some records."""
        super().add(decoded)
        self.kept.append(decoded)

    def learn(self, randomiser: Randomiser | None) -> GossipModel:
        """The classifier; None: of records that were not perturbed."""
        moments = EXACT if randomiser is None else randomiser.moments
        if not self.count:
            return self.fit(moments)
        z, law = np.concatenate([part.z[:, 0] for part in self.kept]), self.law(moments)
        if not self.has_labels:  # two classes: what was published is y·u
            z = np.concatenate([part.against_the_rest(1) for part in self.kept])
            chances, sides = np.zeros((self.count, 1)), [np.ones(1)]
        else:
            labels = np.concatenate([part.labels for part in self.kept if part.labels is not None])
            with np.errstate(divide="ignore"):
                chances = np.log(_published(randomiser, self.classes))[labels] + np.log(law.frequency)
            own = range(1, 2) if self.classes == 2 else range(self.classes)
            sides = [np.where(np.arange(self.classes) == k, 1.0, -1.0) for k in own]
        known = Known.of(z, chances, law, moments)
        found = [known.weights(side, self.loss, self.penalty, offset=self.classes > 2) for side in sides]
        return GossipModel(np.array([w for w, _ in found]), np.array([c for _, c in found]))


def _published(randomiser: Randomiser | None, classes: int) -> Floats:
    """P(published label | class), a row for each label: randomised response keeps it, or says any other."""
    if randomiser is None:
        return np.eye(classes)
    kept = float(randomiser.label.draws[0].probability)
    return np.asarray(np.where(np.eye(classes) > 0, kept, (1 - kept) / (classes - 1)))


class Known(NamedTuple):
    """What is known of the records, in the eigenvectors' coordinates; a pair is a record and a class it may be of."""

    drawn: Floats
    """K·z of each record."""
    shifts: Floats
    """(I − K)·M of each class: with the one above, û."""
    spread: Floats
    """P, a diagonal."""
    scale: Floats
    vectors: Floats
    record: NDArray[np.int64]
    kind: NDArray[np.int64]
    chance: Floats
    """Of each pair, over the number of records."""

    @classmethod
    def of(cls, z: Floats, chances: Floats, law: RecordLaw, moments: SubsetMoments) -> Known:
        """From what was published, and the log of how probable each class was before z was looked at."""
        turned, centres, s = z @ law.vectors, law.centres @ law.vectors, law.values
        shown = moments.a * s + moments.b
        gain = s / shown
        for k, centre in enumerate(centres):
            chances[:, k] -= 0.5 * ((turned - centre) ** 2 / shown).sum(axis=1)
        chances = np.exp(chances - chances.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        record, kind = np.nonzero(chances > _HARDLY)
        return cls(
            drawn=turned * gain,
            shifts=centres * (1 - gain),
            spread=np.maximum(s - gain * s, 0.0),
            scale=np.sqrt(s),
            vectors=law.vectors,
            record=record,
            kind=kind,
            chance=chances[record, kind] / len(z),
        )

    def weights(self, side: Floats, loss: str, penalty: float, *, offset: bool) -> tuple[Floats, float]:
        """Weights and offset that tell classes with ``side`` +1 from those with −1."""
        from scipy.optimize import minimize  # a fifth of a second, which no other command should take

        sign, mean_loss = side[self.kind], _MEAN_LOSSES[loss]
        d, (n, k) = len(self.scale), (len(self.drawn), len(self.shifts))

        def risk(x: Floats) -> tuple[float, Floats]:
            w, c = x[:d] / self.scale, x[d] if offset else 0.0
            scores = (self.drawn @ w)[self.record] + (self.shifts @ w)[self.kind] + c
            variance = float(self.spread @ w**2)
            value, slope, by_variance = mean_loss(sign * scores, variance)
            each = self.chance * sign * slope
            down = self.drawn.T @ np.bincount(self.record, each, n) + self.shifts.T @ np.bincount(self.kind, each, k)
            down += 2 * float(self.chance @ by_variance) * self.spread * w + penalty * w
            found = float(self.chance @ value) + penalty / 2 * float(w @ w)
            return found, np.append(down / self.scale, each.sum() if offset else 0.0)

        start = np.zeros(d + 1)
        made = minimize(risk, start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "ftol": 1e-10})
        return self.vectors @ (made.x[:d] / self.scale), float(made.x[d])


def mean_logistic(mean: Floats, variance: float) -> tuple[Floats, Floats, Floats]:
    """E ln(1 + e^-m) for normal m, and its slopes by mean and variance: the latter is half the mean curvature."""
    nodes, weights = hermegauss(NODES)
    value, slope, curve = np.zeros((3, len(mean)))
    for node, weight in zip(nodes, weights / weights.sum()):
        m = mean + np.sqrt(variance) * node
        p = expit(-m)
        value += weight * np.logaddexp(0, -m)
        slope -= weight * p
        curve += weight * p * (1 - p)
    return value, slope, curve / 2


def mean_hinge(mean: Floats, variance: float) -> tuple[Floats, Floats, Floats]:
    """E max(0, 1 − m) for normal m, and its slopes by mean and variance."""
    deviation = max(np.sqrt(variance), _SMALLEST)
    t = (1 - mean) / deviation
    below, density = ndtr(t), np.exp(-t * t / 2) / np.sqrt(2 * np.pi)
    return (1 - mean) * below + deviation * density, -below, density / (2 * deviation)


_MEAN_LOSSES = {"logistic": mean_logistic, "hinge": mean_hinge}
