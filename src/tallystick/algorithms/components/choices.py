"""What a component study does in its rounds, chosen from public facts: d, k, the number of records, ε, the columns.

The one number that matters is

    R = (spectral norm of the scatter's noise) / (N/k),      2·(s/√2)·√d over N/k

the noise against the average of the k largest eigenvalues, if k directions held all of N rows of length 1.

* R tiny: rows − mean are divided by the longest there can be, and nothing is biased.
* R small, with what clipping costs: by twice their root mean square length, which the first round estimates; few are
  clipped.
* Otherwise each row − mean is scaled to length 1: no clip norm to learn, and N counts in full. The components are then
  those of directions, which a larger budget need not accept.
* Columns of uneven spread (zero is a floor: pixels, counts): a round of squares, then entrywise shrinkage.
  Dense, signed columns: neither helps, and the scatter has the budget.
* A public basis: squares choose the coordinates whose scatter is summed; fewer the larger R.
* R beyond 5 with a basis, or with sparse columns: the scatter is hopeless. Squares only: the k coordinates of largest
  square. Sparse columns have a mean near 0 there, which is not asked for.

How the shares were found is in ``docs/decisions/0012-principal-components.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tallystick.algorithms.components.settings import ComponentSettings
from tallystick.algorithms.design import PublicBudget
from tallystick.algorithms.program import Public

HOPELESS_SCATTER = 5.0
_NOISY = 1.0
_FEW = 2.0
_MANY = 0.3
_SMALL = 0.05
_TINY = 0.02
CLIPPED_AT = 2.0
"""Root mean squares at which rows are clipped, and which they are then divided by: the scatter is a quarter as large,
so that the same noise is four times as much of it."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The rounds and their parts of the budget."""

    columns: str
    mean: float
    squares: float
    scatter: float
    """Parts of the budget; 0 where there is no such round."""
    selected: int
    """Coordinates whose scatter is summed; 0 if none is."""
    bounded: str
    """How rows − mean are bounded: "unit" (each to length 1), "clip" (at twice their root mean square), "longest"."""
    ratio: float | None
    """R; None where the number of records is not known."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The rounds in order."""
        return tuple(name for name in ("mean", "squares", "scatter") if getattr(self, name) > 0)

    def weight(self, stage: str) -> float:
        """A round's part of the budget."""
        return float(getattr(self, stage))

    @property
    def normalised(self) -> bool:
        """Whether each row − mean is scaled to length 1."""
        return self.bounded == "unit"

    @property
    def shrinks(self) -> bool:
        """Whether the scatter's entries are shrunk by the squares."""
        return self.squares > 0 and self.scatter > 0


def scatter_sensitivity(budget: PublicBudget) -> float:
    """Of Σ u·uᵀ, ‖u‖ ≤ 1: √2 under replace-one, 1 under add-remove (L1: 2, 1); see ``privacy/sensitivity``."""
    replaced = budget.sensitivity_factor == 2
    factor = (2.0 if budget.mechanism == "laplace" else math.sqrt(2)) if replaced else 1.0
    return factor * budget.person_factor


def noise_ratio(public: Public, budget: PublicBudget, components: int) -> float | None:
    """R, with the whole budget in the scatter."""
    if budget.mechanism == "none":
        return 0.0
    if public.records is None:
        return None
    d = len(public.features)
    std = budget.noise(scatter_sensitivity(budget), 1.0)
    spectral = 2 * (std if budget.mechanism == "laplace" else std / math.sqrt(2)) * math.sqrt(d)
    return spectral * components / public.records


def choose(
    public: Public,
    budget: PublicBudget,
    settings: ComponentSettings,
    *,
    centred: bool,
    nonnegative: bool,
    stretch: float,
) -> Choices:
    """``stretch``: the longest row over a typical one; that much is lost, squared, where rows are not normalised."""
    d, k = len(public.features), settings.n_components
    ratio = noise_ratio(public, budget, k)
    sparse = all(kind == "items" for *_, kind, _ in public.columns)
    columns = settings.columns
    if columns == "auto":
        columns = "sparse" if sparse else "uneven" if nonnegative else "dense"
    noisy = 1.0 if ratio is None else ratio
    basis = settings.basis is not None
    if noisy * stretch**2 <= _TINY or (noisy * CLIPPED_AT**2 <= _SMALL and centred):
        mean = 0.12 if centred else 0.0
        bounded = "longest" if noisy * stretch**2 <= _TINY else "clip"
        return Choices(
            columns=columns, mean=mean, squares=0.0, scatter=1 - mean, selected=d, bounded=bounded, ratio=ratio
        )
    mean = (0.2 if noisy > _NOISY else 0.12) if centred else 0.0
    if noisy > HOPELESS_SCATTER and (basis or columns == "sparse"):
        mean = 0.0 if columns == "sparse" and not basis else mean
        return Choices(
            columns=columns, mean=mean, squares=1 - mean, scatter=0.0, selected=0, bounded="unit", ratio=ratio
        )
    selected, squares = d, 0.1
    if basis:
        times = 2 if noisy > _FEW else 4 if noisy > _MANY else 6
        selected, squares = min(d, times * k), 0.3
        if selected == d:
            squares = 0.1
    elif columns == "dense":
        squares = 0.0
    return Choices(
        columns=columns,
        mean=mean,
        squares=squares,
        scatter=1 - mean - squares,
        selected=selected,
        bounded="unit",
        ratio=ratio,
    )


_BOUNDED = {
    "unit": "each row − mean is scaled to length 1, so the explained variance is that of rows of equal length",
    "clip": "each row − mean is clipped at twice the root mean square length that the first round estimates",
    "longest": "each row − mean is divided by the longest there can be: nothing is clipped, and nothing biased",
}


def describe(choices: Choices, settings: ComponentSettings, columns: int) -> tuple[str, ...]:
    """The plan's words."""
    parts = ", ".join(f"{name} {choices.weight(name):.0%}" for name in choices.stages)
    known = "not known: no number of records" if choices.ratio is None else f"{choices.ratio:.2g}"
    out = [
        f"components: noise over signal R = {known} (spectral norm of the scatter's noise over records/components); "
        f"columns taken as {choices.columns}; rounds: {parts}",
    ]
    if choices.scatter == 0:
        what = "cosine coordinates" if settings.basis else "columns"
        out.append(
            f"the scatter would be all noise (R > {HOPELESS_SCATTER:g}): the components are the "
            f"{settings.n_components} {what} of largest square"
        )
    else:
        out.append(_BOUNDED[choices.bounded])
        if choices.selected < columns:
            out.append(f"the scatter is summed over the {choices.selected} cosine coordinates of largest square")
        if choices.shrinks:
            out.append("entries of the scatter are shrunk by what the squares say of their columns")
    return tuple(out)
