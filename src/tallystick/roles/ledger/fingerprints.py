"""How the same records are known again: by place, by bytes, and by content whatever their order or format.

The content digest is a sum, so it does not see the order of records:

    cell    16 bytes: a number's float64, a text's hash, or "missing"; 39, 39.0 and "39" are one cell, and so are
            an empty CSV cell and a null
    record  SHA-256 over the cells in the order of the sorted column names
    digest  SHA-256 over (names, number of records, Σ records mod 2^256)

It finds a copy, a sorted copy, a CSV saved as Parquet. It does not find a copy with a column left out or a record
added: registration is the steward's honest word, this is a guard against accidents. A digest of few records could be
guessed back, so it stays in the client's own ledger.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.identifiers import digest, format_hash
from tallystick.data.addresses import is_address, parse_address
from tallystick.data.column_values import python_values
from tallystick.data.record_files import parquet_files
from tallystick.data.sources import column_names, read_blocks
from tallystick.roles.ledger.account import Fingerprint
from tallystick.study.declared_values import label_text

_LABEL = b"tallystick/content/1"
_CELL_BYTES = 16
_MISSING = b"\xff" * _CELL_BYTES
_ROWS = 1 << 16


def fingerprint(source: str | Path, *, party: str | None = None) -> Fingerprint:
    """The marks of a source; reads all of it, a block at a time. Records in a database have no bytes of their own."""
    if is_address(source):
        address = parse_address(str(source))
        return Fingerprint(location=address.location, content=content_digest(address.text, party=party))
    path = Path(source).resolve()
    content = content_digest(path, party=party)  # first: it says in words what is wrong with a file
    return Fingerprint(location=str(path), bytes=format_hash(_bytes_digest(path)), content=content)


def _bytes_digest(path: Path) -> bytes:
    if path.is_dir():
        files = parquet_files(path)
        return digest(*(part for f in files for part in (str(f.relative_to(path)).encode(), _bytes_digest(f))))
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def content_digest(source: Any, *, party: str | None = None) -> str:
    """The digest of the records of any source that :mod:`tallystick.data.sources` reads."""
    names = sorted(column_names(source, party=party))
    # Leniently: one record that cannot be read must not keep its data set from being registered.
    total = count = 0
    for block in read_blocks(source, names, rows=_ROWS, party=party, lenient=True):
        count += block.num_rows
        if not block.num_rows:
            continue
        cells = np.concatenate([_cells(block.column(i)) for i in range(len(names))], axis=1)
        raw, width = cells.tobytes(), len(names) * _CELL_BYTES
        for row in range(0, len(raw), width):
            total += int.from_bytes(hashlib.sha256(raw[row : row + width]).digest(), "little")
    total %= 1 << 256
    parts = (digest(*(name.encode() for name in names)), count.to_bytes(8, "little"))
    return format_hash(digest(_LABEL, *parts, total.to_bytes(32, "little")))


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
