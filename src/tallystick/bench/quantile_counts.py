"""Five quantiles of a million records in a hundred institutions by counts, simulated.

``counts-seconds``: wall seconds of the whole study with all its shares and signatures, the best of three (reference:
NumPy's quantiles of the same records, in the open). ``counts-rounds``: how many secure sums it took.
``counts-rank-error``: mean number of records between answer and quantile (reference: five draws of the exponential
mechanism at a trusted curator with ε/5 each, expected).
"""

from __future__ import annotations

import time
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.bench.central_draw import expected_rank_error
from tallystick.bench.measuring import row
from tallystick.engines.federation import Federation
from tallystick.estimators.quantiles import Quantiles
from tallystick.study.columns import Integer
from tallystick.study.schema import Schema

_FIVE = (0.05, 0.25, 0.5, 0.75, 0.95)
_VALUES = 10**9
_EPSILON = 1.0


def counts(quick: bool) -> list[dict[str, Any]]:
    """The rows of ``method="counts"``."""
    records, clients = (20_000, 10) if quick else (1_000_000, 100)
    data = _made_up(records)
    fed = Federation.simulate(
        [{"x": data[i::clients]} for i in range(clients)], schema=Schema({"x": Integer(0, _VALUES - 1)}), seed=1
    )
    fit = Quantiles(q=_FIVE, column="x", epsilon=_EPSILON).fit
    fit(fed)  # compiles what is not compiled yet
    times = []
    for _ in range(3):  # machines are shared
        started, used = time.perf_counter(), time.process_time()
        model = fit(fed)
        times.append((time.perf_counter() - started, time.process_time() - used))
    seconds, processor = min(times)
    started = time.perf_counter()
    np.quantile(data, _FIVE)
    plain = time.perf_counter() - started
    ordered = np.sort(data)
    errors = [_rank_error(ordered, q, int(model.quantiles_[q])) for q in _FIVE]
    reference = float(np.mean([expected_rank_error(ordered, _VALUES, q, _EPSILON / len(_FIVE)) for q in _FIVE]))
    error = float(np.mean(errors))
    unit = f"s, 5 quantiles of {records:,} records in {clients} clients"
    return [
        row("counts-seconds", round(seconds, 3), unit, round(plain, 4), round(plain / seconds, 4))
        | {"cpu_seconds": round(processor, 3)},
        row("counts-rounds", model.n_iter_, "secure sums", None, None),
        row(
            "counts-rank-error", round(error, 2), "records", round(reference, 2), round(reference / max(error, 0.5), 2)
        ),
    ]


def _made_up(records: int) -> NDArray[np.int64]:
    """A lognormal law, by its quantile function at evenly spaced ranks: the same records on every machine."""
    law = NormalDist()
    few = np.array([law.inv_cdf((i + 0.5) / 4096) for i in range(4096)])
    ranks = (np.arange(records) * 0.6180339887498949) % 1.0
    values = np.exp(np.interp(ranks * 4096 - 0.5, np.arange(4096), few)) * _VALUES / 20
    out: NDArray[np.int64] = np.clip(values, 0, _VALUES - 1).astype(np.int64)
    return out


def _rank_error(ordered: NDArray[np.int64], q: float, answer: int) -> float:
    wanted = q * len(ordered)
    below, upto = np.searchsorted(ordered, answer), np.searchsorted(ordered, answer, side="right")
    return float(max(0.0, below - wanted, wanted - upto))
