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
from tallystick.application.program_trial import CORRECT, finding, grid_for, same_again, trial_rounds
from tallystick.application.simulation import encoded
from tallystick.application.study_files import PROGRAM_BYTES, load_study
from tallystick.application.synthetic_records import made_up_table
from tallystick.core.errors import DataError, StudyError, TallystickError
from tallystick.crypto.prg import AesStream
from tallystick.data.files import read_text
from tallystick.data.partitions import uniforms
from tallystick.data.sources import read_table
from tallystick.engines.client_map import rows_of
from tallystick.engines.planning import layout_of, public_facts
from tallystick.engines.sandbox.program import SandboxedProgram
from tallystick.privacy.grid import Norm
from tallystick.study import Study

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
    program, findings = inspect_program(read_text(path, limit=PROGRAM_BYTES, what="the program"), name=path.name)
    groups = program and program.groups
    report: dict[str, Any] = {
        "file": str(path),
        "hash": program and program.hash,
        "class": program and program.class_name,
        "rounds": program and program.rounds,
        "bound": program and program.bound,
        "groups": groups and [{"name": g.name, "size": g.size, "bound": g.bound, "share": g.share} for g in groups],
        **{"tried": False, "tried_on": None, "clipping": None},
    }
    if program is not None and study is not None:
        public, records, norm, tried_on = _own(study, data) if isinstance(study, Path) and data else _made_up(study)
        tried, clipping = _try_out(program, public, records, norm)
        findings = tried or []
        if tried == []:
            report |= {"tried": True, "tried_on": tried_on, "clipping": clipping}
    return {**report, "ok": not findings, "findings": [finding.as_dict() for finding in findings]}


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


def _made_up(study: Path | Public | Sequence[str]) -> _Trial:
    """Records that fit the declared columns, evenly drawn; numbers in [-1, 1] where only names are known."""
    if isinstance(study, Path):
        read, _ = load_study(study)
        return *_encoded(read, made_up_table(read, _MADE_UP_RECORDS)), f"{_MADE_UP_RECORDS:,} made-up records"
    public = study if isinstance(study, Public) else Public(features=tuple(study))
    width = len(public.features) + (public.target is not None)
    drawn = uniforms(width * _MADE_UP_RECORDS, AesStream(bytes(32))).reshape(-1, width)
    records = np.ascontiguousarray(2 * drawn - 1)
    records[:3] = np.array([0.0, 1.0, -1.0])[:, None]
    return public, records, "l2", f"{_MADE_UP_RECORDS:,} made-up records"


def _own(study: Path, data: Sequence[Path]) -> _Trial:
    """The author's own records, read here and kept here."""
    read, _ = load_study(study)
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


def _encoded(study: Study, table: Any) -> tuple[Public, NDArray[np.float64], Norm]:
    found = encoded(study, table)
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
            return [finding("vector-length", cause)], []
        program.reduce_in_aggregator(np.zeros(size), state)
        findings, clipping = trial_rounds(program, program.compiled_map, public, records, grid_for(program, size, norm))
        return findings or same_again(program, lambda: SandboxedProgram(file), public, records, size), clipping
    except TallystickError as error:
        if error.rule == "sandbox-unavailable":
            return None, []
        return [finding(error.rule or "run", str(error.cause), error.remedy or CORRECT)], []
    finally:
        program.close()
