"""Who masks with whom: a complete graph up to 100 clients, beyond that a ring of near neighbours [BBGLR20].

Clients stand in a public random order on a circle and each is the neighbour of the k/2 before and the k/2 after it
(Harary's graph, a circulant). Everybody computes the same order by sorting the digests of a public seed with the
clients' names. Degree and threshold come from :mod:`tallystick.crypto.mask_bounds`, whose chances are over that order:
the seed must not be chosen by anyone once the colluders are fixed. Either every client contributes to it, each
committed to (sent as a hash) before any is opened (:func:`graph_seed`); or it follows from what the last to speak may
still try out, and ``secrecy`` is taken so much below 2^-40 as there are tries. A complete graph needs no seed.

A graph is fixed for a study. Before a client helps to unmask a round, it asks :meth:`MaskGraph.refusal` about the
survivor set: more drop-outs than planned, a survivor whose secret its neighbours could not rebuild, or survivors who
fall into two parts, are each a reason to abort, unrevealed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import HASH_BYTES, digest
from tallystick.crypto.mask_bounds import GraphPlan

_SEED = b"tallystick/mask-graph-seed/v1"
_ORDER = b"tallystick/mask-graph-order/v1"


def graph_seed(study_hash: bytes, contributions: Mapping[str, bytes]) -> bytes:
    """One public seed from 32 random bytes of every client; uniform if one honest client's stayed hidden to the end."""
    if len(study_hash) != HASH_BYTES or any(len(part) != HASH_BYTES for part in contributions.values()):
        raise LocalProtocolError(
            "a graph's seed is made from 32 bytes of every client",
            remedy="Pass the study's hash and every client's opened contribution.",
        )
    parts = [part for name in sorted(contributions) for part in (name.encode(), contributions[name])]
    return digest(_SEED, study_hash, *parts)


class MaskGraph:
    """The neighbours of every client, by a plan and, unless it is complete, a public seed."""

    def __init__(self, clients: Sequence[str], plan: GraphPlan, seed: bytes = b"") -> None:
        if len(set(clients)) != len(clients) or len(clients) != plan.clients:
            raise LocalProtocolError(
                f"the graph was planned for {plan.clients} different clients",
                remedy="Plan it for the clients that take part.",
            )
        if not plan.complete and len(seed) != HASH_BYTES:
            raise LocalProtocolError("a random circle needs a seed of 32 bytes", remedy="Make it with graph_seed.")
        self.plan = plan
        self.circle = tuple(sorted(clients, key=lambda name: digest(_ORDER, seed, name.encode())))
        self._place = {name: at for at, name in enumerate(self.circle)}
        self._neighbours = {name: self._around(at) for name, at in self._place.items()}
        self._points = {
            name: {other: at for at, other in enumerate(near, 1)} for name, near in self._neighbours.items()
        }

    def neighbours(self, client: str) -> tuple[str, ...]:
        """Those the client masks with, in order of their names."""
        return self._neighbours[self._known(client)]

    def point(self, owner: str, holder: str) -> int:
        """The point, from 1, of the share of ``owner``'s secrets that ``holder`` keeps."""
        points = self._points[self._known(owner)]
        if holder not in points:
            raise LocalProtocolError(f"{holder} is no neighbour of {owner}", remedy="Only neighbours hold shares.")
        return points[holder]

    def refusal(self, survivors: Collection[str]) -> str | None:
        """Why a round with these survivors must not be unmasked, in words; None if it may be."""
        left = {self._known(name) for name in survivors}
        if len(left) < self.plan.min_survivors:
            return f"{len(left)} clients are left, and {self.plan.min_survivors} are needed"
        present = [name in left for name in self.circle]
        for name, near in zip(self.circle, self._near_counts(present)):
            if near < self.plan.threshold:
                return f"{name} has {near} neighbours left, and {self.plan.threshold} are needed to rebuild its secret"
        if self.plan.complete:
            return None
        half = self.plan.degree // 2
        long_gaps = sum(gap >= half for gap in _gaps(present))
        if long_gaps > 1:
            return "the clients that are left fall into parts whose sums would show"
        if any(count < self.plan.window for count in _windows(present, half)):
            return f"some {half} places in a row on the circle hold fewer than {self.plan.window} clients that are left"
        return None

    def _near_counts(self, present: Sequence[bool]) -> list[int]:
        """How many neighbours each client on the circle has left: the stretch around it, less itself."""
        if self.plan.complete:
            return [sum(present) - there for there in present]
        half = self.plan.degree // 2
        around = _windows(present, 2 * half + 1)  # the one that starts at ``at`` has its middle at ``at + half``
        return [around[at - half] - there for at, there in enumerate(present)]

    def _known(self, client: str) -> str:
        if client not in self._place:
            raise LocalProtocolError(
                f"{client} is not among the clients of this graph", remedy="Use the graph's names."
            )
        return client

    def _around(self, place: int) -> tuple[str, ...]:
        n, half = len(self.circle), self.plan.degree // 2
        if self.plan.complete:
            return tuple(sorted(name for name in self.circle if name != self.circle[place]))
        steps = [*range(-half, 0), *range(1, half + 1)]
        return tuple(sorted(self.circle[(place + step) % n] for step in steps))


def _gaps(present: Sequence[bool]) -> list[int]:
    """How many are missing between each one that is there and the next, around the circle."""
    at = [place for place, there in enumerate(present) if there]
    return [(following - place - 1) % len(present) for place, following in zip(at, at[1:] + at[:1])]


def _windows(present: Sequence[bool], length: int) -> list[int]:
    """How many are there in each stretch of ``length`` places, around the circle."""
    doubled = [*present, *present[:length]]
    counts = [sum(doubled[:length])]
    for at in range(len(present) - 1):
        counts.append(counts[-1] - doubled[at] + doubled[at + length])
    return counts
