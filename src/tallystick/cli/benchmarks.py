"""``tallystick bench NAME``: each figure is a ratio to a reference measured in the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError

__all__ = ["describe", "run"]


def run(name: str, *, quick: bool = False, out: Path | None = None) -> dict[str, Any]:
    """``{"bench": NAME, "rows": [{case, value, unit, reference, ratio}]}``; ``out`` for those that write files."""
    if name == "secure-sum":
        from tallystick.cli import bench_secure_sum

        return {"bench": name, "rows": bench_secure_sum.rows(quick)}
    if name == "noise":
        from tallystick.cli import bench_noise

        return {"bench": name, "rows": bench_noise.rows(quick)}
    if name == "network":
        from tallystick.cli import bench_network

        return {"bench": name, "rows": bench_network.rows(quick)}
    if name == "itemsets":
        from tallystick.cli import bench_itemsets

        return {"bench": name, "rows": bench_itemsets.rows(quick)}
    if name == "pem-figures":
        from tallystick.cli import bench_pem_figures

        return {"bench": name, "rows": bench_pem_figures.rows(quick, out)}
    raise StudyError(
        f"there is no benchmark {name!r}",
        rule="unknown-bench",
        remedy="Use secure-sum, noise, network, itemsets or pem-figures.",
    )


def describe(result: dict[str, Any]) -> str:
    """A table for people."""

    def number(value: Any) -> str:
        return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    head = f"{'case':<24} {'value':>12} {'unit':<24} {'reference':>12} {'ratio':>8}"
    lines = [
        f"{r['case']:<24} {number(r['value']):>12} {r['unit']:<24} {number(r['reference']):>12} {number(r['ratio']):>8}"
        for r in result["rows"]
    ]
    notes = sorted({r["note"] for r in result["rows"] if "note" in r})
    return "\n".join([head, *lines, *notes])
