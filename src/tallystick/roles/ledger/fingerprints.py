"""How the same records are known again: by place, by bytes, and by content whatever their order or format.

The content digest is a sum, so it does not see the order of records (:mod:`tallystick.data.content`).

It finds a copy, a sorted copy, a CSV saved as Parquet. It does not find a copy with a column left out or a record
added: registration is the steward's honest word, this is a guard against accidents. A digest of few records could be
guessed back, so it stays in the client's own ledger.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tallystick.core.identifiers import digest, format_hash
from tallystick.data.addresses import is_address, parse_address
from tallystick.data.content import content_digest
from tallystick.data.record_files import parquet_files
from tallystick.roles.ledger.account import Fingerprint


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
