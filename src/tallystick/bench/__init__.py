"""``tallystick bench NAME``: measurements for a machine of one's own, each beside a reference in the same run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tallystick.core.errors import StudyError

NAMES = ("gossip", "itemsets", "masks", "network", "noise", "proxy", "quantiles", "scale", "secure-sum", "svm")


def run(name: str, *, quick: bool = False) -> dict[str, Any]:
    """``{"bench": NAME, "rows": [{case, value, unit, reference, ratio}]}``."""
    if name not in NAMES:
        raise StudyError(
            f"there is no benchmark {name!r}", rule="unknown-bench", remedy=f"There are: {', '.join(NAMES)}."
        )
    return {"bench": name, "rows": import_module(f"tallystick.bench.{name.replace('-', '_')}").rows(quick)}


def describe(result: dict[str, Any]) -> str:
    """A table for people."""

    def number(value: Any) -> str:
        return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)

    head = f"{'case':<48} {'value':>12} {'unit':<24} {'reference':>12} {'ratio':>8}"
    lines = [
        f"{r['case']:<48} {number(r['value']):>12} {r['unit']:<24} {number(r['reference']):>12} {number(r['ratio']):>8}"
        for r in result["rows"]
    ]
    notes = sorted({r["note"] for r in result["rows"] if "note" in r})
    return "\n".join([head, *lines, *notes])
