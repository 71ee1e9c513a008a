"""The ε audit of ridge, summary, evaluation and linear SVC: each stays below its claim, planted bugs do not.

Ridge, summary and evaluation are one round of several groups that share the budget; what is audited is that the groups
*together* keep the claim, on the neighbours that tell most. Under add-remove one record is at the end of (nearly) every
group at once, and the audit is tight; under replace-one no pair is. 20,000 runs a database and case, half of them to
choose the event, α = 1e-4 a bound, fixed seeds: see test_audit_protocol. Planted: half of the noise; a split that is
not one (every group noised as if it had the whole budget); a client that does not clip.

LinearSVC is audited as the logistic regression is: one run, a thousand canaries (test_audit_model).
"""

from __future__ import annotations

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
from tallystick.privacy.contribution import Contribution, Dense, Sparse
from tallystick.privacy.plan import Plan
from tallystick.trust.servers import simulation as simulated

ALPHA = 1e-4
RUNS = 20_000
NUMBER = {"type": "number", "lower": -1, "upper": 1}
PAIR = {"type": "category", "values": ["a", "b"]}
CLASSIFIER = {"kind": "linear", "weights": [[1.0, 0.0, 0.0]], "intercept": [0.0]}
COLUMNS = {
    "ridge": {"x": NUMBER, "g": PAIR, "y": NUMBER},
    "summary": {"x": NUMBER, "z": NUMBER, "g": PAIR},
    "evaluation": {"x": NUMBER, "g": PAIR, "y": PAIR},
}
OWN = {"ridge": {}, "summary": {"bins": 3}, "evaluation": {"classifier": CLASSIFIER}}
DOMAIN = {"number": (-1.0, 0.0, 1.0), "category": ("a", "b")}
CASES = [(p, m) for p in COLUMNS for m in ("gaussian", "laplace")]


def study_of(program: str, mechanism: str, neighbours: str = "add-remove") -> ts.Study:
    """Claims where tens of thousands of runs tell: ε = 2, δ = 0.03 or pure."""
    return ts.Study.from_dict(
        {
            "study": {"name": "audit", "program": program, "target": None if program == "summary" else "y"},
            "program": OWN[program],
            "privacy": {
                "epsilon": 2.0,
                "delta": 0.03 if mechanism == "gaussian" else None,
                "mechanism": mechanism,
                "neighbours": neighbours,
            },
            "trust": {"servers": 2, "colluding": 1},
            "data": {"columns": COLUMNS[program], "records": 20},
        }
    )


def worst(study: ts.Study) -> Any:
    columns = COLUMNS[study.study.program]
    return worst_neighbours(study, {name: DOMAIN[str(c["type"])] for name, c in columns.items()})


def audit(study: ts.Study, runs: int = RUNS, **settings: Any) -> Bound:
    zero, one = observe_program(study, worst(study), repeats=runs, **settings)
    bound = find_bound(zero, one, delta=study.privacy.delta or 0.0, alpha=ALPHA)
    print(f"{study.study.program} {study.privacy.mechanism}: eps >= {bound.epsilon:.3f} by {bound.event}, {bound.hits}")
    return bound


@pytest.mark.parametrize(
    ("program", "mechanism", "neighbours"),
    [
        *[pytest.param(p, "gaussian", "add-remove", marks=pytest.mark.audit) for p in COLUMNS],
        *[(p, "laplace", "add-remove") for p in COLUMNS],
        *[(p, "gaussian", "replace-one") for p in COLUMNS],
    ],
)
def test_the_claim_is_not_refuted(program: str, mechanism: str, neighbours: str) -> None:
    bound = audit(study_of(program, mechanism, neighbours))
    assert bound.epsilon < 2.0
    assert bound.epsilon > 0.7  # a breach could have been seen


class Longer(Wrapped):
    """A program whose vectors are four times as long as it declared."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        found = self.inner.map_block(prepared, state)
        if isinstance(found, Dense):
            return Dense(values=4 * found.values)
        assert isinstance(found, Sparse)
        return replace(found, values=4 * found.values)


def every_group_has_all(plan: Plan) -> Plan:
    """The shares are forgotten: σ is that of the whole budget in every group."""
    rounds = []
    for r in plan.rounds:
        noise = tuple(
            replace(n, parameter=(n.parameter * Fraction(n.group.share)).limit_denominator(2**20)) for n in r.noise
        )
        rounds.append(replace(r, noise=noise))
    return replace(plan, rounds=tuple(rounds))


LONG = ("a split that is not one", "gaussian")  # three times the runs; its Laplace twins are short


@pytest.mark.parametrize(
    ("bug", "program", "mechanism"),
    [
        pytest.param(bug, p, m, marks=[pytest.mark.audit] if (bug, m) == LONG else [])
        for bug in ("half of the noise", "a split that is not one")
        for p, m in CASES
    ],
)
def test_a_planted_bug_is_flagged(program: str, mechanism: str, bug: str) -> None:
    """Records longer than the bounds, so that each group is clipped to all that it may be."""
    tamper = scaled_noise(Fraction(1, 2)) if bug == "half of the noise" else every_group_has_all
    runs = 3 * RUNS if (bug, mechanism) == ("a split that is not one", "gaussian") else RUNS  # the smallest of them
    assert audit(study_of(program, mechanism), runs=runs, tamper=tamper, program=Longer).epsilon > 2.0


def without_clipping(plan: Plan) -> Plan:
    """Clients bound at eight times what was planned; the noise is the plan's."""

    def wide(r: Any) -> Any:
        return replace(r, grid=replace(r.grid, groups=tuple(replace(g, bound=g.bound * 8) for g in r.grid.groups)))

    return replace(plan, rounds=tuple(wide(r) for r in plan.rounds))


@pytest.mark.parametrize("program", ["ridge", "summary", "evaluation"])
def test_a_program_that_exceeds_its_bounds_is_clipped_and_without_clipping_flagged(program: str) -> None:
    study = study_of(program, "gaussian")
    # Coarser by three bits, so that the wider bound fits the grid.
    coarse = {"tamper": lambda plan: without_clipping(coarser(plan))}
    assert audit(study, program=Longer).epsilon < 2.0
    assert audit(study, program=Longer, **coarse).epsilon > 2.0


def coarser(plan: Plan) -> Plan:
    """The same plan on a grid eight times coarser."""

    def coarse(r: Any) -> Any:
        noise = tuple(replace(n, parameter=n.parameter / 64, variance=n.variance / 64) for n in r.noise)
        return replace(r, grid=replace(r.grid, fraction_bits=r.grid.fraction_bits - 3), noise=noise)

    return replace(plan, rounds=tuple(coarse(r) for r in plan.rounds))


@pytest.mark.parametrize("program", ["ridge", "summary", "evaluation"])
def test_the_fast_view_is_the_protocols_to_the_bit(program: str) -> None:
    study = study_of(program, "gaussian")
    pair = worst(study)
    fast = observe_program(study, pair, repeats=5, at_once=1)
    slow = observe_program(study, pair, repeats=5, protocol=True)
    for a, b in zip(fast, slow):
        np.testing.assert_array_equal(a.statistics, b.statistics)
        np.testing.assert_array_equal(a.low, b.low)


@pytest.mark.audit
@pytest.mark.parametrize(("program", "mechanism"), CASES)
@pytest.mark.parametrize("seed", [2, 3])
def test_the_claim_is_not_refuted_by_many_runs(program: str, mechanism: str, seed: int) -> None:
    assert audit(study_of(program, mechanism), runs=200_000, seed=seed).epsilon < 2.0


# -- linear SVC: one run, a thousand canaries -------------------------------------------------------------------------

EPSILON, DELTA = 3.0, 1e-6


def canaries_run(canaries: int, seed: int) -> float:
    """The lower bound on ε from one training run, as in test_audit_model."""
    names = [f"c{i}" for i in range(canaries)]
    coins = np.random.default_rng(seed).integers(0, 2, canaries)
    schema = ts.Schema({"who": ts.Category(names), "label": ts.Category(["no", "yes"])})
    frames = [{"who": names[i::3], "label": np.array(["no", "yes"])[coins[i::3]].tolist()} for i in range(3)]
    fed = ts.Federation.simulate(frames, schema=schema, seed=seed)
    model = ts.LinearSVC(epsilon=EPSILON, delta=DELTA, fit_intercept=False, standardise=False)
    model.fit(fed, target="label")
    score = model.history_[-1].iterate[0, 1:]
    r = canaries // 2
    sure = np.argsort(-np.abs(score), kind="stable")[:r]
    right = int(((score[sure] > 0) == (coins[sure] == 1)).sum())
    bound = one_run_lower_bound(canaries, r, right, delta=DELTA, alpha=1e-3)
    print(f"{right} of {r} right, eps >= {bound:.3f} (claim {EPSILON})")
    return bound


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_a_trained_svc_keeps_its_claim() -> None:
    assert 0 < canaries_run(1000, 1) < EPSILON


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_an_svc_trained_without_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "RoundNoise", NoNoise)
    assert canaries_run(1000, 1) > EPSILON


@pytest.mark.filterwarnings("ignore::tallystick.core.errors.PrivacyWarning")
def test_an_svc_trained_with_a_tenth_of_the_noise_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_study = federation.plan_study
    short = scaled_noise(Fraction(1, 10))
    monkeypatch.setattr(federation, "plan_study", lambda *a, **k: short(plan_study(*a, **k)))
    assert canaries_run(1000, 1) > EPSILON
