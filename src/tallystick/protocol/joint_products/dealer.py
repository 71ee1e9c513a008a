"""The dealer: makes masks and shares of their products, once, and has no other part in the study.

It sees no record and no opened row. What it deals is used once: a mask that hides two different matrices gives their
difference away, so a second deal of a study is refused here and by every holder.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from tallystick.core.errors import LocalProtocolError
from tallystick.core.randomness import WordSource
from tallystick.crypto.field import to_bytes
from tallystick.crypto.field_matrix import transposed_product
from tallystick.crypto.prg import SEED_BYTES
from tallystick.protocol.instructions import Persist, Send
from tallystick.protocol.joint_products.codec import decode
from tallystick.protocol.joint_products.masks import later_share, mask, minus
from tallystick.protocol.joint_products.messages import Code, Deal, Refused
from tallystick.protocol.joint_products.parameters import JointParameters
from tallystick.protocol.machine import Machine


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

    def deal(self, source: WordSource) -> list[Any]:
        """Everybody's masks and shares; that it was done is kept before any of it leaves."""
        if self.state is not DealerState.READY:
            raise LocalProtocolError("this study's masks were dealt already, and serve once", party=self.name)
        self._move(DealerEvent.DEAL)
        p = self.parameters
        seeds = {name: source.bytes(SEED_BYTES) for name in p.holders}
        masks = {name: mask(p, name, seeds[name]) for name in p.holders}
        out: list[Any] = [Persist("dealt", b"\x01")]
        for one in p.holders:
            parts = []
            for other in p.after(one):
                product = transposed_product(masks[one], masks[other])
                parts.append(to_bytes(minus(product, later_share(p, one, other, seeds[other])).reshape(-1)))
            deal = Deal(study_hash=p.study_hash, records=p.records, seed=seeds[one], shares=b"".join(parts))
            out.append(Send(one, deal))
        return out

    def restore(self, dealt: bytes | None) -> None:
        """After a restart: a deal that may have left is not made again."""
        if dealt is not None:
            self.state = DealerState.DEALT

    def tick(self, now: float) -> list[Any]:
        return []

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]
