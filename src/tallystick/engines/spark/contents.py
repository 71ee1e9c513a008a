"""The records of a partition as they are in a file of them: names, instants, and the digest they are known by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tallystick.data.content import content_sum

if TYPE_CHECKING:
    import pyarrow as pa

CONTENT_SCHEMA = "records long, total binary"


def as_named(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    """Columns under their own names, and instants in UTC: Spark has names of its own and its session's time zone."""
    import pyarrow as pa

    columns = [
        column.cast(pa.timestamp(column.type.unit, "UTC"))
        if pa.types.is_timestamp(column.type) and column.type.tz is not None
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, names=list(names or table.column_names))


def digesting(names: list[str]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The map from a partition's records to the sum of their digests (:mod:`tallystick.data.content`)."""

    def digested(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        count = total = 0
        for batch in batches:
            total += content_sum(as_named(pa.Table.from_batches([batch]), names), names)
            count += batch.num_rows
        raw = (total % (1 << 256)).to_bytes(32, "little")
        kinds = pa.schema([("records", pa.int64()), ("total", pa.binary())])
        yield pa.RecordBatch.from_pylist([{"records": count, "total": raw}], kinds)

    return digested
