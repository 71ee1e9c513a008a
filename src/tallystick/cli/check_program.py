"""``tallystick check-program FILE``: what a steward or an author sees before anybody approves anything.

Reads the file, checks it against the allow-list and, where the sizes are known, compiles it and runs it on made-up
records, in a locked process. No data set is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick.algorithms.allow_list import Finding
from tallystick.algorithms.program import Public
from tallystick.algorithms.program_file import ProgramFile, inspect_program
from tallystick.core.errors import StudyError, TallystickError

__all__ = ["check_program", "describe"]

_MADE_UP_RECORDS = 1000
"""The number of records a program is tried out with where the study states none."""


def check_program(path: str | Path, study: Path | Public | Sequence[str] | None = None) -> dict[str, Any]:
    """The report on a program file. ``study``: a study file, its public facts or just the names of encoded features,
    with which to try the program out on made-up records."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise StudyError(
            f"cannot read {path}: {error.strerror}", remedy="Check the path and its permissions."
        ) from None
    except UnicodeDecodeError as error:
        raise StudyError(f"{path} is not UTF-8 text (byte {error.start})", remedy="Save it as UTF-8.") from None
    program, findings = inspect_program(text, name=path.name)
    report: dict[str, Any] = {
        "file": str(path),
        "hash": None,
        "class": None,
        "rounds": None,
        "bound": None,
        "groups": None,
        "tried": False,
        "ok": False,
        "findings": [],
    }
    if program is not None:
        groups = program.groups
        report |= {
            "hash": program.hash,
            "class": program.class_name,
            "rounds": program.rounds,
            "bound": program.bound,
            "groups": groups and [{"name": g.name, "size": g.size, "bound": g.bound, "share": g.share} for g in groups],
        }
        if study is not None:
            tried = _try_out(program, _public(study))
            report["tried"], findings = tried == [], tried or []
    report["ok"] = not findings
    report["findings"] = [finding.as_dict() for finding in findings]
    return report


def describe(report: dict[str, Any]) -> str:
    """The report for people."""
    if not report["ok"]:
        lines = [f"{report['file']}: refused, {len(report['findings'])} finding(s)"]
        for f in report["findings"]:
            lines += [f"  {f['line']}:{f['column']} [{f['rule']}] {f['cause']}", f"      {f['remedy']}"]
        return "\n".join(lines)
    groups = report["groups"] or [{"name": "all", "size": "any", "bound": report["bound"], "share": 1.0}]
    lines = [
        f"{report['file']}: {report['class']} may run",
        f"  hash     {report['hash']}   (what stewards approve)",
        f"  rounds   {report['rounds']}",
    ]
    lines += [f"  group    {g['name']}: size {g['size']}, bound {g['bound']:g}, share {g['share']:g}" for g in groups]
    tried = "compiled and run on made-up records" if report["tried"] else "not run: that takes --study, and Linux"
    return "\n".join([*lines, f"  tried    {tried}"])


def _public(study: Path | Public | Sequence[str]) -> Public:
    if isinstance(study, Public):
        return study
    if isinstance(study, Path):
        from tallystick.cli.simulation import load_study
        from tallystick.engines.federation import public_facts

        read, _ = load_study(study)
        layout = read.schema_of_data().layout(
            read.study.features, target=read.study.target, missing=read.missing_policy()
        )
        if read.data.records is None:
            read = read.replace("data", records=_MADE_UP_RECORDS)
        return public_facts(read, layout)
    return Public(features=tuple(study))


def _try_out(file: ProgramFile, public: Public) -> list[Finding] | None:
    """init, one compiled map on made-up records, one reduce of a zero total: what fails becomes a finding.

    Whoever reads a program has not approved it yet, so its code runs in locked children, as in a role; None where there
    are none.
    """
    import numpy as np

    from tallystick.engines.sandbox.program import SandboxedProgram

    program = SandboxedProgram(file)
    try:
        state = program.init(public)
        width = len(public.features) + (public.target is not None)
        size = program.compiled_map.vector_size(width, program.query(state))
        declared = sum(g.size for g in program.groups_for(size))
        if declared != size:
            return [_finding("vector-length", f"map_in_client returns {size} numbers, the groups declare {declared}")]
        program.reduce_in_aggregator(np.zeros(size), state)
    except TallystickError as error:
        if error.rule == "sandbox-unavailable":
            return None
        return [_finding(error.rule or "run", str(error.cause), error.remedy)]
    finally:
        program.close()
    return []


def _finding(rule: str, cause: str, remedy: str | None = None) -> Finding:
    return Finding(line=1, column=1, rule=rule, cause=cause, remedy=remedy or "Correct the program and check again.")
