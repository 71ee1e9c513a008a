"""The ε audit of thresholding: what the program sees of the noisy total stays below the claim; a planted bug does not.

Through the whole protocol and the program's own loop: clients clip and share, two servers add noise, the aggregator
thresholds. 20,000 experiments at once, one a coordinate (see ``audit_protocol`` on why they are independent): database
0 has no record, database 1 one of the bound. The threshold lies between the two exact totals, where telling them apart
by the zeros alone would be easiest.

Events: the coordinate is not 0; it is 0; it is at least c, for 20 values of c. Half of the experiments choose the event
(and its order), the other half bound ε at 1 − 1e-4. Planted: the exact total decides which coordinates stay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from audit_bounds import epsilon_lower_bound
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import BlockProgram
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines import rounds as loop
from tallystick.engines.client_map import ClientMap
from tallystick.engines.engine import run_paid
from tallystick.engines.planning import plan_study
from tallystick.engines.totals import NoisyTotal
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Ledger
from tallystick.study import Study

RUNS = 20_000
EPSILON, DELTA, ALPHA, THRESHOLD = 2.0, 0.03, 1e-4, 0.4


class OneEach(BlockProgram):
    """Rows (coordinate,): 1 on the record's own coordinate; the state is the total as the program was given it."""

    groups = (Group(name="sum", size=RUNS, bound=1.0),)

    def init(self, public: Any) -> np.ndarray:
        return np.zeros(RUNS)

    def prepare(self, features: np.ndarray, target: Any) -> np.ndarray:
        return features

    def map_block(self, prepared: np.ndarray, state: Any) -> Contribution:
        n = len(prepared)
        indptr, indices = np.arange(n + 1, dtype=np.int64), prepared[:, 0].astype(np.int64)
        return Sparse(indptr=indptr, indices=indices, values=5 * np.ones(n), size=RUNS)

    def reduce_in_aggregator(self, total: np.ndarray, state: np.ndarray) -> np.ndarray:
        return total


class Rows:
    def __init__(self, features: np.ndarray) -> None:
        self.features, self.target = features, None


def released(rows: np.ndarray, database: int, bug: Any) -> tuple[np.ndarray, float]:
    study = Study.from_dict(
        {
            "study": {"name": "audit", "program": "audit"},
            "privacy": {"epsilon": EPSILON, "delta": DELTA, "neighbours": "add-remove", "threshold": THRESHOLD},
        }
    )
    program = OneEach()
    plan = plan_study(study, SumDesign(program=program, groups=(program.groups,)), allow_not_private=False)
    cut = THRESHOLD * plan.rounds[0].total_std
    assert 0 < cut < 1  # between the exact totals
    servers = simulated_servers(
        study=study,
        plan=plan,
        program=program,
        template=program.init(None),
        clients={f"client-{i}": ClientMap(program, Rows(rows[i::3]), program.init(None)) for i in range(3)},
        min_clients=3,
        records=RUNS,
        stream=lambda *labels: AesStream(derive(bytes([database]) * 32, *labels)),
    )
    with pytest.MonkeyPatch.context() as patch:
        if bug is not None:
            patch.setattr(loop, "thresholded", bug(rows))
        outcome = run_paid(servers, plan, study=study.hash, ledger=Ledger())  # fmt: skip
    return outcome.release.value, cut


def lower_bound(bug: Any = None) -> float:
    databases = np.zeros((0, 1)), np.arange(RUNS, dtype=np.float64)[:, None]
    (zero, cut), (one, _) = (released(rows, i, bug) for i, rows in enumerate(databases))
    assert (np.abs(zero[zero != 0]) >= cut).all()
    events = [lambda v: v != 0, lambda v: v == 0, *(lambda v, c=c: v >= c for c in np.linspace(-3, 4, 20))]
    halves = [[(one[i::2], zero[i::2]), (zero[i::2], one[i::2])] for i in (0, 1)]

    def bound(event: Any, pair: tuple[np.ndarray, np.ndarray]) -> float:
        hits = [int(event(side).sum()) for side in pair]
        return epsilon_lower_bound(hits[0], hits[1], RUNS // 2, delta=DELTA, alpha=ALPHA)

    chosen = max(((e, order) for e in range(len(events)) for order in (0, 1)),
                 key=lambda c: bound(events[c[0]], halves[0][c[1]]))  # fmt: skip
    return bound(events[chosen[0]], halves[1][chosen[1]])


def by_the_exact_total(rows: np.ndarray) -> Any:
    """Planted: which coordinates stay is a function of the records."""
    exact = np.bincount(rows[:, 0].astype(np.int64), minlength=RUNS)

    def bug(noisy: NoisyTotal, plan: Any, threshold: float) -> NoisyTotal:
        return replace(noisy, values=np.where(exact < threshold * plan.total_std, 0, noisy.values))

    return bug


def test_the_claim_is_not_refuted_by_what_a_threshold_leaves() -> None:
    assert 0.1 * EPSILON < lower_bound() < EPSILON


def test_thresholding_before_the_noise_is_flagged() -> None:
    assert lower_bound(by_the_exact_total) > 3 * EPSILON
