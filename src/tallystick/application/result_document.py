"""The result of a study, simulated or run for real: as ``result.json`` holds it, and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tallystick.core.errors import StudyError
from tallystick.core.identifiers import canonical
from tallystick.core.version import __version__
from tallystick.estimators.base import PrivateEstimator
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
    """A simulation's ``result.json`` in ``out``, to be read by people too."""
    return _write(json.dumps(result, indent=2, allow_nan=False).encode(), out, "result.json")


def write_canonical(made: dict[str, Any], out: Path, name: str) -> Path:
    """One canonical line in ``out/name``: what is signed has one form."""
    return _write(canonical(made), out, name)


def _write(content: bytes, out: Path, name: str) -> Path:
    """Whole or not at all."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        partial = out / f"{name}.partial"
        partial.write_bytes(content + b"\n")
        return partial.replace(out / name)
    except OSError as error:
        raise StudyError(f"cannot write {out / name}: {error.strerror}", remedy="Choose another --out.") from None


_MEASURES = {"baseline_accuracy": "without privacy", "majority_accuracy": "majority class", "f1_macro": "macro F1"}


def describe_result(result: dict[str, Any]) -> str:
    """The result for people."""
    privacy, cost, participants = result["privacy"], result["cost"], result["participants"]
    lines = [
        f"{result['study']['name']}: {result['study']['program']} over {participants['clients']} client(s), "
        f"{cost['rounds']} round(s), {cost['seconds']:.1f} s"
    ]
    if result.get("interim"):
        lines.append("  interim             the study is still running; this is what it has released so far")
    lost = result.get("stream", {}).get("lost", [])
    if lost:
        lines.append(f"  lost                {len(lost)} tick(s) released nothing; their records are spent")
    evaluation = result.get("simulation", {}).get("evaluation", {})
    of = "the records it was fitted to" if evaluation.get("method") == "own records" else "kept-back records"
    measures = [(k, v) for k, v in evaluation.items() if k not in ("method", "fraction", "folds")]
    for number, (key, value) in enumerate(measures):
        note = "" if number else f"   ({of}; simulation only)"
        lines.append(f"  {_MEASURES.get(key, key.replace('_', ' ')):<19} {value:.4f}{note}")
    if privacy["differentially_private"]:
        delta = f", delta = {privacy['delta']:g}" if privacy["delta"] else ""
        lines.append(f"  privacy spent       epsilon = {privacy['epsilon']:g}{delta}, {privacy['neighbours']}")
    lines.append(f"  noise               {privacy['noise_std']['total']:.4g} on a coordinate of the total (std)")
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
    if "noise_warning" in result:
        lines.append(f"  WARNING: {result['noise_warning']}")
    lines += ["", privacy["statement"]]
    return "\n".join(lines)
