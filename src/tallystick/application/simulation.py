"""``tallystick simulate``: a study on this machine, and how well it did.

Records are held back and split over clients *before* anything is learned, by a stream of their own, so that the same
seed trains on the same records whatever the number of clients. Metrics on records exist in simulation only.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.application.loading import packed_fit
from tallystick.application.result_document import result_document
from tallystick.application.study_files import load_study, read_program_from
from tallystick.core.errors import DataError, DataWarning, StudyError
from tallystick.crypto.prg import AesStream, derive, system_stream
from tallystick.data.encoding import Records, encode, study_records
from tallystick.data.examples import census
from tallystick.data.held_columns import joined_table, split_by_holder
from tallystick.data.partitions import fold_indices, holdout_split, parse_partition
from tallystick.data.sources import read_table
from tallystick.engines.data_check import check_tallies, refuse_or_warn
from tallystick.engines.federation import Federation, seed_bytes
from tallystick.engines.planning import layout_of
from tallystick.estimators.base import PrivateEstimator
from tallystick.estimators.from_study import estimator_for
from tallystick.study import Study

DEMO_CLIENTS = 10
"""Institutions that the built-in census is split over when --clients is left out."""


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
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Run the study and return its result document (contract: ``tallystick/result/1``), with what ``ts.load`` needs.

    ``progress`` is told of what the rounds are, how many are done, and of how many (0 while that is not known).
    """
    if holdout is not None and folds is not None:
        raise StudyError("--holdout and --folds at once", remedy="Use one of them.")
    if clients is not None and len(data) > 1:
        raise StudyError("--clients with several --data files", remedy="One file is one client; leave --clients out.")
    study, folder = load_study(path, settings)
    estimator, study = estimator_for(study, read_program_from(folder))
    layout = layout_of(study)
    extra = parse_partition(partition).column
    if study.vertical:
        _check_apart(data, clients, partition)
        table, owner = joined_table(study, {path.stem: path for path in data}), np.zeros(0, dtype=np.int64)
    else:
        table, owner = _read(study, (*layout.columns, *((extra,) if extra else ())), data)
        _look(study, table, owner, data)
    _check_stated(study, table.num_rows)
    source, everything = split_source(seed, b"split"), np.arange(table.num_rows)
    splits: list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]
    if folds is not None:
        method: dict[str, Any] = {"method": "folds", "folds": folds}
        splits = list(fold_indices(table.num_rows, folds, source))
    elif holdout is not None:
        method = {"method": "holdout", "fraction": holdout}
        splits = [holdout_split(table.num_rows, holdout, source)]
    else:
        method = {"method": "own records"}
        splits = [(everything, everything if estimator.evaluates_its_own_records else None)]
    names = [path.stem[:50] for path in data]
    started = time.perf_counter()
    evaluations = []
    for number, (train, test) in enumerate(splits):
        if study.vertical:
            frames = split_by_holder(study, table.take(train))
        elif len(data) > 1:
            frames = [table.take(train[owner[train] == i]) for i in range(len(data))]
        else:
            frames = _split(study, table.take(train), 1 if data else DEMO_CLIENTS, clients, partition, seed)
        federation = Federation.simulate(
            frames,
            schema=study.schema_of_data(),
            names=list(study.data.holders or {}) or (names if len(data) == len(set(names)) > 1 else None),
            vertical=study.vertical,
            identifier=None if study.data.identifier is None else study.data.identifier.model_dump(),
            trust=study.trust.model,
            seed=None if seed is None else seed + 1_000_003 * number,
            drop=drop,
        )
        title = study.study.name if len(splits) == 1 else f"{study.study.name}, fold {number + 1}/{len(splits)}"
        told = None if progress is None else partial(progress, title)
        if told is not None:
            told(0, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # said of the whole files already
            estimator.fit_study(federation, study, progress=told)
        if test is not None:
            evaluations.append(evaluate_split(estimator, study, table.take(train), table.take(test)))
    seconds = time.perf_counter() - started
    simulation: dict[str, Any] = {"seed": seed, "records": table.num_rows, "not_for_release": True}
    if evaluations:
        means = {key: float(np.mean([e[key] for e in evaluations])) for key in evaluations[0]}
        simulation["evaluation"] = method | means
    made = result_document(estimator, seconds, kind="simulation", simulation=simulation)
    return made | {"fitted": packed_fit(estimator)}


def _check_apart(data: tuple[Path, ...], clients: int | None, partition: str) -> None:
    """Files of institutions with different columns are not split over others."""
    if len(data) < 2 or clients is not None or partition != "even":
        raise StudyError(
            "the study's columns are at different institutions",
            rule="holders-are-the-institutions",
            remedy="Give one --data file for each of them, named as the study names it (bank.csv is bank), and neither "
            "--clients nor --partition.",
        )


def _look(study: Study, table: Any, owner: NDArray[np.int64], data: tuple[Path, ...]) -> None:
    """Refuse or warn of what is wrong with the files, before they are split: rows are those of the file."""
    found = {}
    short = [path.name for path in data] or ["census"]
    for at, name in enumerate(short if len(set(short)) == len(short) else [str(path) for path in data]):
        own = table.take(np.flatnonzero(owner == at))
        found[name] = study_records(study, own, party=name, lenient=False).tallies
    refuse_or_warn(check_tallies(study, found))


def evaluate_split(estimator: PrivateEstimator, study: Study, train: Any, test: Any) -> dict[str, float]:
    """The estimator's own measures on records it was not fitted to (or was, if it has no others). Simulation only."""
    return estimator.evaluate_records(encoded(study, train), encoded(study, test))


def encoded(study: Study, table: Any) -> Records:
    """Records as the study reads them; a bad cell is refused."""
    return encode(
        table,
        study.schema_of_data(),
        features=study.study.features,
        target=study.study.target,
        missing=study.missing_policy(),
    )


def split_source(seed: int | None, label: bytes) -> AesStream:
    """Randomness for splitting records: a stream of its own for each purpose."""
    if seed is None:
        return system_stream()
    return AesStream(derive(seed_bytes(seed), b"tallystick/cli/1", label))


def _read(study: Study, features: tuple[str, ...], data: tuple[Path, ...]) -> tuple[Any, NDArray[np.int64]]:
    """All records, and which file each came from."""
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
    return table, np.repeat(np.arange(len(tables)), [t.num_rows for t in tables])


def _check_stated(study: Study, held: int) -> None:
    """A stale number of records makes a model of wrong steps and noise: nobody wants to simulate that unawares."""
    stated = study.data.records
    if stated is not None and study.stream is None and not held / 2 <= stated <= 2 * held:
        raise DataError(
            f"the study states {stated:,} records, and the data hold {held:,}",
            rule="records-as-stated",
            remedy=f"Steps and noise follow the stated number. Correct records under [data], or simulate with "
            f"--set data.records={held}.",
        )


def _split(
    study: Study, table: Any, institutions: int, clients: int | None, partition: str, seed: int | None
) -> list[Any]:
    """The records split over ``clients``, or over so many institutions if that is left out."""
    chosen = parse_partition(partition)
    column = chosen.column if chosen.kind == "column" else study.study.target
    values = None
    if chosen.kind != "even":
        if column is None or column not in table.column_names:
            raise StudyError(f"--partition {partition}: no column to split by", remedy="Name a column of the study.")
        values = table.column(column).to_pylist()
    if clients is None and chosen.kind != "column":
        clients = institutions
    parts = chosen.split(table.num_rows, clients=clients, values=values, source=split_source(seed, b"partition"))
    return [table.take(p) for p in parts]
