"""The ε audit of a stream: neighbouring streams through the simulated federation, every tick's release observed.

Everything is the product's own, from ``Federation.simulate`` and the study's [stream] to the released states. A record
of experiment j is non-zero on coordinate j only and comes at a time of j's own; the noise of every coordinate and tick
is independent (see audit_protocol), so one run on database 0 and one on database 1 are as many experiments as there are
coordinates. Both servers are honest here, which makes the release all the noise there is and the audit tight.

What the observer looks at in an experiment: the total of the record's tick (T0), that with the next tick's (T1), and
the sum of all (T2): a record that is in k ticks tells k over √k·σ there, as if the noise were √k times smaller. The
Gaussian's claim is by zCDP, which is not tight at so large a δ: its planted bugs are the larger ones.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from audit_bounds import Bound, Outputs, find_bound
from audit_bugs import scaled_noise
from audit_programs import OwnCoordinates
from numpy.typing import NDArray

import tallystick as ts
from tallystick.algorithms.design import SumDesign
from tallystick.engines import client_map, federation
from tallystick.engines.stream import Batches
from tallystick.privacy.grid import Group
from tallystick.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
EPSILON, DELTA, ALPHA = 2.0, 0.03, 1e-4
TICKS, EXPERIMENTS, SEEDS = 8, 1000, 20
SCHEMA = ts.Schema({"who": ts.Number(0, EXPERIMENTS - 1), "v": ts.Number(-1, 1)})


def study_of(mechanism: str) -> Study:
    return Study.from_dict(
        {
            "study": {"name": "audit", "program": "audit", "features": ["who", "v"], "accept_noise": True},
            "privacy": {
                "epsilon": EPSILON,
                "delta": DELTA if mechanism == "gaussian" else None,
                "mechanism": mechanism,
                "neighbours": "add-remove",
            },
            "trust": {"servers": 2, "colluding": 0},
            "data": {"columns": SCHEMA.to_dict()},
            "stream": {"ticks": TICKS, "tick_seconds": 10.0, "records_per_tick": 3, "time": "when", "start": 0.0},
        }
    )


def frames(*, with_the_record: bool) -> list[dict[str, NDArray[Any]]]:
    """Three institutions. In every experiment there is a record in each tick; database 1 has one more, in its own."""
    who = np.arange(EXPERIMENTS, dtype=np.float64)
    own = 10.0 * (np.arange(EXPERIMENTS) % 2) + 5  # in tick 1 or 2
    every = {"who": np.tile(who, TICKS), "v": np.full(TICKS * EXPERIMENTS, -0.1)}
    every["when"] = np.repeat(10.0 * np.arange(TICKS) + 1, EXPERIMENTS)
    if with_the_record:
        record = {"who": who, "v": np.ones(EXPERIMENTS), "when": own}
        every = {name: np.append(column, record[name]) for name, column in every.items()}
    return [{name: column[i::3] for name, column in every.items()} for i in range(3)]


def observe(study: Study, *, with_the_record: bool) -> Outputs:
    program = OwnCoordinates(experiments=EXPERIMENTS, rounds=TICKS, times=4.0)
    design = SumDesign(program=program, groups=((Group(name="all", size=EXPERIMENTS, bound=1.0),),) * TICKS)
    data, tick, each = frames(with_the_record=with_the_record), np.arange(EXPERIMENTS) % 2, range(EXPERIMENTS)
    statistics = []
    for seed in range(SEEDS):
        fed = ts.Federation.simulate(data, schema=SCHEMA, seed=2 * seed + with_the_record, servers=2, colluding=0)
        run = fed.run(study, design)
        seen = np.array(run.outcome.history)
        assert fed.spent.fits == 1
        assert float(run.plan.spent_epsilon()) == pytest.approx(EPSILON, rel=1e-6)  # of all ticks together
        two = seen[tick, each] + seen[tick + 1, each]
        statistics.append(np.column_stack([seen[tick, each], two, seen.sum(axis=0)]))
    whole = np.vstack(statistics)
    nothing = np.zeros(len(whole), dtype=np.int64)
    return Outputs(statistics=whole, low=nothing, off_grid=nothing.astype(bool))


def audit(mechanism: str) -> Bound:
    study = study_of(mechanism)
    zero, one = observe(study, with_the_record=False), observe(study, with_the_record=True)
    bound = find_bound(zero, one, delta=study.privacy.delta or 0.0, alpha=ALPHA)
    print(f"{mechanism}: eps >= {bound.epsilon:.3f} by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


@pytest.mark.parametrize(("mechanism", "power"), [("gaussian", 0.5), ("laplace", 1.0)])
def test_the_claim_of_a_stream_is_not_refuted(mechanism: str, power: float) -> None:
    bound = audit(mechanism)
    assert bound.epsilon < EPSILON
    assert bound.epsilon > power  # it looks where a breach would be


class UsedTwice(Batches):
    """The planted bug: a batch has the records of the tick before as well."""

    def rows(self, round: int) -> NDArray[np.int64]:
        return np.concatenate([super().rows(round - 1), super().rows(round)])


class UsedEverAfter(Batches):
    """The planted bug: a watermark that never moves, so that a batch has all that came so far."""

    def rows(self, round: int) -> NDArray[np.int64]:
        return np.concatenate([super(UsedEverAfter, self).rows(r) for r in range(1, round + 1)])


@pytest.mark.parametrize(
    ("mechanism", "bug"), [("laplace", UsedTwice), ("laplace", UsedEverAfter), ("gaussian", UsedEverAfter)]
)
def test_a_record_in_several_ticks_is_flagged(
    mechanism: str, bug: type[Batches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_map, "Batches", bug)
    assert audit(mechanism).epsilon > EPSILON


def test_ticks_with_half_of_the_noise_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_study, short = federation.plan_study, scaled_noise(Fraction(1, 2))
    monkeypatch.setattr(federation, "plan_study", lambda *a, **k: short(plan_study(*a, **k)))
    assert audit("laplace").epsilon > EPSILON
