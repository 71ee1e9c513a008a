"""The ε audit of frequent itemsets: both methods' own programs and plans, as the protocol's parties see them.

As in test_audit_protocol.py, with the product's own maps in the place of made-up ones. A study has a vocabulary of many
items; experiment j is about a record that holds items of its own, replaced by one that holds others of its own (or
removed). Their sets share no coordinate with another experiment's, and noise is drawn coordinate by coordinate, so each
run is many independent experiments. The rounds of a study are seen together: the statistic is the sum of their
log-likelihood ratios, and each of them. Queries are fixed: what was released before may be anything.

Where all records of an experiment count in one class (basis) their count does not differ; that leaves the bound a
little slack. Claims are ε = 2, δ = 0.03 (0 for Laplace) as there.

As in audit_programs the honest server's noise is added to the clients' exact total, which is the protocol's view to the
bit (a test compares them) without its signatures.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from audit_bounds import Bound, Outputs, find_bound
from audit_bugs import NoNoise, scaled_noise
from known_noise import note_draws
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.program import pack_state
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.client_map import ClientMap
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.engines.totals import SumRequest
from tallystick.privacy.plan import Plan
from tallystick.study import Study
from tallystick.trust.servers import simulation as simulated

ALPHA = 1e-4
CLIENTS = 3
RECORDS = 20


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method and a claim; an experiment's record holds ``held`` items."""

    method: str
    mechanism: str
    neighbours: str
    held: int = 2
    experiments: int = 40

    @property
    def delta(self) -> float:
        return 0.0 if self.mechanism == "laplace" else 0.03

    @property
    def items(self) -> int:
        return 2 * self.held * self.experiments

    def sets(self, which: int) -> np.ndarray:
        """(experiments × held): the items of the record, or of the one in its place."""
        first = 2 * self.held * np.arange(self.experiments)[:, None] + self.held * which
        return first + np.arange(self.held)

    def study(self) -> Study:
        return Study.from_dict(
            {
                "study": {"name": "audit", "program": "frequent_itemsets"},
                "program": {"min_support": 0.5, "method": self.method, "max_length": self.held}
                | ({"classes": 2} if self.method == "basis" else {"split": "uniform"}),
                "privacy": {
                    "epsilon": 2.0,
                    "delta": self.delta,
                    "neighbours": self.neighbours,
                    "mechanism": self.mechanism,
                },
                "trust": {"servers": 2, "colluding": 1},
                "data": {
                    "records": RECORDS,
                    "columns": {
                        "b": {
                            "type": "items",
                            "vocabulary": [f"i{i}" for i in range(self.items)],
                            "max_per_record": self.held,
                        }
                    },
                },
            }
        )

    def databases(self) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours in every experiment: the record's items, or the other's (add-remove: nobody's)."""
        zero, one = np.zeros((2, self.experiments, self.items))
        np.put_along_axis(one, self.sets(0), 1.0, axis=1)
        if self.neighbours == "replace-one":
            np.put_along_axis(zero, self.sets(1), 1.0, axis=1)
        return zero, one


def queries(case: Case, program: Any, public: Any) -> list[Any]:
    """One query a round: all of the experiments' sets went on (levels); items paired, classes by experiment (basis)."""
    state = program.init(public)
    if case.method == "basis":
        paired = np.arange(case.items, dtype=float)
        classes = np.arange(case.items) // (2 * case.held) % 2
        scores = np.where(classes[:, None] == np.arange(2), 1000.0, 0.0)
        return [program.query(state._replace(stage=float(at), paired=paired, scores=scores)) for at in range(3)]
    out = []
    own = {
        tuple(sorted(s))
        for which in (0, 1)
        for row in case.sets(which).tolist()
        for k in range(1, case.held + 1)
        for s in itertools.combinations(row, k)
    }
    for at in range(program.rounds):
        out.append(program.query(state))
        candidates = program._candidates(out[-1])[at]
        total = np.zeros(program.sizes[at])
        total[: len(candidates)] = [
            float(tuple(c) in own) * RECORDS for c in state.order.astype(int)[candidates].tolist()
        ]
        if at == 0:
            total = total * np.linspace(1.0, 0.9, len(total))  # the order of items stays that of the vocabulary
        state = program.reduce_in_aggregator(total, state)
    return out


def audit(
    case: Case,
    *,
    repeats: int = 126,
    seed: int = 1,
    tamper: Callable[[Plan], Plan] | None = None,
    noise: type | None = None,
    longer: float = 1.0,
) -> Bound:
    """The lower bound on ε from ``experiments × repeats`` outputs of each database."""
    outputs = observe(case, repeats=repeats, seed=seed, tamper=tamper, noise=noise, longer=longer)
    bound = find_bound(*outputs, delta=case.delta, alpha=ALPHA)
    print(f"eps >= {bound.epsilon:.3f} (claim 2) by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


def observe(
    case: Case,
    *,
    repeats: int,
    seed: int = 1,
    tamper: Callable[[Plan], Plan] | None = None,
    noise: type | None = None,
    longer: float = 1.0,
    protocol: bool = False,
) -> list[Outputs]:
    """``experiments × repeats`` outputs of each database; ``longer`` is a program's lie."""
    study = case.study()
    layout = layout_of(study)
    design = design_of(study, layout, None)
    claimed = plan_study(study, design, allow_not_private=True)
    plan = claimed if tamper is None else tamper(claimed)
    public = public_facts(study, layout)
    asked = [pack_state(q) for q in queries(case, design.program, public)]
    many = len(asked)
    assert many == len(plan.rounds)
    template = design.program.init(public)
    members = []
    for rows in case.databases():
        parts = [SimpleNamespace(features=np.ascontiguousarray(rows[i::CLIENTS]), target=None) for i in range(CLIENTS)]
        members.append({f"client-{i}": ClientMap(design.program, part, template) for i, part in enumerate(parts)})  # type: ignore[arg-type]
    with patch.object(type(design.program), "map_block", _longer(design.program, longer)):
        plain = [
            [sum(c.contribute(asked[r], plan.rounds[r]) for c in m.values()) for r in range(many)] for m in members
        ]
        return [
            _observed(
                case,
                study,
                plan,
                claimed,
                members[which],
                plain,
                asked,
                design.program,
                template,
                which,
                seed,
                noise,
                repeats,
                protocol,
            )
            for which in (0, 1)
        ]


def _longer(program: Any, factor: float) -> Any:
    """A program whose vectors are ``factor`` times too long: for the platform to bound."""
    honest = type(program).map_block

    def map_block(self: Any, prepared: Any, state: Any) -> Any:
        made = honest(self, prepared, state)
        if factor == 1.0:
            return made
        if hasattr(made, "parts"):
            return replace(made, parts=lambda: (replace(p, values=factor * p.values) for p in made.parts()))
        return replace(made, values=factor * made.values)

    return map_block


def _observed(
    case, study, plan, claimed, members, plain, asked, program, template, which, seed, noise, repeats, protocol
) -> Outputs:  # type: ignore[no-untyped-def]
    many = len(asked)
    planted = patch.object(simulated, "RoundNoise", noise) if noise is not None else nullcontext()
    repeated = replace(plan, rounds=plan.rounds * repeats)

    def stream(*labels: bytes) -> AesStream:
        return AesStream(derive(seed.to_bytes(32, "little"), bytes([which]), *labels))

    with planted:
        if protocol:
            servers = simulated_servers(
                study=study,
                plan=repeated,
                program=program,
                template=template,
                clients=members,
                min_clients=CLIENTS,
                records=4 * case.experiments,
                stream=stream,
            )
            draws = note_draws(servers)
        else:
            size = max(r.grid.size for r in plan.rounds)
            honest = simulated.RoundNoise(repeated, size, "server-1", lambda *labels: stream(study.hash, *labels))

    def view_of(number: int, at: int) -> np.ndarray:
        """What the aggregator and server-2 know together: the total with the honest server's noise alone."""
        if not protocol:
            return plain[which][at] + honest.draw(number)[: len(plain[which][at])]
        noisy = servers.noisy_total(SumRequest(round=number, model=asked[at], plan=plan.rounds[at]))
        return noisy.values - draws["server-2", number][: len(noisy.values)]

    statistics, low = [], []
    for repeat in range(repeats):
        ratios = []
        for at in range(many):
            view = view_of(repeat * many + at + 1, at)
            ratios.append(_log_ratios(case, claimed.rounds[at], view, plain[0][at], plain[1][at], program, at))
            if at == 0:
                low.append(view[case.sets(0)[:, 0]] % 64)
        parts = np.column_stack(ratios)
        statistics.append(np.column_stack([parts.sum(axis=1), parts]))
    low_bits = np.concatenate(low)
    return Outputs(statistics=np.vstack(statistics), low=low_bits, off_grid=np.zeros(len(low_bits), dtype=bool))


def _log_ratios(case, round_plan, view, zero, one, program, at) -> np.ndarray:  # type: ignore[no-untyped-def]
    """ln P₁/P₀ of every coordinate under the claimed noise, added up by experiment."""
    noise = round_plan.noise[0]
    y, step = (view - zero).astype(float), (one - zero).astype(float)
    if case.mechanism == "laplace":
        ratio = (np.abs(y) - np.abs(y - step)) / float(noise.parameter)
    else:
        ratio = y * step / float(noise.parameter)
    moved = np.flatnonzero(step)
    if case.method == "basis" and at == 2:
        moved = moved[moved % (case.items + 1) < case.items]  # the size of a class is no experiment's own
    return np.bincount(_experiment(case, program, at, moved), weights=ratio[moved], minlength=case.experiments)


def _experiment(case, program, at, coordinates) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Whose items a coordinate is about."""
    if case.method == "levels":
        candidates = program._memo[1][at] if at < len(program._memo[1]) else None
        return candidates[coordinates, 0] // (2 * case.held)
    if at == 0:
        return coordinates // (2 * case.held)
    if at == 1:
        return np.triu_indices(case.items, 1)[0][coordinates] // (2 * case.held)
    return coordinates % (case.items + 1) // (2 * case.held)


CASES = {
    f"{method} {mechanism} {relation}": Case(method=method, mechanism=mechanism, neighbours=relation)
    for method in ("levels", "basis")
    for mechanism in ("gaussian", "laplace")
    for relation in ("replace-one", "add-remove")
}
GAUSSIAN = {m: CASES[f"{m} gaussian replace-one"] for m in ("levels", "basis")}


QUICK = (
    "levels gaussian replace-one",
    "levels laplace add-remove",
    "basis gaussian replace-one",
    "basis laplace replace-one",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.audit]) for n in CASES])
def test_the_claim_is_not_refuted(name: str) -> None:
    bound = audit(CASES[name])
    assert bound.runs == 2520
    assert bound.epsilon < 2.0
    assert bound.epsilon > 0.5  # the audit sees much of what is spent


def test_a_program_that_lies_gains_nothing() -> None:
    """Vectors five times too long are clipped: the same bound."""
    assert audit(GAUSSIAN["levels"], longer=5.0).epsilon < 2.0


def _without_a_bound(plan: Plan) -> Plan:
    """Clients that do not clip: bound and ceiling are far too large."""
    rounds = []
    for r in plan.rounds:
        groups = tuple(replace(g, bound=8 * g.bound, ceiling=8.0) for g in r.grid.groups)
        rounds.append(replace(r, grid=replace(r.grid, groups=groups)))
    return replace(plan, rounds=tuple(rounds))


BUGS: dict[str, tuple[Case, dict[str, Any]]] = {
    "half noise, levels": (GAUSSIAN["levels"], {"tamper": scaled_noise(Fraction(1, 2))}),
    "half noise, basis": (GAUSSIAN["basis"], {"tamper": scaled_noise(Fraction(1, 2))}),
    "half noise, laplace": (CASES["levels laplace add-remove"], {"tamper": scaled_noise(Fraction(1, 2))}),
    "no clipping, levels": (GAUSSIAN["levels"], {"tamper": _without_a_bound, "longer": 5.0}),
    "no clipping, basis": (GAUSSIAN["basis"], {"tamper": _without_a_bound, "longer": 5.0}),
    "no noise": (GAUSSIAN["basis"], {"noise": NoNoise, "repeats": 10}),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_flagged(name: str) -> None:
    case, bug = BUGS[name]
    assert audit(case, **bug).epsilon > 2.0


@pytest.mark.parametrize("name", CASES)
def test_the_fast_view_is_the_protocols_to_the_bit(name: str) -> None:
    fast, slow = (observe(CASES[name], repeats=2, protocol=p) for p in (False, True))
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_array_equal(a.statistics, b.statistics)
        np.testing.assert_array_equal(a.low, b.low)
