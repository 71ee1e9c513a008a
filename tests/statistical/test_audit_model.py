"""One run, a thousand canaries: the logistic regression job against its claim [SNJ23].

Canary i is one record with category i of a column of its own, labelled 0 or 1 by a fair secret coin; the attacker
knows all but the coins and sees what is released: every round's state (``history_``). Replacing a label is replacing a
record, so the run is (ε, δ)-DP in each coin and the number of right guesses obeys the theorem. The attacker guesses
coin i by the sign of coefficient i of the last iterate, for the half of the canaries where it is largest.

Error rates: each bound holds with confidence 0.999; seeds are fixed. The theorem gives no tight bounds for Gaussian
noise (measured: 0.35 at a claim of 3), so the controls are those it can tell: no noise at all, and a tenth of the noise
(4.2, the most that 500 guesses can show). The finer bugs are for test_audit_protocol.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from audit_bounds import one_run_lower_bound, one_run_p_value
from audit_bugs import NoNoise, scaled_noise

import tallystick as ts
from tallystick.engines import federation
from tallystick.trust.servers import simulation as simulated

ALPHA = 1e-3
EPSILON, DELTA = 3.0, 1e-6


def canaries_run(canaries: int, seed: int) -> float:
    """The lower bound on ε from one training run on as many canaries."""
    names = [f"c{i}" for i in range(canaries)]
    coins = np.random.default_rng(seed).integers(0, 2, canaries)
    schema = ts.Schema({"who": ts.Category(names), "label": ts.Category(["no", "yes"])})
    frames = [
        {"who": names[i::3], "label": np.array(["no", "yes"])[coins[i::3]].tolist()} for i in range(3)
    ]  # three institutions
    fed = ts.Federation.simulate(frames, schema=schema, seed=seed)
    model = ts.LogisticRegression(epsilon=EPSILON, delta=DELTA, fit_intercept=False, standardise=False)
    model.fit(fed, target="label")
    score = model.history_[-1].iterate[0, 1:]
    r = canaries // 2
    sure = np.argsort(-np.abs(score), kind="stable")[:r]
    right = int(((score[sure] > 0) == (coins[sure] == 1)).sum())
    bound = one_run_lower_bound(canaries, r, right, delta=DELTA, alpha=ALPHA)
    print(f"{right} of {r} right, eps >= {bound:.3f} (claim {EPSILON})")
    return bound


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_a_trained_model_keeps_its_claim() -> None:
    assert 0 < canaries_run(1000, 1) < EPSILON  # it learns something about them, as it must, and not more


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_a_model_trained_without_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "RoundNoise", NoNoise)
    assert canaries_run(1000, 1) > EPSILON


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_a_model_trained_with_a_tenth_of_the_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_study = federation.plan_study
    short = scaled_noise(Fraction(1, 10))
    monkeypatch.setattr(federation, "plan_study", lambda *a, **k: short(plan_study(*a, **k)))
    assert canaries_run(1000, 1) > EPSILON


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
@pytest.mark.parametrize("seed", range(2, 12))
def test_more_trained_models_keep_their_claim(seed: int) -> None:
    assert canaries_run(2000, seed) < EPSILON


def test_the_theorem_is_kept_by_randomised_response_and_broken_beyond() -> None:
    """Known answer: ε-randomised response of every coin is exactly Binomial(m, e^ε/(1 + e^ε)) right."""
    q = 1 / (1 + np.exp(-1.0))
    right = np.random.default_rng(3).binomial(2000, q, 500)
    refuted = [one_run_p_value(2000, 2000, int(v), epsilon=1.0, delta=0.0) <= 0.05 for v in right]
    assert np.mean(refuted) < 0.08
    refuted = [one_run_p_value(2000, 2000, int(v), epsilon=0.7, delta=0.0) <= 0.05 for v in right]
    assert np.mean(refuted) > 0.95
    assert one_run_lower_bound(1000, 1000, 1000, delta=0.0, alpha=0.05) == pytest.approx(
        -np.log(0.05 ** (-1 / 1000) - 1), rel=1e-6
    )
    assert one_run_lower_bound(1000, 1000, 500, delta=1e-5, alpha=0.05) == 0.0
