"""ε of masked sums, measured through the deployed machines: as the reducer and a colluding client see them.

The coalition sees the total and takes the colluding clients' noise off. The smallest total that a round lets through
(``min_clients`` survivors, the others dropped after they had dealt) must hold the promise by itself. Planted bugs:
noise sized for all clients instead of the honest ones of the smallest total, a round key used in two rounds, and both
secrets of a client revealed; each must be found. Every coordinate of a long vector is one run: neighbours differ in it
by the whole sensitivity.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.statistical.audit_bounds import Outputs, find_bound

from tallystick.core.identifiers import digest
from tallystick.core.redaction import Secret
from tallystick.crypto import prg
from tallystick.crypto.field import decode_signed, from_bytes
from tallystick.crypto.mask_bounds import complete_plan
from tallystick.crypto.mask_keys import PairSecret, RoundKey
from tallystick.crypto.masking import remove_self_mask
from tallystick.crypto.prg import system_stream
from tallystick.privacy.accountant import rho_from_epsilon
from tallystick.privacy.mechanisms import discrete_gaussian
from tallystick.protocol.masked_sum.messages import Masked
from tallystick.protocol.noise_source import NoiseSource
from tallystick.trust.masks import honest_clients
from tallystick.trust.masks.memory_rounds import MemoryRounds

pytestmark = pytest.mark.audit
EPSILON, DELTA, SENSITIVITY, SIZE = 4.0, 1e-5, 1000, 1 << 17  # at 4 an audit sees further than at 1
CLIENTS = tuple(f"c{i:02d}" for i in range(30))
LEAST, COLLUDING = 26, 20
VICTIM = "c22"


class Drawn(NoiseSource):
    """A share of variance s²/h; what was drawn is remembered, for the audit alone."""

    def __init__(self, honest: int) -> None:
        self.honest, self.last = honest, np.zeros(SIZE, dtype=np.int64)

    def draw(self, round: int) -> np.ndarray:
        variance = Fraction(SENSITIVITY) ** 2 / (2 * rho_from_epsilon(EPSILON, DELTA)) / self.honest
        self.last = discrete_gaussian.sample(variance, SIZE, system_stream())
        return self.last


class Watched(MemoryRounds):
    """What the victim has sent is looked at, and its secrets too, for planted bugs."""

    masked: Masked
    seed: bytes

    def sent(self, name: str, message: Any) -> None:
        super().sent(name, message)
        if name == VICTIM and isinstance(message, Masked):
            self.masked, self.seed = message, self._machines[name]._secrets.seed


View = Callable[[Watched, Any, dict[str, Drawn]], np.ndarray]


def coalition(rounds: Watched, result: Any, noise: dict[str, Drawn]) -> np.ndarray:
    """The reducer's total without the noise of those who collude with it."""
    known = [name for name in result.participants if name in CLIENTS[:COLLUDING]]
    assert len(known) == COLLUDING
    assert len(result.participants) == LEAST == result.makers
    return result.total - np.sum([noise[name].last for name in known], axis=0)


def outputs(view: View, honest: int) -> list[Outputs]:
    """What is seen of two neighbouring databases."""
    noise = {name: Drawn(honest) for name in CLIENTS}
    rounds = Watched(
        study_hash=digest(b"audit"),
        clients=CLIENTS,
        noise=noise,
        source=system_stream(),
        plan=complete_plan(clients=len(CLIENTS), colluding=COLLUDING, dropping=len(CLIENTS) - LEAST),
        size=SIZE,
        min_clients=LEAST,
        result_limit=2**40,
    )
    found = []
    for number, shift in enumerate((0, SENSITIVITY), start=1):
        vectors = {name: np.full(SIZE, shift * (name == VICTIM), dtype=np.int64) for name in CLIENTS}
        result = rounds.run_round(
            number,
            b"",
            {name: (lambda _m, v=v: v) for name, v in vectors.items()},
            leaving=frozenset(CLIENTS[LEAST:]),
        )
        values = view(rounds, result, noise)
        off_grid = np.zeros(len(values), dtype=bool)
        found.append(Outputs(statistics=values.astype(float)[:, None], low=values % 8, off_grid=off_grid))
    return found


def bound(pair: list[Outputs]) -> float:
    return find_bound(pair[0], pair[1], delta=DELTA, alpha=1e-3).epsilon


def test_the_smallest_total_holds_the_promise_against_the_coalition() -> None:
    measured = bound(outputs(coalition, honest_clients(LEAST, COLLUDING, reducer_is_client=False)))
    assert EPSILON / 4 < measured < EPSILON  # and the audit is not blind


def test_noise_that_is_sized_for_all_clients_is_found() -> None:
    assert bound(outputs(coalition, len(CLIENTS))) > EPSILON


def opened(rounds: Watched, _result: Any, noise: dict[str, Drawn], keys: list[RoundKey]) -> np.ndarray:
    vector = from_bytes(rounds.masked.vector, SIZE).copy()
    study, number = rounds.parameters.study_hash, rounds.masked.round
    remove_self_mask(vector, Secret(rounds.seed), study_hash=study, round=number, party=VICTIM)
    for key in keys:
        key.remove(vector, VICTIM)
    return decode_signed(vector)


def pairs(rounds: Watched) -> list[PairSecret]:
    machine: Any = rounds._machines[VICTIM]
    return [machine._pairs[name] for name in CLIENTS if name != VICTIM]


def test_both_secrets_of_a_client_would_show_its_sum_behind_its_own_noise_alone() -> None:
    """A share of the noise protects a total of many, not one: with both secrets revealed the bound is broken."""

    def both(rounds: Watched, result: Any, noise: dict[str, Drawn]) -> np.ndarray:
        return opened(rounds, result, noise, [pair.round_key(rounds.masked.round) for pair in pairs(rounds)])

    honest = honest_clients(LEAST, COLLUDING, reducer_is_client=False)
    assert bound(outputs(both, honest)) > EPSILON


def test_a_round_key_of_another_round_shows_nothing_and_a_reused_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The self seed of this round, and the round keys of a round in which the client dropped."""

    def other_round(rounds: Watched, result: Any, noise: dict[str, Drawn]) -> np.ndarray:
        number = rounds.masked.round
        later = [pair.round_key(number + 100) for pair in pairs(rounds)]
        as_if = [RoundKey(k.study_hash, number, k.first, k.second, k.reveal()) for k in later]
        return opened(rounds, result, noise, as_if)

    honest = honest_clients(LEAST, COLLUDING, reducer_is_client=False)
    assert bound(outputs(other_round, honest)) < 0.2

    def reused(self: PairSecret, round: int) -> RoundKey:
        return RoundKey(self.study_hash, round, self.first, self.second, self._expand(b"always the same"))

    def without_round(self: RoundKey, acc: np.ndarray, *, negate: bool) -> None:
        (prg.subtract_expanded if negate else prg.add_expanded)(acc, self.reveal(), b"no round in it")

    monkeypatch.setattr(PairSecret, "round_key", reused)
    monkeypatch.setattr(RoundKey, "_change", without_round)
    assert bound(outputs(other_round, honest)) > EPSILON
