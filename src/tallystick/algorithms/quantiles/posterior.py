"""What released counts say about ranks: a Gaussian posterior of F(e) = #{records below grid index e}, at chosen edges.

Everything here is post-processing of released figures and public facts; nothing in it can cost privacy.

Prior. Between two neighbouring edges a, b that hold M records, the ranks run as a Brownian bridge around the straight
line (records spread evenly), with variance per grid step

    M/(b − a) · (1 + M/α):     the first term is how a smooth density scatters records over cells (multinomial), the
                               second how far the density itself may be from flat (a Dirichlet process with weight α).

α is small at first, where nothing is known of the shape, and grows as cells get narrower and densities flat (a Pólya
tree with α growing in the level has continuous densities [Lav92, §2]). Counts of cells, or of one prefix, with noise of
known variance are linear in the ranks: each release is one step of generalised least squares (a Kalman update), so that
the estimate uses the releases of all levels at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_POINTS = 24
"""Places inside a cell at which the answer's posterior is evaluated."""
_TAIL = 1e-4
_LEAST_VARIANCE = 1e-9
_LEAST_PART = 2.0**-46
"""Of the largest variance: noise that is smaller is taken for so much, or float64 would lose the rest."""
_ROUNDING = 1e-12
"""Of a variance: what float64 surely loses when a release is worked in."""
_NEAR = 8.0
"""Edges whose rank is further from the target, in its standard deviations, are on their side anyway."""
_CLEAR = 4.0
"""Times the noise of two densities squared that their difference squared must exceed to count."""

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A rank: share·N + shift. The quantile q is share = q; the shift is for the smallest and the largest value."""

    share: float
    shift: float = 0.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Location:
    """The posterior of where a target rank is crossed: P(answer < points[i]) = below[i], both ascending."""

    points: Floats
    below: Floats
    ranks: Floats
    """Expected rank minus target at each point, made monotone."""

    def at(self, mass: float) -> float:
        """The grid position with so much of the posterior below it."""
        return float(np.interp(mass, self.below, self.points))

    def rank_at(self, position: float) -> float:
        """Expected rank minus target there."""
        return float(np.interp(position, self.points, self.ranks))

    def cut(self, outer: float, cells: int) -> Floats:
        """Edges of ``cells`` cells between the positions that leave ``outer`` of the posterior outside.

        Each holds as much as the others of the answer's posterior and of the records there, half and half: a gap is a
        likely place for the answer wherever it is cut, and records are what can be told apart.
        """
        low, high = self.at(outer / 2), self.at(1 - outer / 2)
        points = np.unique(np.clip(self.points, low, high))
        share = np.interp(points, self.points, self.below)
        rank = np.interp(points, self.points, self.ranks)
        both = (share - share[0]) / max(share[-1] - share[0], 1e-12) + (rank - rank[0]) / max(rank[-1] - rank[0], 1e-12)
        return np.asarray(np.interp(np.arange(cells + 1) / cells * both[-1], both, points))

    @property
    def crossing(self) -> float:
        """Where the rank is as likely to be above the target as below it."""
        return self.at(0.5)


@dataclass(frozen=True, kw_only=True, repr=False)
class RankPosterior:
    """Mean and covariance of the ranks at ``edges``: ascending grid indices, from 0 to the size of the domain."""

    edges: Indices
    mean: Floats
    cov: Floats
    alpha: float

    @classmethod
    def start(cls, size: int, *, records: float, std: float, alpha: float) -> RankPosterior:
        """Nothing is known but the number of records: exactly (``std`` = 0), or roughly."""
        cov = np.diag([0.0, std**2])
        return cls(edges=np.array([0, size], dtype=np.int64), mean=np.array([0.0, records]), cov=cov, alpha=alpha)

    @property
    def size(self) -> int:
        return int(self.edges[-1])

    # -- the prior between edges ------------------------------------------------------------------------------------

    def _cells(self, points: Floats | Indices) -> tuple[Indices, Floats]:
        """The cell that each point lies in, and how far into it, as a share of its width."""
        cell = np.clip(np.searchsorted(self.edges, points, side="right") - 1, 0, len(self.edges) - 2)
        low, high = self.edges[cell], self.edges[cell + 1]
        return cell, (points - low) / (high - low)

    def _scatter(self) -> tuple[Floats, Floats]:
        """Of each cell: variance per grid step of a smooth density's scatter, and of the density's unevenness."""
        width = np.diff(self.edges).astype(np.float64)
        mass, spread = self._counts()
        uneven = (mass**2 + spread) / self.alpha
        return (mass + np.sqrt(spread) + 0.5) / width, np.maximum(uneven, self._slope(width, mass, spread))

    def _flatness(self) -> Floats:
        """Of each cell: α as its own counts and its neighbours' leave it."""
        mass, spread = self._counts()
        return np.asarray((mass**2 + spread) / np.maximum(self._scatter()[1], 1e-12))

    def _counts(self) -> tuple[Floats, Floats]:
        """Expected records of each cell, and their variance."""
        d = np.diagonal(self.cov)
        spread = np.maximum(d[1:] + d[:-1] - 2 * np.diagonal(self.cov, 1), 0.0)
        return np.maximum(np.diff(self.mean), 0.0), spread

    def _slope(self, width: Floats, mass: Floats, spread: Floats) -> Floats:
        """Unevenness of a cell whose neighbours show that its density must rise or fall, as at the rim of a gap.

        If the density runs straight from the left neighbour's l to the right one's r, ranks in the middle of the cell
        are off the straight line by (r − l)·width/8, which is the standard deviation √uneven/2 there. Counted is only
        what stands above twice the noise of the two densities; no cell is more uneven than all of it at one place.
        """
        density, noise = mass / width, spread / width**2
        left, right = np.append(density[0], density[:-1]), np.append(density[1:], density[-1])
        of_noise = np.append(noise[0], noise[:-1]) + np.append(noise[1:], noise[-1])
        slope = np.maximum((right - left) ** 2 - _CLEAR * of_noise, 0.0) * width**2 / 16
        return np.asarray(np.minimum(slope, mass**2 + spread))

    def with_edges(self, wanted: Indices, alpha: float) -> RankPosterior:
        """The same knowledge, spoken of at more edges; ``alpha`` is the flatness of what lies between the old ones."""
        new = np.setdiff1d(wanted, self.edges)
        new = new[(new > 0) & (new < self.size)]
        known = RankPosterior(edges=self.edges, mean=self.mean, cov=self.cov, alpha=alpha)
        if not len(new):
            return known
        edges = np.union1d(self.edges, new)
        cell, part = self._cells(edges)
        cov = _between(_between(self.cov, cell, part).T, cell, part)
        low, high = self.edges[cell], self.edges[cell + 1]
        plain, uneven = known._scatter()
        for at in np.unique(cell[np.isin(edges, new)]):
            inside = np.flatnonzero((cell == at) & (edges > low) & (edges < high))
            e = edges[inside].astype(np.float64)
            left, right = e - self.edges[at], self.edges[at + 1] - e
            width = float(self.edges[at + 1] - self.edges[at])
            bridge = np.minimum.outer(left, left) * np.minimum.outer(right, right) / width
            cov[np.ix_(inside, inside)] += plain[at] * bridge
            # Half of the unevenness goes with the width, half to each new cell alike: all the records of a cell may be
            # in a narrow part of it, which a bridge in the width alone would hold for next to impossible.
            step = np.arange(1, len(inside) + 1) / (len(inside) + 1)
            left, right = left / width + step, right / width + 1 - step
            cov[np.ix_(inside, inside)] += (
                uneven[at] * np.minimum.outer(left, left) * np.minimum.outer(right, right) / 4
            )
        return RankPosterior(edges=edges, mean=_between(self.mean, cell, part), cov=cov, alpha=alpha)

    def thinned(self) -> RankPosterior:
        """Without the edges about which counts say less than monotony does.

        Ranks rise: F(a) ≤ F(e) ≤ F(b) for a < e < b. Where some a and b, each better known than e, leave less than
        half of e's own standard deviation, as for the coarse edges of early levels in what later proves to be a gap,
        the prior between a and b is the better knowledge. Leaving e out is exact for all other ranks (a marginal of
        the joint posterior).
        """
        std = np.sqrt(np.maximum(np.diagonal(self.cov), 0.0))
        floor = _tightest(self.mean - std, std)
        ceiling = -_tightest((-self.mean - std)[::-1], std[::-1])[::-1]
        keep = std <= 2 * np.maximum(ceiling - floor, 0.0)
        keep[0] = keep[-1] = True
        return RankPosterior(
            edges=self.edges[keep], mean=self.mean[keep], cov=self.cov[np.ix_(keep, keep)], alpha=self.alpha
        )

    # -- what is released -------------------------------------------------------------------------------------------

    def updated(self, functional: Floats, values: Floats, variance: Floats) -> RankPosterior:
        """After ``values`` = ``functional`` @ ranks + noise of these variances were released."""
        # One number after the other (their noise is independent): matrices are small, and a BLAS's threads would wait
        # for each other longer than they work.
        mean, cov = self.mean.copy(), self.cov.copy()
        largest = _ROUNDING * float(np.diagonal(cov).max())
        for row, value, given, noise in zip(functional, values, variance, self._noise(variance)):
            used = np.flatnonzero(row)
            gain = (cov[:, used] * row[used]).sum(axis=1)
            inner = max(0.0, float((row[used] * gain[used]).sum()))
            # An exact count (mechanism "none") after a prior that knows next to nothing would leave a covariance that
            # is all rounding: what is left must stand above the rounding of what was there before.
            inner += float(noise) if given > _LEAST_VARIANCE else max(float(noise), largest)
            mean += gain * ((value - float((row[used] * mean[used]).sum())) / inner)
            cov -= gain[:, None] * (gain / inner)
        return RankPosterior(edges=self.edges, mean=mean, cov=(cov + cov.T) / 2, alpha=self.alpha)

    def _noise(self, variance: Floats) -> Floats:
        """Variances as they can be reckoned with."""
        return np.maximum(variance, max(_LEAST_VARIANCE, _LEAST_PART * float(np.diagonal(self.cov).max())))

    def evidence(self, functional: Floats, values: Floats, variance: Floats) -> float:
        """How well these releases were foreseen: their log density, up to a constant."""
        used = np.flatnonzero(functional.any(axis=0))
        rows = functional[:, used]
        inner = rows @ self.cov[np.ix_(used, used)] @ rows.T + np.diag(self._noise(variance))
        off = values - rows @ self.mean[used]
        _, size = np.linalg.slogdet(inner)
        return float(-0.5 * (off @ np.linalg.solve(inner, off) + size))

    def of_cells(self, edges: Indices) -> Floats:
        """Counts of the cells that ascending ``edges`` cut the domain into, as a functional of the ranks."""
        prefix = self.of_prefixes(edges)
        top = np.zeros((1, len(self.edges)))
        top[0, -1] = 1.0
        return np.diff(np.vstack([np.zeros_like(top), prefix, top]), axis=0)

    def of_prefixes(self, edges: Indices) -> Floats:
        """The ranks at some of the edges."""
        out = np.zeros((len(edges), len(self.edges)))
        out[np.arange(len(edges)), np.searchsorted(self.edges, edges)] = 1.0
        return out

    # -- where the answer is ----------------------------------------------------------------------------------------

    def ranks_at(self, points: Floats, target: Target) -> tuple[Floats, Floats]:
        """Mean and standard deviation of rank minus target at any grid positions."""
        cell, part = self._cells(points)
        d = np.diagonal(self.cov)
        top = self.cov[:, -1]
        a, b = cell, cell + 1
        mean = (1 - part) * self.mean[a] + part * self.mean[b] - target.share * self.mean[-1] - target.shift
        var = (1 - part) ** 2 * d[a] + part**2 * d[b] + 2 * part * (1 - part) * self.cov[a, b]
        var += target.share**2 * d[-1] - 2 * target.share * ((1 - part) * top[a] + part * top[b])
        plain, uneven = self._scatter()
        var += (plain[cell] * np.diff(self.edges)[cell] + uneven[cell]) * part * (1 - part)
        return mean, np.sqrt(np.maximum(var, 0.0))

    def location(self, target: Target) -> Location:
        """The posterior of where the target rank is crossed."""
        edges = self.edges.astype(np.float64)
        counted = self._below_at_edges(target)
        rising = np.flatnonzero((counted[1:] > _TAIL) & (counted[:-1] < 1 - _TAIL))
        first, last = (int(rising[0]), int(rising[-1])) if len(rising) else (0, len(edges) - 2)
        finer = np.arange(1, _POINTS) / _POINTS
        low, high = edges[first : last + 1, None], edges[first + 1 : last + 2, None]
        points = np.unique(np.concatenate([edges, (low + finer * (high - low)).ravel()]))
        mean, std = self.ranks_at(points, target)
        cell, part = self._cells(points)
        # Ranks rise: between two edges the answer is no likelier to be passed than at the second, nor less than at the
        # first, however little is known of the places in between.
        before, after = counted[cell], counted[cell + 1]
        below = np.clip(_probability(mean, std), before, after)
        # All of an uneven cell's records may be at one place, anywhere in it (a Dirichlet process of weight α is one
        # atom with probability 1/(1 + α) in the limit of small α): then the answer is as likely anywhere.
        lumped = 1 / (1 + self._flatness()[cell])
        below += lumped * (before + part * (after - before) - below)
        below[part == 0] = counted[cell[part == 0]]
        below[-1] = 1.0
        return Location(points=points, below=np.maximum.accumulate(below), ranks=monotone(mean, 1 / (1 + std**2)))

    def _below_at_edges(self, target: Target) -> Floats:
        """P(answer < e) at the edges, sharpened by the others: ranks rise.

        D(e) = F(e) − target is at most the mean of D over e and edges right of it, and at least the mean over e and
        edges left of it, whatever the weights. In a gap, where many edges were counted and all have one rank, such
        means are far better known than each of the edges.
        """
        mean, std = self.ranks_at(self.edges.astype(np.float64), target)
        top, q = self.cov[:, -1], target.share
        near = np.flatnonzero(np.abs(mean) < _NEAR * np.maximum(std, 1e-3))
        z = mean / np.maximum(std, 1e-3)
        if len(near) > 1:
            own = slice(near[0], near[-1] + 1)
            cov = self.cov[own, own] - q * (top[own, None] + top[None, own]) + q * q * top[-1]
            z[own] = _sharpened(mean[own], cov)
        below = _normal(z)
        below[0], below[-1] = 0.0, 1.0
        return np.maximum.accumulate(below)


def _sharpened(mean: Floats, cov: Floats) -> Floats:
    """z-scores of ascending unknowns: each by the run of neighbours, to its right or its left, that tells most."""
    many = len(mean)
    weights = 1 / (1 + np.maximum(np.diagonal(cov), 0.0))
    first = np.concatenate([[0.0], np.cumsum(weights * mean)])
    second = np.zeros((many + 1, many + 1))
    second[1:, 1:] = np.cumsum(np.cumsum(weights[:, None] * cov * weights[None, :], axis=0), axis=1)
    i, r = np.arange(many)[:, None], np.arange(1, many + 1)[None, :]
    square = second[r, r] - second[i, r] - second[r, i] + second[i, i]
    total = np.cumsum(weights)[r - 1] - np.concatenate([[0.0], np.cumsum(weights)])[i]
    run = (first[r] - first[i]) / np.maximum(np.sqrt(np.maximum(square, 0.0)), 1e-3 * np.maximum(total, 1e-12))
    upper = np.where(r > i, run, np.inf).min(axis=1)
    lower = np.where(r > i, run, -np.inf).max(axis=0)
    return np.asarray(np.where(np.abs(upper) > np.abs(lower), upper, lower))


def _probability(mean: Floats, std: Floats) -> Floats:
    """P(rank > target). A rank is an integer: half a record either way is no evidence."""
    return _normal(mean / np.maximum(std, 1e-3))


def _between(values: Floats, cell: Indices, part: Floats) -> Floats:
    """Rows between two neighbouring rows: the part of the way from the first to the second."""
    share = part if values.ndim == 1 else part[:, None]
    return np.asarray((1 - share) * values[cell] + share * values[cell + 1])


def _tightest(floors: Floats, stds: Floats) -> Floats:
    """At each place the largest of the floors to its left that are better known than it is; −∞ where there is none."""
    out = np.full(len(floors), -np.inf)
    for e in range(1, len(floors)):
        better = stds[:e] < 0.999 * stds[e]
        if better.any():
            out[e] = floors[:e][better].max()
    return out


def _normal(z: Floats) -> Floats:
    """The normal distribution function."""
    return np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in z.tolist()])


def monotone(values: Floats, weights: Floats) -> Floats:
    """The nearest ascending sequence in weighted least squares (pool adjacent violators [BBBB72])."""
    level: list[float] = []
    weight: list[float] = []
    count: list[int] = []
    for v, w in zip(values.tolist(), weights.tolist()):
        level.append(v)
        weight.append(w)
        count.append(1)
        while len(level) > 1 and level[-2] > level[-1]:
            v2, w2, c2 = level.pop(), weight.pop(), count.pop()
            v1, w1, c1 = level.pop(), weight.pop(), count.pop()
            level.append((v1 * w1 + v2 * w2) / (w1 + w2))
            weight.append(w1 + w2)
            count.append(c1 + c2)
    return np.repeat(level, count)
