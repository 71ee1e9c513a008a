"""An institution's work before a round of joint moments: whom it shares with the others, and its part of the products.

    aligned rows  ->  its mask  ->  rows opened  ->  shares of products  ->  the vector of its round

What it says to the dealer is sealed, over their own line. Masks are kept before anything is opened under them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, RemoteProtocolError
from tallystick.data.encoding import Tallies
from tallystick.data.held_columns import read_held
from tallystick.data.identifiers import Identifiers
from tallystick.engines.joint_map import JointMap, held_units
from tallystick.engines.setup import Setup
from tallystick.protocol import alignment, joint_products
from tallystick.protocol.joint_products import messages as rows
from tallystick.protocol.study.roster import Roster
from tallystick.protocol.summing import rule_of
from tallystick.roles.holders.aligning import AligningWork
from tallystick.roles.holders.facts import products_of
from tallystick.roles.holders.packing import pack
from tallystick.roles.storage.crash_points import crashpoint

_SENT = {rows.DealWanted: "deal-wanted-sent", rows.OpenedRows: "opened-rows-sent"}
_ROWS = joint_products.codec.MAGIC


class HoldersWork(AligningWork):
    """See the module. What answers the round is a :class:`JointMap`."""

    def __init__(self, session: Any, setup: Setup, roster: Roster, *, ended: Callable[[], None]) -> None:
        super().__init__(session, setup, roster, ended=ended)
        self.products = products_of(setup, roster)
        self.speakers |= {self.products.dealer}
        self._units: NDArray[np.float64] | None = None
        self._holder: joint_products.HolderMachine | None = None
        self._tallies: Tallies | None = None

    def _machines(self) -> dict[bytes, Any]:
        return super()._machines() | {_ROWS: self._holder}

    def _send(self, to: str, message: Any) -> None:
        if type(message).__module__.startswith(alignment.__name__):
            super()._send(to, message)
            return
        self._seal(to, pack(joint_products.encode(message), 0 if to == self.products.dealer else self._least))
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)
        if isinstance(message, rows.Refused):
            self._fail(RemoteProtocolError(message.cause, party=to, rule=rule_of(rows.Code(message.code))))

    def _step(self, step: Any) -> None:
        match step:
            case joint_products.OwnRows() if self._holder is not None and self._units is not None:
                self._drive(self._holder.open_rows(self._units))
                self._look_again()
            case joint_products.ProductShares(shares=shares) if self._units is not None:
                self._done(JointMap(self._setup.design.program.rows, self.name, self._units, shares))
                if self._tallies is not None:
                    self._session.tell(self._tallies)
            case _:
                super()._step(step)

    def _read(self, found: Identifiers, positions: NDArray[np.int64]) -> None:
        """Their rows, and zeros for as many as the study states beyond them."""
        study = self._setup.study
        if len(positions) > self.products.records:
            raise DataError(
                f"the study is stated for {self.products.records:,} people, and the institutions share "
                f"{len(positions):,}",
                rule="records-as-stated",
                remedy="Have the analyst state as many records as there may be, in a new version.",
            )
        held = read_held(study, self.name, self._table, found.rows[positions], lenient=True)
        self._tallies = held.records.tallies
        units = held_units(self._setup.design.program, self.name, held)
        self._units = np.zeros((self.products.records, self.products.width(self.name)))
        self._units[: len(units)] = units
        records = self._records()
        self._holder = joint_products.HolderMachine(self.products, self.name, opened=records.get("opened"))
        self._drive(self._holder.begin(records.get("deal")))
        self._look_again()
