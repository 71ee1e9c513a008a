"""The ε audit of multinomial logistic regression (softmax over three classes): below its claim, planted bugs above.

Two looks. A study of one round is observed many times on the neighbours that tell most (audit_programs): ε = 2, δ =
0.03 or pure, where the promise of a round is nearly tight. `make test` has 10,000 runs a database and case, half of
them to choose the event; `make audit` every mechanism and relation with 100,000. Then one training run with two
thousand canaries against the theorem of one run [SNJ23], as in test_audit_model: a canary's label is "r" or "s" by a
fair coin, the third class has records of its own, and the attacker compares two of the three rows of the released
coefficients.

Planted: half of the noise; the √2 of the softmax residual forgotten (the noise of two classes); every class's part of
a gradient clipped by itself and charged once; a client that does not clip; no noise, and a tenth of it, in training.

Error rates. Each bound holds with confidence 1 − 1e-4 (one run: 1 − 1e-3); seeds are fixed, so a verdict never changes
by itself, and with fresh ones a sound program would exceed its claim in `make test` with a probability below 0.2 %.
Measured, the bounds of sound runs are 0.7 to 1.1 in `make test` and up to 1.4 in `make audit` where 2 is claimed (that
they are above 0.7 is a statement about these seeds); those of planted bugs 2.2 (√2, 40,000 runs: two and a half
standard errors of its smaller count above the claim), 2.5 (class by class: more than five), 3.0 and 4.8, and 4.9 where
one run is to be below 3 (sound: 0.3).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from audit_bounds import Bound, find_bound, one_run_lower_bound
from audit_bugs import NoNoise, scaled_noise
from audit_programs import Wrapped, observe_program, worst_neighbours

import tallystick as ts
from tallystick.engines import federation
from tallystick.privacy.contribution import Contribution, Dense, Factored
from tallystick.privacy.plan import Plan
from tallystick.trust.servers import simulation as simulated

ALPHA, EPSILON, RUNS = 1e-4, 2.0, 10_000
CLASSES = ["r", "s", "t"]
DOMAIN: dict[str, Any] = {"x": (-1.0, 0.0, 1.0), "g": ("a", "b"), "y": tuple(CLASSES)}
COLUMNS = {
    "x": {"type": "number", "lower": -1, "upper": 1},
    "g": {"type": "category", "values": ["a", "b"]},
    "y": {"type": "category", "values": CLASSES},
}
CASES = [(m, n) for m in ("gaussian", "laplace") for n in ("add-remove", "replace-one")]
HERE = {("gaussian", "replace-one"), ("laplace", "add-remove")}
"""The cases of `make test`: both mechanisms, both relations."""


def study_of(mechanism: str, neighbours: str) -> ts.Study:
    return ts.Study.from_dict(
        {
            "study": {"name": "audit", "program": "logistic_regression", "target": "y"},
            "program": {"rounds": 1, "standardise": False},
            "privacy": {
                "epsilon": EPSILON,
                "delta": 0.03 if mechanism == "gaussian" else None,
                "mechanism": mechanism,
                "neighbours": neighbours,
            },
            "trust": {"servers": 2, "colluding": 1},
            "data": {"columns": COLUMNS, "records": 20},
        }
    )


def audit(mechanism: str, neighbours: str, *, runs: int = RUNS, **settings: Any) -> Bound:
    study = study_of(mechanism, neighbours)
    zero, one = observe_program(study, worst_neighbours(study, DOMAIN), repeats=runs, **settings)
    bound = find_bound(zero, one, delta=study.privacy.delta or 0.0, alpha=ALPHA)
    print(f"{mechanism} {neighbours}: eps >= {bound.epsilon:.3f} by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


class Longer(Wrapped):
    """The program with gradients many times as long as it declared, so that each is clipped to all it may be."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        found = self.inner.map_block(prepared, state)
        assert isinstance(found, Factored)
        rows = np.ldexp(found.rows.values, -found.rows.bits)
        whole = found.coefficients[:, :, None] * rows[:, None, :]
        return Dense(values=np.ascontiguousarray(8 * whole.reshape(len(rows), math.prod(whole.shape[1:]))))


@pytest.mark.parametrize(
    ("mechanism", "neighbours"), [pytest.param(*c, marks=() if c in HERE else pytest.mark.audit) for c in CASES]
)
def test_the_claim_is_not_refuted(mechanism: str, neighbours: str) -> None:
    bound = audit(mechanism, neighbours, runs=RUNS if (mechanism, neighbours) in HERE else 4 * RUNS)
    assert bound.epsilon < EPSILON
    assert bound.epsilon > 0.7  # a breach could have been seen


def test_gradients_that_are_too_long_keep_the_claim() -> None:
    """The control of the planted bugs: with :class:`Longer` and nothing else changed the claim holds."""
    assert 1.0 < audit("gaussian", "add-remove", program=Longer).epsilon < EPSILON


@pytest.mark.audit
@pytest.mark.parametrize(("mechanism", "neighbours"), CASES)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_claim_is_not_refuted_by_many_runs(mechanism: str, neighbours: str, seed: int) -> None:
    assert audit(mechanism, neighbours, runs=100_000, seed=seed, program=Longer).epsilon < EPSILON


def class_by_class(plan: Plan) -> Plan:
    """Clients clip each class's part to the bound that was charged for all of them together."""
    rounds = []
    for r in plan.rounds:
        (whole,) = r.grid.groups
        parts = tuple(replace(whole, name=name, size=whole.size // 3) for name in CLASSES)
        rounds.append(replace(r, grid=replace(r.grid, groups=parts)))
    return replace(plan, rounds=tuple(rounds))


def without_clipping(plan: Plan) -> Plan:
    """Clients bound at eight times what was planned, on a grid three bits coarser so that it fits; noise as planned."""
    rounds = []
    for r in plan.rounds:
        noise = tuple(replace(n, parameter=n.parameter / 64, variance=n.variance / 64) for n in r.noise)
        groups = tuple(replace(g, bound=g.bound * 8) for g in r.grid.groups)
        grid = replace(r.grid, groups=groups, fraction_bits=r.grid.fraction_bits - 3)
        rounds.append(replace(r, grid=grid, noise=noise))
    return replace(plan, rounds=tuple(rounds))


BUGS = {
    "half of the noise": scaled_noise(Fraction(1, 2)),
    "the residual's bound of two classes": scaled_noise(Fraction(0.5**0.5)),
    "class by class": class_by_class,
    "no clipping": without_clipping,
}


SMALLEST = "the residual's bound of two classes"


@pytest.mark.parametrize("bug", [pytest.param(b, marks=pytest.mark.audit if b == SMALLEST else ()) for b in BUGS])
def test_a_planted_bug_is_flagged(bug: str) -> None:
    runs = {SMALLEST: 4 * RUNS, "class by class": 2 * RUNS, "no clipping": RUNS // 4}.get(bug, RUNS)
    assert audit("gaussian", "add-remove", runs=runs, tamper=BUGS[bug], program=Longer).epsilon > EPSILON


@pytest.mark.audit
@pytest.mark.parametrize(("mechanism", "neighbours"), CASES)
def test_too_little_noise_is_flagged_everywhere(mechanism: str, neighbours: str) -> None:
    """Half of it; a third for Laplace and replace-one, where no pair of records is as far apart as is charged."""
    factor = Fraction(1, 3) if (mechanism, neighbours) == ("laplace", "replace-one") else Fraction(1, 2)
    tamper = scaled_noise(factor)
    assert audit(mechanism, neighbours, runs=4 * RUNS, tamper=tamper, program=Longer).epsilon > EPSILON


def test_the_fast_view_is_the_protocols_to_the_bit() -> None:
    study = study_of("gaussian", "replace-one")
    pair = worst_neighbours(study, DOMAIN)
    fast = observe_program(study, pair, repeats=3, at_once=1)
    for a, b in zip(fast, observe_program(study, pair, repeats=3, protocol=True)):
        np.testing.assert_array_equal(a.statistics, b.statistics)
        np.testing.assert_array_equal(a.low, b.low)


# -- one run, many canaries -------------------------------------------------------------------------------------------

CLAIM, DELTA = 3.0, 1e-6


def canaries_run(canaries: int, seed: int) -> float:
    """The lower bound on ε from one training run, as in test_audit_model."""
    names = [f"c{i}" for i in range(canaries)]
    coins = np.random.default_rng(seed).integers(0, 2, canaries)
    labels = np.array(CLASSES)[coins].tolist()
    schema = ts.Schema({"who": ts.Category([*names, "other"]), "y": ts.Category(CLASSES)})
    frames = [
        {"who": [*names[i::3], *["other"] * 10], "y": [*labels[i::3], *["t"] * 10]} for i in range(3)
    ]  # the third class, which no canary has
    fed = ts.Federation.simulate(frames, schema=schema, seed=seed)
    model = ts.LogisticRegression(epsilon=CLAIM, delta=DELTA, rounds=5, fit_intercept=False, standardise=False)
    model.fit(fed, target="y")
    iterate = model.history_[-1].iterate
    assert iterate.shape == (3, canaries + 2)
    score = iterate[1, 1:-1] - iterate[0, 1:-1]
    r = canaries // 2
    sure = np.argsort(-np.abs(score), kind="stable")[:r]
    right = int(((score[sure] > 0) == (coins[sure] == 1)).sum())
    bound = one_run_lower_bound(canaries, r, right, delta=DELTA, alpha=1e-3)
    print(f"{right} of {r} right, eps >= {bound:.3f} (claim {CLAIM})")
    return bound


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_a_trained_model_keeps_its_claim() -> None:
    assert 0 < canaries_run(2000, 1) < CLAIM


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
@pytest.mark.parametrize("bug", ["no noise", "a tenth of the noise"])
def test_a_model_trained_with_too_little_noise_is_flagged(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bug == "no noise":
        monkeypatch.setattr(simulated, "RoundNoise", NoNoise)
    else:
        plan_study, short = federation.plan_study, scaled_noise(Fraction(1, 10))
        monkeypatch.setattr(federation, "plan_study", lambda *a, **k: short(plan_study(*a, **k)))
    assert canaries_run(2000, 1) > CLAIM


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_trained_models_keep_their_claim(seed: int) -> None:
    assert canaries_run(2000, seed) < CLAIM
