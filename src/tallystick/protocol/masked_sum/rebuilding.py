"""A round's secrets from told shares, some of which may be wrong; and whose fault that is, as far as it can be known.

THEORY. Of each dealer one secret is rebuilt, and its owner has committed to it before (``seed_commitment``,
``key_commitment``): a right secret is known when it is there, but for a collision of SHA-256. So any t right shares
do, whichever they are, and nothing is asked for or opened beyond what every survivor tells anyway.

*Finding them.* The first t shares, as long as nobody lies. Else Reed-Solomon decoding of all that are there, which
finds up to (m − t)/2 wrong ones of m (:mod:`tallystick.crypto.shamir_errors`). Beyond that, up to m − t wrong ones, by
leaving out g = 2e − (m − t) shares and decoding the rest, for e errors, in an order that begins with whoever has told
wrong shares of other secrets; a bounded number of times, and only once nobody else is to tell any.

*Whose fault.* Let f be the polynomial an honest dealer dealt, g the one that was found, a the number of shares on it,
and let no more than b ≤ a + 1 − t clients lie. Then f and g agree at a − b honest points and at 0, by the commitment:
in t places, so f = g, and an honest teller's share is on it. So of dealer and teller of a share off g one is at fault,
and which of them nobody else can tell: packets are sealed. But whoever is in such pairs with more than b others is at
fault, for all these others cannot be; so is who does so with its own share; and a dealer of whose secret no t of m
shares are right, if b ≤ m − t. Those known, the rest is judged again with a smaller b [BG93].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tallystick.core.redaction import Secret
from tallystick.crypto.field import MODULUS
from tallystick.crypto.shamir import LIMBS, SHARE_BYTES, Share, rebuild_each
from tallystick.crypto.shamir_errors import extended, wrong_points
from tallystick.protocol.masked_sum.messages import Survivors
from tallystick.protocol.masked_sum.parameters import MaskedSumParameters

Fits = Callable[[int, Secret], bool]
"""Whether this is the secret that the dealer has committed to."""
DECODING, SEARCH = 1 << 25, 1 << 20
"""What decoding and the search beyond it may take in a round, in squares of the number of shares, one for each try."""
_NAMES = 4


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What the shares of a round show of whoever dealt and told them."""

    named: tuple[str, ...] = ()
    """Who is at fault, if no more clients are than ``said`` has it."""
    said: str = ""
    """In words; empty if nothing is wrong."""


class Rebuilding:
    """The secrets of one round's dealers, from shares as they come in."""

    def __init__(self, parameters: MaskedSumParameters, survivors: Survivors, fits: Fits) -> None:
        self._p, self._dealers, self._fits = parameters, survivors.dealers, fits
        self._shares: dict[int, dict[int, bytes]] = {dealer: {} for dealer in self._dealers}  # by who told them
        self._wrong: dict[tuple[int, int], int] = {}
        """Dealer and teller of each wrong share; and as long as how many lie, that is known."""
        self._sure: dict[int, int] = {}
        """As long as how many lie, the secret of this dealer would have been found if it had dealt it."""
        self._decoding, self._search = DECODING, SEARCH
        self._left = len(survivors.clients)
        self.secrets: dict[int, Secret] = {}
        self.doubts = Counter[int]()
        """How many wrong shares each client has told."""
        self.misshapen: set[int] = set()
        """Who told something that is no shares at all."""

    def take(self, client: int, said: bytes) -> None:
        """What one survivor has told, in the order of ``MaskedSumParameters.held_by``."""
        held = self._p.held_by(self._p.clients[client], self._dealers)
        words = np.frombuffer(said, dtype="<u8").reshape(len(held), LIMBS)
        canonical: list[bool] = np.all(words < np.uint64(MODULUS), axis=1).tolist()
        for at, (dealer, fine) in enumerate(zip(held, canonical)):
            if fine:
                self._shares[dealer][client] = said[SHARE_BYTES * at : SHARE_BYTES * (at + 1)]
            else:
                self._blame(dealer, client, len(self._p.clients))

    def ready(self) -> bool:
        """Whether there may be enough shares of every secret."""
        return all(len(told) >= self._p.threshold for told in self._shares.values())

    def attempt(self, *, left: int = 0) -> bool:
        """Whether all secrets are there, if need be with shares left out; ``left`` survivors may yet tell theirs.

        After an attempt in vain there is none before half of them have.
        """
        threshold = self._p.threshold
        if left > self._left:
            return False
        self._left = left // 2
        ready = [d for d, told in self._shares.items() if d not in self.secrets and len(told) >= threshold]
        first = {dealer: self._ordered(dealer)[:threshold] for dealer in ready}
        rebuilt = rebuild_each([self._told(*one) for one in first.items()], threshold=threshold)
        for dealer, secret in zip(ready, rebuilt):
            if secret is not None and self._fits(dealer, secret):
                self.secrets[dealer] = secret
        failed = [dealer for dealer in ready if dealer not in self.secrets]
        for dealer in failed:
            self._try(dealer, self._corrected(dealer))
        for dealer in failed if left == 0 else ():
            if dealer not in self.secrets:
                self._try(dealer, self._left_out(dealer))
        return len(self.secrets) == len(self._shares)

    # -- finding ----------------------------------------------------------------------------------------------------

    def _ordered(self, dealer: int) -> list[int]:
        """Who told shares of this secret; whoever told wrong ones of others comes last."""
        return sorted(self._shares[dealer], key=lambda teller: self.doubts[teller])

    def _told(self, dealer: int, tellers: Iterable[int]) -> list[Share]:
        names, shares = self._p.clients, self._shares[dealer]
        return [(self._p.point(names[dealer], names[teller]), shares[teller]) for teller in tellers]

    def _try(self, dealer: int, choices: Iterator[Sequence[int]]) -> bool:
        """Whether t of one of these choices of tellers give the secret that was committed to."""
        for tellers in choices:
            shares = self._told(dealer, tellers)
            (secret,) = rebuild_each([shares], threshold=self._p.threshold)
            if secret is not None and self._fits(dealer, secret):
                self.secrets[dealer] = secret
                self._compare(dealer, shares)
                return True
        return False

    def _corrected(self, dealer: int) -> Iterator[Sequence[int]]:
        order = self._ordered(dealer)
        if self.doubts:
            yield order
        self._decoding -= len(order) ** 2
        if self._decoding >= 0:
            yield from self._without_errors(dealer, order)
            self._sure[dealer] = (len(order) - self._p.threshold) // 2

    def _without_errors(self, dealer: int, tellers: Sequence[int]) -> Iterator[Sequence[int]]:
        shares = self._told(dealer, tellers)
        wrong = wrong_points(shares, threshold=self._p.threshold)
        if wrong is not None and len(shares) - len(wrong) >= self._p.threshold:
            yield [teller for teller, (point, _) in zip(tellers, shares) if point not in wrong]

    def _left_out(self, dealer: int) -> Iterator[Sequence[int]]:
        """More errors than decoding finds, with some tellers left out; the most doubted ones first."""
        order = self._ordered(dealer)
        yield order  # more may be doubted by now
        surplus = len(order) - self._p.threshold
        for errors in range(surplus // 2 + 1, surplus + 1):
            for chosen in combinations(reversed(order), 2 * errors - surplus):
                self._search -= len(order) ** 2
                if self._search < 0:
                    return
                out = set(chosen)
                yield from self._without_errors(dealer, [teller for teller in order if teller not in out])
        self._sure[dealer] = surplus

    # -- whose fault ------------------------------------------------------------------------------------------------

    def _compare(self, dealer: int, used: Sequence[Share]) -> None:
        """Hold all shares of a secret that was found against the polynomial through those that gave it."""
        tellers = list(self._shares[dealer])
        told = self._told(dealer, tellers)
        right = extended(used, [point for point, _ in told], threshold=self._p.threshold)
        wrong = [teller for teller, (_, share), true in zip(tellers, told, right) if share != true]
        for teller in wrong:
            self._blame(dealer, teller, len(tellers) - len(wrong) + 1 - self._p.threshold)

    def _blame(self, dealer: int, teller: int, liars: int) -> None:
        if (dealer, teller) not in self._wrong:
            self._wrong[dealer, teller] = liars
            self.doubts[teller] += 1

    def faults(self) -> Faults:
        """Who dealt or told wrong shares, judged by all that has come in."""
        lost = {dealer: self._sure.get(dealer, 0) for dealer in self._shares if dealer not in self.secrets}
        bounds = [*self._wrong.values(), *(liars for liars in lost.values() if liars)]
        most = max(1, min([self._p.graph.plan.liars, *bounds]))
        certain = {dealer for dealer, liars in lost.items() if liars}
        certain |= {dealer for dealer, teller in self._wrong if dealer == teller}
        guilty = _guilty(self._wrong, certain, most)
        parts = []
        if self.misshapen:
            parts.append(f"{self._list(self.misshapen)} told something that is no shares")
        left = [pair for pair in sorted(self._wrong) if not guilty & set(pair)]
        if len(guilty) + _disjoint(left) > most:
            guilty, left = set(), sorted(self._wrong)
            parts.append(f"more than {most} of the clients dealt or told wrong shares, and no one can tell which")
        elif guilty:
            parts.append(f"{self._list(guilty)} dealt or told wrong shares, if no more than {most} of the clients did")
        parts += self._either(left)
        unknown = [dealer for dealer, liars in lost.items() if not liars]
        if unknown:
            what = f"the shares told of the secrets of {self._list(unknown)} do not give what was committed to"
            parts.append(f"{what}: they were dealt wrong or told wrong, and no one can tell which")
        named = tuple(self._p.clients[i] for i in sorted(self.misshapen | guilty))
        return Faults(named=named, said="; ".join(parts))

    def _either(self, pairs: Sequence[tuple[int, int]]) -> list[str]:
        names = self._p.clients
        ends = [(names[dealer], names[teller]) for dealer, teller in pairs[:_NAMES]]
        more = len(pairs) - _NAMES
        return [
            *(
                f"{one} dealt {other} a wrong share, or {other} told one, and no one can tell which"
                for one, other in ends
            ),
            *([f"so with {more} more"] if more > 0 else []),
        ]

    def _list(self, clients: Iterable[int]) -> str:
        names = [self._p.clients[i] for i in sorted(clients)]
        more = len(names) - _NAMES
        return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _guilty(pairs: Iterable[tuple[int, int]], certain: set[int], most: int) -> set[int]:
    """Who must be at fault if no more than ``most`` are, and of each pair one is."""
    guilty, pairs = set(certain), list(pairs)
    while len(guilty) < most:
        others: dict[int, set[int]] = {}
        for one, other in pairs:
            if one not in guilty and other not in guilty:
                others.setdefault(one, set()).add(other)
                others.setdefault(other, set()).add(one)
        more = {client for client, near in others.items() if len(near) > most - len(guilty)}
        if not more:
            break
        guilty |= more
    return guilty


def _disjoint(pairs: Iterable[tuple[int, int]]) -> int:
    """At least so many are at fault if of each pair one is: no client is in two of those counted."""
    seen: set[int] = set()
    count = 0
    for one, other in pairs:
        if one not in seen and other not in seen:
            seen |= {one, other}
            count += 1
    return count
