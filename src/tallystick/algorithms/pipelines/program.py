"""Components, then a model of them, in one study: the first program's rounds, then the second's on projected rows.

    rounds 1 … r       as the component program has them        (:mod:`tallystick.algorithms.components.program`)
    rounds r+1 …       as the descent has them, on x = clip((z − m)·Cᵀ/u)   (:mod:`…linear.descent_program`)

z are a record's rows, m and C the released mean and components, u a released length for each component. All of them are
public when the second part begins, so x is a function of one record and of what was released: the rounds compose as
those of any program, each with the noise its own part of the budget buys. x is cut to [−1, 1] before anything is
computed from it, the declared range that the second program's bounds are made for; the sums are clipped on the grid
besides, whatever it returns.

u is three times the root mean square of the rows along a component, as the first part's release has it: of a Gaussian
one number in 370 is cut. The variance along a *noisy* component is not its noisy eigenvalue: for a symmetric matrix of
low rank with noise of standard deviation σ beside the diagonal, an eigenvalue λ > σ√d comes out at λ + dσ²/λ along a
vector whose squared cosine with the true one is 1 − dσ²/λ² [BGN11, Thm. 2.1 and 2.2 for the Gaussian ensemble]; so the
variance along it is λ − dσ²/λ = √(noisy² − 4dσ²), and no eigenvalue within 2σ√d says anything.

Row independence: rows are projected on the grid, exactly (:func:`…row_space.in_basis`); the rest is element by element.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.components.program import ComponentsProgram
from tallystick.algorithms.components.program import Query as ComponentQuery
from tallystick.algorithms.components.program import State as ComponentState
from tallystick.algorithms.components.row_space import in_basis
from tallystick.algorithms.linear.descent_program import DescentProgram, DescentQuery
from tallystick.algorithms.program import BlockProgram, Public, State
from tallystick.core.errors import RemoteProtocolError
from tallystick.privacy.contribution import Contribution

WIDTH = 3.0
"""Standard deviations of a component that are not cut."""
_LARGEST = 2.0**40


class Projection(NamedTuple):
    """Released with the first part: x = clip(rows @ directionsᵀ − offsets, −1, 1)."""

    directions: NDArray[np.float64]
    """Components over their lengths u."""
    offsets: NDArray[np.float64]


class _Prepared:
    """A client's records: as the first program has them, and projected once for a given projection."""

    def __init__(self, features: NDArray[np.float64], target: NDArray[np.float64] | None, first: Any) -> None:
        self.features, self.target, self.first = features, target, first
        self.made_for = b""
        self.second: Any = None


class PipelineProgram(BlockProgram):
    """See the module. A state is the two programs' states one after the other, a query theirs and the projection."""

    interim = True

    def __init__(self, first: ComponentsProgram, second: DescentProgram, second_public: Public) -> None:
        self.first, self.second, self.second_public = first, second, second_public
        self.rounds = first.rounds + second.rounds
        self.block_records = first.block_records

    # -- the three functions ----------------------------------------------------------------------------------------

    def init(self, public: Public) -> State:
        return (*self.first.init(public), *self.second.init(self.second_public))

    def states(self, state: State) -> tuple[ComponentState, Any]:
        """The two programs' own states."""
        start = self.second.init(self.second_public)
        cut = len(ComponentState._fields)
        return ComponentState._make(state[:cut]), type(start)._make(state[cut:])

    def query(self, state: State) -> State:
        if len(state) == self._query_size:
            return state  # what clients map at is asked for once more where it is the template
        first, second = self.states(state)
        return (*self.first.query(first), *self.projection(first), *self.second.query(second))

    @property
    def _query_size(self) -> int:
        return len(ComponentQuery._fields) + len(Projection._fields) + len(DescentQuery._fields)

    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> _Prepared:
        self.second.prepare(features[:0, :1], target)  # a target that is missing shows here, not after the components
        return _Prepared(features, target, self.first.prepare(features, None))

    def map_block(self, prepared: _Prepared, state: State) -> Contribution:
        cut = len(ComponentQuery._fields)
        first = ComponentQuery._make(state[:cut])
        if first.stage < self.first.rounds:
            return self.first.map_block(prepared.first, first)
        projection = Projection._make(state[cut : cut + 2])
        own = DescentQuery._make(state[cut + 2 :])
        key = projection.directions.tobytes() + projection.offsets.tobytes()
        if prepared.second is None or prepared.made_for != key:
            prepared.second = self.second.prepare(self.projected(prepared.features, projection), prepared.target)
            prepared.made_for = key
        return self.second.map_block(prepared.second, own)

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        first, second = self.states(state)
        if first.stage < self.first.rounds:
            first = self.first.reduce_in_aggregator(total, first)
        else:
            second = self.second.reduce_in_aggregator(total, second)
        return (*first, *second)

    def usable(self, state: State) -> bool:
        return self.second.usable(self.states(state)[1])

    # -- projecting -------------------------------------------------------------------------------------------------

    def projected(self, features: NDArray[np.float64], projection: Projection) -> NDArray[np.float64]:
        """x of every record."""
        if not (np.abs(projection.directions) <= _LARGEST).all() or not (np.abs(projection.offsets) <= _LARGEST).all():
            # Within these ranges nothing overflows, whatever the record.
            raise RemoteProtocolError(
                "the components of a round are not those of this study",
                remedy="The aggregator is faulty. Nothing was shared.",
            )
        space = self.first.space
        scores = in_basis(space.rows(features), projection.directions, space.longest)
        return np.clip(scores - projection.offsets, -1.0, 1.0)

    def projection(self, state: ComponentState) -> Projection:
        """From what the first part released; zeros before it has."""
        directions = state.components / self.lengths(state)[:, None]
        return Projection(directions=directions, offsets=directions @ self.first.mean_of(state))

    def lengths(self, state: ComponentState) -> NDArray[np.float64]:
        """u of every component."""
        d, choices = self.first.columns, self.first.choices
        shares = state.shares
        if choices.scatter > 0 and not choices.shrinks and state.total > 0:
            noise = self.first.noise_beside() / state.records
            trace = 1.0 if choices.normalised else state.total / state.radius**2
            shares = np.sqrt(np.maximum(state.noisy**2 - 4 * d * noise**2, 0.0) * (state.noisy > 0)) / trace
        # A standard deviation more than it was measured: a length that is too short cuts everything to its sign, one
        # that is too long is scaled back by the second program's moments.
        whole = min(max(state.total, 0.0) + self.first.total_noise(state), self._longest(state))
        # A direction taken at random has 1/d of the whole; a component is not taken to have less.
        return WIDTH * np.sqrt(max(whole, 2.0**-20) * np.clip(shares, 1 / d, 1.0))

    def _longest(self, state: ComponentState) -> float:
        return float(self.first.space.longest_residual(self.first.mean_of(state)) ** 2)
