"""What the plan knows of a trust model: how many make noise, how many of them are surely honest, and the words for it.

Who they are (servers, clients, a proxy) is the trust model's business (:mod:`tallystick.study.trust`). Whoever sees a
total sees the true sum plus the noise of everybody it does not collude with; so the noise of the ``honest`` ones alone
must carry the promise, and what the others add comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

KNOWN = "Whom all institutions have in common is known to the institutions, and how many they are to everybody."
ALIGNED = f"{KNOWN} The promise covers the values of these people, and neither of that."
"""Where institutions hold different columns: what no noise hides."""
SEMI_HONEST = (
    "Institutions are trusted to follow the protocol: one that shares a row longer than its declared norm could read "
    "its partners' records, and so could the dealer together with any institution; the dealer has no other part."
)
"""Where institutions hold different columns: whom the promise does not hold against."""


@dataclass(frozen=True, kw_only=True)
class NoiseMakers:
    """``count`` parties add noise to every total; ``honest`` of them are honest, and not the ones who look at it."""

    count: int
    honest: int

    def variance_factor(self, *, splits: bool) -> float:
        """Noise variance of a total over what one trusted curator would add: the price of the trust model.

        Noise that splits is sized for the honest ones together, s²/h each, and m add it: m/h. Where it does not split
        (discrete Laplace) each adds the whole: m.
        """
        return self.count / max(1, self.honest) if splits else float(self.count)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a trust model's own settings cannot be: a rule's name, what is wrong, what to do."""

    rule: str
    cause: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a study's trust model says to plan and statement."""

    makers: NoiseMakers
    facts: tuple[tuple[str, Any], ...] = ()
    """The ``trust`` object of a result, key by key."""
    words: str = ""
    """Whom the promise holds against, and whose noise carries it: the end of the statement."""
    among_holders: str = ""
    """The same where institutions hold different columns of the same people; empty if nothing is promised there."""
    maker: str = "maker"
    """What a noise maker is called in the key ``noise_std.per_…``."""
    problems: tuple[Problem, ...] = ()
    delta_share: Fraction = Fraction(0)
    """The part of δ that is set aside for what the trust model's own means may tell; the noise has the rest."""
