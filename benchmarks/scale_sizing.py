"""What a round would cost with very many clients and records: measured per client and per record, then multiplied.

    python -m benchmarks.scale_sizing [--quick] [--only servers …]

Every trust model runs one round in this process, with the machines, messages and encodings of a deployment, at three
numbers of clients: what a client costs there (bytes it sends and receives, CPU seconds of all parties together for it),
and whether that grows with the number of clients, which a line then continues. What a record costs is one client's map
over a large table. Models that sum take a summary of two columns; ``parties`` draw the most frequent of ten values;
under ``gossip`` every peer publishes one record of two columns, which reaches all peers, and each learns from them all.
Left out: TLS, seals, disks and waiting; the parties' work is added up as if one core did it. Of gossip's exchanges only
the publications are counted, not that some come twice.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import tallystick as ts
from tallystick.trust.masks import simulation as masks_simulation

masks_simulation.MASKED_UP_TO = 1_000
"""A simulation leaves out the masks of many clients. Their work is what is measured here."""
CLIENTS, RECORDS = 1_000_000, 1_000_000_000
CORE_HOUR, GIGABYTE = 0.05, 0.05
"""Prices in dollars: a core for an hour, a gigabyte over a paid line. Assumptions, not measurements."""
SIZES = {
    "servers": (500, 2000, 8000),
    "masks": (150, 300, 600),
    "proxy": (150, 300, 600),
    "parties": (500, 2000, 8000),
    "gossip": (2000, 8000, 32000),
}
NUMBERS = {"a": ts.Number(0, 1), "b": ts.Number(0, 1)}
VALUES = [f"v{i}" for i in range(10)]
SCHEMAS = {
    "parties": ts.Schema({"c": ts.Category(VALUES)}),
    "gossip": ts.Schema(NUMBERS | {"y": ts.Category(["no", "yes"])}),
}
SIGNED = 4 + 4 + 4 + 64 + 4
"""Of a publication, beside its record: whose it is, how many records, lengths, signature."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one client in a round among ``n``: a fixed part and one that grows with every other client."""

    fixed: float
    growth: float

    def at(self, n: int) -> float:
        return self.fixed + self.growth * n


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trust model's costs a client: bytes up and down, CPU seconds of all parties."""

    name: str
    up: Cost
    down: Cost
    seconds: Cost
    once: float = 0.0
    """CPU seconds of a round however many clients there are: the computation among parties."""


def frames_of(model: str, clients: int, records: int) -> list[dict[str, Any]]:
    """Made-up records, ``records`` for every client."""
    rng = np.random.default_rng(1)
    n = clients * records
    columns: dict[str, Any] = {"a": rng.uniform(0, 1, n), "b": rng.uniform(0, 1, n)}
    if model == "parties":
        columns = {"c": rng.choice(VALUES, n)}
    elif model == "gossip":
        columns["y"] = np.where(columns["a"] > columns["b"], "yes", "no")
    return [{k: v[i * records : (i + 1) * records] for k, v in columns.items()} for i in range(clients)]


def fit(model: str, fed: Any) -> Any:
    """The round that stands for a trust model."""
    if model == "parties":
        return ts.Mode(column="c").fit(fed)
    if model == "gossip":
        return ts.GossipClassifier(epsilon=4.0).fit(fed, target="y")
    return ts.Summary(columns=["a", "b"]).fit(fed)


def one_round(model: str, clients: int, records: int = 1) -> tuple[float, float, float]:
    """(bytes a client sends, receives, CPU seconds of everybody) in a study of one round."""
    fed = ts.Federation.simulate(
        frames_of(model, clients, records), schema=SCHEMAS.get(model, ts.Schema(NUMBERS)), trust=model, seed=1
    )
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cost = fit(model, fed).cost_
    seconds = time.process_time() - started
    up, down = cost["bytes_up_per_client"], cost["bytes_down_per_client"]
    return (up + SIGNED, down + SIGNED * clients, seconds) if model == "gossip" else (up, down, seconds)


def fitted_cost(sizes: tuple[int, int, int], values: tuple[float, float, float], tolerance: float) -> Cost:
    """A line through what a client costs at three numbers of clients; flat if it rises by less than ``tolerance``."""
    growth = (values[2] - values[1]) / (sizes[2] - sizes[1])
    if values[2] <= values[1] * (1 + tolerance):
        return Cost(fixed=values[2], growth=0.0)
    return Cost(fixed=values[2] - growth * sizes[2], growth=growth)


def measured(name: str, sizes: tuple[int, int, int]) -> Model:
    """Three runs of a round; the CPU of what does not depend on clients is taken out by differences.

    Of ``gossip`` the simulation learns once, from everybody's records, and in a deployment every peer does so.
    """
    one_round(name, sizes[0])  # compiles
    found = [one_round(name, n) for n in sizes]
    steps = [(found[i + 1][2] - found[i][2]) / (sizes[i + 1] - sizes[i]) for i in range(2)]
    middles = [(sizes[i] + sizes[i + 1]) // 2 for i in range(2)]
    # The difference of totals at n is c(n) + n c'(n): half of what rises from step to step is growth of c itself.
    rise = max(0.0, (steps[1] - steps[0]) / (middles[1] - middles[0]) / 2)
    flat = steps[1] <= 1.5 * steps[0]  # a machine that is not quiet
    seconds = (
        Cost(fixed=steps[1], growth=0.0)
        if flat
        else Cost(fixed=max(0.0, steps[0] - 2 * rise * middles[0]), growth=rise)
    )

    def bytes_of(place: int) -> Cost:
        return fitted_cost(sizes, (found[0][place], found[1][place], found[2][place]), 0.02)

    once = found[2][2] - sizes[2] * steps[1] if name == "parties" else 0.0
    if name == "gossip":
        seconds = Cost(fixed=0.0, growth=seconds.fixed)
    return Model(name=name, up=bytes_of(0), down=bytes_of(1), seconds=seconds, once=max(0.0, once))


def record_seconds(records: int) -> float:
    """CPU seconds of one record at a client."""
    one_round("servers", 3, records // 10)
    small, large = one_round("servers", 3, records // 10), one_round("servers", 3, records)
    return (large[2] - small[2]) / (3 * (records - records // 10))


def table(found: list[Model], record: float) -> str:
    """Rows for docs/scale.md."""
    lines = ["| trust | clients | KB up, down a client | CPU ms a client | core hours, GB | dollars a round |"]
    lines.append("|---|---|---|---|---|---|")
    for one in found:
        for n in (1_000, 100_000, CLIENTS):
            up, down, seconds = one.up.at(n), one.down.at(n), one.seconds.at(n)
            # A byte that a client sends is received by somebody, but what a peer receives was sent by a peer.
            moved = (down if one.name == "gossip" else up + down) * n / 1e9
            hours = (seconds * n + one.once) / 3600
            money = hours * CORE_HOUR + moved * GIGABYTE
            lines.append(
                f"| `{one.name}` | {n:,} | {up / 1e3:,.2f}, {down / 1e3:,.2f} | {1e3 * seconds:,.2f} "
                f"| {hours:,.2f}, {moved:,.1f} | {money:,.2f} |"
            )
    hours = record * RECORDS / 3600
    for one in found:
        if one.once:
            lines.append(f"\n`{one.name}`: of these {one.once:.2f} CPU seconds once a round, however many clients.")
    lines.append(f"\nMapping {RECORDS:,} records: {1e9 * record:.0f} ns each, {hours:.2f} core hours a round.")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--only", nargs="+", choices=SIZES, default=list(SIZES))
    chosen = arguments.parse_args()
    found = [measured(name, (20, 40, 80) if chosen.quick else SIZES[name]) for name in chosen.only]
    print(table(found, record_seconds(100_000 if chosen.quick else 1_000_000)))


if __name__ == "__main__":
    main()
