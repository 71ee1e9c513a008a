"""Neighbouring databases through the whole protocol: clients that clip and share, servers that noise, a coalition.

Everything is the product's own: the study's claim, :func:`plan_study`, :class:`SimulatedServers` over
:class:`MemoryRounds` (shares, signatures, agreement, every message encoded), ``draw_noise`` on seeded AES streams, and
``total`` for clipping. The audit only looks: the *view* is the released total minus the noise of the colluding server,
read from what that server itself persisted, which is all that a coalition of it and the aggregator has (that
the shares it holds are uniform is tests/protocol/test_secure_sum_coalitions.py).

Many experiments in one execution. A record of experiment j is non-zero on j's own coordinates only; the sum is taken
coordinate by coordinate and the noise of every coordinate is drawn independently with a scale that does not depend on
the number of coordinates (plan: only through τ·d, below 1e-15 here). So coordinates j of a run on database 0 and a run
on database 1 are distributed as in a run where the record of experiment j alone differs, and experiments are
independent. Rounds repeat the whole plan, as new studies would: their noise has other keys. That both independences
hold is tested by itself (tests/end_to_end/test_noise_keys.py), and ``coordinates=1`` does without the first.

Records are five times longer than the bound, so that the bound that counts is the one clipping enforces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
from audit_bounds import LOW_BITS, Outputs
from known_noise import note_draws
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.design import SumDesign
from tallystick.algorithms.program import BlockProgram, pack_state
from tallystick.crypto.prg import AesStream, derive
from tallystick.engines.client_map import ClientMap
from tallystick.engines.planning import plan_study
from tallystick.engines.totals import SumRequest
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.grid import Group
from tallystick.privacy.plan import Plan
from tallystick.study import Study
from tallystick.trust.servers import simulation as simulated
from tallystick.trust.servers.simulation import SimulatedServers

__all__ = ["Setting", "observe"]

CLIENTS = 3
BOUND = 1_000_003  # odd, so that neighbours differ in their low bits too


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A claim, and how a record of an experiment looks."""

    mechanism: str
    neighbours: str
    epsilon: float
    delta: float
    servers: int = 2
    colluding: int = 1
    width: int = 1
    """Coordinates a record is spread over."""
    rounds: int = 1
    """Rounds of one plan; the record's sign alternates, so that their difference is what tells most."""
    count: bool = False
    """Also sum a 1 per record, in a group of its own with half the budget (add-remove needs n noised)."""
    nonnegative: bool = False
    """A record is (v, −v) in a group that declares itself non-negative: (v, 0) or (0, −v) after the platform's clip."""
    bound: float = BOUND
    fraction_bits: int = 0
    background: bool = True

    def study(self) -> Study:
        return Study.from_dict(
            {
                "study": {"name": "audit", "program": "audit"},
                "privacy": {
                    "epsilon": self.epsilon,
                    "delta": self.delta,
                    "neighbours": self.neighbours,
                    "mechanism": self.mechanism,
                },
                "trust": {"servers": self.servers, "colluding": self.colluding},
                # The rule delta < 1/records: every experiment is about a database of a few records.
                "data": {"records": None if self.neighbours == "add-remove" else 20},
            }
        )


class _OneBlockEach(BlockProgram):
    """Rows (experiment, value): the value on each of the experiment's coordinates, times the state's sign."""

    def __init__(self, setting: Setting, experiments: int) -> None:
        self.setting, self.experiments = setting, experiments
        self.size = experiments * setting.width
        self.rounds = setting.rounds

    def groups_of_a_round(self) -> tuple[Group, ...]:
        s = self.setting
        share = 0.5 if s.count else 1.0
        groups = (Group(name="sum", size=self.size, bound=s.bound, share=share, nonnegative=s.nonnegative),)
        return (*groups, Group(name="count", size=self.experiments, bound=1.0, share=share)) if s.count else groups

    def init(self, public: object) -> np.ndarray:
        return np.ones(1)

    def prepare(self, features: np.ndarray, target: np.ndarray | None) -> np.ndarray:
        return features

    def map_block(self, prepared: np.ndarray, state: np.ndarray) -> Contribution:
        s, n = self.setting, len(prepared)
        which = prepared[:, 0].astype(np.int64)
        indices = which[:, None] * s.width + np.arange(s.width)
        values = np.repeat(prepared[:, 1:] * state[0], s.width, axis=1)
        if s.nonnegative:
            values[:, 1::2] *= -1
        if s.count:
            indices = np.hstack([indices, self.size + which[:, None]])
            values = np.hstack([values, np.ones((n, 1))])
        per = indices.shape[1]
        return Sparse(
            indptr=np.arange(n + 1, dtype=np.int64) * per,
            indices=indices.reshape(-1),
            values=np.ascontiguousarray(values.reshape(-1)),
            size=self.size + s.count * self.experiments,
        )


def _databases(setting: Setting, experiments: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (experiment, value) of database 0 and 1: neighbours in every single experiment."""
    which = np.arange(experiments, dtype=np.float64)
    long = 5 * setting.bound
    record = np.column_stack([which, np.full(experiments, long)])
    opposite = np.column_stack([which, np.full(experiments, -long)])
    others = np.column_stack([which, np.full(experiments, 0.5 * setting.bound)])
    others = others if setting.background else others[:0]
    zero = others if setting.neighbours == "add-remove" else np.vstack([others, opposite])
    return zero, np.vstack([others, record])


def observe(
    setting: Setting,
    *,
    experiments: int,
    repeats: int,
    seed: int,
    tamper: Callable[[Plan], Plan] | None = None,
    noise: type | None = None,
    publish: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Outputs, Outputs]:
    """``experiments × repeats`` outputs of database 0 and as many of database 1, as the coalition sees them.

    Planted bugs: ``tamper`` changes the plan that is run while the claim stays, ``noise`` replaces the servers' noise
    source, ``publish`` makes real numbers of the totals in some other way than division by the grid's scale.
    """
    study = setting.study()
    program = _OneBlockEach(setting, experiments)
    groups = (program.groups_of_a_round(),) * setting.rounds
    claimed = plan_study(
        study, SumDesign(program=program, groups=groups, fraction_bits=setting.fraction_bits), allow_not_private=False
    )
    plan = tamper(claimed) if tamper is not None else claimed
    plan = replace(plan, rounds=plan.rounds * repeats)
    databases = _databases(setting, experiments)
    clients = [_clients(program, rows) for rows in databases]
    plain = [_plain_totals(setting, plan, members) for members in clients]
    outputs = []
    planted = patch.object(simulated, "RoundNoise", noise) if noise is not None else nullcontext()
    for number, members in enumerate(clients):
        label = f"database {number}".encode()

        def stream(*labels: bytes, label: bytes = label) -> AesStream:
            return AesStream(derive(seed.to_bytes(32, "little"), label, *labels))

        with planted:
            servers = simulated_servers(
                study=study,
                plan=plan,
                program=program,
                template=np.ones(1),
                clients=members,
                min_clients=CLIENTS,
                records=4 * experiments,
                stream=stream,
            )
        outputs.append(_outputs(setting, claimed, plan, plain, servers, publish))
    return outputs[0], outputs[1]


def _clients(program: _OneBlockEach, rows: np.ndarray) -> dict[str, ClientMap]:
    parts = [rows[i::CLIENTS] for i in range(CLIENTS)]
    return {
        f"client-{i}": ClientMap(program, SimpleNamespace(features=part, target=None), np.ones(1))
        for i, part in enumerate(parts)
    }


def _model(setting: Setting, number: int) -> bytes:
    """The round's model: a sign that alternates within a plan."""
    return pack_state(np.array([-1.0 if (number - 1) % setting.rounds % 2 else 1.0]))


def _plain_totals(setting: Setting, plan: Plan, members: dict[str, ClientMap]) -> list[np.ndarray]:
    """The exact totals of the rounds of one plan: what the attacker knows of either database."""
    return [
        sum(c.contribute(_model(setting, r), plan.rounds[r - 1]) for c in members.values())
        for r in range(1, setting.rounds + 1)
    ]


def _outputs(
    setting: Setting,
    claimed: Plan,
    plan: Plan,
    plain: list[list[np.ndarray]],
    servers: SimulatedServers,
    publish: Callable[[np.ndarray], np.ndarray] | None,
) -> Outputs:
    statistics, low, off_grid = [], [], []
    ratios: list[np.ndarray] = []
    colluding = [f"server-{i}" for i in range(setting.servers - max(1, setting.colluding) + 1, setting.servers + 1)]
    draws = note_draws(servers)
    for number, round_plan in enumerate(plan.rounds, start=1):
        at = (number - 1) % setting.rounds
        noisy = servers.noisy_total(SumRequest(round=number, model=_model(setting, number), plan=round_plan))
        view = noisy.values.copy()
        for server in colluding:
            view -= draws[server, number]
        seen = view.astype(np.float64) if publish is None else publish(view / round_plan.grid.scale)
        scale = 1.0 if publish is None else 1 / round_plan.grid.scale
        ratios.append(_log_ratios(setting, claimed.rounds[at], seen, plain[0][at] * scale, plain[1][at] * scale, scale))
        if at == 0:
            first = seen[: len(view) : setting.width][: len(ratios[-1])]
            low.append(view[: len(first) * setting.width : setting.width] % 2**LOW_BITS)
            off_grid.append((np.abs(first) < 0.25) & (first * 2.0**54 % 1 != 0))
        if at == setting.rounds - 1:
            parts = np.hstack(ratios)
            ratios = []
            statistics.append(np.column_stack([parts.sum(axis=1), parts]) if parts.shape[1] > 1 else parts)
    return Outputs(statistics=np.vstack(statistics), low=np.concatenate(low), off_grid=np.concatenate(off_grid))


def _log_ratios(setting, round_plan, seen, zero, one, scale) -> np.ndarray:
    """ln P₁(seen)/P₀(seen) under the claimed noise up to a constant, per experiment (rows) and group (columns)."""
    columns, start = [], 0
    for noise in round_plan.noise:
        stop = start + noise.group.size
        y, step = seen[start:stop] - zero[start:stop], one[start:stop] - zero[start:stop]
        if setting.mechanism == "laplace":
            ratio = (np.abs(y) - np.abs(y - step)) / (float(noise.parameter) * scale)
        else:
            ratio = y * step / (float(noise.parameter) * scale**2)
        width = setting.width if noise.group.name == "sum" else 1
        columns.append(ratio.reshape(-1, width).sum(axis=1))
        start = stop
    return np.column_stack(columns)


def is_tight(epsilon: float, claim: float) -> bool:
    """A bound that says something: at least half of the claim was shown to be spent."""
    return math.isfinite(epsilon) and epsilon > 0.5 * claim
