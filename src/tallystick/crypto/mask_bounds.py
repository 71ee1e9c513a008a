"""How many neighbours a client masks with, and how many of them rebuild a secret: from stated bounds [BBGLR20].

The graph is :mod:`tallystick.crypto.mask_graph`'s: a random circle, the k/2 nearest on either side are neighbours.

**What must hold** with n clients, c of them colluding with the reducer and d dropping out in a round:

* secrecy, but for a chance of 2^-40: (S1) no honest client has t colluders among its neighbours, who could rebuild its
  secrets; (S2) the honest survivors are connected, so that nothing but the sum of all of them comes out [BBGLR20];
* recovery, but for a chance of 2^-20: (R) every client keeps t surviving neighbours, who can rebuild its secret.

**The bounds.** Around one client the k neighbours are a uniform k-subset of the other n − 1, so with the union bound
over clients, and hypergeometric tails summed exactly in integers,

    (S1) ≤ (n − c) · P[ H(n−1, c, k) ≥ t ]          (R) ≤ n · P[ H(n−1, d, k) > k − t ]

(S2) is exact. Let r = c + d stand out of the circle and h = n − r remain, w = k/2. Two remaining clients next to each
other are neighbours unless w or more between them are gone, and no edge crosses a gap of w or more; so the rest is
connected unless two gaps or more are that long. Given one remaining client the h gaps are a uniform weak composition
of r into h parts, of which C(r − j·w + h − 1, h − 1) have j given parts ≥ w. Inclusion and exclusion for "two or more":

    (S2) = Σ_{j ≥ 2} (−1)^j (j − 1) C(h, j) C(r − j·w + h − 1, h − 1)  /  C(r + h − 1, h − 1).

(S1) and (S2) get half of 2^-40 each. The chances are over the order on the circle, the same for a whole study: what
fails once may fail in every round. d is the largest number of drop-outs a round goes on with, and fewer only help.

**Drop-outs that the reducer chooses.** The above presumes that who drops out does not depend on the order on the
circle. A reducer that may *say* who dropped out can cut the circle with k well-placed ones, and gets the sums of two
parts. With ``chosen_dropouts`` every client checks, besides, that any w places in a row hold at least s survivors, and

    (S2') ≤ n · P[ H(n, c, w) ≥ s ]                (R') ≤ n · P[ H(n, d, w) > w − s ]

If no w places in a row hold s colluders, each w places in a row hold an honest survivor, so honest survivors next to
each other on the circle are neighbours and all of them are connected, whoever is said to have dropped out. That costs
about twice the degree. A complete graph is connected whoever is gone and needs neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from math import ceil, comb, log2

from tallystick.core.errors import StudyError

COMPLETE_UP_TO = 100
MIN_CLIENTS = 3
SECRECY = Fraction(1, 2**40)
RECOVERY = Fraction(1, 2**20)
_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class GraphPlan:
    """Degree and threshold for so many clients, colluders and drop-outs, with the chances they leave."""

    clients: int
    colluding: int
    dropping: int
    degree: int
    threshold: int
    window: (
        int  # survivors that k/2 places in a row must hold; 0 where nobody chooses the drop-outs, or all are neighbours
    )
    secrecy_failure: Fraction
    recovery_failure: Fraction

    @property
    def complete(self) -> bool:
        """Whether everybody is everybody's neighbour."""
        return self.degree == self.clients - 1

    @property
    def liars(self) -> int:
        """As many clients may tell what is not so: those that collude."""
        return self.colluding

    @property
    def min_survivors(self) -> int:
        """A round with fewer survivors was not planned for and aborts, unrevealed."""
        return self.clients - self.dropping

    @property
    def signatures(self) -> int:
        """More than (n + c)/2: any two sets of so many signers have an honest one in common, who signs one set only."""
        return (self.clients + self.colluding) // 2 + 1

    def describe(self) -> str:
        """For the plan of a study."""
        graph = "every other client" if self.complete else f"{self.degree} neighbours on a random circle"
        return (
            f"Each of {self.clients} clients masks with {graph}; {self.threshold} of these rebuild a secret of its "
            f"round. With {self.colluding} colluding and at most {self.dropping} dropping out of a round, secrecy "
            f"fails with a chance of {_power(self.secrecy_failure)} and recovery with {_power(self.recovery_failure)}."
        )


@lru_cache(maxsize=64)
def plan_graph(
    *, clients: int, colluding: int, dropping: int, chosen_dropouts: bool, secrecy: Fraction = SECRECY
) -> GraphPlan:
    """The complete graph up to 100 clients, else as small an even degree as keeps the bounds (:func:`regular_plan`).

    ``dropping`` is the number of clients that a round can lose and still end. ``chosen_dropouts``: the reducer may lie
    about who dropped out, see above. ``secrecy``: a smaller chance than 2^-40, where a seed can be tried out.
    """
    check_counts(clients, colluding, dropping)
    if clients > COMPLETE_UP_TO:
        facts = {"clients": clients, "colluding": colluding, "dropping": dropping}
        plan = regular_plan(**facts, chosen_dropouts=chosen_dropouts, secrecy=secrecy)
        if plan is not None:
            return plan
    return complete_plan(clients=clients, colluding=colluding, dropping=dropping)


def check_counts(clients: int, colluding: int, dropping: int) -> None:
    """Raise unless so many clients can hide their values from the reducer and the colluders at all."""
    if clients < MIN_CLIENTS:
        raise StudyError(
            f"{clients} clients cannot hide behind each other's masks",
            rule="mask-clients",
            remedy=f"Masked sums need at least {MIN_CLIENTS} clients.",
        )
    if colluding < 0 or dropping < 0 or clients - colluding - dropping < 2:
        raise StudyError(
            f"of {clients} clients, {colluding} colluding and {dropping} dropping out leave fewer than two honest ones",
            rule="mask-colluders",
            remedy="A sum hides a value only behind another honest client's; allow fewer of either.",
        )
    if clients - dropping < (clients + colluding) // 2 + 1:
        raise StudyError(
            f"of {clients} clients, {colluding} colluding, a round cannot lose {dropping} and agree on who is left",
            rule="mask-dropouts",
            remedy="More than half of clients and colluders together must sign who is left; allow fewer drop-outs.",
        )


def complete_plan(*, clients: int, colluding: int, dropping: int) -> GraphPlan:
    """Everybody with everybody, certain in both directions.

    The threshold is above (k + c)/2 where drop-outs leave room: then not even honest neighbours who were told different
    survivor sets, each answering once, give away both secrets of a client (2t > (k − c) + 2c). It is always above c.
    """
    check_counts(clients, colluding, dropping)
    degree = clients - 1
    threshold = min(degree - dropping, (degree + colluding) // 2 + 1)
    if threshold < max(2, colluding + 1):
        raise StudyError(
            f"of {clients} clients, {colluding} colluding, a round cannot lose {dropping} and still be unmasked",
            rule="mask-dropouts",
            remedy="More neighbours must be left than collude, and two at least; allow fewer drop-outs.",
        )
    return GraphPlan(
        clients=clients,
        colluding=colluding,
        dropping=dropping,
        degree=degree,
        threshold=threshold,
        window=0,
        secrecy_failure=Fraction(0),
        recovery_failure=Fraction(0),
    )


def regular_plan(
    *, clients: int, colluding: int, dropping: int, chosen_dropouts: bool, secrecy: Fraction = SECRECY
) -> GraphPlan | None:
    """The smallest even degree below n − 1 that keeps both bounds, up to steps; None if only a complete graph does.

    Whoever is asked to take part plans: degrees are doubled and halved, not tried one by one, which would let a study
    of many clients and colluders keep everybody busy for hours. More neighbours make both bounds smaller but for steps
    of whole counts: so the ten degrees below the one that is found are tried as well.
    """
    check_counts(clients, colluding, dropping)
    facts = {"clients": clients, "colluding": colluding, "dropping": dropping}

    def plan(half: int) -> GraphPlan | None:
        return circle_plan(**facts, degree=2 * half, chosen_dropouts=chosen_dropouts, secrecy=secrecy)

    most = (clients - 2) // 2
    low, high = 1, 2
    found = plan(high) if high <= most else None
    while found is None and high < most:
        low, high = high, min(2 * high, most)
        found = plan(high)
    while found is not None and high - low > 1:
        middle = (low + high) // 2
        better = plan(middle)
        low, high, found = (low, middle, better) if better is not None else (middle, high, found)
    if found is None:
        return None
    return next((p for half in range(max(2, high - _STEPS), high) if (p := plan(half)) is not None), found)


def circle_plan(
    *,
    clients: int,
    colluding: int,
    dropping: int,
    degree: int,
    chosen_dropouts: bool,
    secrecy: Fraction = SECRECY,
) -> GraphPlan | None:
    """The plan of a given even degree: the least threshold, and window, that secrecy takes; None if a bound fails."""
    n, c, d, half = clients, colluding, dropping, degree // 2
    threshold, crowded = _smallest_count(n - 1, c, degree, secrecy / (2 * (n - c)))
    unrecovered = n * tail(n - 1, d, degree, degree - threshold + 1)
    window = 0
    if chosen_dropouts:
        window, covered = _smallest_count(n, c, half, secrecy / (2 * n))
        parted = n * covered
        unrecovered += n * tail(n, d, half, half - window + 1)
    else:
        parted = disconnection(n, c + d, degree)
    if threshold > degree or window > half or unrecovered > RECOVERY or parted > secrecy / 2:
        return None
    return GraphPlan(
        clients=n,
        colluding=c,
        dropping=d,
        degree=degree,
        threshold=threshold,
        window=window,
        secrecy_failure=(n - c) * crowded + parted,
        recovery_failure=unrecovered,
    )


def tail(population: int, marked: int, drawn: int, count: int) -> Fraction:
    """P[H(population, marked, drawn) ≥ count], exactly: drawn without replacement, so many marked among them."""
    if count <= 0:
        return Fraction(1)
    most = min(marked, drawn)
    ways = sum(islice(_ways(population, marked, drawn), max(0, most + 1 - count)))
    return Fraction(ways, comb(population, drawn))


def _ways(population: int, marked: int, drawn: int) -> Iterator[int]:
    """C(marked, h)·C(population − marked, drawn − h) for h from the largest downwards, each from the one before it."""
    hits = min(marked, drawn)
    ways = comb(marked, hits) * comb(population - marked, drawn - hits)
    while hits >= 0:
        yield ways
        ways = ways * hits * (population - marked - drawn + hits) // ((marked - hits + 1) * (drawn - hits + 1))
        hits -= 1


def disconnection(clients: int, removed: int, degree: int) -> Fraction:
    """(S2): the chance that removing so many clients at random leaves the others in two parts or more."""
    left, half = clients - removed, degree // 2
    if left < 2:
        return Fraction(0)
    ways = sum(
        (-1) ** j * (j - 1) * comb(left, j) * comb(removed - j * half + left - 1, left - 1)
        for j in range(2, min(left, removed // half) + 1)
    )
    return Fraction(ways, comb(removed + left - 1, left - 1))


def _smallest_count(population: int, marked: int, drawn: int, bound: Fraction) -> tuple[int, Fraction]:
    """The smallest count ≥ 2 whose tail is within the bound, and that tail; from the largest count downwards."""
    limit = bound.numerator * comb(population, drawn)  # compare numerators: ways · denominator ≤ numerator · C(N, k)
    ways, count, terms = 0, min(marked, drawn) + 1, _ways(population, marked, drawn)
    while count > 2:
        more = ways + next(terms)
        if more * bound.denominator > limit:
            break
        ways, count = more, count - 1
    return max(count, 2), Fraction(ways, comb(population, drawn))


def _power(chance: Fraction) -> str:
    """2^-40.3, rounded up to a tenth; zero if it cannot happen."""
    if not chance:
        return "zero"
    return f"2^{ceil(10 * (log2(chance.numerator) - log2(chance.denominator))) / 10:.1f}"
