"""The result of a study, simulated or run for real: as ``result.json`` holds it, and for people."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tallystick.application.text_layout import paragraph
from tallystick.core.errors import StudyError
from tallystick.core.identifiers import canonical
from tallystick.core.version import __version__
from tallystick.estimators.answer import Answer
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.plots import save
from tallystick.study import Study

RESULT = "tallystick/result/1"


def result_document(
    estimator: PrivateEstimator, seconds: float, *, kind: str, simulation: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What ``result.json`` holds. ``simulation`` appears only in a simulated study's result."""
    study: Study = estimator.study_
    document: dict[str, Any] = {
        "schema": RESULT,
        "version": __version__,
        "kind": kind,
        "study": {"name": study.study.name, "hash": study.printed_hash, "program": study.study.program},
        "privacy": estimator.privacy_.as_dict(),
        "participants": {
            "clients": len(set(estimator.contributors_).union(*map(set, estimator.dropped_))),
            "min_clients": estimator.min_clients_,
            "dropped": [
                {"round": number, "names": list(names)}
                for number, names in enumerate(estimator.dropped_, start=1)
                if names or number == 1
            ],
        },
        "model": estimator.model_document(),
        "cost": {"seconds": seconds, **estimator.cost_},
    }
    if study.stream is not None:
        document["stream"] = {"ticks": len(estimator.history_), "lost": list(estimator.lost_ticks_)}
    if estimator.plan_.hopeless:
        document["noise_warning"] = estimator.plan_.hopeless
    if simulation is not None:
        document["simulation"] = simulation
    return document


def write_result(result: dict[str, Any], out: Path) -> Path:
    """``result.json`` in ``out``, to be read by people too; a signed one in the one readable form it has."""
    signed = "signature" in result
    return _write(readable(result, sort_keys=signed).encode(), out, "result.json")


def readable(value: Any, *, sort_keys: bool = True, indent: str = "") -> str:
    """JSON for people: a line for every key, and lists of plain values on one line.

    With sorted keys a value has exactly one such text, so that ``verify`` can hold every byte to it.
    """
    inside = indent + "  "
    lines = []
    if isinstance(value, dict) and value:
        items = sorted(value.items()) if sort_keys else value.items()
        lines = [f"{json.dumps(k)}: {readable(v, sort_keys=sort_keys, indent=inside)}" for k, v in items]
    elif isinstance(value, list) and any(isinstance(part, (dict, list)) for part in value):
        lines = [readable(part, sort_keys=sort_keys, indent=inside) for part in value]
    if not lines:
        return json.dumps(value, allow_nan=False)
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    return opened + "\n" + ",\n".join(inside + line for line in lines) + f"\n{indent}{closed}"


def write_canonical(made: dict[str, Any], out: Path, name: str) -> Path:
    """One canonical line in ``out/name``: a receipt has no other form."""
    return _write(canonical(made), out, name)


def write_csv(answer: Answer, path: Path) -> None:
    """The answer's table as a file. Names that a spreadsheet would take for a formula begin with an apostrophe."""
    names = dict(zip(answer.columns, map(_no_formula, answer.columns)))
    rows = [{names[c]: _no_formula(row[c]) for c in answer.columns} for row in answer.rows]
    try:
        Answer.of(rows, columns=tuple(names.values())).frame().write_csv(path)
    except OSError as error:
        cause = error.strerror or "it is no file to write to"
        raise StudyError(f"cannot write {path}: {cause}", remedy="Choose another --csv.") from None


def _no_formula(cell: Any) -> Any:
    """Somebody else may have named the column or category ``=HYPERLINK(…)``; a negative number in words is none."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@")):
        return cell
    return cell if re.fullmatch(r"[+-][\d.,]+(e[+-]?\d+)?", cell) else f"'{cell}"


def write_plot(answer: Answer, path: Path) -> None:
    """The same as a picture."""
    save(answer, path)


def _write(content: bytes, out: Path, name: str) -> Path:
    """Whole or not at all."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        partial = out / f"{name}.partial"
        partial.write_bytes(content + b"\n")
        return partial.replace(out / name)
    except OSError as error:
        cause = error.strerror or "it is no folder to write to"
        raise StudyError(f"cannot write {out / name}: {cause}", remedy="Choose another --out.") from None


_MEASURES = {"baseline_accuracy": "without privacy", "majority_accuracy": "majority class", "f1_macro": "macro F1"}


def describe_result(result: dict[str, Any], answer: Answer | None = None) -> str:
    """The result for people: the answer itself, then how good it is and what it cost."""
    privacy, cost, participants = result["privacy"], result["cost"], result["participants"]
    lines = [
        f"{result['study']['name']}: {result['study']['program']} over {participants['clients']} client(s), "
        f"{cost['rounds']} round(s), {cost['seconds']:.1f} s"
    ]
    if result.get("interim"):
        lines.append("  interim             the study is still running; this is what it has released so far")
    early = result.get("ended_early")
    if early:
        lines.append(
            f"  ENDED EARLY         after round {early['rounds']} of {early['of']}; the whole study was charged"
        )
    lost = result.get("stream", {}).get("lost", [])
    if lost:
        lines.append(f"  lost                {len(lost)} tick(s) released nothing; their records are spent")
    if answer is not None:
        lines += ["", answer.text() if answer.rows else "  Nothing stood out of the noise: the answer is empty.", ""]
        lines += [*(paragraph(note) for note in answer.notes), ""]
    evaluation = result.get("simulation", {}).get("evaluation", {})
    of = "the records it was fitted to" if evaluation.get("method") == "own records" else "kept-back records"
    measures = [(k, v) for k, v in evaluation.items() if k not in ("method", "fraction", "folds")]
    for number, (key, value) in enumerate(measures):
        note = "" if number else f"   ({of}; simulation only)"
        lines.append(f"  {_MEASURES.get(key, key.replace('_', ' ')):<19} {value:.4f}{note}")
    if privacy["differentially_private"]:
        delta = f", delta = {privacy['delta']:g}" if privacy["delta"] else ""
        lines.append(f"  privacy spent       epsilon = {privacy['epsilon']:g}{delta}, {privacy['neighbours']}")
    noise = privacy["noise_std"]
    if "total" in noise:
        lines.append(f"  noise               {noise['total']:.4g} on a coordinate of the total (std)")
    elif "per_peer" in noise:
        lines.append(f"  noise               {noise['per_peer']:.4g} on a coordinate of every record of length 1 (std)")
    lines.append(
        f"  traffic a client    {cost['bytes_up_per_client']:,} bytes up, {cost['bytes_down_per_client']:,} down"
    )
    if "bytes_state_per_client" in cost:
        sent, dense = cost["bytes_state_per_client"], cost["bytes_state_dense_per_client"]
        saved = 0.0 if dense == 0 else 1 - sent / dense
        lines.append(
            f"  state               {sent / 1000 / max(1, cost['rounds']):.1f} kB a client and round, {saved:.0%} "
            "saved by sending it sparse after thresholding"
        )
    if "simulation" in result and participants["clients"] == 1:
        lines.append(
            "  NOTE: one institution only, whose sum nobody else's hides. A deployment takes several: give --data once "
            "for each, or cut one file with --clients 3."
        )
    if "accuracy" in evaluation and evaluation["accuracy"] <= evaluation.get("majority_accuracy", -1.0):
        lines.append(
            "  WARNING: this model is no better than always giving the commonest answer. Raise epsilon or rounds, use "
            "fewer columns or more records, and look at the declared bounds and categories."
        )
    if "noise_warning" in result:
        lines.append(f"  WARNING: {result['noise_warning']}")
    lines += ["", privacy["statement"]]
    return "\n".join(lines)
