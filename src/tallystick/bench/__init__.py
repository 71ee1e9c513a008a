"""``tallystick bench NAME``: measurements for a machine of one's own, each beside a reference in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tallystick.core.errors import StudyError

NAMES = ("gossip", "itemsets", "masks", "network", "noise", "proxy", "quantiles", "scale", "secure-sum", "svm")


def run(name: str, *, quick: bool = False, cases: Sequence[str] = ()) -> dict[str, Any]:
    """``{"bench": NAME, "rows": [{case, value, unit, reference, ratio}]}``; of some benches, a few cases alone."""
    if name not in NAMES:
        raise StudyError(
            f"there is no benchmark {name!r}", rule="unknown-bench", remedy=f"There are: {', '.join(NAMES)}."
        )
    module = import_module(f"tallystick.bench.{name.replace('-', '_')}")
    if not cases:
        return {"bench": name, "rows": module.rows(quick)}
    known = getattr(module, "CASES", ())
    for case in cases:
        if case not in known:
            there = f"has the cases {', '.join(known)}" if known else "runs whole"
            raise StudyError(
                f"the benchmark {name} has no case {ascii(case)[:60]}", rule="unknown-bench", remedy=f"It {there}."
            )
    return {"bench": name, "rows": module.rows(quick, cases)}


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
