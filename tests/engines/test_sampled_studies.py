"""Studies whose clients toss coins: what they cost, that nobody sees the coins, and that totals come out right."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.claims import servers_claim

import tallystick as ts
from tallystick.core.errors import PrivacyRefused, StudyError
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.record_choice import CoinTosses
from tallystick.privacy.accountant import ORDERS, rho_from_epsilon
from tallystick.privacy.grid import Group
from tallystick.privacy.ledger import Budget, Ledger, charge_of
from tallystick.privacy.sampling import curve_epsilon
from tallystick.privacy.sum_plan import make_plan

CLAIM: dict[str, Any] = {
    "epsilon": 1.0, "delta": 1e-6, "neighbours": "add-remove", "mechanism": "gaussian", "rounds": 50,
}  # fmt: skip


def plan(**changes: Any) -> Any:
    claim = servers_claim(**{**CLAIM, **changes})
    return make_plan(claim, [(Group(name="all", size=3, bound=1.0),)] * claim.rounds)


@pytest.mark.parametrize("servers", [2, 3])
def test_a_sample_needs_less_noise_and_keeps_the_promise(servers: int) -> None:
    whole, sampled = plan(servers=servers, colluding=1), plan(servers=servers, colluding=1, sampling=0.05)
    assert sampled.rounds[0].total_std < whole.rounds[0].total_std / 2
    assert 0.98 <= sampled.spent_epsilon() <= 1.0
    assert curve_epsilon(sampled.renyi_curve(), ORDERS, 1e-6) <= 1.0
    assert plan(sampling=1.0).rho == whole.rho if servers == 2 else True


def test_the_ledger_charges_the_curve_and_two_studies_compose_better_than_their_epsilons() -> None:
    ledger = Ledger(Budget(epsilon=1.6, delta=1e-6))
    charge = charge_of(b"1" * 32, plan(sampling=0.05))
    assert charge.rho > rho_from_epsilon(1.6, 1e-6)  # by ρ alone it would not be admitted
    assert all(c <= charge.rho * o + Fraction(1, 2**60) for c, o in zip(charge.curve, ORDERS))
    ledger.reserve(charge)
    ledger.reserve(charge_of(b"2" * 32, plan(sampling=0.05)))
    with pytest.raises(PrivacyRefused):
        ledger.reserve(charge_of(b"3" * 32, plan(sampling=0.05)))


def test_a_stream_costs_its_dearest_tick() -> None:
    stream, once = plan(parallel=True, rounds=200), plan(rounds=1)
    assert stream.rho == once.rho
    assert stream.rounds[0].total_std == once.rounds[0].total_std
    assert charge_of(b"s" * 32, stream).curve == charge_of(b"s" * 32, once).curve


def test_coins_fall_at_their_rates_and_are_fresh_every_round() -> None:
    """200,000 tosses: ±5 standard deviations, so a false alarm has odds below 1e-5; the control is a wrong rate."""
    rates = np.repeat([0.1, 0.5, 1.0], 200_000)
    coins = CoinTosses(rates, lambda round: AesStream(derive(bytes(32), round)))
    first, second = coins.rows(1).reshape(3, -1), coins.rows(2).reshape(3, -1)
    for rate, taken in zip((0.1, 0.5), first):
        spread = 5 * np.sqrt(rate * (1 - rate) / taken.size)
        assert abs(taken.mean() - rate) < spread
        assert abs(taken.mean() - (rate + 0.02)) > spread  # able to fail
    assert first[2].all()
    both = (first[1] & second[1]).mean()
    assert abs(both - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 200_000)
    assert (coins.rows(1).reshape(3, -1) == first).all()


class Mean(ts.Program):
    """How many records there are, and the sum of x."""

    rounds = 4
    bound = 2.0

    def init(self, public: ts.Public) -> Any:
        return np.zeros(2)

    def map_in_client(self, record: Any, state: Any) -> Any:
        return np.array([1.0, record[0]])

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return state + total / 4


SCHEMA = ts.Schema({"x": ts.Number(0, 1), "y": ts.Category(["a", "b"])})


def data() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {"x": rng.uniform(0, 1, 8000), "y": np.where(rng.uniform(size=8000) < 0.1, "b", "a")}


def run(sampling: Any, **privacy: Any) -> Any:
    frame = data()
    parts = [{k: v[i::4] for k, v in frame.items()} for i in range(4)]
    fed = ts.Federation.simulate(parts, schema=SCHEMA, seed=5)
    model = ts.ProgramEstimator(Mean(), epsilon=5.0, neighbours="add-remove")
    study = model.study_for(fed, target="y", features=["x"])
    settings = {"sampling": sampling, **privacy}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit_study(fed, study.replace("privacy", **settings).replace("program", **{}))


def test_totals_of_a_sample_stand_for_all_records() -> None:
    count, _ = run({"a": 0.3, "b": 0.3}).state_
    assert count == pytest.approx(8000, rel=0.05)


def test_rates_per_category_balance_the_classes() -> None:
    """b is a tenth of the records; at nine times the rate both come up equally often (divided by the larger rate)."""
    count, _ = run({"a": 0.1, "b": 0.9}).state_
    assert count == pytest.approx((7200 * 0.1 + 800 * 0.9) / 0.9, rel=0.15)


def test_wrong_categories_and_relations_are_refused() -> None:
    with pytest.raises(StudyError, match="categories"):
        run({"a": 0.5})
    with pytest.raises(PrivacyRefused, match="add-remove"):
        run(0.5, neighbours="replace-one")


def test_an_unsampled_study_keeps_its_hash() -> None:
    study = ts.Study.from_dict({"study": {"name": "n", "program": "summary"}})
    assert b"sampling" not in study.canonical()
    assert b"sampling" in study.replace("privacy", sampling=0.5).canonical()
