"""A built-in program of one round on two neighbouring databases, many times.

As in audit_protocol everything is the product's own: the study's design and plan, clients that map, grid and clip,
servers' exact noise on seeded streams; the view is that of the aggregator and the colluding server. A program's
coordinates are shared by all records, so every experiment is a run of its own: rounds repeat the plan, as new studies
would. With ``protocol`` each goes through shares, signatures and agreement; without it the honest server's noise is
added to the clients' exact total, which is the same view to the bit (a test compares them) and a hundred times faster.
Coordinates are noised independently, so many runs may also be one draw of a longer vector: as fast again.

The statistic is the log-likelihood ratio of the two databases under the *claimed* noise, the most powerful there is;
also that of each group alone. Neighbours are searched for: the pair of records of a small domain that it tells best.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from audit_bounds import LOW_BITS, Outputs
from known_noise import note_draws
from numpy.typing import NDArray
from tests.simulated_servers import simulated_servers

from tallystick.algorithms.program import BlockProgram, Program, pack_state
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.encoding import encode
from tallystick.engines.client_map import ClientMap
from tallystick.engines.designs import design_of
from tallystick.engines.planning import layout_of, plan_study, public_facts
from tallystick.engines.round_vectors import RoundNoise, Stream
from tallystick.engines.totals import SumRequest
from tallystick.privacy.contribution import Contribution, Sparse
from tallystick.privacy.plan import Plan
from tallystick.privacy.round_plan import RoundPlan
from tallystick.study import Study
from tallystick.trust.servers.simulation import SimulatedServers

__all__ = ["OwnCoordinates", "Record", "Wrapped", "observe_program", "worst_neighbours"]

Record = dict[str, Any]


class Wrapped(BlockProgram):
    """Another program, all of it; a subclass says what a record adds instead."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def init(self, public: Any) -> Any:
        return self.inner.init(public)

    def query(self, state: Any) -> Any:
        return self.inner.query(state)

    def prepare(self, features: Any, target: Any) -> Any:
        return self.inner.prepare(features, target)


class OwnCoordinates(BlockProgram):
    """Many experiments in one study: the value ``v`` of a record, ``times`` too long, on the coordinate of its ``who``.

    The state is the round's total.
    """

    def __init__(self, *, experiments: int, rounds: int, times: float) -> None:
        self.experiments, self.rounds, self.times = experiments, rounds, times

    def init(self, public: Any) -> Any:
        return np.zeros(self.experiments)

    def prepare(self, features: Any, target: Any) -> Any:
        return features

    def map_block(self, prepared: Any, state: Any) -> Contribution:
        return Sparse(
            indptr=np.arange(len(prepared) + 1, dtype=np.int64),
            indices=np.rint((prepared[:, 0] + 1) / 2 * (self.experiments - 1)).astype(np.int64),
            values=np.ascontiguousarray(self.times * prepared[:, 1]),
            size=self.experiments,
        )

    def reduce_in_aggregator(self, total: Any, state: Any) -> Any:
        return np.asarray(total)


def worst_neighbours(study: Study, domain: dict[str, Sequence[Any]]) -> tuple[Record | None, Record]:
    """Of all records of the domain, the two whose exchange moves the sums furthest, in units of the claimed noise.

    Under add-remove the first is none: the record is there or it is not.
    """
    layout = layout_of(study)
    design = design_of(study, layout, None)
    plan = plan_study(study, design, allow_not_private=False).rounds[0]
    template = design.program.init(public_facts(study, layout))
    model = pack_state(design.program.query(template))
    records = [dict(zip(domain, values)) for values in itertools.product(*domain.values())]
    power = 1 if plan.mechanism == "laplace" else 2
    scale = np.concatenate([np.full(n.group.size, float(n.parameter) ** (1 / power)) for n in plan.noise])
    frames = [{k: [v] for k, v in r.items()} for r in records]
    vectors = [_clients(study, design.program, template, f)["client-0"].contribute(model, plan) / scale for f in frames]
    if study.privacy.neighbours == "add-remove":
        return None, records[int(np.argmax([(np.abs(v) ** power).sum() for v in vectors]))]
    gaps = {
        (i, j): float((np.abs(vectors[i] - vectors[j]) ** power).sum())
        for i, j in itertools.combinations(range(len(records)), 2)
    }
    i, j = max(gaps, key=lambda pair: gaps[pair])
    return records[i], records[j]


def observe_program(
    study: Study,
    neighbours: tuple[Record | None, Record],
    *,
    repeats: int,
    seed: int = 1,
    others: int = 5,
    protocol: bool = False,
    at_once: int = 1000,
    tamper: Callable[[Plan], Plan] | None = None,
    program: Callable[[Program], Program] | None = None,
) -> tuple[Outputs, Outputs]:
    """``repeats`` outputs of either database. Planted bugs: the plan or the program is changed while the claim stays.

    ``others`` records beside the one that differs are copies of the second neighbour; ``at_once`` is how many runs are
    one draw of the honest server's: with 1 and with ``protocol`` the outputs are the same.
    """
    layout = layout_of(study)
    design = design_of(study, layout, None)
    claimed = plan_study(study, design, allow_not_private=False)
    changed = claimed if tamper is None else tamper(claimed)
    plan = replace(changed, rounds=changed.rounds * repeats)
    used = design.program if program is None else program(design.program)
    template = used.init(public_facts(study, layout))
    copies = {k: [v] * others for k, v in neighbours[1].items()}
    frames = [copies if last is None else {k: [*v, last[k]] for k, v in copies.items()} for last in neighbours]
    clients = [_clients(study, used, template, frame) for frame in frames]
    model = pack_state(used.query(template))
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
                min_clients=3,
                records=1000,
                stream=stream,
            )
            draws = note_draws(servers)
            views = [_view(servers, draws, plan, model, r) for r in range(1, repeats + 1)]
        else:
            keyed = lambda *labels, s=stream: s(study.hash, *labels)  # noqa: E731
            views = plain[number] + _noises(changed.rounds[0], repeats, at_once, keyed)
        outputs.append(_outputs(claimed, plain, views))
    return outputs[0], outputs[1]


def _noises(plan: RoundPlan, repeats: int, at_once: int, stream: Stream) -> NDArray[np.int64]:
    """(repeats × coordinates): what the honest server adds, in draws for ``at_once`` runs each."""
    sizes = [n.group.size for n in plan.noise]
    many = [
        SimpleNamespace(parameter=n.parameter, group=SimpleNamespace(size=n.group.size * at_once)) for n in plan.noise
    ]
    draws = -(-repeats // at_once)
    longer: Any = SimpleNamespace(rounds=[SimpleNamespace(mechanism=plan.mechanism, noise=many)] * draws, open=None)
    honest = RoundNoise(longer, sum(sizes) * at_once, "server-1", stream)
    edges = np.cumsum(sizes)[:-1] * at_once
    blocks = []
    for number in range(1, draws + 1):  # a group's noise for all of the runs, then the next group's
        groups = np.split(honest.draw(number), edges)
        blocks.append(np.hstack([g.reshape(at_once, size) for g, size in zip(groups, sizes)]))
    return np.vstack(blocks)[:repeats]


def _view(servers: SimulatedServers, draws: Any, plan: Plan, model: bytes, number: int) -> Any:
    """What the aggregator and the last of two servers know together: the total without that server's noise."""
    noisy = servers.noisy_total(SumRequest(round=number, model=model, plan=plan.rounds[number - 1]))
    return noisy.values - draws["server-2", number][: len(noisy.values)]


def _clients(study: Study, program: Program, template: Any, frame: dict[str, Sequence[Any]]) -> dict[str, ClientMap]:
    records = encode(
        {k: list(v) for k, v in frame.items()},
        study.schema_of_data(),
        features=study.study.features,
        target=study.study.target,
    )
    third = [slice(i, None, 3) for i in range(3)]
    return {
        f"client-{i}": ClientMap(
            program,
            SimpleNamespace(
                features=np.ascontiguousarray(records.features[part]),
                target=None if records.target is None else records.target[part],
            ),
            template,
        )
        for i, part in enumerate(third)
    }


def _outputs(claimed: Plan, plain: list[Any], views: Any) -> Outputs:
    """Log-likelihood ratios of the views, all groups together and one by one, and the low bits of one coordinate."""
    step = (plain[1] - plain[0]).astype(np.float64)
    y = (np.array(views) - plain[0]).astype(np.float64)
    ratios = []
    starts, stops, _ = claimed.rounds[0].grid.edges()
    for noise, a, b in zip(claimed.rounds[0].noise, starts, stops):
        if claimed.claim.mechanism == "laplace":
            ratio = (np.abs(y[:, a:b]) - np.abs(y[:, a:b] - step[a:b])) / float(noise.parameter)
        else:
            ratio = y[:, a:b] * step[a:b] / float(noise.parameter)
        ratios.append(ratio.sum(axis=1))
    statistics = np.column_stack([np.sum(ratios, axis=0), *ratios])
    low = np.array([int(v[0]) % 2**LOW_BITS for v in views])
    return Outputs(statistics=statistics, low=low, off_grid=np.zeros(len(low), dtype=np.bool_))
