"""Names and hashes as they appear in messages, files and logs.

Hashes are 32 bytes on the wire and ``sha256:<64 hex>`` in print. Party names
are short, printable and free of path or control characters, so that a name
can be logged or used in a file name as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from tallystick.core.errors import StudyError

HASH_BYTES = 32
_PARTY = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")


def digest(*parts: bytes) -> bytes:
    """SHA-256 over the parts, each preceded by its 8-byte length so that no two splits collide."""
    if sum(map(len, parts)) < 4096:  # one update is several times cheaper than many
        return hashlib.sha256(b"".join([b for part in parts for b in (len(part).to_bytes(8, "little"), part)])).digest()
    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "little"))
        h.update(part)
    return h.digest()


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value, to be hashed or signed: sorted keys, no blanks, ASCII; NaN has none."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def format_hash(value: bytes) -> str:
    """``sha256:<64 hex>``."""
    if len(value) != HASH_BYTES:
        raise ValueError("a hash has 32 bytes")
    return f"sha256:{value.hex()}"


def parse_hash(text: str) -> bytes:
    """Inverse of :func:`format_hash`; anything else is an error."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise StudyError("a hash is written sha256:<64 hex digits>")
    return bytes.fromhex(text[7:])


def check_party_name(name: str) -> str:
    """The name itself, or an error that says which names are allowed."""
    if not isinstance(name, str) or not _PARTY.fullmatch(name):
        raise StudyError(
            f"party name {ascii(name)[:80]} is not allowed",
            remedy="Use 1 to 63 letters, digits, blanks, dots, dashes or underscores, starting with a letter or digit.",
        )
    return name
