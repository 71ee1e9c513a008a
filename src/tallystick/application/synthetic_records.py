"""Made-up records that fit a study's declared columns: to try a program or a benchmark out without anybody's data.

Every value is drawn evenly from what the column declares, so the records have no structure; they are for questions
whose answer does not depend on one: does it run, is it exact, how long does it take.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.randomness import WordSource
from tallystick.crypto.prg import AesStream, derive
from tallystick.data.partitions import uniforms
from tallystick.engines.federation import seed_bytes
from tallystick.study import Study
from tallystick.study.columns import Category, Integer, Items, Number


def made_up_table(study: Study, rows: int, *, seed: int = 1) -> Any:
    """An Arrow table of ``rows`` records; the same for the same seed."""
    import pyarrow as pa

    source = AesStream(derive(seed_bytes(seed), b"tallystick/made-up/1"))
    columns: dict[str, Any] = {}
    schema = study.schema_of_data()
    for name in schema:
        column = schema[name]
        if isinstance(column, Integer):
            columns[name] = int(column.lower) + _below(int(column.upper - column.lower) + 1, rows, source)
        elif isinstance(column, Number):
            columns[name] = column.lower + (column.upper - column.lower) * uniforms(rows, source)
        elif isinstance(column, Category):
            columns[name] = [column.values[i] for i in _below(len(column.values), rows, source)]
        elif isinstance(column, Items):
            words = column.vocabulary
            wanted = _below(min(column.max_per_record, len(words)) + 1, rows, source)
            columns[name] = [[words[i] for i in np.argsort(uniforms(len(words), source))[:k]] for k in wanted]
    if study.privacy.unit == "person" and study.privacy.person:
        columns[study.privacy.person] = [f"p{i // 2}" for i in range(rows)]
    return pa.table(columns)


def _below(limit: int, count: int, source: WordSource) -> NDArray[np.int64]:
    return (limit * uniforms(count, source)).astype(np.int64)
