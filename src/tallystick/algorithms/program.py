"""What is summed, never how: the three functions of a program.

Everything the platform computes has the form ``f(D) = g(Σ over records h(record))``, repeated. A program says what
``h`` (``map_in_client``), ``g`` (``reduce_in_aggregator``) and the start (``init``) are. Who adds up, who is trusted
and where the noise comes from is decided elsewhere; a program cannot tell.

Three kinds:

* A user's program maps ONE record to one vector. It is checked against an allow-list and compiled
  (:mod:`tallystick.algorithms.user_programs.compiled`), so it is row-independent by construction.
* A built-in program may map whole blocks for speed (:class:`BlockProgram`); each has a test that blocks, singletons
  and permutations give equal bits.
* A program whose clients keep a memory and send one vector each, for ADMM, is a
  :class:`tallystick.algorithms.local_program.LocalProgram`.

Neither of the first two is trusted with privacy: whatever a map returns is put on the integer grid and clipped to the
declared bound before it is summed. A wrong program costs accuracy, never privacy.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.privacy.contribution import Contribution
from tallystick.privacy.grid import Group

State = Any
"""A float64 array, a float, or a (named) tuple of those: what every party sees at the start of a round."""


@dataclass(frozen=True, kw_only=True)
class Public:
    """The public facts of a study: everything here may be shown to anyone."""

    features: tuple[str, ...]
    records: int | None = None
    target: str | None = None
    classes: tuple[str | float, ...] = ()
    target_bounds: tuple[float, float] | None = None
    """Of a target that is a number."""
    max_l2_squared: float = math.inf
    max_l1: float = math.inf
    units: tuple[tuple[str, float, float, float], ...] = ()
    """(kind, centre, scale, offset) of every encoded feature, as in FeatureLayout: a number is centre + scale·x."""
    blocks: tuple[tuple[str, int, int, str, int], ...] = ()
    """(column, start, stop, kind, most ones in a record) of every declared column's encoded features."""
    integers: tuple[tuple[str, int, int, int], ...] = ()
    """(column, lower, step, number of values) of every declared integer column among the features."""
    salt: int = 0
    """32 bits of the study's hash: for public choices that nobody can have arranged data for."""
    drops_incomplete: bool = False
    """Missing values have the policy "drop": incomplete records add zeros, and how many are complete is not public."""
    records_are_exact: bool = True
    """Whether ``records`` is how many there are. Where a neighbour has another number (add-remove, persons) nobody may
    check what a study states, and it is no more than a guess."""

    holders: tuple[tuple[str, tuple[int, ...], float], ...] = ()
    """(institution, encoded features that it holds, their norm) where institutions hold different columns."""
    label_holder: str | None = None
    """Which of them holds the target."""

    @property
    def counts_records(self) -> bool:
        """Whether what divides by the records in a sum must count them there, with the noise of all sums."""
        return self.records is None or self.drops_incomplete

    @property
    def columns(self) -> tuple[tuple[str, int, int, str, int], ...]:
        """As ``blocks``; a column without a block is a number, as in plain ``fit(X, y)``."""
        return self.blocks or tuple((f, i, i + 1, "number", 1) for i, f in enumerate(self.features))

    def index(self, feature: str) -> int:
        """Position of an encoded feature in a record."""
        try:
            return self.features.index(feature)
        except ValueError:
            raise StudyError(
                f"there is no feature {feature!r}", remedy=f"Features are: {', '.join(self.features)}."
            ) from None


class Program:
    """Base of all programs. Subclass it, set ``rounds`` and ``bound`` (or ``groups``), write the three functions.

    ``bound`` is the largest norm one record's vector may have: L2 under the Gaussian mechanism, L1 under Laplace.
    Longer vectors are shortened. ``groups`` splits the vector into parts with bounds and budget shares of their own.
    """

    rounds: int = 1
    bound: float | None = None
    groups: Sequence[Group] | None = None
    interim: bool = True
    """Whether a study that loses a party half-way has something to show: a state is an answer before the last round."""

    def init(self, public: Public) -> State:
        """The public starting state."""
        raise StudyError(f"{type(self).__name__} has no init", remedy="Write init(self, public) -> state.")

    def map_in_client(self, record: NDArray[np.float64], state: State) -> NDArray[np.float64]:
        """One record in, one vector out."""
        raise StudyError(
            f"{type(self).__name__} has no map_in_client", remedy="Write map_in_client(self, record, state) -> vector."
        )

    def reduce_in_aggregator(self, total: NDArray[np.float64], state: State) -> State:
        """The next state from the noisy total and the state the total was computed at."""
        raise StudyError(
            f"{type(self).__name__} has no reduce_in_aggregator",
            remedy="Write reduce_in_aggregator(self, total, state) -> state.",
        )

    def query(self, state: State) -> State:
        """The part of the state that clients map at; all of it unless a program keeps momentum or averages."""
        return state

    def released_like(self, public: Public) -> State:
        """A state shaped as the one that is released: as the first, unless a program leaves something of it behind."""
        return self.init(public)

    def finished(self, state: State) -> bool:
        """A stopping rule on released state only; unspent rounds stay unspent."""
        return False

    def usable(self, state: State) -> bool:
        """Whether a state that was released before the last round is an answer already, if a study has to end there."""
        return self.interim

    def groups_for(self, size: int) -> tuple[Group, ...]:
        """The groups of a vector of ``size`` coordinates."""
        if self.groups is not None:
            return tuple(self.groups)
        if self.bound is None:
            raise StudyError(
                f"{type(self).__name__} declares no bound",
                remedy="Set `bound = …`: the largest norm one record's vector may have. Longer ones are shortened.",
            )
        return (Group(name="all", size=size, bound=float(self.bound)),)


class BuiltInProgram(Program):
    """A program that comes with tallystick: none of a user's code, and what it raises is a bug of this project."""

    interim = False


class BlockProgram(BuiltInProgram):
    """A built-in program that maps a block of encoded records at once. Row independence is its own duty, tested."""

    block_records: int | None = None
    """At most so many records are mapped at once, where their vectors would need too much memory together."""

    @abstractmethod
    def prepare(self, features: NDArray[np.float64], target: NDArray[np.float64] | None) -> Any:
        """Local, once per study: put the records on the grid. What it returns never leaves the client."""

    @abstractmethod
    def map_block(self, prepared: Any, state: State) -> Contribution:
        """One vector per record, dense, sparse or factored."""


def pack_state(state: State) -> bytes:
    """The state as canonical bytes: little-endian float64s, arrays in C order, tuple members in order."""
    return b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in _parts(state))


def unpack_state(model: bytes, like: State) -> State:
    """Inverse of :func:`pack_state` for a state shaped ``like`` another; refuses wrong lengths, NaN and infinity."""
    values = np.frombuffer(model, dtype="<f8") if len(model) % 8 == 0 else np.zeros(0)
    parts = _parts(like)
    expected = sum(int(np.size(part)) for part in parts)
    if len(model) != 8 * expected:
        raise RemoteProtocolError(
            f"the model has {len(model)} bytes where the study's has {8 * expected}",
            remedy="The aggregator runs another program or version; nothing was computed.",
        )
    if not np.isfinite(values).all():
        raise RemoteProtocolError("the model holds NaN or infinity", remedy="The round is refused; restart the study.")
    out, at = [], 0
    for part in parts:
        n = int(np.size(part))
        piece = values[at : at + n].astype(np.float64)
        at += n
        out.append(piece.reshape(np.shape(part)) if np.ndim(part) else float(piece[0]))
    if isinstance(like, tuple):
        make: Any = getattr(type(like), "_make", tuple)  # a NamedTuple keeps its names
        return make(out)
    return out[0]


def _parts(state: State) -> list[Any]:
    parts = list(state) if isinstance(state, tuple) else [state]
    for part in parts:
        if not isinstance(part, (int, float, np.ndarray, np.number)):
            raise StudyError(
                f"a state holds a {type(part).__name__}",
                remedy="A state is a float64 array, a float, or a (named) tuple of those.",
            )
    return parts
