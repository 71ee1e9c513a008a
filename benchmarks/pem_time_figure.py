"""Figure 3 of PEM from :mod:`benchmarks.pem_role_times`: time per role against clients and dimension, and bytes.

What was measured is taken from the table if it is there; deleting ``pem-figure-3.csv`` measures anew.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.line_charts import Panel, write_chart
from benchmarks.pem_role_times import RoundCost, measure_round
from benchmarks.pem_tables import read_table, write_table
from tallystick.core.errors import StudyError

__all__ = ["draw_figure_3", "figure_3", "time_rows"]

_ROLE_CLIENTS = (10, 1000, 2000, 5000, 10_000)
_DIMENSIONS = (1, 1000, 10_000, 50_000, 100_000)
_PARTS = {"clients": "3a", "dimension": "3b, 3c"}
_LINK_BITS = 10e9
"""The paper's ethernet."""


def figure_3(quick: bool = False, out: Path | None = None) -> dict[str, list[RoundCost]]:
    """``clients``: a scalar summed over more and more clients; ``dimension``: longer vectors over 10 clients."""
    table = None if out is None else out / f"{'pem-quick' if quick else 'pem'}-figure-3.csv"
    if table is None or not table.is_file():
        by_clients = [measure_round(n, 1) for n in ((3, 20, 60) if quick else _ROLE_CLIENTS)]
        by_size = [measure_round(10, d) for d in ((1, 50, 500) if quick else _DIMENSIONS)]
        costs = {"clients": by_clients, "dimension": by_size}
        if table is None:
            return costs
        write_table(table, [{"figure": _PARTS[key], **asdict(c)} for key, some in costs.items() for c in some])
    draw_figure_3(table, table.with_suffix(".svg"))
    return _costs(table)


def _costs(table: Path) -> dict[str, list[RoundCost]]:
    try:
        rows = read_table(table)
        key_of = {part: key for key, part in _PARTS.items()}
        costs: dict[str, list[RoundCost]] = {"clients": [], "dimension": []}
        for row in rows:
            costs[key_of[row.pop("figure")]].append(RoundCost(**row))
    except (OSError, KeyError, TypeError, ValueError):
        raise StudyError(f"{table} is not a table of rounds", remedy="Delete it to measure anew.") from None
    return costs


def draw_figure_3(table: Path, chart: Path) -> None:
    """The three panels of a table."""
    costs = _costs(table)
    by_clients, by_size = costs["clients"], costs["dimension"]
    parts = {
        "a client": "client_seconds",
        "a server": "server_sum_seconds",
        "a server's noise": "server_noise_seconds",
        "aggregator, sum": "aggregator_sum_seconds",
        "aggregator, messages": "aggregator_message_seconds",
    }

    def lines(costs: list[RoundCost], key: str) -> dict[str, list[tuple[float, float]]]:
        return {label: [(getattr(c, key), 1e3 * getattr(c, field)) for c in costs] for label, field in parts.items()}

    both = {
        "computation of all roles in turn": [(c.dimension, 1e3 * _computation(c)) for c in by_size],
        "communication at 10 Gbit/s": [(c.dimension, 1e3 * _communication(c)) for c in by_size],
    }
    y = "ms of CPU a round"
    write_chart(
        chart,
        [
            Panel(title="(a) a scalar", x="clients", y=y, lines=lines(by_clients, "clients")),
            Panel(title="(b) 10 clients", x="dimension", y=y, lines=lines(by_size, "dimension")),
            Panel(title="(c) 10 clients", x="dimension", y="ms a round", lines=both),
        ],
        caption="Figure 3 of PEM, measured on the simulation's machines",
    )


def _computation(cost: RoundCost) -> float:
    """A client, then a server, then the aggregator: clients and servers work beside each other."""
    return (
        cost.client_seconds
        + cost.server_sum_seconds
        + cost.server_noise_seconds
        + cost.aggregator_sum_seconds
        + cost.aggregator_message_seconds
    )


def _communication(cost: RoundCost) -> float:
    """The bytes of the busiest party at the paper's 10 Gbit/s; no latency."""
    return 8 * max(cost.client_bytes, cost.server_bytes, cost.aggregator_bytes) / _LINK_BITS


def time_rows(costs: dict[str, list[RoundCost]]) -> list[dict[str, Any]]:
    """Growth of time from the second size to the last, beside growth of the size: 1 is linear, near 0 constant."""
    small, large = costs["clients"][1], costs["clients"][-1]
    growth = large.clients / small.clients
    table = []
    for case, field in (
        ("3a server-time", "server_sum_seconds"),
        ("3a aggregator-sum-time", "aggregator_sum_seconds"),
        ("3a aggregator-messages", "aggregator_message_seconds"),
        ("3a client-time", "client_seconds"),
    ):
        before, after = getattr(small, field), getattr(large, field)
        table.append(
            {
                "case": case,
                "value": round(after, 6),
                "unit": f"s at {large.clients:,} clients",
                "reference": round(before, 6),
                "ratio": round(after / before / growth, 3),
            }
        )
    last = costs["dimension"][-1]
    table.append(
        {
            "case": "3c computation",
            "value": round(_computation(last), 6),
            "unit": f"s at dimension {last.dimension:,}",
            "reference": round(_communication(last), 6),
            "ratio": round(_communication(last) / _computation(last), 3),
        }
    )
    return table
