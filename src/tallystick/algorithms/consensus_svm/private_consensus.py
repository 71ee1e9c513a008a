"""Consensus ADMM with differential privacy, and its first step alone: output perturbation.

    min over w of  ½‖w‖² + C·Σ max(0, 1 − y w·x),    x with a constant 1: the bias is a feature like any other

    client m   q = z − g;  w = prox(q) = argmin C·Σ_m hinge(w) + (ρ/2)‖w − q‖²;  sent, and kept exactly: v = w + g
    sum        S = Σ v + noise
    reduce     z = ρS/(1 + ρM);  then g = v − z at each client

(½‖w‖² stands with z, not with the learners: nobody needs to know M before the sum, and the learners' problem is
ρ-strongly convex.) Clients keep their multipliers g exactly; what they hold is a function of their records and of the
public z's.

THEOREM. Let two data sets differ in one record, which is replaced, and let all z's so far be the same. Then the sum
of round t moves by at most Δ_t = t·D, D = 2CR/ρ, R ≥ ‖x‖. For add-remove D = CR/ρ.

*Proof*, for a record of one client. (1) For one q, F and F′ of :mod:`…certified_prox` differ by C·(hinge of the one
record − hinge of the other), which has the Lipschitz constant 2CR, and both are ρ-strongly convex: with w, w′ their
minimisers, ρ‖w − w′‖² ≤ (F(w′) − F(w)) + (F′(w) − F′(w′)) = (F − F′)(w′) − (F − F′)(w) ≤ 2CR‖w − w′‖; so ‖prox(q) −
prox′(q)‖ ≤ D. (2) v = prox(q) + g = z − (q − prox(q)), and g⁺ = v − z⁺ makes q⁺ = z⁺ − g⁺ = 2z⁺ − z + (q − prox(q)):
up to public numbers, the next q is −v. (3) q ↦ q − prox(q) is non-expansive (prox is firmly so). Hence, with a_t =
‖q_t − q_t′‖ and a_1 = 0, ‖v_t − v_t′‖ ≤ ‖(q_t − prox(q_t)) − (q_t′ − prox(q_t′))‖ + ‖prox(q_t′) − prox′(q_t′)‖ ≤ a_t
+ D = a_{t+1}, so a_{t+1} ≤ t·D. ∎

Deviations add up because the multipliers remember them: D in every round would be too little
(``tests/algorithms/test_private_consensus.py`` has records that move a sum by more).

A record that leaves one client and appears at another moves two vectors, by half of D in each round.

*Not exact.* The step is solved to ‖w − prox(q)‖ ≤ η = D/64, certified by its duality gap. In step (3) above that adds
at most η for either data set, at one client or at two: Δ_t ≤ t·(D + 4η) (add-remove: D + 2η, η = D/32).
*How many records a client has* nobody may learn under add-remove, and a step takes the longer the more they are. So a
client of n records weighs each by C(1 − n/B) instead of C, B a public number, and by nothing from n = B on
(:func:`tapered`): its hinges together have a slope of at most C·R·B/4, whatever n is. One more record changes the
weight of n others by C/B and brings C(1 − (n + 1)/B) of its own, so F and F′ differ by a function with the Lipschitz
constant R(n·C/B + C(1 − (n + 1)/B)) < CR: the theorem's D stays. (A weight of C up to some m records, and C·m/n with n
of them beyond, would not do: there it is nearly 2CR.)
What rounding does to gap and w is kept below half of η by :func:`largest_weight`, which bounds the z's that learners
step at.
*Several classes*: a record is in each class's problem; √K times as much. *The grid*: rounding adds at most √(entries)
units for each of the two clients. What a client sends is cut to the range of the field coordinate by coordinate,
which is a projection and moves neighbours no further apart; what it keeps is not cut. *Composition* is adaptive:
given the z's, each round is a Gaussian mechanism of sensitivity Δ_t, so Σ Δ_t²/(2σ_t²) is charged [BS16]. The budget
is split ∝ t², which makes the noise of all rounds equal.

``privacy = "output"``: one round from z = 0 with ρ = 1, and z = S/M. Nobody sees all records, so nobody can compute
the one minimiser that output perturbation [CMS11] would add noise to; what is released is the mean of the
institutions' own minimisers of ½‖w‖² + C·Σ hinge, of which one record moves one, by at most D = 2CR.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.consensus_svm.admm import Learner, Rows, learner
from tallystick.algorithms.consensus_svm.certified_prox import bounded_rows, certified_prox
from tallystick.algorithms.consensus_svm.coordinate_descent import stride
from tallystick.algorithms.local_program import LocalProgram, check_learners, grid_values
from tallystick.algorithms.program import Public
from tallystick.core.errors import DataError, RemoteProtocolError
from tallystick.privacy.client_vectors import CLIENTS, LARGEST_TOTAL

PRECISION = 1 / 64
"""η in parts of D = 2CR/ρ: noise is a sixteenth larger than for exact steps."""
_SWEEPS = 1_000_000
"""Never reached where :data:`MOST_PULL` holds: solves that were seen took at most 100 + n·C·R²/ρ."""
MOST_PULL = 2.0**18
"""Of n·C·R²/ρ, which the sweeps of a step grow with: whether it can be solved must not depend on the records."""
SPAN = 8
"""B in parts of the planning figure N: a client that holds them all weighs a record ⅞·C; none pulls more than 2N."""
_SHORT = 1 - 2.0**-20
"""Of a tapered weight; room for what floats do to n·(c(n) − c(n + 1)): below 2⁻²⁰·C for B up to 2³²."""
_LARGEST = 2.0**31
_ROOM = LARGEST_TOTAL // CLIENTS
_COUNT = _ROOM // 2
"""What a client adds to the first coordinate, in grid units: the same whatever its records, so it costs nothing."""


def largest_weight(records: int, size: int, *, C: float, longest: float, rho: float) -> float:
    """The largest |z_j| at which floats can still certify a step, from public facts; not positive where none can.

    The gap has to be below ρη²/4 (half of what certifies η). Each record's term is off by at most 8·2⁻⁵³·C(1 + R‖w‖),
    so n terms by n·C·2⁻⁵⁰(1 + R‖w‖), which must be within another ρη²/8: then w is within √¾·η. With ‖q‖ ≤ 3‖z‖ + nCR/ρ
    (step 2 above) and w − q at most nCR/ρ long, ‖w‖ ≤ 3√(d + 1)·max|z| + 2nCR/ρ. Besides, w itself is rounded: Σ λyx/ρ
    by n·2⁻⁵³ of its length, and each of a handful of sums by 2⁻⁵² of its terms; η/8 < (1 − √¾)η has to cover that.
    """
    within, pull = PRECISION * 2 * C * longest / rho, records * C * longest / rho
    root = math.sqrt(size + 1)
    by_gap = ((rho * within**2 / 8) / (records * C * 2.0**-50) - 1) / longest
    by_weights = (within / 8 - records * 2.0**-53 * pull) / (8 * 2.0**-52)
    return min(by_gap - 2 * pull, by_weights - 2 * pull * root) / (3 * root)


def tapered(C: float, records: int, span: float) -> float:
    """What a record weighs at a client with so many: n·|c(n) − c(n + 1)| + c(n + 1) ≤ C for every n."""
    return _SHORT * C * max(0.0, 1 - records / span)


class PrivateQuery(NamedTuple):
    """What learners step at."""

    round: float
    z: NDArray[np.float64]
    """One row per class (one for two classes), the bias last."""


class PrivateState(NamedTuple):
    """Everything released."""

    round: float
    z: NDArray[np.float64]
    learners: float
    mean: NDArray[np.float64]
    """Of the z's of the last half of the rounds."""


class PrivateMemory(NamedTuple):
    """A learner's own, per class: multipliers, and the last v."""

    multipliers: NDArray[np.float64]
    sent: NDArray[np.float64]


class PrivateConsensusProgram(LocalProgram):
    """See the module. Fields are public facts."""

    def __init__(
        self,
        public: Public,
        *,
        C: float,
        rho: float,
        rounds: int,
        size: int,
        rows: Rows,
        longest: float,
        fraction_bits: int,
        averaged: bool,
        largest: float,
        span: float | None = None,
    ) -> None:
        self.C, self.rho, self.rounds = C, rho, rounds
        self.size, self._rows, self.longest = size, rows, longest
        self.fraction_bits, self.averaged = fraction_bits, averaged
        self.classes = len(public.classes)
        self.outputs = 1 if self.classes <= 2 else self.classes
        self.largest = min(largest, _LARGEST)
        self.span, self.records = span, public.records
        self.within = PRECISION * 2 * C * longest / rho

    @property
    def numbers(self) -> int:
        """Released in a round."""
        return self.outputs * (self.size + 1)

    def vector_size(self) -> int:
        """Entries of a client's vector: the learners' count first."""
        return 1 + self.numbers

    def init(self, public: Public) -> PrivateState:
        zeros = np.zeros((self.outputs, self.size + 1))
        return PrivateState(round=1.0, z=zeros, learners=0.0, mean=zeros)

    def query(self, state: PrivateState | PrivateQuery) -> PrivateQuery:
        return PrivateQuery(round=state.round, z=state.z)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Learner:
        if self.span is None and self.records is not None and len(features) > self.records:
            # The total is public, and steps are planned for it: more of them could take hours.
            raise DataError(
                f"this client alone has more records than the {self.records:,} that the study says there are in all",
                remedy="Nothing was shared. Correct `records` under [data], as a new version of the study.",
            )
        own = learner(features, target, self.classes, self._rows)
        rows, squares = bounded_rows(own.rows, self.longest)
        return Learner(rows=rows, signs=own.signs, squares=squares)

    def start_in_client(self, prepared: Learner) -> PrivateMemory:
        return PrivateMemory(np.zeros((self.outputs, len(prepared.rows))), np.zeros((self.outputs, self.size + 1)))

    def step_in_client(
        self, prepared: Learner, state: PrivateQuery, memory: PrivateMemory
    ) -> tuple[NDArray[np.int64], PrivateMemory]:
        if not np.all(np.abs(state.z) <= self.largest):
            raise RemoteProtocolError(
                "the weights are larger than a private step can be certified at",
                remedy="Noise has driven them there, or the aggregator is faulty. Nothing was shared. Use a smaller C.",
            )
        after = PrivateMemory(*(part.copy() for part in memory))
        weight = self.C if self.span is None else tapered(self.C, len(prepared.rows), self.span)
        for k in range(self.outputs):
            g = memory.sent[k] - state.z[k] if state.round > 1 else np.zeros(self.size + 1)
            w = np.empty(self.size + 1)
            certified = certified_prox(
                prepared.rows, prepared.signs[k], prepared.squares, after.multipliers[k], state.z[k] - g,
                weight, self.rho, stride(len(prepared.rows)), self.within, _SWEEPS, w,
            )  # fmt: skip
            if not certified:
                raise DataError(
                    "the local problem could not be solved as exactly as its privacy needs",
                    remedy="Nothing was shared. Use a smaller C or a larger rho; if it comes back, please report it.",
                )
            after.sent[k] = w + g
        room = float(_ROOM - 1)
        units = np.clip(grid_values(after.sent.reshape(-1), self.fraction_bits), -room, room).astype(np.int64)
        return np.concatenate([np.array([_COUNT], dtype=np.int64), units]), after

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: PrivateState) -> PrivateState:
        counted = round(math.ldexp(float(total[0]), self.fraction_bits) / _COUNT)
        learners = check_learners(float(counted), state.learners)
        sums = total[1:].reshape(self.outputs, -1)
        z = sums / learners if self.averaged else sums * (self.rho / (1 + self.rho * learners))
        first = self.rounds // 2  # rounds whose z's are not averaged
        kept = state.round - first
        mean = state.mean if kept < 1 else state.mean + (z - state.mean) / kept
        return PrivateState(round=state.round + 1, z=z, learners=float(learners), mean=mean)

    def model(self, state: PrivateState) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(intercepts, weights) of the mapped columns, one row per class."""
        return state.mean[:, -1].copy(), state.mean[:, :-1].copy()

    def progress(self, state: PrivateState) -> dict[str, Any]:
        """What the answer tells of it."""
        how = "mean of the institutions' own minimisers" if self.averaged else "private consensus"
        return {"solver": how, "learners": int(state.learners), "rho": self.rho, "rounds": self.rounds}
