"""Which of a client's records take part in a round: a sample by the client's own coins.

The choice is made here, on the institution's machine, afresh in every round, and nobody is told: not which records came
up, and not how many (the vector sent is as long as ever). What it saves is accounted in
:mod:`tallystick.privacy.sampling`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import StudyError
from tallystick.core.randomness import WordSource
from tallystick.data.encoding import Records
from tallystick.privacy.sum_plan import SumPlan
from tallystick.study import Study

Coins = Callable[[bytes], WordSource]
"""A client's private coins of a round, named by eight bytes."""
_BITS = 53


class RecordChoice(Protocol):
    """Says which records are in a round."""

    def rows(self, round: int) -> NDArray[np.bool_] | NDArray[np.int64]:
        """One flag per record, or the positions of those that are in."""


class CoinTosses:
    """A record is taken with its own rate, independently of all others."""

    def __init__(self, rates: NDArray[np.float64], coins: Coins) -> None:
        self._limits = _limits(rates)
        self._coins = coins

    def rows(self, round: int) -> NDArray[np.bool_]:
        return _below(self._limits, self._coins(round.to_bytes(8, "little")))


def _limits(rates: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Rates rounded down to 53 bits: never taken more often than the accounting says."""
    if not ((rates >= 0) & (rates <= 1)).all():  # NaN too; as unsigned numbers they would mean "always"
        raise StudyError(
            "a sampling rate is not a probability", rule="sampling-is-a-probability", remedy="Use rates in (0, 1]."
        )
    return np.floor(np.ldexp(rates, _BITS)).astype(np.uint64)


def _below(limits: NDArray[np.uint64], source: WordSource) -> NDArray[np.bool_]:
    return np.asarray((source.words(len(limits)) >> np.uint64(64 - _BITS)) < limits)


def tossed(rates: NDArray[np.float64], source: WordSource) -> NDArray[np.bool_]:
    """Which of these places come up, by the next coins of a stream: blocks tossed in order are the whole tossed."""
    return _below(_limits(rates), source)


class AtPlaces:
    """A choice over all places of a source, for the records that are usable there.

    A coin belongs to a place, also where the record there is left out (it has a bad cell), so that no record's content
    moves another record's coin.
    """

    def __init__(self, choice: RecordChoice, places: NDArray[np.int64]) -> None:
        self._choice, self._places = choice, places

    def rows(self, round: int) -> NDArray[np.bool_] | NDArray[np.int64]:
        return self._choice.rows(round)[self._places]


def record_choice(study: Study, records: Records, coins: Coins) -> RecordChoice:
    """The choice a study that samples asks for."""
    return AtPlaces(CoinTosses(sampling_rates(study, records, records.rows), coins), records.rows)


def sampling_rates(study: Study, records: Records, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """The rate of every place of a source, or of a block of it, in which its records have these ``places``."""
    sampling, count = study.privacy.sampling, records.tallies.records
    if not isinstance(sampling, dict):
        return np.full(count, sampling, dtype=np.float64)
    classes = tuple(map(str, records.layout.classes or ()))
    if records.target is None or set(sampling) != set(classes):
        raise StudyError(
            f"[privacy] sampling gives rates for {sorted(sampling)}, the target's categories are {sorted(classes)}",
            rule="sampling-per-category",
            remedy="Name a target and give every one of its categories a rate, or one rate for all.",
        )
    rates = np.zeros(count)
    rates[places] = np.array([sampling[name] for name in classes])[records.target.astype(np.int64)]
    return rates


def sampling_notes(plan: SumPlan) -> tuple[str, ...]:
    """What the plan says to the analyst and to the stewards, if records are sampled: what it costs in noise."""
    price = plan.sampling_price()
    if price is None:
        return ()
    return (
        f"records are sampled at {plan.claim.sampling:g} a round: the noise on an estimate of the whole (noise over "
        f"rate) is {price:.3g} times that of the same study without sampling; it saves work, or balances classes, and "
        "does not lower the noise",
    )
