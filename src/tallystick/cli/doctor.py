"""``tallystick doctor --config role.toml``: is this role fit to run, and if not, what to do. Exit code 0 or 4."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tallystick.application.doctor import examine
from tallystick.roles.identity.identity_files import wall_clock

__all__ = ["describe", "doctor", "exit_code"]

_MARKS = {"ok": "ok     ", "warning": "look   ", "problem": "PROBLEM"}


def doctor(config: Path, *, now: datetime | None = None, timeout: float = 3.0) -> dict[str, Any]:
    """All findings; ``result["ok"]`` says whether there is a problem among them."""
    return examine(config, now=now or wall_clock(), timeout=timeout)


def exit_code(report: dict[str, Any]) -> int:
    """0 if the role can run, 4 if not."""
    return 0 if report["ok"] else 4


def describe(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{report['role']} {report['party']}" if report["party"] else str(report["config"])]
    for f in report["findings"]:
        lines.append(f"  {_MARKS[f['status']]} {f['check']:<12} {f['what']}")
        lines += [f"{'':>23}{f['remedy']}"] if f["remedy"] else []
    problems = sum(f["status"] == "problem" for f in report["findings"])
    warnings = sum(f["status"] == "warning" for f in report["findings"])
    verdict = f"{problems} problem(s) to solve first" if problems else "fit to run"
    return "\n".join([*lines, f"{verdict}, {warnings} warning(s)"])
