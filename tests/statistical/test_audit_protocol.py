"""The end-to-end ε audit: the protocol stays below its claim, and the same harness flags planted bugs.

What is shown. For Gaussian (ε, δ) and Laplace (ε, 0), replace-one and add-remove, two and three servers of which one
colludes: the lower bound on ε from the coalition's view is below the claim, and for one full share per server above
half of it, so that the audit could have seen a breach. Claims are large (ε = 2) and δ = 0.03, where the zCDP promise of
one round is nearly tight and some ten thousand runs tell a noise that is short by √2. In `make test` 40,000 runs per
database and case (160,000 where √2 is to be told), half of them to choose the event; in `make audit` 400,000.

Error rates. Each bound holds with confidence 1 − 1e-4 (α = 1e-4, both limits together). Seeds are fixed, so a verdict
never changes by itself; with fresh seeds a sound protocol would fail one of the fewer than 30 audits here with
probability below 0.3 %. A planted bug is missed with probability below 1e-6: each bound below is more than five
standard errors of its count above the claim (the weakest, √2 of Gaussian noise, gives 2.3 to 2.4 where 2 is claimed).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from audit_bounds import Bound, find_bound
from audit_bugs import (
    CountWithoutNoise,
    Float32Noise,
    NoNoise,
    OneHonestServerForgets,
    ReusedNoise,
    clip_in_the_wrong_norm,
    float_noise_of,
    negative_passes,
    scaled_noise,
)
from audit_protocol import Setting, is_tight, observe

ALPHA = 1e-4
LAPLACE = Setting(mechanism="laplace", neighbours="add-remove", epsilon=2.0, delta=0.0)
GAUSSIAN = Setting(mechanism="gaussian", neighbours="add-remove", epsilon=2.0, delta=0.03)
ROOT_HALF = Fraction(0.5**0.5)
FINE = {"experiments": 10_000}
"""Four times the runs, for the bugs that leave 1/√2 of the noise."""

SOUND = {
    f"{base.mechanism} {relation} m={servers}": replace(base, neighbours=relation, servers=servers)
    for base in (GAUSSIAN, LAPLACE)
    for relation in ("replace-one", "add-remove")
    for servers in (2, 3)
}
SOUND |= {
    "gaussian m=3 t=2": replace(GAUSSIAN, servers=3, colluding=2),
    "gaussian m=5 t=1": replace(GAUSSIAN, servers=5),
    "gaussian two rounds": replace(GAUSSIAN, rounds=2),
    "laplace two rounds": replace(LAPLACE, rounds=2),
    "laplace over four coordinates": replace(LAPLACE, width=4),
    "laplace with n": replace(LAPLACE, count=True),
    "gaussian with n": replace(GAUSSIAN, count=True),
    "gaussian non-negative": replace(GAUSSIAN, neighbours="replace-one", width=2, nonnegative=True),
    "laplace non-negative": replace(LAPLACE, neighbours="replace-one", width=2, nonnegative=True),
    "laplace in unit steps": replace(LAPLACE, bound=1.0, fraction_bits=20, background=False),
}

PLANTED = {
    "half noise, gaussian": (GAUSSIAN, {"tamper": scaled_noise(Fraction(1, 2))}),
    "half noise, laplace": (LAPLACE, {"tamper": scaled_noise(Fraction(1, 2))}),
    "sensitivity of add-remove for replace-one": (
        replace(GAUSSIAN, neighbours="replace-one"),
        {"tamper": scaled_noise(Fraction(1, 2))},
    ),
    "sensitivity 1 instead of sqrt 2": (
        replace(GAUSSIAN, neighbours="replace-one"),
        {"tamper": scaled_noise(ROOT_HALF), **FINE},
    ),
    "variance over all servers, m=2": (GAUSSIAN, {"tamper": scaled_noise(ROOT_HALF), **FINE}),
    "one share missing, m=3": (replace(GAUSSIAN, servers=3), {"noise": OneHonestServerForgets, **FINE}),
    "three shares missing, m=5": (replace(GAUSSIAN, servers=5), {"noise": OneHonestServerForgets}),
    "reused noise, gaussian": (replace(GAUSSIAN, rounds=2), {"noise": ReusedNoise}),
    "reused noise, laplace": (replace(LAPLACE, rounds=2), {"noise": ReusedNoise}),
    "negative where non-negative is charged": (
        replace(GAUSSIAN, neighbours="replace-one", width=2, nonnegative=True),
        {"tamper": negative_passes, **FINE},
    ),
    "wrong norm": (replace(LAPLACE, width=4), {"tamper": clip_in_the_wrong_norm}),
    "n leaked": (replace(LAPLACE, count=True), {"noise": CountWithoutNoise}),
    "n leaked, gaussian": (replace(GAUSSIAN, count=True), {"noise": CountWithoutNoise}),
    "float noise of single precision": (replace(LAPLACE, bound=2.0**30 + 3), {"noise": Float32Noise}),
    "float noise at the aggregator": (
        replace(LAPLACE, bound=1.0, fraction_bits=20, background=False),
        {"noise": NoNoise, "publish": float_noise_of(0.5, 7)},
    ),
}


def audit(setting: Setting, *, experiments: int = 2500, repeats: int = 16, seed: int = 1, **bug) -> Bound:
    zero, one = observe(setting, experiments=experiments, repeats=repeats, seed=seed, **bug)
    bound = find_bound(zero, one, delta=setting.delta, alpha=ALPHA)
    print(f"eps >= {bound.epsilon:.3f} (claim {setting.epsilon}) by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


@pytest.mark.parametrize("case", SOUND)
def test_the_claim_is_not_refuted(case: str) -> None:
    setting = SOUND[case]
    bound = audit(setting)
    assert bound.runs == 20_000
    assert bound.epsilon < setting.epsilon
    if setting.servers == 2 and not setting.count:
        assert is_tight(bound.epsilon, setting.epsilon)


@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_bug_is_flagged(case: str) -> None:
    setting, bug = PLANTED[case]
    assert audit(setting, **bug).epsilon > setting.epsilon


@pytest.mark.audit
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("case", SOUND)
def test_the_claim_is_not_refuted_by_many_runs(case: str, seed: int) -> None:
    setting = SOUND[case]
    bound = audit(setting, experiments=10_000, repeats=40, seed=seed)
    assert bound.runs == 200_000
    assert bound.epsilon < setting.epsilon


@pytest.mark.audit
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("case", PLANTED)
def test_a_planted_bug_is_flagged_by_many_runs(case: str, seed: int) -> None:
    setting, bug = PLANTED[case]
    bug = {**bug, "experiments": 10_000, "repeats": 40, "seed": seed}
    assert audit(setting, **bug).epsilon > setting.epsilon


@pytest.mark.audit
@pytest.mark.parametrize("setting", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
def test_one_experiment_a_run(setting: Setting) -> None:
    """20,000 protocol executions on each database, each of one coordinate: no experiment shares a run with another."""
    sound = audit(setting, experiments=1, repeats=20_000)
    assert sound.runs == 10_000
    assert setting.epsilon > sound.epsilon > 0.5 * setting.epsilon
    half = audit(setting, experiments=1, repeats=20_000, tamper=scaled_noise(Fraction(1, 2)))
    assert half.epsilon > setting.epsilon
