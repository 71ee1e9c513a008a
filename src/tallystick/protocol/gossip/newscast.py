"""Newscast peer sampling [JVGKS07]: a small, fresh, random-looking list of peers, kept by exchanging it.

Each entry is a peer and its age: how many of *somebody's* cycles ago it was heard of, counted up by whoever holds it.
No clock is compared with another. An exchange merges two lists and keeps the freshest; who is gone grows old and drops
out. A peer's word makes only itself fresh: what it tells of others is at least one cycle old, so a liar can push its
friends to the front for one exchange and no further. And since the roster is known and authenticated, one partner in
``UNIFORM`` is drawn from all of it, whatever the list says: nobody's list can be taken over for good.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tallystick.core.randomness import WordSource

VIEW = 20
"""Entries of a list; Newscast stays connected from about 20 on, for any number of peers [JVGKS07, §5]."""
UNIFORM = 4
MOST_AGE = 1 << 20


def uniform(source: WordSource, choices: Sequence[int]) -> int:
    """One of these, each with the same probability."""
    most = (1 << 64) // len(choices) * len(choices)
    while True:
        word = int(source.words(1)[0])
        if word < most:
            return choices[word % len(choices)]


class View:
    """One member's list; ``own`` is its index in the roster, or None if it has no place there (it only listens)."""

    def __init__(self, own: int | None, peers: int, source: WordSource, *, size: int = VIEW) -> None:
        self.own, self.peers, self.size = own, peers, size
        self._source = source
        self._ages: dict[int, int] = {}
        others = [i for i in range(peers) if i != own]
        while others and len(self._ages) < size:  # a first list: the roster is public
            one = uniform(source, others)
            others.remove(one)
            self._ages[one] = 1

    def entries(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Peers and ages, as they are told to others."""
        ordered = sorted(self._ages.items(), key=lambda entry: (entry[1], entry[0]))
        return tuple([peer for peer, _ in ordered]), tuple([age for _, age in ordered])

    def grow_older(self) -> None:
        """A cycle has passed."""
        self._ages = {peer: min(age + 1, MOST_AGE) for peer, age in self._ages.items()}

    def merge(self, sender: int | None, peers: Sequence[int], ages: Sequence[int]) -> None:
        """Take over what a partner told; entries that cannot be are left out."""
        for peer, age in zip(peers, ages):
            if 0 <= peer < self.peers and peer not in (self.own, sender):
                self._ages[peer] = min(self._ages.get(peer, MOST_AGE), max(1, min(age, MOST_AGE)))
        if sender is not None and sender != self.own:
            self._ages[sender] = 0
        at = self.own or 0
        kept = sorted(self._ages.items(), key=lambda e: (e[1], (e[0] - at) % self.peers))  # ties: another for each
        self._ages = dict(kept[: self.size])

    def choose(self, avoided: Collection[int] = ()) -> int | None:
        """A partner for this cycle, or None if there is nobody."""
        everybody = [i for i in range(self.peers) if i != self.own and i not in avoided]
        known = [peer for peer in sorted(self._ages) if peer not in avoided]
        if not everybody:
            return None
        if not known or uniform(self._source, range(UNIFORM)) == 0:
            return uniform(self._source, everybody)
        return uniform(self._source, known)
