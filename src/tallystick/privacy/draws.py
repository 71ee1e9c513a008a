"""One draw of the exponential mechanism [MT07]: what is chosen among, by which weights, and what that costs.

A draw chooses a place c with probability w(d_c)/Σ w, where d_c ≥ 0 is an integer distance that is summed over records
(how far the cell's ranks are from the wanted one; how far a candidate's score is behind the best) and w a public table
of whole numbers (:mod:`tallystick.privacy.mechanisms.exponential_mechanism`). It is charged what the table costs, as an
exact rational that is rounded up, and not what was asked for.

THEOREM (bounded range). For fixed neighbours D, D′ let ℓ_c = ln w(d_c) − ln w(d′_c). The privacy loss of place c is
ℓ_c − ln(W/W′): the second term is the same for all c, so the losses lie in an interval of length max ℓ − min ℓ, which
is at most the ε that is charged. Such a draw is ε-bounded-range [DR19], hence ε-DP and (ε²/8)-zCDP [CR21, Thm. 3.1],
a quarter of what any ε-DP step costs. The bias of drawing with finitely many random bits multiplies every probability
by a factor within [1 − β, 1 + β], so it widens the interval by less than 3β; the table charges for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import PrivacyRefused
from tallystick.core.identifiers import digest, format_hash
from tallystick.privacy.accountant import pure_rho
from tallystick.privacy.grid import Grid, Group
from tallystick.privacy.mechanisms import Mechanism
from tallystick.privacy.mechanisms.exponential import exp_bounds
from tallystick.privacy.mechanisms.exponential_mechanism import (
    MAX_TABLE_BITS,
    WeightTable,
    charged,
    charged_spread,
    coarseness,
    weight_table,
)
from tallystick.privacy.round_plan import GroupNoise, RoundPlan
from tallystick.privacy.sensitivity import Neighbours, score_spread
from tallystick.privacy.sparse_vector import SparseVector

Kind = Literal["ranks", "scores"]
_LN2 = Fraction(6931471805599453, 10**16)
_MOST_HALVINGS = 12
_LONGEST, _GRAIN = 1 << MAX_TABLE_BITS, 1 << 20  # no weight is below: rounding to integers then costs a millionth
WORD_ENTRIES = 4
"""A party's random word of a draw is kept where its noise would be: 256 bits, as four entries of 64."""
MOST_CELLS = 4096
"""Places of one draw: what ten parties compute in seconds."""
MOST_PLACES = 1 << 17
"""Places of a draw that stands alone, on a domain that nothing has narrowed."""


def draw_rho(epsilon: Fraction) -> Fraction:
    """ρ of an ε-bounded-range draw: ε²/8 [CR21, Thm. 3.1]."""
    return epsilon**2 / 8


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is drawn, by which table, and the exact ε it costs. Public."""

    kind: Kind
    """``ranks``: cells in order, with what lies below and above them, and a wanted rank a·n/b. ``scores``: one score a
    candidate, the largest wanted."""
    cells: int
    moves: int
    """By how much a distance moves between neighbours at most, after coarsening: either way, for ranks; of scores, the
    length of the interval that all of them move in."""
    table: WeightTable = field(repr=False)
    epsilon: Fraction
    numerator: int = 0
    denominator: int = 1
    shift: int = 0
    """Values are divided by 2^shift, rounded down, where ε is so small that the longest table would not reach."""

    kept_entries = WORD_ENTRIES
    """What a party draws and keeps when the round is opened, in entries of 64 bits."""
    digits = 1
    """In how many entries a party says the answer: the place, counted from 1."""

    @property
    def largest_digit(self) -> int:
        """No entry of an answer is larger."""
        return self.cells

    @property
    def parameters(self) -> list[Fraction]:
        """What a noise maker attests to: the exact ε, and how far neighbours move a distance."""
        return [self.epsilon, Fraction(self.moves)]

    @property
    def words(self) -> str:
        """For the plan."""
        return f"draws one of {self.cells:,} places"

    def decoded(self, said: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The place, from what a party said; None if no parties can have said it."""
        return said - 1 if 1 <= int(said[0]) <= self.cells else None

    def as_dict(self) -> dict[str, Any]:
        """As it is proposed, attested and checked: exact."""
        weights = b"".join(w.to_bytes(8, "little") for w in self.table.weights)
        return {
            "kind": self.kind,
            "cells": self.cells,
            "rank": f"{self.numerator}/{self.denominator}",
            "moves": self.moves,
            "shift": self.shift,
            "clamp": self.table.clamp,
            "weights": format_hash(digest(b"tallystick/weights/1", weights)),
            "epsilon": f"{self.epsilon.numerator}/{self.epsilon.denominator}",
        }


@dataclass(frozen=True, kw_only=True)
class GroupedChoice:
    """The same draw for each of several groups of which a record is in one, all in one round.

    THEOREM. Let ε₁ be what the table costs if one record is added to or removed from the group it is drawn from. If k
    records are, spread over groups as j_1 + j_2 + … = k, all draws together cost at most k·ε₁: U(x + y) ≤ U(x)·U(y),
    since w(d)/w(d + x + y) = w(d)/w(d + x) · w(d + x)/w(d + x + y), so draw g costs at most j_g·ε₁, and the draws are
    independent. Add-remove: k = 1, or what a person has. Replace-one is k removed and k added, in the same group or in
    others: 2k·ε₁, the two costliest groups at their add-remove price. The losses lie in an interval of that length, so
    ρ is that of one such draw: the theorem above for each group, and Σ (j_g ε₁)²/8 ≤ (Σ j_g ε₁)²/8.
    """

    each: Choice
    """At its add-remove price."""
    groups: int
    times: int
    """How many records come or go between neighbours, k or 2k."""

    @property
    def cells(self) -> int:
        """Places of each group."""
        return self.each.cells

    @property
    def moves(self) -> int:
        return self.each.moves

    @property
    def epsilon(self) -> Fraction:
        return self.times * self.each.epsilon

    @property
    def kept_entries(self) -> int:
        """A word of its own for every group."""
        return self.groups * WORD_ENTRIES

    @property
    def digits(self) -> int:
        """The place of each group."""
        return self.groups

    @property
    def largest_digit(self) -> int:
        return self.each.cells

    @property
    def parameters(self) -> list[Fraction]:
        return [self.epsilon, Fraction(self.moves)]

    @property
    def words(self) -> str:
        return f"draws one of {self.cells:,} places for each of {self.groups} groups"

    def decoded(self, said: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Every group's place."""
        return None if ((said < 1) | (said > self.cells)).any() else said - 1

    def as_dict(self) -> dict[str, Any]:
        cost = {"epsilon": f"{self.epsilon.numerator}/{self.epsilon.denominator}"}
        return {**self.each.as_dict(), "groups": self.groups, "times": self.times, **cost}


@dataclass(frozen=True, kw_only=True)
class DrawRound(RoundPlan):
    """A round whose total is opened to nobody: one place is drawn from it, or its counts are compared with a threshold.
    What it costs stands where a round's noise does, so that rounds of all kinds add up."""

    choice: Choice | GroupedChoice | SparseVector


def rank_choice(cells: int, rank: tuple[int, int], most: int, epsilon: Fraction) -> Choice:
    """A draw of the cell nearest to rank a·n/b that costs at most ε; ``most`` is how far neighbours move a distance."""
    shift = coarseness(epsilon, most, most, cells=cells)
    moves = coarsened(most, shift)
    table = weight_table(epsilon, moves, moves, cells=cells)
    cost = charged(table, moves, moves)
    return Choice(
        kind="ranks", cells=cells, moves=moves, table=table, epsilon=_within(cost, epsilon), shift=shift,
        numerator=rank[0], denominator=rank[1],
    )  # fmt: skip


def halving_choice(cells: int, rank: tuple[int, int], most: int, epsilon: Fraction, halvings: int | None) -> Choice:
    """As :func:`rank_choice`, by the weights of [BK20]: 2^(u/2^d), u ranks away, so e^(εu) for ε = ln 2 / 2^d.

    ``halvings`` is d, or None for the smallest d that the budget pays for. What such a table costs follows from it, as
    for every table, and is not what [BK20] calls ε: under replace-one a draw by e^(εu) costs 2ε.
    """
    for d in range(_MOST_HALVINGS + 1) if halvings is None else (halvings,):
        rate = _LN2 / (rank[1] << d)  # for one unit of distance, 1/b rank
        reach = min(_LONGEST, 1 << math.ceil(40 / rate).bit_length())
        top = (1 << 62) - 1
        weights = [max(_GRAIN, (top * exp_bounds(rate * j, 96)[0]) >> 96) for j in range(reach)]
        table = WeightTable(tuple(accumulate(weights, min)))
        cost = charged(table, most, most)
        if cost <= epsilon:
            return Choice(
                kind="ranks", cells=cells, moves=most, table=table, epsilon=cost, numerator=rank[0], denominator=rank[1]
            )
    raise PrivacyRefused(
        f"a draw with weights 2^(u/2^{halvings if halvings is not None else _MOST_HALVINGS}) costs {float(cost):.4g}, "
        f"and each step has {float(epsilon):.4g}",
        rule="draw-covers-budget",
        remedy='Raise epsilon, or use weights = "ln2/2^d" or "epsilon".',
    )


def score_choice(cells: int, bound: int, neighbours: Neighbours, epsilon: Fraction) -> Choice:
    """A draw of the candidate with the best score that costs at most ε; one record adds 0 to ``bound`` to a score.

    Coarsened scores floor(s/2^k) move by 0 to ⌈B/2^k⌉ where s moves by 0 to B, and likewise downwards.
    """
    shift = coarseness(epsilon, score_spread(bound, neighbours), 0, cells=cells)
    spread = score_spread(coarsened(bound, shift), neighbours)
    table = weight_table(epsilon, spread, 0, cells=cells)
    cost = charged_spread(table, spread)
    return Choice(kind="scores", cells=cells, moves=spread, table=table, epsilon=_within(cost, epsilon), shift=shift)


def coarsened(most: int, shift: int) -> int:
    """How far floor(v/2^shift) moves at most if v moves by at most ``most``: ⌈most/2^shift⌉."""
    return -(-most >> shift)


def _within(cost: Fraction, epsilon: Fraction) -> Fraction:
    if cost > epsilon:
        raise PrivacyRefused("the weights of a draw cost more than its budget", rule="draw-covers-budget")
    return cost


def draw_round(choice: Choice | GroupedChoice, group: Group, makers: int) -> DrawRound:
    """The round of one draw."""
    grid = Grid(groups=(group,), fraction_bits=0, norm="l1")  # whole numbers: the parties compute with them as they are
    silent = GroupNoise(
        group=group,
        sensitivity=choice.moves,
        parameter=choice.epsilon,
        variance=0.0,
        rho=draw_rho(choice.epsilon),
        epsilon=choice.epsilon,
    )
    return DrawRound(grid=grid, noise=(silent,), mechanism=Mechanism.LAPLACE, makers=makers, choice=choice)


def compared_round(compared: SparseVector, group: Group, makers: int) -> DrawRound:
    """The round of one sparse vector: pure ε, so ε²/2 on a ledger of Rényi curves, as for every pure step."""
    grid = Grid(groups=(group,), fraction_bits=0, norm="l1")
    noise = GroupNoise(
        group=group,
        sensitivity=compared.sensitivity,
        parameter=compared.query_scale,
        variance=compared.variance,
        rho=pure_rho(compared.epsilon),
        epsilon=compared.epsilon,
    )
    return DrawRound(grid=grid, noise=(noise,), mechanism=Mechanism.LAPLACE, makers=makers, choice=compared)


def check_places(cells: int) -> None:
    """Refuse a draw among too few or too many places."""
    if not 2 <= cells <= MOST_PLACES:
        raise PrivacyRefused(
            f"a draw among {cells} places",
            rule="draw-has-places",
            remedy=f"Let there be from 2 to {MOST_PLACES:,} places to choose from.",
        )
