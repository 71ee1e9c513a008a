"""The public facts of a study's joint products: who holds how many columns of how many aligned records, who deals."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto.field import ELEMENT_BYTES

ROWS_BYTES = 4 << 20
"""Of opened rows in one message, about."""


@dataclass(frozen=True, kw_only=True)
class JointParameters:
    """The same at every party. The holders' order is that of the study."""

    study_hash: bytes
    holders: tuple[str, ...]
    widths: tuple[int, ...]
    """Columns of each holder's rows."""
    records: int
    dealer: str

    def __post_init__(self) -> None:
        if len(self.holders) < 2 or len(self.holders) != len(self.widths) or len(set(self.holders)) < len(self.holders):
            raise LocalProtocolError("joint products are of two or more holders, each named once with its width")
        if self.dealer in self.holders:
            # It would know its own mask and every other's: opened rows would be read by it.
            raise LocalProtocolError("the dealer holds columns itself")
        if self.records < 1 or min(self.widths) < 1:
            raise LocalProtocolError("joint products need a record and a column at every holder")

    def width(self, holder: str) -> int:
        """Columns of one holder."""
        return self.widths[self.holders.index(holder)]

    def after(self, holder: str) -> tuple[str, ...]:
        """The holders that come after this one: it has explicit shares of the products with them."""
        return self.holders[self.holders.index(holder) + 1 :]

    def others(self, holder: str) -> tuple[str, ...]:
        """All but this one."""
        return tuple(name for name in self.holders if name != holder)

    def rows_per_message(self, holder: str) -> int:
        """Rows of this holder that travel together."""
        return max(1, ROWS_BYTES // (ELEMENT_BYTES * self.width(holder)))

    def mask_context(self, holder: str) -> bytes:
        """What a holder's mask is expanded for."""
        return digest(b"tallystick/joint-products/mask/1", self.study_hash, holder.encode())

    def share_context(self, one: str, other: str) -> bytes:
        """What a share of the product of two masks is expanded for."""
        return digest(b"tallystick/joint-products/share/1", self.study_hash, one.encode(), other.encode())
