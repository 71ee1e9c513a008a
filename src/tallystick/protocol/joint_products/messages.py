"""What a dealer and the holders of different columns say to each other so that products of their columns can be shared.

One frozen type per message; ``codec`` gives each exactly one encoding. A deal goes from the dealer to one holder,
opened rows from holder to holder: never to the dealer, who could take its masks off.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, unique


@unique
class Code(IntEnum):
    """Why a message was refused; the number is what travels."""

    MALFORMED = 1
    OTHER_VERSION = 2
    WRONG_STUDY = 3
    NOT_EXPECTED = 4
    WRONG_PARTY = 5
    WRONG_SHAPE = 6
    TWO_DEALS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Dealer to one holder: the seed of its mask, and its shares of the masks' products with those after it."""

    study_hash: bytes
    records: int
    seed: bytes = field(repr=False)
    shares: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRows:
    """Holder to holder: some rows of its columns minus its mask, from row ``first`` on; uniform to whoever has not the
    mask."""

    study_hash: bytes
    first: int
    rows: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DealWanted:
    """Holder to dealer: it has no mask yet."""

    study_hash: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsWanted:
    """Holder to holder: the other's rows from ``first`` on are what it needs next."""

    study_hash: bytes
    first: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A message was not taken, and why."""

    study_hash: bytes
    code: int
    cause: str


Message = Deal | OpenedRows | DealWanted | RowsWanted | Refused
