"""The dealer: makes masks and shares of their products, once, and has no other part in the study.

It sees no record and no opened row. What it deals is used once: a mask that hides two different matrices gives their
difference away. So all that is dealt is kept before any of it leaves; asked again, also after a crash, the dealer says
the same bytes, and no holder takes others. What it kept is erased with the study's other secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from struct import Struct
from typing import Any, ClassVar

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.field import to_bytes
from tallystick.crypto.field_matrix import transposed_product
from tallystick.crypto.prg import SEED_BYTES
from tallystick.protocol.fields import damaged
from tallystick.protocol.instructions import Persist, Send
from tallystick.protocol.joint_products.codec import decode, encode
from tallystick.protocol.joint_products.masks import later_share, mask, minus
from tallystick.protocol.joint_products.messages import Code, Deal, DealWanted, Refused
from tallystick.protocol.joint_products.parameters import JointParameters
from tallystick.protocol.machine import Machine

_LENGTH = Struct("<I")


class DealerState(Enum):
    READY = "ready"
    DEALT = "dealt"


class DealerEvent(Enum):
    DEAL = "deal"


class DealerMachine(Machine):
    """See the module."""

    TRANSITIONS: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        (DealerState.READY, DealerEvent.DEAL): DealerState.DEALT,
    }
    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this dealer deals for another study"

    def __init__(self, parameters: JointParameters) -> None:
        super().__init__(parameters.dealer, parameters.study_hash, DealerState.READY)
        self.parameters = parameters
        self._deals: dict[str, Deal] = {}
        self._handlers = {DealWanted: self._tell, Refused: lambda *_: []}

    def deal(self, source: WordSource) -> list[Any]:
        """Make everybody's masks and shares, and have them kept; each holder is told its own when it asks."""
        if self.state is not DealerState.READY:
            raise LocalProtocolError("this study's masks were dealt already, and serve once", party=self.name)
        self._move(DealerEvent.DEAL)
        p = self.parameters
        seeds = {name: source.bytes(SEED_BYTES) for name in p.holders}
        masks = {name: mask(p, name, seeds[name]) for name in p.holders}
        for one in p.holders:
            parts = []
            for other in p.after(one):
                product = transposed_product(masks[one], masks[other])
                parts.append(to_bytes(minus(product, later_share(p, one, other, seeds[other])).reshape(-1)))
            shares = b"".join(parts)
            self._deals[one] = Deal(study_hash=p.study_hash, records=p.records, seed=seeds[one], shares=shares)
        return [Persist("dealt", _packed([encode(self._deals[name]) for name in p.holders]), secret=True)]

    def restore(self, dealt: bytes | None) -> None:
        """After a restart: a deal that may have left is the one there is."""
        if dealt is None:
            return
        self._move(DealerEvent.DEAL)
        for name, raw in zip(self.parameters.holders, _unpacked(dealt)):
            deal = decode(raw)
            if isinstance(deal, Deal) and deal.study_hash == self.study_hash:
                self._deals[name] = deal
        if set(self._deals) != set(self.parameters.holders):
            raise damaged()

    def _tell(self, sender: str, message: DealWanted, now: float) -> list[Any]:
        if sender not in self.parameters.holders:
            return self._refuse(sender, message, Code.WRONG_PARTY, "masks are for holders")
        return [Send(sender, self._deals[sender])] if sender in self._deals else []

    def tick(self, now: float) -> list[Any]:
        return []

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]


def _packed(deals: Sequence[bytes]) -> bytes:
    return b"".join(part for deal in deals for part in (_LENGTH.pack(len(deal)), deal))


def _unpacked(kept: bytes) -> Iterator[bytes]:
    at = 0
    while at + _LENGTH.size <= len(kept):
        (size,) = _LENGTH.unpack_from(kept, at)
        at += _LENGTH.size + size
        yield kept[at - size : at]
