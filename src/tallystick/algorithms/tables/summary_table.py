"""From the noisy sums of a summary to a table of estimates, each with the standard error of the noise in it.

Noise of known variance σ² per coordinate is all that stands between an estimate and the exact number for these records,
so standard errors follow from the sums alone: exactly where an estimate is linear, by linearisation otherwise (the
derivatives by each sum, taken numerically, times its σ). Intervals are cut to what is possible by the public bounds.

Where the number of records is public and every record has a cell of its column, a histogram is moved to that total,
evenly: least squares, σ² (1 − 1/k) instead of σ².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.algorithms.tables.summary import SummarisedColumn, SummaryProgram

Row = dict[str, Any]


def summarise(
    program: SummaryProgram,
    total: NDArray[np.float64],
    std: Mapping[str, float],
    *,
    records: int | None,
    complete: Collection[str],
    z: float,
) -> list[Row]:
    """The rows of the table.

    ``records``: the number of records in the sums where it is public, else None. ``complete``: columns of which every
    record has one cell. ``z``: standard deviations on either side of an estimate that its interval reaches.
    """
    parts: dict[str, NDArray[np.float64]] = {}
    at = 0
    for name, size in program.sizes.items():
        parts[name] = total[at : at + size]
        at += size
    whole, whole_std = _records(program, parts, std, records, complete)
    rows: list[Row] = []
    present: dict[str, tuple[float, float]] = {}
    for column in program.columns:
        rows += _histogram(column, parts, std, whole, whole_std, records, complete, z, present)
    q = len(program.numbers)
    moments, noise = parts.get("moments", np.zeros(0)), std.get("moments", 0.0)
    variances: list[tuple[float, float]] = []
    for i, column in enumerate(program.numbers):
        count, count_std = present[column.name]
        sums = [moments[i], moments[q + i], count, whole]
        errors = [noise, noise, count_std, whole_std]
        mean, mean_std = _with_error(lambda s: s[0] / max(s[2], 1.0), sums, errors)
        variance, variance_std = _with_error(_variance, sums, errors)
        variances.append((variance, variance_std))
        kind, centre, scale, _ = column.unit
        prefix = "log_" if kind == "log" else ""
        rows.append(
            _row(column.name, f"{prefix}mean", None, centre + scale * mean, scale * mean_std, z, *_ends(centre, scale))
        )
        square = scale**2
        rows.append(
            _row(column.name, f"{prefix}variance", None, square * variance, square * variance_std, z, 0.0, square)
        )
    for k, (i, j) in enumerate(program.pairs):
        sums = [moments[i], moments[j], moments[q + i], moments[q + j], parts["correlations"][k], whole]
        errors = [noise, noise, noise, noise, std["correlations"], whole_std]
        names = program.numbers[i].name, program.numbers[j].name
        rows.append(_correlation(names, sums, errors, variances[i], variances[j], z))
    return rows


def _ends(centre: float, scale: float) -> tuple[float, float]:
    return centre - scale, centre + scale


def _records(
    program: SummaryProgram,
    parts: Mapping[str, NDArray[np.float64]],
    std: Mapping[str, float],
    records: int | None,
    complete: Collection[str],
) -> tuple[float, float]:
    """How many records the sums hold: the public number, or the counted one and every complete histogram, averaged."""
    if records is not None:
        return float(records), 0.0
    answers: list[tuple[float, float]] = []
    if "count" in parts:
        answers.append((float(parts["count"][0]), std["count"] ** 2))
    for column in program.columns:
        if column.name in complete:
            cells = parts["histograms"][column.cells]
            answers.append((float(cells.sum()), len(cells) * std["histograms"] ** 2))
    if not answers:
        return float(parts["histograms"].sum() / len(program.columns)), math.inf
    if any(v == 0 for _, v in answers):
        return next(a for a, v in answers if v == 0), 0.0
    weight = sum(1 / v for _, v in answers)
    return sum(a / v for a, v in answers) / weight, math.sqrt(1 / weight)


def _histogram(
    column: SummarisedColumn,
    parts: Mapping[str, NDArray[np.float64]],
    std: Mapping[str, float],
    whole: float,
    whole_std: float,
    records: int | None,
    complete: Collection[str],
    z: float,
    present: dict[str, tuple[float, float]],
) -> list[Row]:
    cells, noise = np.array(parts["histograms"][column.cells]), std["histograms"]
    k = len(cells)
    error = noise
    total, total_std = float(cells.sum()), noise * math.sqrt(k)
    if column.name in complete:
        total, total_std = whole, whole_std
        if records is not None:
            cells += (records - cells.sum()) / k
            error = noise * math.sqrt(1 - 1 / k)
    most = math.inf if records is None else float(records)
    rows: list[Row] = []
    if column.marked:
        missing = float(cells[-1])
        total, total_std = total - missing, math.hypot(total_std, error)
        rows.append(_row(column.name, "missing", None, missing, error, z, 0.0, most))
        cells = cells[:-1]
    present[column.name] = total, total_std
    if column.ones == 1:
        rows.insert(0, _row(column.name, "count", None, total, total_std, z, 0.0, most))
    for label, value in zip(column.labels, cells):
        rows.append(_row(column.name, "histogram", label, float(value), error, z, 0.0, most))
    return rows


def _variance(s: NDArray[np.float64]) -> float:
    """From Σ x, Σ (x² − ½) over all records (a missing x is 0), the records with a value, and all records."""
    count = max(float(s[2]), 1.0)
    return float((s[1] + 0.5 * s[3]) / count - (s[0] / count) ** 2)


def _covariance(s: NDArray[np.float64]) -> tuple[float, float, float]:
    n = max(float(s[5]), 1.0)
    a, b = s[0] / n, s[1] / n
    return float(s[4] / n - a * b), float(s[2] / n + 0.5 - a * a), float(s[3] / n + 0.5 - b * b)


def _correlation(
    names: tuple[str, str],
    sums: Sequence[float],
    errors: Sequence[float],
    first: tuple[float, float],
    second: tuple[float, float],
    z: float,
) -> Row:
    """Undefined (None, and the interval of every correlation) where a variance cannot be told from 0."""
    if any(v <= 2 * e or v <= 0 for v, e in (first, second)):
        return _row(names[0], "correlation", names[1], None, None, z, -1.0, 1.0)

    def r(s: NDArray[np.float64]) -> float:
        c, v, w = _covariance(s)
        return c / math.sqrt(max(v * w, 1e-12))

    value, error = _with_error(r, sums, errors)
    return _row(names[0], "correlation", names[1], value, error, z, -1.0, 1.0)


def _with_error(
    f: Callable[[NDArray[np.float64]], float], sums: Sequence[float], errors: Sequence[float]
) -> tuple[float, float]:
    """f at the sums, and √Σ (∂f·σ)²: the derivative over ± a tenth of a standard deviation."""
    at = np.array(sums, dtype=np.float64)
    square = 0.0
    for i, error in enumerate(errors):
        if error == 0:
            continue
        if not math.isfinite(error):
            return f(at), math.inf
        step = np.zeros(len(at))
        step[i] = 0.1 * error
        square += ((f(at + step) - f(at - step)) / 0.2) ** 2
    return f(at), math.sqrt(square)


def _row(
    column: str,
    statistic: str,
    of: str | None,
    value: float | None,
    error: float | None,
    z: float,
    least: float,
    most: float,
) -> Row:
    """One line; the estimate and its interval lie within what is possible. An unknown end is None."""
    if value is None or error is None:
        low, high, value, error = least, most, None, None
    else:
        low, high = (min(max(v, least), most) for v in (value - z * error, value + z * error))
        value = min(max(value, least), most)
    finite = {"estimate": value, "standard_error": error, "lower": low, "upper": high}
    return {
        "column": column,
        "statistic": statistic,
        "of": of,
        **{k: (None if v is None or not math.isfinite(v) else float(v)) for k, v in finite.items()},
    }
