"""``tallystick simulate``: a study on this machine, and how well it did.

Records are held back and split over clients *before* anything is learned, by a stream of their own, so that the same
seed trains on the same records whatever the number of clients. Metrics on records exist in simulation only.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.application.progress import round_progress
from tallystick.core.errors import DataError, StudyError
from tallystick.core.outside_text import TOML_BYTES
from tallystick.core.version import __version__
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.data.encoding import Records, encode
from tallystick.data.examples import census
from tallystick.data.files import read_text
from tallystick.data.partitions import fold_indices, holdout_split, parse_partition
from tallystick.data.sources import read_table
from tallystick.engines.federation import Federation, seed_bytes
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study

_PROGRAM_BYTES = 4 << 20
DEMO_CLIENTS = 10
"""Institutions that the built-in census is split over when --clients is left out."""

__all__ = [
    "describe_result",
    "evaluate_split",
    "load_study",
    "read_program_from",
    "result_document",
    "simulate",
    "split_source",
    "write_result",
]


def load_study(path: Path, settings: tuple[str, ...] = ()) -> tuple[Study, Path]:
    """The study of a file, and the folder its program file would be in."""
    return Study.parse(read_text(path, limit=TOML_BYTES, what="the study"), settings=settings), path.parent


def read_program_from(folder: Path) -> Any:
    """How ``program = "….py"`` is read: beside the study."""

    def read(name: str) -> str:
        return read_text(
            folder / name, limit=_PROGRAM_BYTES, what="the program", remedy="Paths are relative to the study."
        )

    return read


@dataclass(frozen=True, kw_only=True)
class _Table:
    """All records, and which file each came from."""

    table: Any
    owner: NDArray[np.int64]


def simulate(
    path: Path,
    *,
    data: tuple[Path, ...] = (),
    clients: int | None = None,
    partition: str = "even",
    settings: tuple[str, ...] = (),
    seed: int | None = None,
    holdout: float | None = None,
    folds: int | None = None,
    drop: float = 0.0,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run the study and return its result document (contract: ``tallystick/result/1``)."""
    if holdout is not None and folds is not None:
        raise StudyError("--holdout and --folds at once", remedy="Use one of them.")
    if clients is not None and len(data) > 1:
        raise StudyError("--clients with several --data files", remedy="One file is one client; leave --clients out.")
    study, folder = load_study(path, settings)
    estimator, study = estimator_for(study, read_program_from(folder))
    layout = estimator.layout_for(study)
    extra = parse_partition(partition).column
    everything = _read(study, (*layout.columns, *((extra,) if extra else ())), data)
    source = split_source(seed, b"split")
    count = everything.table.num_rows
    splits: list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]
    if folds is not None:
        splits = [(train, test) for train, test in fold_indices(count, folds, source)]
    elif holdout is not None:
        splits = [holdout_split(count, holdout, source)]
    else:
        splits = [(np.arange(count), None)]
    started = time.perf_counter()
    evaluations = []
    for number, (train, test) in enumerate(splits):
        frames, names = _frames(study, everything, train, data, clients, partition, seed)
        federation = Federation.simulate(
            frames,
            schema=study.schema_of_data(),
            names=names,
            trust=study.trust.model,
            seed=None if seed is None else seed + 1_000_003 * number,
            drop=drop,
        )
        title = study.study.name if len(splits) == 1 else f"{study.study.name}, fold {number + 1}/{len(splits)}"
        with round_progress(title) as progress:
            estimator.fit_study(federation, study, progress=None if quiet else progress)
        if test is None and estimator.evaluates_its_own_records:
            test = train
        if test is not None:
            taken = everything.table
            evaluations.append(evaluate_split(estimator, study, taken.take(train), taken.take(test)))
    seconds = time.perf_counter() - started
    simulation: dict[str, Any] = {"seed": seed, "records": count, "not_for_release": True}
    if evaluations:
        method: dict[str, Any] = {"method": "own records"}
        if holdout is not None:
            method = {"method": "holdout", "fraction": holdout}
        elif folds is not None:
            method = {"method": "folds", "folds": folds}
        simulation["evaluation"] = method | {
            key: float(np.mean([e[key] for e in evaluations])) for key in evaluations[0]
        }
    return result_document(estimator, seconds, kind="simulation", simulation=simulation)


def result_document(
    estimator: PrivateEstimator, seconds: float, *, kind: str, simulation: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What ``result.json`` holds. ``simulation`` appears only in a simulated study's result."""
    study: Study = estimator.study_
    document: dict[str, Any] = {
        "schema": "tallystick/result/1",
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


def evaluate_split(estimator: PrivateEstimator, study: Study, train: Any, test: Any) -> dict[str, float]:
    """The estimator's own measures on records it was not fitted to (or was, if it has no others). Simulation only."""

    def encoded(table: Any) -> Records:
        return encode(
            table,
            study.schema_of_data(),
            features=study.study.features,
            target=study.study.target,
            missing=study.missing_policy(),
        )

    return estimator.evaluate_records(encoded(train), encoded(test))


def write_result(result: dict[str, Any], out: Path) -> Path:
    """``result.json`` in ``out``, written whole or not at all."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        partial = out / "result.json.partial"
        partial.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        return partial.replace(out / "result.json")
    except OSError as error:
        raise StudyError(f"cannot write the result: {error}", remedy="Choose another --out.") from None


_MEASURES = {"baseline_accuracy": "without privacy", "majority_accuracy": "majority class", "f1_macro": "macro F1"}


def describe_result(result: dict[str, Any]) -> str:
    """The result for people."""
    privacy, cost, participants = result["privacy"], result["cost"], result["participants"]
    lines = [
        f"{result['study']['name']}: {result['study']['program']} over {participants['clients']} client(s), "
        f"{cost['rounds']} round(s), {cost['seconds']:.1f} s",
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


def split_source(seed: int | None, label: bytes) -> AesStream:
    if seed is None:
        return system_stream()
    return AesStream(derive(seed_bytes(seed), b"tallystick/cli/1", label))


def _read(study: Study, features: tuple[str, ...], data: tuple[Path, ...]) -> _Table:
    import pyarrow as pa

    wanted = list(dict.fromkeys((*features, *((study.study.target,) if study.study.target else ()))))
    wanted += [study.privacy.person] if study.privacy.unit == "person" and study.privacy.person else []
    wanted += [study.stream.time] if study.stream is not None and study.stream.time else []
    sources: list[Any] = list(data) if data else [census()]
    tables = [read_table(s, wanted, party=None if not data else Path(s).name) for s in sources]
    try:
        table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    except pa.ArrowException:
        raise DataError(
            "the files' columns have different types", remedy="Give every file the same column types."
        ) from None
    if table.num_rows == 0:
        raise DataError("the data hold no record", remedy="Check the files given with --data.")
    owner = np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])
    return _Table(table=table, owner=owner)


def _frames(
    study: Study,
    everything: _Table,
    train: NDArray[np.int64],
    data: tuple[Path, ...],
    clients: int | None,
    partition: str,
    seed: int | None,
) -> tuple[list[Any], list[str] | None]:
    """One frame per client: the files as they are, or the records split over ``clients``."""
    if len(data) > 1:
        parts = [train[everything.owner[train] == i] for i in range(len(data))]
        names = [p.stem[:50] for p in data]
        return [everything.table.take(p) for p in parts], names if len(set(names)) == len(names) else None
    chosen = parse_partition(partition)
    table = everything.table.take(train)
    column = chosen.column if chosen.kind == "column" else study.study.target
    values = None
    if chosen.kind != "even":
        if column is None or column not in table.column_names:
            raise StudyError(f"--partition {partition}: no column to split by", remedy="Name a column of the study.")
        values = table.column(column).to_pylist()
    if clients is None and chosen.kind != "column":
        clients = 1 if data else DEMO_CLIENTS
    parts = chosen.split(len(train), clients=clients, values=values, source=split_source(seed, b"partition"))
    return [table.take(p) for p in parts], None
