"""What a round would cost with very many clients and records: measured per client and per record, then multiplied.

    python -m benchmarks.scale_sizing [--quick]

Every trust model that sums runs one round of a summary in this process, with the machines, messages and encodings of a
deployment, at two numbers of clients. What one more client costs is the difference over the difference: bytes it sends
and receives, CPU seconds of all parties together for it. What a record costs is one client's map over a large table.
Left out: TLS, seals, disks and waiting; the parties' work is added up as if one core did it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np

import tallystick as ts

CLIENTS, RECORDS = 1_000_000, 1_000_000_000
CORE_HOUR, GIGABYTE = 0.05, 0.05
"""Prices in dollars: a core for an hour, a gigabyte over a paid line. Assumptions, not measurements."""
MODELS = ("servers", "masks", "proxy")
SCHEMA = ts.Schema({"a": ts.Number(0, 1), "b": ts.Number(0, 1)})


@dataclass(frozen=True, kw_only=True)
class Marginal:
    """One more client in a round."""

    model: str
    bytes_up: float
    bytes_down: float
    seconds: float


def one_round(model: str, clients: int, records: int = 1) -> tuple[float, float, float]:
    """(bytes a client sends, receives, CPU seconds of everybody) in a study of one round."""
    rng = np.random.default_rng(1)
    cells = rng.uniform(0, 1, (2, clients * records))
    frames = [
        {"a": cells[0, i * records : (i + 1) * records], "b": cells[1, i * records : (i + 1) * records]}
        for i in range(clients)
    ]
    fed = ts.Federation.simulate(frames, schema=SCHEMA, trust=model, seed=1)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ts.Summary(columns=["a", "b"]).fit(fed)
    seconds = time.process_time() - started
    return fitted.cost_["bytes_up_per_client"], fitted.cost_["bytes_down_per_client"], seconds


def marginal(model: str, few: int, many: int) -> Marginal:
    """What one more client costs, from two runs."""
    one_round(model, few)  # compiles
    first, second = one_round(model, few), one_round(model, many)
    return Marginal(
        model=model,
        bytes_up=second[0],
        bytes_down=second[1],
        seconds=(second[2] - first[2]) / (many - few),
    )


def record_seconds(records: int) -> float:
    """CPU seconds of one record at a client."""
    one_round("servers", 3, records // 10)
    small, large = one_round("servers", 3, records // 10), one_round("servers", 3, records)
    return (large[2] - small[2]) / (3 * (records - records // 10))


def table(found: list[Marginal], record: float) -> str:
    """Rows for docs/scale.md."""
    head = (
        f"| trust | KB up, down a client | CPU ms a client | core hours, GB at {CLIENTS:,} clients | dollars a round |"
    )
    lines = [head, "|---|---|---|---|---|"]
    for one in found:
        moved = (one.bytes_up + one.bytes_down) * CLIENTS / 1e9
        hours = one.seconds * CLIENTS / 3600
        money = hours * CORE_HOUR + moved * GIGABYTE
        lines.append(
            f"| `{one.model}` | {one.bytes_up / 1e3:.2f}, {one.bytes_down / 1e3:.2f} | {1e3 * one.seconds:.2f} "
            f"| {hours:.2f}, {moved:.1f} | {money:.2f} |"
        )
    hours = record * RECORDS / 3600
    lines.append(f"\nMapping {RECORDS:,} records: {1e9 * record:.0f} ns each, {hours:.2f} core hours a round.")
    return "\n".join(lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true")
    quick = arguments.parse_args().quick
    few, many = (40, 120) if quick else (150, 600)
    found = [marginal(model, few, many) for model in MODELS]
    print(table(found, record_seconds(100_000 if quick else 1_000_000)))


if __name__ == "__main__":
    main()
