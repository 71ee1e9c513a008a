"""A holder of columns: opens its rows under the dealer's mask to the other holders, and ends with shares of products.

    E_m = X_m − U_m is sent to every other holder.      For a before b, with W_ab = U_aᵀ·U_b shared by the dealer:
    X_aᵀ·X_b = X_aᵀ·E_b + E_aᵀ·U_b + W_ab               a has X_aᵀ·E_b + its share of W_ab, b has E_aᵀ·U_b + its own

(since X_aᵀ·X_b = X_aᵀ·(E_b + U_b) and X_aᵀ·U_b = (E_a + U_a)ᵀ·U_b.) What a holder sees of another are rows hidden by a
uniform mask it does not know; its share of a product is uniform too, being hidden by its share of W. Whoever has both
a mask and what it hides has the records: the dealer together with any other holder.

Before rows leave, their digest is kept: after a crash the same records give the same bytes, and others are refused.
A holder hands over its first rows when it has opened them, and each further piece when the other has taken the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto.field import ELEMENT_BYTES, add_into, encode_signed, to_bytes
from tallystick.crypto.field_matrix import Matrix, mixed_product, transposed_product
from tallystick.protocol.instructions import Aborted, Persist, Send, Wake
from tallystick.protocol.joint_products.codec import decode, encode
from tallystick.protocol.joint_products.masks import later_share, mask, matrix_from, minus
from tallystick.protocol.joint_products.messages import Code, Deal, DealWanted, OpenedRows, Refused, RowsWanted
from tallystick.protocol.joint_products.parameters import JointParameters
from tallystick.protocol.machine import Machine
from tallystick.protocol.patience import Patience
from tallystick.protocol.summing import rule_of


class HolderState(Enum):
    WAITING = "waiting for its mask"
    DEALT = "has its mask"
    OPENED = "has opened its rows"
    DONE = "has its shares"


class HolderEvent(Enum):
    DEAL = "deal"
    OPEN = "open"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class OwnRows:
    """The mask is there: hand over the rows (:meth:`HolderMachine.open_rows`)."""


@dataclass(frozen=True, slots=True)
class ProductShares:
    """The end: this holder's share of the product of every pair it belongs to, by the pair in the study's order."""

    shares: Mapping[tuple[str, str], Matrix] = field(repr=False)


class HolderMachine(Machine):
    """See the module."""

    TRANSITIONS: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        (HolderState.WAITING, HolderEvent.DEAL): HolderState.DEALT,
        (HolderState.DEALT, HolderEvent.OPEN): HolderState.OPENED,
        (HolderState.OPENED, HolderEvent.COMPLETE): HolderState.DONE,
    }
    CODES = Code
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this holder is in another study"

    def __init__(self, parameters: JointParameters, name: str, *, opened: bytes | None = None) -> None:
        """``opened``: the digest that was kept before a crash, if rows may have left."""
        super().__init__(name, parameters.study_hash, HolderState.WAITING)
        self.parameters = parameters
        self._kept = opened
        self._deal: Deal | None = None
        self._units: NDArray[np.float64] | None = None
        self._mask: Matrix | None = None
        self._shares: dict[tuple[str, str], Matrix] = {}
        self._opened = b""
        self._patience = Patience()
        self._heard = dict.fromkeys(parameters.others(name), 0)
        self._early: dict[str, OpenedRows] = {}
        self._handlers = {
            Deal: self._take_deal,
            OpenedRows: self._take_rows,
            RowsWanted: self._hand_over,
            Refused: self._was_refused,
        }

    def begin(self, deal: bytes | None = None) -> list[Any]:
        """Ask for the mask; or, after a restart, take up the one that was kept."""
        p = self.parameters
        if deal is None:
            return [Send(p.dealer, DealWanted(study_hash=p.study_hash))]
        return self.receive(p.dealer, decode(deal), 0.0)

    # -- the dealer -------------------------------------------------------------------------------------------------

    def _take_deal(self, sender: str, message: Deal, now: float) -> list[Any]:
        p = self.parameters
        if sender != p.dealer:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the dealer deals")
        if self._deal is not None:
            if message == self._deal:
                return []
            return self._refuse(sender, message, Code.TWO_DEALS, "a mask serves once, and this study's is there")
        size = sum(p.width(self.name) * p.width(other) for other in p.after(self.name))
        if message.records != p.records or len(message.shares) != ELEMENT_BYTES * size:
            return self._refuse(sender, message, Code.WRONG_SHAPE, "the deal is for other columns or records")
        try:
            self._split_shares(message)
        except RemoteProtocolError as error:
            return self._refuse(sender, message, Code.MALFORMED, error.cause)
        self._deal = message
        self._move(HolderEvent.DEAL)
        return [Persist("deal", encode(message), secret=True), OwnRows()]

    def _split_shares(self, deal: Deal) -> None:
        p, at = self.parameters, 0
        own = p.width(self.name)
        for other in p.after(self.name):
            end = at + ELEMENT_BYTES * own * p.width(other)
            part = matrix_from(deal.shares[at:end], own, p.width(other), party=p.dealer)
            self._shares[self.name, other] = part.copy()
            at = end
        for one in p.holders[: p.holders.index(self.name)]:
            self._shares[one, self.name] = later_share(p, one, self.name, deal.seed)

    # -- rows -------------------------------------------------------------------------------------------------------

    def open_rows(self, units: NDArray[np.float64]) -> list[Any]:
        """This holder's rows, small integers as float64, one for each aligned record in the agreed order."""
        p = self.parameters
        if self.state is not HolderState.DEALT or self._deal is None:
            # Opened twice under one mask, the difference of both would be there for all to read.
            raise LocalProtocolError("rows are opened once, after the mask is there", party=self.name)
        if units.shape != (p.records, p.width(self.name)):
            raise LocalProtocolError(
                f"{units.shape[0]} rows of {units.shape[1]} columns where {p.records} of {p.width(self.name)} are "
                "agreed",
                party=self.name,
            )
        self._units = np.ascontiguousarray(units)
        self._mask = mask(p, self.name, self._deal.seed)
        opened = minus(encode_signed(self._units.astype(np.int64).reshape(-1)).reshape(units.shape), self._mask)
        raw = to_bytes(opened.reshape(-1))
        kept = digest(b"tallystick/joint-products/opened/1", raw)
        if self._kept is not None and self._kept != kept:
            raise DataError(
                "the records have changed since they were opened to the other institutions",
                rule="records-are-those-shown",
                party=self.name,
                remedy="Nothing more was sent. Propose the study as a new version; its masks will be fresh ones.",
            )
        self._move(HolderEvent.OPEN)
        self._opened = raw
        out: list[Any] = [Persist("opened", kept)]
        out += [Send(other, self._rows_from(0)) for other in p.others(self.name)]
        early, self._early = self._early, {}
        for sender, message in early.items():
            out += self._take_rows(sender, message, 0.0)
        return out

    def _rows_from(self, first: int) -> OpenedRows:
        p = self.parameters
        width = ELEMENT_BYTES * p.width(self.name)
        part = self._opened[first * width : (first + p.rows_per_message(self.name)) * width]
        return OpenedRows(study_hash=p.study_hash, first=first, rows=part)

    def _hand_over(self, sender: str, message: RowsWanted, now: float) -> list[Any]:
        if sender not in self._heard:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the other holders are shown opened rows")
        if not self._opened:
            return []  # they will be, and its first piece goes to everybody
        if message.first >= self.parameters.records:
            return self._refuse(sender, message, Code.WRONG_SHAPE, "the study has no such rows")
        return [Send(sender, self._rows_from(message.first))]

    def _take_rows(self, sender: str, message: OpenedRows, now: float) -> list[Any]:
        p = self.parameters
        if sender not in self._heard:
            return self._refuse(sender, message, Code.WRONG_PARTY, "only the other holders open rows")
        if self.state in (HolderState.WAITING, HolderState.DEALT):
            if len(message.rows) > p.rows_per_message(sender) * p.width(sender) * ELEMENT_BYTES:
                return self._refuse(sender, message, Code.WRONG_SHAPE, "more rows than a message has")
            self._early[sender] = message  # the newest one only; what is missing is asked for
            return []
        if message.first != self._heard[sender] or message.first >= p.records:
            return []  # sent again, or before what is missing: that is asked for
        rows = min(p.rows_per_message(sender), p.records - message.first)
        try:
            opened = matrix_from(message.rows, rows, p.width(sender), party=sender)
        except RemoteProtocolError as error:
            return self._refuse(sender, message, Code.MALFORMED, error.cause)
        self._multiply(sender, message.first, opened)
        self._heard[sender] += rows
        self._patience.heard()
        if any(heard < p.records for heard in self._heard.values()):
            return self._asking(sender)
        self._move(HolderEvent.COMPLETE)
        self._units = self._mask = None
        # The deal stays with the study's other secrets: whoever has not heard all rows is told the same ones again.
        return [ProductShares(self._shares)]

    def _asking(self, other: str) -> list[Any]:
        first = self._heard[other]
        if first >= self.parameters.records:
            return []
        return [Send(other, RowsWanted(study_hash=self.study_hash, first=first))]

    def _multiply(self, sender: str, first: int, opened: Matrix) -> None:
        if self._units is None or self._mask is None:
            raise LocalProtocolError("there are no rows to multiply", party=self.name)
        own = slice(first, first + len(opened))
        order = self.parameters.holders
        if order.index(self.name) < order.index(sender):
            pair, part = (self.name, sender), mixed_product(self._units[own], opened)
        else:
            pair, part = (sender, self.name), transposed_product(opened, self._mask[own])
        add_into(self._shares[pair].reshape(-1), part.reshape(-1))

    def tick(self, now: float) -> list[Any]:
        """Ask again for what has not come."""
        if self.state is HolderState.DONE or not self._patience.over(now):
            return []
        missing = self.begin() if self.state is HolderState.WAITING else []
        if self.state is HolderState.OPENED:
            missing = [step for other in self._heard for step in self._asking(other)]
        return [*missing, Wake(self._patience.until)]

    def _was_refused(self, sender: str, message: Refused, now: float) -> list[Any]:
        return [Aborted(RemoteProtocolError(message.cause, party=sender, rule=rule_of(Code(message.code))))]

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        if isinstance(message, Refused):
            return []
        return [Send(sender, Refused(study_hash=self.study_hash, code=int(code), cause=cause))]
