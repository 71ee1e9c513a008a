"""Privacy receipts on their way: the aggregator puts one together when the last signature is in, everybody keeps it.

Nothing here is believed: ``tallystick verify`` checks a receipt against the reader's own consortium file, offline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tallystick.core.errors import RemoteProtocolError, StudyError
from tallystick.core.identifiers import parse_hash
from tallystick.core.outside_text import NotReadable, read_json
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.governance.docket import Docket
from tallystick.protocol.governance.receipt import EARLY, MAX_BYTES, make_receipt
from tallystick.protocol.governance.receipt_contents import lacking
from tallystick.roles.identity.consortium import Consortium
from tallystick.roles.identity.identity_files import write_public


def receipt_result(raw: bytes) -> str:
    """The digest of the result that a receipt says it is of; empty if it says nothing."""
    try:
        return str(read_json(raw, limit=MAX_BYTES)["result"])
    except (NotReadable, LookupError, TypeError):
        return ""


class ReceiptBook:
    """The receipts a party has, one file each: ``state/receipts/<study hash>.json``."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "receipts"

    def path(self, study: bytes) -> Path:
        """Where a study's receipt is or would be."""
        return self._folder / f"{study.hex()}.json"

    def get(self, study: bytes) -> bytes | None:
        """A receipt, if it is here."""
        path = self.path(study)
        return path.read_bytes() if path.exists() else None

    def of_result(self, study: bytes, result: str) -> bytes | None:
        """The receipt here, if it is of the result with this digest: one that ended early may have gone on since."""
        kept = self.get(study)
        return kept if kept is not None and receipt_result(kept) == result else None

    def is_early(self, study: bytes) -> bool:
        """Whether the receipt here is that of a study that was not over, and may be followed by another."""
        kept = self.get(study)
        return kept is not None and EARLY in read_json(kept, limit=MAX_BYTES)

    def put(self, study: bytes, raw: bytes, *, sender: str | None = None) -> None:
        """Keep a receipt; the first one stays, unless it is of a study that was not over."""
        if len(raw) > MAX_BYTES:
            raise RemoteProtocolError("a receipt is too large to be one", rule="too-long", party=sender)
        try:
            named = parse_hash(read_json(raw, limit=MAX_BYTES)["study"]["hash"])
        except (NotReadable, LookupError, TypeError, StudyError):
            raise RemoteProtocolError("a receipt is not readable", rule="malformed", party=sender) from None
        if named != study:
            raise RemoteProtocolError("a receipt of another study", rule="wrong-study", party=sender)
        if not self.path(study).exists() or self.is_early(study):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_public(self.path(study), raw)


def complete_receipt(
    docket: Docket, consortium: Consortium, participants: Sequence[Sequence[str]], *, now: float, key: SigningKey
) -> bytes | None:
    """The receipt of a finished study, or None while a signature is missing."""
    if docket.standing(now).state != "finished" or lacking(docket, participants):
        return None
    return make_receipt(docket, consortium=consortium.to_toml(), participants=participants, now=now, key=key)
