"""Who holds which record: splitting one data set among simulated clients, and holding records out.

Every function returns positions in the source, sorted, each record in exactly one part. Randomness is an argument
(:class:`~tallystick.core.randomness.WordSource`), so a seed gives the same parts on every machine. Hold-outs and
folds are drawn over all records *before* they are dealt to clients: the same records are tested whatever the number
of clients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.core.readable_text import did_you_mean
from tallystick.study.declared_values import label_text

Indices = NDArray[np.int64]
_MOST_CLIENTS = 100_000  # statements name no more parties, and each is a table of its own here


def permutation(count: int, source: WordSource) -> Indices:
    """A random order of ``count`` records: sort one 64-bit word each.

    Two words are equal with probability below count² / 2^65; the stable sort then keeps their order, a bias that
    no test at any feasible size can see.
    """
    return np.argsort(source.words(count), kind="stable").astype(np.int64)


def uniforms(count: int, source: WordSource) -> NDArray[np.float64]:
    """Numbers in (0, 1): the midpoints of 2^52 equal cells, so that neither log(u) nor log(1 - u) is infinite."""
    return ((source.words(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def even(count: int, clients: int, order: Indices | None = None) -> list[Indices]:
    """Parts whose sizes differ by at most one, dealt in ``order`` (a permutation), or in source order."""
    _check_clients(clients)
    order = np.arange(count, dtype=np.int64) if order is None else order
    if len(order) != count:
        raise ValueError("order is not a permutation of the records")
    return [np.sort(part) for part in np.array_split(order, clients)]


def by_value(values: Sequence[Any] | NDArray[Any], clients: int | None = None) -> list[Indices]:
    """One client per distinct value, in the order of their text; with fewer clients, values are dealt in turn."""
    if clients is not None:
        _check_clients(clients)
    texts = _texts(values)
    rank = {text: k for k, text in enumerate(sorted(set(texts)))}
    group = np.array([rank[t] for t in texts], dtype=np.int64)
    parts = len(rank) if clients is None else clients
    return _parts(group % max(parts, 1), parts)


def dirichlet(labels: Sequence[Any] | NDArray[Any], clients: int, alpha: float, source: WordSource) -> list[Indices]:
    """Label-skewed parts: each class is dealt by its own Dirichlet(alpha, ..., alpha) shares over the clients.

    Small ``alpha`` gives clients of nearly one class, and empty ones; large ``alpha`` tends to :func:`even`.
    """
    _check_clients(clients)
    _check_alpha(alpha)
    texts = _texts(labels)
    owner = np.zeros(len(texts), dtype=np.int64)
    for label in sorted(set(texts)):
        members = np.array([i for i, t in enumerate(texts) if t == label], dtype=np.int64)
        members = members[permutation(len(members), source)]
        log_weights = np.array([_log_gamma_variate(alpha, source) for _ in range(clients)])
        weights = np.exp(log_weights - log_weights.max())
        cuts = np.floor(np.cumsum(weights) / weights.sum() * len(members)).astype(np.int64)
        cuts[-1] = len(members)
        owner[members] = np.searchsorted(cuts, np.arange(len(members)), side="right")
    return _parts(owner, clients)


def holdout_split(count: int, fraction: float, source: WordSource) -> tuple[Indices, Indices]:
    """(train, test): ``round(fraction * count)`` records are tested, at least one on either side."""
    if not (isinstance(fraction, float | int) and 0.0 < fraction < 1.0):
        raise StudyError("the held-out fraction is not between 0 and 1", remedy="Use for instance --holdout 0.1.")
    tested = round(fraction * count)
    if not 0 < tested < count:
        raise StudyError(
            f"holding out {fraction} leaves no record to train or to test on",
            remedy="Use more records or another fraction.",
        )
    order = permutation(count, source)
    return np.sort(order[tested:]), np.sort(order[:tested])


def fold_indices(count: int, folds: int, source: WordSource) -> list[tuple[Indices, Indices]]:
    """(train, test) for each of ``folds`` folds; every record is tested exactly once."""
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= count:
        raise StudyError("the number of folds is not between 2 and the records", remedy="Use for instance --folds 10.")
    tests = even(count, folds, permutation(count, source))
    everything = np.arange(count, dtype=np.int64)
    return [(np.setdiff1d(everything, test, assume_unique=True), test) for test in tests]


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A parsed ``--partition``: ``even``, ``column:NAME`` or ``dirichlet:ALPHA``."""

    kind: str
    column: str | None = None
    alpha: float | None = None

    def split(
        self, count: int, *, clients: int | None, source: WordSource, values: Sequence[Any] | NDArray[Any] | None = None
    ) -> list[Indices]:
        """Positions per client; ``values`` are the cells of the column, or the labels, where the kind needs them."""
        if self.kind != "even" and (values is None or len(values) != count):
            raise ValueError("one value per record is needed")
        if self.kind == "column" and values is not None:
            return by_value(values, clients)
        if clients is None:
            raise StudyError(f"partition {self.kind!r} needs the number of clients", remedy="Add --clients N.")
        if self.alpha is not None and values is not None:
            return dirichlet(values, clients, self.alpha, source)
        _check_clients(clients)
        return even(count, clients, permutation(count, source))


def parse_partition(text: str) -> Partition:
    """The partition that ``even``, ``column:NAME`` or ``dirichlet:ALPHA`` names."""
    kind, colon, rest = text.partition(":")
    if kind == "even" and not colon:
        return Partition(kind="even")
    if kind == "column" and rest.strip():
        return Partition(kind="column", column=rest.strip())
    if kind == "dirichlet" and rest:
        try:
            alpha = float(rest)
        except ValueError:
            alpha = math.nan
        _check_alpha(alpha)
        return Partition(kind="dirichlet", alpha=alpha)
    raise StudyError(
        f"partition {text!r} is not known",
        remedy=f"Use even, column:NAME or dirichlet:ALPHA.{did_you_mean(kind, ('even', 'column', 'dirichlet'))}",
    )


def _check_clients(clients: int) -> None:
    if isinstance(clients, bool) or not isinstance(clients, int) or not 1 <= clients <= _MOST_CLIENTS:
        raise StudyError(
            f"the number of clients is not a positive whole number of at most {_MOST_CLIENTS}",
            remedy="Use for instance --clients 10.",
        )


def _check_alpha(alpha: float) -> None:
    if not 1e-9 <= alpha <= 1e9:  # beyond, the variates leave float64, and nobody could tell the split from its limit
        raise StudyError(
            "the Dirichlet parameter is not a positive number from 1e-9 to 1e9",
            remedy="Use for instance dirichlet:0.5.",
        )


def _texts(values: Any) -> list[str]:
    """The canonical text of every cell; a missing one is the empty text, a group of its own."""
    method = next((m for m in ("to_pylist", "to_list", "tolist") if hasattr(values, m)), None)
    cells = list(values) if method is None else getattr(values, method)()
    absent = ("NoneType", "NAType", "NaTType")
    return [
        "" if type(v).__name__ in absent or (isinstance(v, float) and math.isnan(v)) else label_text(v) for v in cells
    ]


def _parts(owner: Indices, parts: int) -> list[Indices]:
    """The positions of each owner, ascending, in one sort."""
    order = np.argsort(owner, kind="stable").astype(np.int64)
    return np.split(order, np.searchsorted(owner[order], np.arange(1, parts))) if parts else []


def _log_gamma_variate(shape: float, source: WordSource) -> float:
    """The logarithm of a Gamma(shape, 1) variate; in logarithms so that a small shape does not underflow to 0.

    [MT00] Marsaglia and Tsang's squeeze-free rejection at shape + 1, then Gamma(a) = Gamma(a + 1) · U^(1/a).
    """
    d = shape + 2.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        radius, angle, u, boost = uniforms(4, source).tolist()
        x = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)  # [BM58] Box and Muller
        v = (1.0 + c * x) ** 3
        if v > 0 and math.log(u) < 0.5 * x * x + d - d * v + d * math.log(v):
            return math.log(d * v) + math.log(boost) / shape
