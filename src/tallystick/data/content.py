"""A digest of records by their content, whatever their order or format: a sum, so parts of a source add up.

cell    16 bytes: a number's float64, a text's hash, or "missing"; 39, 39.0 and "39" are one cell, and so are
        an empty CSV cell and a null
record  SHA-256 over the cells in the order of the sorted column names
digest  SHA-256 over (names, number of records, Σ records mod 2^256), and the number of lines that are no record, if
        there are any: a peer publishes a record for each of those, too
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.identifiers import digest, format_hash
from tallystick.data.column_values import python_values
from tallystick.data.opened import broken_records
from tallystick.data.sources import column_names, read_blocks
from tallystick.study.declared_values import label_text

_LABEL = b"tallystick/content/1"
_CELL_BYTES = 16
_MISSING = b"\xff" * _CELL_BYTES
_ROWS = 1 << 16


def content_digest(source: Any, *, party: str | None = None) -> str:
    """The digest of the records of any source that :mod:`tallystick.data.sources` reads."""
    names = sorted(column_names(source, party=party))
    total = count = broken = 0
    # Leniently: one record that cannot be read must not keep its data set from being registered.
    for block in read_blocks(source, names, rows=_ROWS, party=party, lenient=True):
        count += block.num_rows
        broken += broken_records(block)
        total += content_sum(block, names)
    return digest_of_sum(names, count, total, broken)


def digest_of_sum(names: list[str], count: int, total: int, broken: int = 0) -> str:
    """The digest of so many records with these columns, whose own digests add up to ``total``; ``broken``: lines that
    are no record."""
    parts = (digest(*(name.encode() for name in names)), count.to_bytes(8, "little"))
    lost = (broken.to_bytes(8, "little"),) if broken else ()
    return format_hash(digest(_LABEL, *parts, (total % (1 << 256)).to_bytes(32, "little"), *lost))


def content_sum(block: Any, names: list[str]) -> int:
    """The sum of the digests of a table's records; ``names`` are its columns, sorted."""
    if not block.num_rows or not names:
        return 0
    cells = np.concatenate([_cells(block.column(name)) for name in names], axis=1)
    raw, width = cells.tobytes(), len(names) * _CELL_BYTES
    return sum(
        int.from_bytes(hashlib.sha256(raw[row : row + width]).digest(), "little") for row in range(0, len(raw), width)
    )


def _cells(column: Any) -> NDArray[np.uint8]:
    """One column of cells, a row of bytes each; worked out once per distinct value."""
    import pyarrow as pa

    array = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    if pa.types.is_nested(array.type):
        return _table(python_values(array))[:-1]
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)  # a dictionary may hold what no record has
    array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # pyarrow's answer beyond 2 GB of text
        array = pa.concat_arrays(array.chunks)
    coded = array.dictionary_encode()
    cells = python_values(coded.dictionary)
    index = coded.indices.cast(pa.int64())
    # By hand, because Arrow's own to_numpy and fill_null import pandas wherever it is installed: seconds.
    here = slice(index.offset, index.offset + len(index))
    valid, values = index.buffers()
    places = np.frombuffer(values, dtype=np.int64)[here].copy()
    if valid is not None:
        places[np.unpackbits(np.frombuffer(valid, dtype=np.uint8), bitorder="little")[here] == 0] = len(cells)
    return _table(cells)[places]


def _table(cells: list[Any]) -> NDArray[np.uint8]:
    """The bytes of each of these cells, and of a missing one after the last."""
    raw = b"".join(_cell(cell) for cell in cells) + _MISSING
    return np.frombuffer(raw, dtype=np.uint8).reshape(-1, _CELL_BYTES)


def _cell(cell: object) -> bytes:
    text = "" if cell is None else label_text(cell)
    if text.lower() in ("true", "false"):
        text = text.lower()
    number = _number(text)
    if number is not None:  # + 0.0 makes -0.0 and 0.0 one cell
        return _MISSING if math.isnan(number) else bytes(8) + np.float64(number + 0.0).tobytes()
    return hashlib.sha256(text.encode()).digest()[:_CELL_BYTES] if text else _MISSING


def _number(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None
