"""The ε audit of record sampling: neighbouring databases through the simulated federation, coins and all.

Everything is the product's own, from ``[privacy] sampling`` to the released states; only the colluding server's noise
is left out, which is what it and the aggregator together see (audit_protocol). A record of experiment j is non-zero on
coordinate j only and has a coin of its own, the noise of every coordinate and round is independent; so one run on
database 0 and one on database 1 are as many experiments as there are coordinates. Database 1 has one record more in
each experiment (add-remove), five times longer than the bound.

What the observer looks at: the log-likelihood ratio of the mixture under the *claimed* noise and rate (T0), the most
powerful there is for a sound study, and the sum of all rounds (T1), which tells a record that is in all of them.

Planted: coins that are not tossed (every record is in every round, and the sampled price is charged); coins tossed
once for all rounds; twice the rate; rates per category of which the least is charged; half of the noise.

Error rates. 20,000 runs a database and case, half of them to choose the event; each bound holds with confidence 1 −
1e-4. Seeds are fixed, so a verdict never changes by itself; with fresh ones a sound study would exceed its claim in
one of the two audits of `make test` with a probability below 2e-4. The promise is by Rényi curves, which are not tight
at so large a δ: sound runs give 0.9 to 1.1 (ten times the runs: 1.3) where 2 is claimed. Planted bugs give 2.5 to 4.4,
the weakest more than five standard errors of its smaller count above the claim.
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
from tallystick.engines import federation, record_choice
from tallystick.engines.record_choice import CoinTosses
from tallystick.engines.round_vectors import RoundNoise
from tallystick.privacy.grid import Group
from tallystick.study import Study
from tallystick.study.sections import PrivacySection
from tallystick.trust.servers import simulation as simulated

pytestmark = pytest.mark.filterwarnings("ignore::tallystick.PrivacyWarning")
EPSILON, DELTA, ALPHA = 2.0, 0.03, 1e-4
RATE, ROUNDS, EXPERIMENTS, SEEDS = 0.3, 16, 2000, 10
PLAN = federation.plan_study
SCHEMA = ts.Schema({"who": ts.Number(0, EXPERIMENTS - 1), "v": ts.Number(-1, 1), "kind": ts.Category(["few", "many"])})


class HonestNoiseOnly(RoundNoise):
    """The view of the second server and the aggregator: they know that server's noise and take it away."""

    def draw(self, round: int) -> NDArray[np.int64]:
        noise = super().draw(round)
        return noise if self._maker == "server-1" else np.zeros_like(noise)


def study_of(sampling: Any) -> Study:
    return Study.from_dict(
        {
            "study": {
                "name": "audit",
                "program": "audit",
                "features": ["who", "v"],
                "target": "kind",
                "accept_noise": True,
            },
            "privacy": {
                "epsilon": EPSILON,
                "delta": DELTA,
                "mechanism": "gaussian",
                "neighbours": "add-remove",
                "sampling": sampling,
            },
            "trust": {"servers": 2, "colluding": 1},
            "data": {"columns": SCHEMA.to_dict()},
        }
    )


def frames(*, with_the_record: bool, kind: str) -> list[dict[str, NDArray[Any]]]:
    """Three institutions; each experiment has a record that adds nothing, in database 1 also one that adds the most."""
    who = np.arange(EXPERIMENTS, dtype=np.float64)
    value = np.ones(EXPERIMENTS) if with_the_record else np.zeros(0)
    table = {
        "who": np.concatenate([who, who[: len(value)]]),
        "v": np.concatenate([np.zeros(EXPERIMENTS), value]),
        "kind": np.concatenate([np.full(EXPERIMENTS, "many"), np.full(len(value), kind)]),
    }
    return [{name: column[i::3] for name, column in table.items()} for i in range(3)]


def observe(study: Study, seeds: int, first: int, *, with_the_record: bool, kind: str) -> Outputs:
    design = SumDesign(
        program=OwnCoordinates(experiments=EXPERIMENTS, rounds=ROUNDS, times=5.0),
        groups=((Group(name="all", size=EXPERIMENTS, bound=1.0),),) * ROUNDS,
    )
    data = frames(with_the_record=with_the_record, kind=kind)
    claimed = PLAN(study, design, allow_not_private=True)
    assert claimed.spent_epsilon() == pytest.approx(EPSILON, rel=1e-3)
    rate = claimed.claim.sampling
    assert rate == RATE
    variance = float(claimed.rounds[0].noise[0].parameter) / claimed.rounds[0].grid.scale ** 2
    statistics = []
    for seed in range(first, first + seeds):
        fed = ts.Federation.simulate(data, schema=SCHEMA, seed=2 * seed + with_the_record)
        seen = np.array(fed.run(study, design).outcome.history) * rate  # of the sample, as it was sent
        ratios = np.log1p(rate * np.expm1((seen - 0.5) / variance)).sum(axis=0)
        statistics.append(np.column_stack([ratios, seen.sum(axis=0)]))
    whole = np.vstack(statistics)
    nothing = np.zeros(len(whole), dtype=np.int64)
    return Outputs(statistics=whole, low=nothing, off_grid=nothing.astype(bool))


def audit(sampling: Any = RATE, *, seeds: int = SEEDS, first: int = 0, kind: str = "many") -> Bound:
    study = study_of(sampling)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "RoundNoise", HonestNoiseOnly)
        zero, one = (observe(study, seeds, first, with_the_record=w, kind=kind) for w in (False, True))
    bound = find_bound(zero, one, delta=DELTA, alpha=ALPHA)
    print(f"sampling {sampling}: eps >= {bound.epsilon:.3f} by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


@pytest.mark.parametrize("sampling", [RATE, {"few": RATE, "many": 0.05}])
def test_the_claim_of_a_sampled_study_is_not_refuted(sampling: Any) -> None:
    bound = audit(sampling, kind="few")
    assert bound.epsilon < EPSILON
    assert bound.epsilon > 0.8  # it looks where a breach would be


@pytest.mark.audit
@pytest.mark.parametrize("first", [100, 300])
def test_the_claim_is_not_refuted_by_many_runs(first: int) -> None:
    assert audit(seeds=100, first=first).epsilon < EPSILON


class NotTossed(CoinTosses):
    """Every record is in every round."""

    def rows(self, round: int) -> NDArray[np.bool_]:
        return np.ones_like(super().rows(round))


class TossedOnce(CoinTosses):
    """The coins of the first round are used in all of them."""

    def rows(self, round: int) -> NDArray[np.bool_]:
        return super().rows(1)


class TwiceTheRate(CoinTosses):
    def __init__(self, rates: Any, coins: Any) -> None:
        super().__init__(np.minimum(1.0, 2 * rates), coins)


@pytest.mark.parametrize("bug", [NotTossed, TossedOnce, TwiceTheRate])
def test_coins_that_are_not_what_was_charged_are_flagged(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_choice, "CoinTosses", bug)
    assert audit().epsilon > EPSILON


def test_half_of_the_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    short = scaled_noise(Fraction(1, 2))
    monkeypatch.setattr(federation, "plan_study", lambda *a, **k: short(PLAN(*a, **k)))
    assert audit().epsilon > EPSILON


def test_rates_of_which_the_least_is_charged_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivacySection, "sampling_rate", property(lambda self: min(self.sampling.values())))
    assert audit({"few": 2 * RATE, "many": RATE}, kind="few").epsilon > EPSILON
