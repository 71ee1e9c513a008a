"""What is said in every protocol of sums alike: how a round ends, that something was not taken, "say it again".

Each protocol's ``codec`` gives them a number of its own, and its ``messages`` lists them with the rest; ``code`` is one
of that protocol's codes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """To whoever sent it: this was not accepted and nothing of it is kept.

    From a client to who coordinates, where the protocol has a code for absence: I sit this round out, do not wait.
    """

    study_hash: bytes
    round: int
    code: int
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The round is given up; ``party`` is whom it failed at, in plain words why and what to do."""

    study_hash: bytes
    round: int
    code: int
    party: str
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed:
    """From who coordinates to all: the round has its one result, over the set of this agreement."""

    study_hash: bytes
    round: int
    agreement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """I am at this round and may have missed something: say again what you have said of it."""

    study_hash: bytes
    round: int
