"""``tallystick check-program FILE``: what a steward or an author sees before anybody approves anything.

Reads the file, checks it against the allow-list and, where the sizes are known, compiles it and tries it out in locked
processes (:mod:`~.program_trial`): on made-up records, or on the author's own with ``--data``. What it says about own
records is not private and stays with whoever holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.program import Public
from tallystick.algorithms.user_programs.findings import Finding
from tallystick.algorithms.user_programs.program_file import ProgramFile, inspect_program
from tallystick.application.program_trial import grid_for, same_again, trial_rounds
from tallystick.core.errors import DataError, StudyError, TallystickError
from tallystick.crypto.prg import AesStream
from tallystick.data.partitions import uniforms
from tallystick.engines.client_map import rows_of
from tallystick.engines.designs import layout_of
from tallystick.engines.federation import public_facts
from tallystick.engines.sandbox.program import SandboxedProgram
from tallystick.privacy.grid import Norm
from tallystick.study import Study

__all__ = ["check_program", "describe"]

_MADE_UP_RECORDS = 1000
"""The number of records a program is tried out with, and the public number where the study states none."""

_Trial = tuple[Public, NDArray[np.float64], Norm, str]
"""Public facts, encoded records (the target last), the norm that is bounded, and what the records are."""


def check_program(
    path: str | Path, study: Path | Public | Sequence[str] | None = None, *, data: Sequence[Path] = ()
) -> dict[str, Any]:
    """The report on a program file. ``study``: a study file, its public facts or just the names of encoded features,
    with which to try the program out on made-up records; ``data``: own records to try it on instead."""
    path = Path(path)
    if data and not isinstance(study, Path):
        raise StudyError("--data without --study", remedy="A study declares what the columns of the data are.")
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
        "tried_on": None,
        "clipping": None,
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
            public, records, norm, tried_on = _made_up(study) if not data else _own(study, data)
            tried, clipping = _try_out(program, public, records, norm)
            report["tried"], findings = tried == [], tried or []
            if report["tried"]:
                report |= {"tried_on": tried_on, "clipping": clipping}
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
    if not report["tried"]:
        return "\n".join([*lines, "  tried    not run: that takes --study, and Linux"])
    lines += [
        f"  tried    compiled and run on {report['tried_on']}: deterministic, exact in blocks and one by one,",
        "           independent of the order of records",
    ]
    return "\n".join([*lines, *_describe_clipping(report["clipping"])])


def _describe_clipping(clipping: list[dict[str, Any]]) -> list[str]:
    lines = []
    for row in clipping:
        norm = "L1" if row["norm"] == "l1" else "L2"
        lines.append(
            f"  clipping round {row['round']}, {row['group']}: {100 * row['clipped']:.1f} % of records shortened to "
            f"{row['bound']:.4g} ({norm} norms: median {row['median_norm']:.3g}, 95 % within "
            f"{row['norm_of_95_percent']:.3g}, largest {row['largest_norm']:.3g})"
        )
        if row["failed"]:
            lines.append(f"           the program fails on {row['failed']} of {row['records']} records; they add zeros")
        if row["largest_norm"] < 0.5 * row["bound"]:
            lines.append("           no record comes near the bound: a smaller one means less noise")
    return lines


def _made_up(study: Path | Public | Sequence[str] | None) -> _Trial:
    """Records that fit the declared columns, evenly drawn; numbers in [-1, 1] where only names are known."""
    if isinstance(study, Path):
        from tallystick.application.synthetic_records import made_up_table

        read = _read(study)
        return *_encoded(read, made_up_table(read, _MADE_UP_RECORDS)), f"{_MADE_UP_RECORDS:,} made-up records"
    public = study if isinstance(study, Public) else Public(features=tuple(study or ()))
    width = len(public.features) + (public.target is not None)
    drawn = uniforms(width * _MADE_UP_RECORDS, AesStream(bytes(32))).reshape(-1, width)
    records = np.ascontiguousarray(2 * drawn - 1)
    records[:3] = np.array([0.0, 1.0, -1.0])[:, None]
    return public, records, "l2", f"{_MADE_UP_RECORDS:,} made-up records"


def _own(study: Path | Public | Sequence[str] | None, data: Sequence[Path]) -> _Trial:
    """The author's own records, read here and kept here."""
    from tallystick.data.sources import read_table

    read = _read(study if isinstance(study, Path) else Path())
    target = (read.study.target,) if read.study.target else ()
    columns = layout_of(read).columns
    tables = [read_table(path, list(dict.fromkeys((*columns, *target))), party=path.name) for path in data]
    parts = [_encoded(read, table) for table in tables]
    records = np.ascontiguousarray(np.vstack([records for _, records, _ in parts]))
    if not len(records):
        raise DataError("the data hold no record", remedy="Check the files given with --data.")
    if read.data.records is None:
        read = read.replace("data", records=len(records))
    return public_facts(read, layout_of(read)), records, parts[0][2], f"{len(records):,} records of your own"


def _read(path: Path) -> Study:
    from tallystick.application.simulation import load_study

    return load_study(path)[0]


def _encoded(study: Study, table: Any) -> tuple[Public, NDArray[np.float64], Norm]:
    from tallystick.data.encoding import encode

    found = encode(
        table,
        study.schema_of_data(),
        features=study.study.features,
        target=study.study.target,
        missing=study.missing_policy(),
    )
    stated = study if study.data.records is not None else study.replace("data", records=_MADE_UP_RECORDS)
    norm: Norm = "l1" if study.privacy.mechanism == "laplace" else "l2"
    return public_facts(stated, layout_of(stated)), rows_of(found), norm


def _try_out(
    file: ProgramFile, public: Public, records: NDArray[np.float64], norm: Norm
) -> tuple[list[Finding] | None, list[dict[str, Any]]]:
    """Everything :mod:`~.program_trial` asks: what fails becomes a finding; and how clipping bites.

    Whoever reads a program has not approved it yet, so its code runs in locked children, as in a role; None where there
    are none.
    """
    program = SandboxedProgram(file)
    try:
        state = program.init(public)
        size = program.compiled_map.vector_size(records.shape[1], program.query(state))
        declared = sum(g.size for g in program.groups_for(size))
        if declared != size:
            cause = f"map_in_client returns {size} numbers, the groups declare {declared}"
            return [_finding("vector-length", cause)], []
        program.reduce_in_aggregator(np.zeros(size), state)
        findings, clipping = trial_rounds(program, program.compiled_map, public, records, grid_for(program, size, norm))
        return findings or same_again(program, lambda: SandboxedProgram(file), public, records, size), clipping
    except TallystickError as error:
        if error.rule == "sandbox-unavailable":
            return None, []
        return [_finding(error.rule or "run", str(error.cause), error.remedy)], []
    finally:
        program.close()


def _finding(rule: str, cause: str, remedy: str | None = None) -> Finding:
    return Finding(line=1, column=1, rule=rule, cause=cause, remedy=remedy or "Correct the program and check again.")
