"""Pieces of work handed to executors: a function from a stretch of coordinates to bytes, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tallystick.core.errors import TallystickError
from tallystick.engines.spark.session import check_executors, job, start_session

if TYPE_CHECKING:
    import pyarrow as pa

Piece = tuple[int, int]


def on_executors(
    master: str,
    conf: dict[str, str],
    function: Callable[[int, int], bytes],
    pieces: Sequence[Piece],
    what: str,
    *,
    patience: float | None = None,
) -> Iterator[tuple[Piece, bytes | None]]:
    """What the function gives for every piece, a task each; None where it raised an error of ours.

    ``patience``: for so many seconds executors are waited for.
    """
    session = start_session(master, conf)

    def worked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as arrow

        kinds = arrow.schema([("low", arrow.int64()), ("high", arrow.int64()), ("made", arrow.binary())])
        for batch in batches:
            for row in batch.to_pylist():
                try:
                    made = function(row["low"], row["high"])
                except TallystickError:
                    made = None
                yield arrow.RecordBatch.from_pylist([{**row, "made": made}], kinds)

    def answers() -> Any:
        frame = session.createDataFrame(list(pieces), "low long, high long")
        return frame.repartition(len(pieces)).mapInArrow(worked, "low long, high long, made binary").collect()

    check_executors(session, patience=patience)
    for row in job(answers, session, what, patience=patience):
        yield (row["low"], row["high"]), row["made"]
