"""Rounds in which every client adds one vector of its own making, not the sum of its records' clipped vectors.

Nothing bounds what one record does to such a vector: a local solver may turn it over. So either the sum is exact and is
called what it is, not differentially private, or the program brings a theorem that says how far one record moves the
sum in each round (as there is one for consensus ADMM whose sums are noised), and noise is calibrated to that.

What the platform does bound is the size of a client's vector: sums are exact modulo p only while they do not wrap
around. Every client checks its own coordinates against ``limit`` before anything is sent, and CLIENTS times that limit
stays below every trust model's largest total; nobody has to know how many clients there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, PrivacyRefused
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.mechanisms import Mechanism
from tallystick.privacy.round_plan import GroupNoise, RoundPlan, gaussian_noise
from tallystick.privacy.rules import Claim, check_claim
from tallystick.privacy.sum_plan import SumPlan

FRACTION_BITS = 40
CLIENTS = 1024
"""At most so many clients take part in such a study."""
LARGEST_TOTAL = 1 << 60
"""Of a coordinate, in grid units: below half of the field, and what homomorphic sums have room for."""


@dataclass(frozen=True, kw_only=True)
class ClientGrid(Grid):
    """The grid of a round whose clients send one vector each: ``groups`` bound a client's numbers, not a record's."""

    def __post_init__(self) -> None:
        if len(self.groups) != 1 or not 1 <= self.integer_bounds[0] <= self.limit:
            raise PrivacyRefused(
                f"a client's numbers may be up to {self.groups[0].bound:g}, and a sum of {CLIENTS} would wrap around",
                rule="client-vectors-fit",
                remedy="Scale the vector, or use fewer fraction bits.",
            )

    @property
    def limit(self) -> int:
        """The most one client adds to a coordinate, in grid units."""
        return LARGEST_TOTAL // CLIENTS


class ClientRound(RoundPlan):
    """One round of clients' vectors; what clients remember ties it to the rounds before and after it."""

    grid: ClientGrid


def client_group(size: int, *, name: str = "learners", fraction_bits: int = FRACTION_BITS) -> Group:
    """The one group of such a round; its bound is all the room there is."""
    return Group(name=name, size=size, bound=math.ldexp(LARGEST_TOTAL // CLIENTS, -fraction_bits))


def check_room(vector: NDArray[np.int64], grid: ClientGrid) -> NDArray[np.int64]:
    """The vector itself, if it has the round's length and no coordinate that could make a sum wrap around."""
    if vector.shape != (grid.size,) or vector.dtype != np.int64:
        raise DataError(
            f"the program made a vector of {vector.size} numbers for a round of {grid.size}",
            remedy="Nothing was shared. This is a fault of the program: please report it.",
        )
    if vector.size and max(int(vector.max()), -int(vector.min())) > grid.limit:
        raise DataError(
            "this client's numbers are too large to be summed exactly",
            remedy="Nothing was shared. Use a smaller C or a larger rho, or bounds that fit the columns.",
        )
    return vector


def client_plan(
    claim: Claim,
    sizes: Sequence[int],
    *,
    fraction_bits: int = FRACTION_BITS,
    sensitivities: Sequence[float] | None = None,
    weights: Sequence[float] | None = None,
    notes: Sequence[str] = (),
) -> SumPlan:
    """The plan of one round per entry of ``sizes``.

    ``sensitivities``: by the program's own theorem, the L2 distance that one record moves each round's sum. Without
    them only exact sums can be planned. ``weights`` split ρ over the rounds (equal by default).
    """
    check_claim(claim)
    if claim.mechanism == "none":
        sensitivities = None
    elif sensitivities is None or claim.mechanism != "gaussian":
        raise not_private(claim.mechanism)
    elif claim.unit != "record":
        # The theorem speaks of one record. max_records caps a person's clipped sum, and there is no such sum here: all
        # records of a person take part, also where the study says that there is one.
        raise PrivacyRefused(
            "a consensus does not bound how many records of one person its institutions use",
            rule="private-consensus-unit",
            remedy='Use unit = "record", or ts.LinearSVC, which bounds each person\'s sum.',
        )
    shares = [Fraction(w) for w in weights] if weights is not None else [Fraction(1)] * len(sizes)
    if len(shares) != len(sizes) or any(s <= 0 for s in shares) or len(sizes) != claim.rounds:
        raise PrivacyRefused("the budget's split over rounds does not fit their number", rule="rounds-are-bounded")
    budget = Fraction(0) if sensitivities is None else rho_from_epsilon(claim.epsilon, claim.noise_delta)
    cache: dict[tuple[int, float, Fraction], RoundPlan] = {}
    rounds = []
    for number, (size, share) in enumerate(zip(sizes, shares)):
        key = (size, 0.0 if sensitivities is None else sensitivities[number], share)
        if key not in cache:
            part = budget * share / sum(shares)
            cache[key] = _round(claim, size, fraction_bits, None if sensitivities is None else key[1], part)
        rounds.append(cache[key])
    return SumPlan(claim=claim, rounds=tuple(rounds), notes=tuple(notes))


def _round(claim: Claim, size: int, bits: int, sensitivity: float | None, rho: Fraction) -> RoundPlan:
    group = client_group(size, fraction_bits=bits)
    grid = ClientGrid(groups=(group,), fraction_bits=bits, norm="l2")
    noise = GroupNoise(group=group, sensitivity=0, parameter=Fraction(0), variance=0.0, rho=Fraction(0))
    if sensitivity is not None:
        # Rounding a client's vector to the grid moves each coordinate by up to ½: neighbours differ at one client, so
        # their sums by up to √size units more than the theorem says of real numbers. Rounded up.
        units = math.ceil(math.ldexp(sensitivity, bits) * (1 + 2.0**-40) + math.sqrt(size))
        noise = gaussian_noise(replace(noise, sensitivity=units), rho, claim.trust.makers.honest)
    return ClientRound(grid=grid, noise=(noise,), mechanism=Mechanism(claim.mechanism), makers=claim.trust.makers.count)


def not_private(mechanism: str) -> PrivacyRefused:
    """The refusal of a study that promises what exact sums of clients' vectors do not give."""
    return PrivacyRefused(
        f'mechanism = "{mechanism}" promises differential privacy, and this program sums what each client has worked '
        "out from all of its records: no bound is known on what one record changes there",
        rule="exact-sums-are-not-private",
        remedy='Say mechanism = "none" under [privacy]: sums are then exact, inputs are hidden from whoever adds up, '
        "and the result says that it is not differentially private. A private support vector machine is "
        'ts.LinearSVC (program = "linear_svc").',
    )
