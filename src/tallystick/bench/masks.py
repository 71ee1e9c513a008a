"""``tallystick bench masks``: a round of masked sums with a tenth of the clients lost, every party on one core.

100 clients × 100,000 entries with 24 neighbours and with everybody; 1,000 × 10,000 with 46 neighbours, and with the 146
of deployed studies, where the reducer may lie about drop-outs. Seconds are CPU seconds of this process, the best of
three rounds after one that warms up; keys are agreed once, before. Transport is excluded, and so are noise (``bench
noise``) and the signatures under the survivor set, which have a row of their own: each client verifies a quorum of
them, here one client after another. Up to 100 clients the deployed machines hold the same round, signatures and every
encoding included. References: ``np.add`` on the same vectors, and Flower's SecAgg+ in the same run where it is
installed (``pip install flwr==1.13.1``), else its stored figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tallystick.bench.flower_peer import FlowerPeer
from tallystick.bench.masked_machines import MaskedMachines
from tallystick.bench.masked_round import MaskedRound
from tallystick.bench.measuring import best_seconds, row
from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.mask_bounds import COMPLETE_UP_TO, SECRECY, GraphPlan, circle_plan, complete_plan
from tallystick.trust.masks.graphs import TRIES

FLOWER_SECONDS = 21.0
"""Flower's SecAgg+ of 100 clients × 100,000 parameters, 21 neighbours, no drop-outs, measured once on a quiet core."""
_STORED = "Flower is not installed: its stored 21 s (21 neighbours, none dropped, transport of 8.5 s included)"
_MEASURED = "Flower's SecAgg+ with as many neighbours and drop-outs, measured in this run without its transport"
_ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """One size of a round; ``degree`` None is everybody with everybody."""

    clients: int
    size: int
    degree: int | None
    deployed: bool = False
    """With the bound that deployed studies take: drop-outs that the reducer chooses, orders of the circle tried out."""

    @property
    def plan(self) -> GraphPlan:
        """A tenth colluding, a tenth dropping out; the bounds of the plan hold at every degree that is listed here."""
        tenth = self.clients // 10
        facts = {"clients": self.clients, "colluding": tenth, "dropping": tenth}
        if self.degree is None:
            return complete_plan(**facts)
        secrecy = SECRECY / TRIES if self.deployed else SECRECY
        plan = circle_plan(**facts, degree=self.degree, chosen_dropouts=self.deployed, secrecy=secrecy)
        if plan is None:
            raise LocalProtocolError(f"{self.degree} neighbours are too few for {self.clients} clients")
        return plan

    @property
    def name(self) -> str:
        near = "complete" if self.degree is None else f"k={self.degree}"
        return f"{self.clients:,} x {self.size:,} {near}" + (" as deployed" if self.deployed else "")


FULL = (
    Case(100, 100_000, 24),
    Case(100, 100_000, None),
    Case(1000, 10_000, 46),
    Case(1000, 10_000, 146, deployed=True),
)
QUICK = (Case(20, 2000, 8), Case(20, 2000, None))


def rows(quick: bool = False) -> list[dict[str, Any]]:
    """Per case: the round beside Flower and ``np.add``, a client, the reducer, keys, signatures, machines."""
    table: list[dict[str, Any]] = []
    for case in QUICK if quick else FULL:
        table += _case(case)
    return table


def _case(case: Case) -> list[dict[str, Any]]:
    world = MaskedRound(case.plan, case.size)
    agreed = world.seconds["agree"]
    world.run(0)
    spent: list[dict[str, float]] = []
    for number in range(1, _ROUNDS + 1):
        world.run(number)
        spent.append(dict(world.seconds))
    best = min(spent, key=lambda steps: sum(steps.values()))
    total = sum(best.values())
    client = best["deal"] + best["open"] + best["mask"]
    reducer = best["add"] + best["unmask"]
    plain = best_seconds(world.plain_sum)
    flower, note = _flower(case)
    ratio = None if flower is None else round(flower / total, 1)
    first = row(f"{case.name} round", round_to(total), "CPU s, reference Flower", flower, ratio)
    return [
        first if note is None else first | {"note": note},
        row(f"{case.name} round", round_to(total), "CPU s, reference np.add", round_to(plain), round_to(plain / total)),
        row(f"{case.name} a client", round_to(client / case.clients), "CPU s", None, None),
        row(f"{case.name} the reducer", round_to(reducer), "CPU s", round_to(plain), round_to(plain / reducer)),
        row(f"{case.name} keys, once a study", round_to(agreed), "CPU s", None, None),
        row(f"{case.name} signed survivor set", round_to(world.agree_on_survivors(2)), "CPU s", None, None),
        *(_machines(case) if case.clients <= COMPLETE_UP_TO else []),
    ]


def _machines(case: Case) -> list[dict[str, Any]]:
    machines = MaskedMachines(case.plan, case.size)
    machines.run(1)  # keys are agreed in the first round
    before = machines.bytes_up
    best, noise = min(machines.run(number) for number in range(2, 2 + _ROUNDS))
    sent, plain = (machines.bytes_up - before) / _ROUNDS, 8 * case.size
    return [
        row(f"{case.name} machines", round_to(best), "CPU s without noise", None, None),
        row(f"{case.name} machines, noise", round_to(noise), "CPU s", None, None),
        row(f"{case.name} machines, upload", round(sent), "bytes per survivor", plain, round_to(plain / sent)),
    ]


def _flower(case: Case) -> tuple[float | None, str | None]:
    """Flower's seconds and what they are; only for the case it was stored for, at our degree or in the quick run."""
    if case.degree is None or case.clients > 100:
        return None, None
    plan = case.plan
    try:
        peer = FlowerPeer(
            case.clients, case.size, shares=plan.degree + 1, threshold=plan.threshold, dropped=plan.dropping
        )
    except ImportError:
        return (FLOWER_SECONDS, _STORED) if case in FULL else (None, None)
    return round(peer.seconds(), 2), _MEASURED


def round_to(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")
