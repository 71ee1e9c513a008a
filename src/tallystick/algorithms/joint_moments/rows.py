"""The row of a record whose columns are at different institutions, and how long each institution's part of it is.

    u = (1, x − c, κ·t)     x the encoded columns, t the target: in [−1, 1], ±1 for two classes, one-hot for more

c is public: 1/k for the k indicators of a one-hot column, which makes a record shorter, and 0 for others.
Everything lives on a grid of 2^-bits. Institution m puts its own columns there and shortens them to ‖x_m‖ ≤ b_m, in
exact integers and whatever the others do; the constant is 2^bits and the target's part is κ at most, both at the one
who holds the labels. So

    ‖u‖² ≤ 2^(2·bits) + k² + Σ b_m² ≤ b²        k = ⌈κ·2^bits⌉, b the next whole number

which is all that the registry's row "second moment" asks for (``privacy/sensitivity.outer_sensitivity``):
replacing a record moves Σ u·uᵀ by √2·b² in Frobenius norm at most, attained by rows at right angles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.linear.moments import ColumnShapes
from tallystick.algorithms.program import Public
from tallystick.core.errors import LocalProtocolError, StudyError
from tallystick.privacy.clipping import MAX_BOUND
from tallystick.privacy.grid import fraction_bits_for
from tallystick.privacy.outer_products import rows_on_grid
from tallystick.privacy.ranges import check_coordinates

TARGET_SHARE = 1 / 3
"""κ² over Σ B_m²: a quarter to one is as good on Adult; a half costs one per cent on optdigits (decision 18)."""


@dataclass(frozen=True, kw_only=True)
class JointRows:
    """Public: what a record's row is, and who holds which places of it."""

    features: int
    targets: int
    """Columns of the target: none, one, or one for each of several classes."""
    weight: float
    """κ."""
    holders: tuple[tuple[str, tuple[int, ...], float], ...]
    """(institution, its encoded features, their norm)."""
    first: str
    """Who holds the constant, and the target if there is one."""
    centre: tuple[float, ...]
    """c."""
    bits: int

    @classmethod
    def of(cls, public: Public, *, targets: int) -> JointRows:
        """From public facts; the finest grid on which the longest row still fits."""
        if not public.holders:
            raise StudyError(
                "nobody is named who holds the columns",
                rule="holders-are-named",
                remedy="Name the institutions under [data.holders]; in Python, simulate(…, vertical=True) or "
                'connect(…, holders={"bank": {"columns": ["…"], "people": …}, …}, identifier="…", dealer="…").',
            )
        squares = sum(norm**2 for *_, norm in public.holders)
        weight = math.sqrt(TARGET_SHARE * squares) if targets else 0.0
        width = 1 + len(public.features) + targets
        check_coordinates(f"the products of {width} columns", width * (width + 1) // 2)
        made = cls(
            features=len(public.features),
            targets=targets,
            weight=weight,
            holders=public.holders,
            first=public.label_holder or public.holders[0][0],
            centre=tuple(ColumnShapes.of(public, l1=False).centre.tolist()),
            bits=fraction_bits_for(1 + weight**2 + squares) // 2,
        )
        while made.row_bound**2 > MAX_BOUND:
            made = cls(**{**made.__dict__, "bits": made.bits - 1})
        return made

    # -- lengths ----------------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Entries of a row."""
        return 1 + self.features + self.targets

    @property
    def unit(self) -> int:
        """The constant, in grid units."""
        return 1 << self.bits

    @property
    def target_unit(self) -> int:
        """The longest that the target's part is, in grid units."""
        return math.ceil(math.ldexp(self.weight, self.bits))

    def block_bound(self, holder: str) -> int:
        """b_m: the longest that the columns of one institution are, in grid units."""
        norm = next(norm for name, _, norm in self.holders if name == holder)
        return math.floor(math.ldexp(norm, self.bits))

    @property
    def row_bound(self) -> int:
        """b: the longest that a row is, in grid units."""
        squares = self.unit**2 + self.target_unit**2 + sum(self.block_bound(name) ** 2 for name, *_ in self.holders)
        return math.isqrt(squares - 1) + 1

    # -- rows -------------------------------------------------------------------------------------------------------

    def places(self, holder: str) -> tuple[int, ...]:
        """Which entries of a row one institution holds, ascending."""
        own = next(places for name, places, _ in self.holders if name == holder)
        fixed = (0,) if holder == self.first else ()
        last = range(1 + self.features, self.width) if holder == self.first else ()
        return (*fixed, *(1 + place for place in own), *last)

    def units(
        self, holder: str, features: NDArray[np.float64], target: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """One institution's part of every row in grid units, shortened to its norm: its own columns, in their order."""
        own = next(places for name, places, _ in self.holders if name == holder)
        if features.shape[1] != len(own):
            raise LocalProtocolError(f"{features.shape[1]} columns where {len(own)} are held", party=holder)
        centred = features - np.array([self.centre[place] for place in own])
        parts = [rows_on_grid(centred, self.bits, self.block_bound(holder))]
        if holder == self.first:
            parts.insert(0, np.full((len(features), 1), float(self.unit)))
            if self.targets:
                parts.append(self._target_units(target))
        return np.hstack(parts)

    def _target_units(self, target: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """κ·t on the grid: one number at most is not 0, and none is larger than κ."""
        if target is None:
            raise LocalProtocolError("the labels are not here", party=self.first)
        k = float(self.target_unit)
        if self.targets == 1:
            return np.clip(np.rint(target * k), -k, k)[:, None]
        return np.where(target[:, None] == np.arange(self.targets), k, 0.0)

    def joined(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Whole rows in grid units, from a table that has all columns: what the institutions together would make."""
        out = np.zeros((len(features), self.width))
        for name, own, _ in self.holders:
            out[:, list(self.places(name))] = self.units(name, np.ascontiguousarray(features[:, list(own)]), target)
        return out


def pair_places(width: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the products of these entries of a row stand among the summed coordinates, as in
    :mod:`tallystick.privacy.outer_products`: the diagonal, then row by row what is right of it."""
    low, high = np.minimum(rows, columns), np.maximum(rows, columns)
    beside = width + low * (2 * width - low - 1) // 2 + (high - low - 1)
    return np.where(low == high, low, beside)


def own_products(rows: JointRows, holder: str, units: NDArray[np.float64]) -> NDArray[np.int64]:
    """The part of Σ u·uᵀ that one institution computes alone: exact, as it is in a round of products."""
    places = np.array(rows.places(holder), dtype=np.int64)
    whole = np.zeros((len(places), len(places)), dtype=np.int64)
    most = max(1, int((2**53 - 1) // max(rows.row_bound**2, 1)))
    for first in range(0, len(units), most):
        part = units[first : first + most]
        whole += (part.T @ part).astype(np.int64)
    out = np.zeros(rows.width * (rows.width + 1) // 2, dtype=np.int64)
    upper = np.triu_indices(len(places))
    out[pair_places(rows.width, places[upper[0]], places[upper[1]])] = whole[upper]
    return out


def cross_places(rows: JointRows) -> Mapping[tuple[str, str], NDArray[np.int64]]:
    """For every two institutions, in the study's order: where the products of their columns stand."""
    names = [name for name, *_ in rows.holders]
    found = {}
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            a, b = (np.array(rows.places(name), dtype=np.int64) for name in (one, other))
            found[one, other] = pair_places(rows.width, a[:, None], b[None, :])
    return found
