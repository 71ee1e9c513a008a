"""The anchor beside a ledger's database: the newest link's sequence and hash, in a small file of its own.

It is replaced and fsynced after every append, before the caller hears that the link is kept. So it may lag behind the
database after a crash, never lead it. If it leads, the database alone was put back from an older copy: a restored
backup, a deleted write-ahead log, a disk that lost writes. Any spelling but the one written here is refused.
"""

from __future__ import annotations

import os
from pathlib import Path

from tallystick.core.errors import VerificationError
from tallystick.core.identifiers import canonical, format_hash, parse_hash
from tallystick.core.outside_text import read_json
from tallystick.privacy.chain import LEDGER_BYTES, Head

_LARGEST = 4096


def broken_ledger(cause: str, *, party: str, rule: str = "ledger-chain") -> VerificationError:
    """The ledger is not what was written: its owner takes part in nothing until that is settled."""
    return VerificationError(
        cause,
        rule=rule,
        party=party,
        remedy="Restore the newest copy of the whole state directory; if there is none: tallystick ledger recover.",
    )


class Anchor:
    """``ledger.anchor``; written only by whoever holds the ledger's lock. File errors are the caller's to guard."""

    def __init__(self, path: Path, *, party: str) -> None:
        self.path, self._party = path, party

    def exists(self) -> bool:
        """Whether there is one."""
        return self.path.exists()

    def read(self) -> Head:
        """The head it notes."""
        raw = self.path.read_bytes()
        try:
            facts = read_json(raw, limit=_LARGEST)
            ledger, sequence = bytes.fromhex(facts["ledger"]), facts["sequence"]
            head = Head(ledger=ledger, sequence=sequence, hash=parse_hash(facts["hash"]))
            if type(sequence) is int and sequence >= 0 and len(ledger) == LEDGER_BYTES and raw == self._encode(head):
                return head
        except (ValueError, KeyError, TypeError):
            pass
        raise broken_ledger(
            "the ledger's anchor file is another institution's or was changed", party=self._party, rule="ledger-anchor"
        )

    def write(self, head: Head) -> None:
        """Note this head; on the disk when this returns."""
        scratch = self.path.with_name(self.path.name + "-new")
        with scratch.open("wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(self._encode(head))
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _encode(self, head: Head) -> bytes:
        facts = {"ledger": head.ledger.hex(), "sequence": head.sequence, "hash": format_hash(head.hash)}
        return canonical({**facts, "party": self._party}) + b"\n"
