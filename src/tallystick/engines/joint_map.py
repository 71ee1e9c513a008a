"""An institution's half of joint moments: its own products, and its shares of those with the others' columns.

Sums over all institutions are then Σ u·uᵀ, and go through the round like any others: shared among servers, noised,
added up. One institution's vector alone is uniform wherever it holds a share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.joint_moments.program import JointMoments
from tallystick.algorithms.joint_moments.rows import JointRows, cross_places, own_products
from tallystick.crypto.field import Vector, encode_signed
from tallystick.crypto.field_matrix import Matrix
from tallystick.data.held_columns import HeldColumns
from tallystick.privacy.round_plan import RoundPlan
from tallystick.protocol.joint_products import JointParameters
from tallystick.transport.memory_holders import MemoryHolders

if TYPE_CHECKING:
    from tallystick.engines.engine import SimulatedStudy

DEALER = "dealer"


def held_units(program: JointMoments, holder: str, held: HeldColumns) -> NDArray[np.float64]:
    """An institution's part of every aligned record's row, within its norm; zeros where it cannot use a record."""
    records = held.records
    return held.spread(program.rows.units(holder, records.features, program.encoded_target(records.target)))


def joint_parameters(
    program: JointMoments, study_hash: bytes, records: int, *, dealer: str | None = None
) -> JointParameters:
    """Who multiplies what."""
    rows = program.rows
    names = tuple(name for name, *_ in rows.holders)
    return JointParameters(
        study_hash=study_hash,
        holders=names,
        widths=tuple(len(rows.places(name)) for name in names),
        records=records,
        dealer=dealer or DEALER,
    )


class JointMap:
    """One institution's vector. Nothing here leaves it but what ``contribute`` returns, and that only as shares."""

    left_out = 0

    def __init__(
        self, rows: JointRows, holder: str, units: NDArray[np.float64], shares: Mapping[tuple[str, str], Matrix]
    ) -> None:
        self.mapped = len(units)
        self.vector: Vector = encode_signed(own_products(rows, holder, units))
        for pair, places in cross_places(rows).items():
            if holder in pair:
                self.vector[places.reshape(-1)] = shares[pair].reshape(-1)

    def contribute(self, model: bytes, plan: RoundPlan, round: int = 0) -> Vector:
        """Field elements, as long as the round's coordinates."""
        return self.vector


def simulated_joint_maps(simulated: SimulatedStudy) -> tuple[dict[str, JointMap], MemoryHolders]:
    """Every institution's map, after masks were dealt and rows opened, all in this process."""
    program = simulated.design.program
    units = {name: held_units(program, name, held) for name, held in simulated.held.items()}
    records = next(iter(simulated.held.values())).aligned
    dealer = getattr(simulated.study.trust, "dealer", None)
    facts = joint_parameters(program, simulated.study.hash, records, dealer=dealer)
    parties = MemoryHolders(facts, units, simulated.keyed(b"deal"))
    shares = parties.run()
    return {name: JointMap(program.rows, name, units[name], shares[name]) for name in units}, parties
