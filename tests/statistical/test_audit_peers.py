"""ε of the serverless sum, measured through the machines: as one peer and those that collude with it see a total.

Every peer opens every total itself; it takes off its own noise and that of c others. The smallest total that a round
lets through must hold the promise by itself. Planted bugs: noise sized for all n clients instead of the honest ones of
the smallest total; and a second survivor set of the same round that is accepted, whose total differs from the first by
one peer's sum behind its own share of the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.statistical.audit_bounds import Outputs
from tests.statistical.test_audit_masks import (
    CLIENTS,
    COLLUDING,
    EPSILON,
    LEAST,
    SENSITIVITY,
    SIZE,
    VICTIM,
    Drawn,
    bound,
)

from tallystick.core.identifiers import digest
from tallystick.crypto.mask_bounds import complete_plan
from tallystick.crypto.prg import system_stream
from tallystick.protocol.instructions import NoisySum
from tallystick.trust.masks import honest_clients
from tallystick.trust.masks.memory_rounds import MemoryRounds

pytestmark = pytest.mark.audit
OBSERVER = CLIENTS[0]
OTHERS = CLIENTS[1 : COLLUDING + 1]
HONEST = honest_clients(LEAST, COLLUDING, reducer_is_client=True)


class Watching:
    """A peer's run of the program, which only looks at the totals that it has added up."""

    seen: NoisySum

    def __init__(self) -> None:
        self.round, self.model = 1, b""

    def take(self, result: NoisySum) -> None:
        self.round, self.seen = self.round + 1, result

    def skip(self, round: int) -> None:
        self.round += 1


def totals(honest: int) -> list[tuple[NoisySum, dict[str, np.ndarray]]]:
    """What a peer has added up of two neighbouring databases, and everybody's noise, of which it knows some."""
    noise = {name: Drawn(honest) for name in CLIENTS}
    made: list[Watching] = []

    def watch() -> Watching:
        made.append(Watching())
        return made[-1]

    rounds = MemoryRounds(
        study_hash=digest(b"audit of peers"),
        clients=CLIENTS,
        noise=noise,
        source=system_stream(),
        plan=complete_plan(clients=len(CLIENTS), colluding=COLLUDING + 1, dropping=len(CLIENTS) - LEAST),
        replica=watch,
        size=SIZE,
        min_clients=LEAST,
        result_limit=2**40,
    )
    found = []
    for number, shift in enumerate((0, SENSITIVITY), start=1):
        vectors = {name: np.full(SIZE, shift * (name == VICTIM), dtype=np.int64) for name in CLIENTS}
        contribute: dict[str, Any] = {name: (lambda _m, v=v: v) for name, v in vectors.items()}
        rounds.run_round(number, b"", contribute, leaving=frozenset(CLIENTS[LEAST:]))
        seen = made[CLIENTS.index(OBSERVER)].seen
        assert seen.round == number
        assert len(seen.participants) == LEAST
        found.append((seen, {name: one.last.copy() for name, one in noise.items()}))
    return found


def outputs(values: np.ndarray) -> Outputs:
    return Outputs(statistics=values.astype(float)[:, None], low=values % 8, off_grid=np.zeros(len(values), dtype=bool))


def as_seen(honest: int) -> list[Outputs]:
    """By a peer: the total that it has itself added up, less its noise and its colluders'."""
    return [
        outputs(seen.total - np.sum([noise[name] for name in (OBSERVER, *OTHERS)], axis=0))
        for seen, noise in totals(honest)
    ]


def test_the_smallest_total_holds_the_promise_against_a_peer_and_its_colluders() -> None:
    assert EPSILON / 4 < bound(as_seen(HONEST)) < EPSILON  # and the audit is not blind


def test_noise_that_is_sized_for_all_clients_is_found() -> None:
    assert bound(as_seen(len(CLIENTS))) > EPSILON


def test_a_second_survivor_set_that_is_accepted_is_found() -> None:
    """Two totals of one round, with and without the victim: their difference is its sum behind one share of noise."""
    pair = []
    for number, (seen, noise) in enumerate(totals(HONEST)):
        victim = np.full(SIZE, SENSITIVITY * number, dtype=np.int64) + noise[VICTIM]
        second = seen.total - victim  # what the same round without the victim would have come to
        pair.append(outputs(seen.total - second))
    assert bound(pair) > EPSILON
