"""The ε audit of k-means: its own program and plan as the protocol's parties see them, and the bugs it would show.

As in test_audit_protocol.py, with the product's own map. The study has 2E centres in a row; experiment j is about a
record near its own two of them: replaced by one on the other side of the same centre (the counts cancel, the sums are
opposite), or by one at the other centre (sums and counts of two clusters), or removed. Experiments share no coordinate
and noise is drawn coordinate by coordinate, so each run is E independent experiments. The query is fixed: what was
released before may be anything, so a tiny radius is asked for, at which every record is shortened to the bound.

The statistic is the log-likelihood ratio under the claimed noise. Claims are ε = 2, δ = 0.03 (0 for Laplace).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from audit_bounds import Bound, Outputs, find_bound
from audit_bugs import scaled_noise
from known_noise import note_draws
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.clustering.kmeans import KMeansProgram, design_kmeans
from tallystick.algorithms.clustering.rules import KMeansSettings
from tallystick.algorithms.program import Public, pack_state
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.client_map import ClientMap
from tallystick.engines.planning import plan_study, public_budget
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.totals import SumRequest
from tallystick.privacy.contribution import Contribution, Dense, densify
from tallystick.privacy.plan import Plan
from tallystick.study import Study

ALPHA = 1e-4
EPSILON = 2.0
CLIENTS = 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim, and how the record of an experiment differs: on the ``same`` centre, at the ``other``, or ``gone``."""

    mechanism: str
    differs: str
    experiments: int = 500
    length: float = 3.2
    """Of the record's difference to its centre, in radii; above 1 it is shortened."""

    @property
    def delta(self) -> float:
        return 0.0 if self.mechanism == "laplace" else 0.03

    @property
    def centres(self) -> np.ndarray:
        return np.linspace(-1, 1, 2 * self.experiments)

    @property
    def spacing(self) -> float:
        return float(self.centres[1] - self.centres[0])

    @property
    def radius(self) -> float:
        return self.spacing / 8

    def study(self) -> Study:
        gone = self.differs == "gone"
        return Study.from_dict(
            {
                "study": {"name": "audit", "program": "kmeans"},
                "privacy": {
                    "epsilon": EPSILON,
                    "delta": self.delta,
                    "neighbours": "add-remove" if gone else "replace-one",
                    "mechanism": self.mechanism,
                },
                "trust": {"servers": 2, "colluding": 1},
                # The rule delta < 1/records: every experiment is about a database of a few records.
                "data": {"records": None if gone else 20},
            }
        )

    def databases(self) -> tuple[np.ndarray, np.ndarray]:
        """The one column of either database."""
        first, second, off = self.centres[::2], self.centres[1::2], self.length * self.radius
        one = first + off
        zero = {"same": first - off, "other": second + off, "gone": first[:0]}[self.differs]
        return zero[:, None], one[:, None]

    def program(self) -> KMeansProgram:
        """Of as many clusters as experiments need, whatever the number of records that the claim is about."""
        table = tuple((float(c),) for c in self.centres)
        settings = KMeansSettings(n_clusters=len(table), rounds=1, start=table)
        public = Public(features=("x",), blocks=(("x", 0, 1, "number", 1),), max_l2_squared=1.0, max_l1=1.0)
        return KMeansProgram(public, public_budget(self.study()), settings)


def observe(
    case: Case,
    *,
    repeats: int,
    seed: int = 1,
    tamper: Callable[[Plan], Plan] | None = None,
    program: type[KMeansProgram] | None = None,
    protocol: bool = False,
) -> tuple[Outputs, Outputs]:
    """``experiments × repeats`` outputs of either database, as the aggregator and the colluding server see them.

    Without ``protocol`` the honest server's noise is added to the clients' exact total: the same view to the bit.
    """
    study, used = case.study(), case.program()
    public = Public(features=("x",), blocks=(("x", 0, 1, "number", 1),), max_l2_squared=1.0, max_l1=1.0)
    claimed = plan_study(study, design_kmeans(public, used.budget, used.settings), allow_not_private=False)
    plan = claimed if tamper is None else tamper(claimed)
    plan = replace(plan, rounds=plan.rounds * repeats)
    if program is not None:
        used = program(public, used.budget, used.settings)
    template = used.init(public)
    model = pack_state(used.query(template)._replace(radius=case.radius))
    clients = [
        {
            f"client-{i}": ClientMap(
                used, SimpleNamespace(features=np.ascontiguousarray(rows[i::CLIENTS]), target=None), template
            )
            for i in range(CLIENTS)
        }
        for rows in case.databases()
    ]
    plain = [sum(c.contribute(model, plan.rounds[0]) for c in members.values()) for members in clients]
    outputs = []
    for number, members in enumerate(clients):

        def stream(*labels: bytes, number: int = number) -> AesStream:
            return AesStream(derive(seed.to_bytes(32, "little"), b"database %d" % number, *labels))

        if protocol:
            servers = simulated_servers(
                study=study,
                plan=plan,
                program=used,
                template=template,
                clients=members,
                min_clients=CLIENTS,
                records=2 * case.experiments,
                stream=stream,
            )
            draws = note_draws(servers)
        else:
            honest = RoundNoise(plan, len(plain[0]), "server-1", lambda *labels, s=stream: s(study.hash, *labels))
        statistics = []
        for r in range(1, repeats + 1):
            if protocol:
                noisy = servers.noisy_total(SumRequest(round=r, model=model, plan=plan.rounds[r - 1]))
                known = noisy.values - draws["server-2", r][: len(noisy.values)]
            else:
                known = plain[number] + honest.draw(r)
            view = (known - plain[0]).astype(np.float64)
            step, parameter = (plain[1] - plain[0]).astype(np.float64), float(claimed.rounds[0].noise[0].parameter)
            if case.mechanism == "laplace":
                ratio = (np.abs(view) - np.abs(view - step)) / parameter
            else:
                ratio = view * step / parameter
            statistics.append(ratio.reshape(case.experiments, 4).sum(axis=1, keepdims=True))  # two clusters of (n, sum)
        rows = np.vstack(statistics)
        nothing = np.zeros(len(rows), dtype=np.int64)
        outputs.append(Outputs(statistics=rows, low=nothing, off_grid=nothing.astype(np.bool_)))
    return outputs[0], outputs[1]


def audit(case: Case, *, repeats: int = 40, **bug: Any) -> Bound:
    zero, one = observe(case, repeats=repeats, **bug)
    bound = find_bound(zero, one, delta=case.delta, alpha=ALPHA)
    print(f"eps >= {bound.epsilon:.3f} (claim {EPSILON}) by {bound.event}, {bound.hits} of {bound.runs}")
    return bound


SOUND = [Case(mechanism=m, differs=d) for m in ("gaussian", "laplace") for d in ("same", "other", "gone")]


@pytest.mark.parametrize("case", SOUND, ids=lambda c: f"{c.mechanism} {c.differs}")
def test_the_claim_is_not_refuted(case: Case) -> None:
    bound = audit(case)
    assert bound.runs == 10_000
    # Half of the claim or more was shown to be spent: each of these pairs is a worst case of its row (Laplace, same
    # centre: 2 of 2(1 + c), c = ¼).
    assert 0.5 * EPSILON < bound.epsilon < EPSILON


@pytest.mark.parametrize("case", SOUND, ids=lambda c: f"{c.mechanism} {c.differs}")
def test_the_fast_view_is_the_protocols_to_the_bit(case: Case) -> None:
    for a, b in zip(observe(case, repeats=2), observe(case, repeats=2, protocol=True), strict=True):
        np.testing.assert_array_equal(a.statistics, b.statistics)


# -- planted bugs ---------------------------------------------------------------------------------------------------


class InBothClusters(KMeansProgram):
    """A record adds itself to its cluster, and twice to the other of the pair."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        made = densify(super().map_block(prepared, state), None)  # type: ignore[arg-type]
        pairs = made.reshape(len(made), made.shape[1] // 4, 2, 2)
        return Dense(values=(pairs + 2 * pairs[:, :, ::-1]).reshape(made.shape))


class CountsThreeTimes(KMeansProgram):
    """A record counts itself three times."""

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        made = densify(super().map_block(prepared, state), None)  # type: ignore[arg-type]
        counts = made.copy()
        counts[:, 1::2] = 0
        return Dense(values=made + 2 * counts)


def not_enforced(plan: Plan) -> Plan:
    """Clients that take a group of blocks for one long vector, each coordinate of it bounded, and clip no more."""
    rounds = []
    for r in plan.rounds:
        groups = tuple(replace(g, bound=64.0, one_of=0, count=0.0) for g in r.grid.groups)
        rounds.append(replace(r, grid=replace(r.grid, groups=groups, fraction_bits=r.grid.fraction_bits - 6)))
    return replace(plan, rounds=tuple(rounds))


BUGS: dict[str, tuple[Case, dict[str, Any]]] = {
    "half noise": (Case(mechanism="gaussian", differs="same"), {"tamper": scaled_noise(Fraction(1, 2))}),
    "half noise, laplace": (Case(mechanism="laplace", differs="other"), {"tamper": scaled_noise(Fraction(1, 2))}),
    "add-remove's noise for replace-one": (
        Case(mechanism="gaussian", differs="other"),
        {"tamper": scaled_noise(Fraction(1, 2))},
    ),
    "noise for the sums alone": (  # √(B² + c²) instead of B: 1/√2 of the noise, which needs more runs to be told
        Case(mechanism="gaussian", differs="gone"),
        {"tamper": scaled_noise(Fraction(0.5**0.5)), "repeats": 160},
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_too_little_noise_is_flagged(name: str) -> None:
    case, bug = BUGS[name]
    assert audit(case, **bug).epsilon > EPSILON


@pytest.mark.parametrize(
    ("kind", "mechanism", "differs", "length"),
    [
        (InBothClusters, "gaussian", "same", 1.0),
        (InBothClusters, "laplace", "same", 1.0),
        (CountsThreeTimes, "gaussian", "other", 1.0),
        (CountsThreeTimes, "laplace", "other", 1.0),
        (CountsThreeTimes, "gaussian", "gone", 1.0),
        (KMeansProgram, "gaussian", "same", 3.2),  # right, but its records are too long: nobody shortens them
        (KMeansProgram, "laplace", "gone", 3.2),
    ],
)
def test_a_wrong_program_is_flagged_only_where_nothing_is_enforced(
    kind: type[KMeansProgram], mechanism: str, differs: str, length: float
) -> None:
    """The program is not trusted: what it gets wrong is put right on the grid, and shows when that is taken away."""
    case = Case(mechanism=mechanism, differs=differs, length=length)
    assert audit(case, program=kind).epsilon < EPSILON
    assert audit(case, program=kind, tamper=lambda plan: rescaled(not_enforced(plan), plan)).epsilon > EPSILON


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_without_enforcement_a_right_program_with_short_records_is_still_sound(mechanism: str) -> None:
    """The comparison above is fair: taking the enforcement away refutes nothing by itself."""
    case = Case(mechanism=mechanism, differs="other", length=1.0)
    assert audit(case, tamper=lambda plan: rescaled(not_enforced(plan), plan)).epsilon < EPSILON


def rescaled(plan: Plan, claimed: Plan) -> Plan:
    """The claimed noise in the units of the coarser grid that the unclipped vectors need."""
    power = 2 if plan.claim.mechanism == "gaussian" else 1
    rounds = []
    for r, c in zip(plan.rounds, claimed.rounds):
        shrink = Fraction(1, 2 ** ((c.grid.fraction_bits - r.grid.fraction_bits) * power))
        noise = tuple(replace(n, parameter=n.parameter * shrink, variance=n.variance * float(shrink)) for n in r.noise)
        rounds.append(replace(r, noise=noise))
    return replace(plan, rounds=tuple(rounds))
