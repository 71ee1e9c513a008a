"""An institution's work before its round: it finds whom it shares with the others, and gets its part of the products.

    identifiers  ->  aligned rows  ->  its mask  ->  rows opened  ->  shares of products  ->  the vector of its round

It begins when the charge is countersigned and the round asks for the records, never before; after a restart it begins
by itself, if it had begun, because others may still need what they were told. What it says to another institution is
sealed to it, signed, and passed on by whoever coordinates; what it says to the dealer is sealed, over their own line.
Seeds, lists and masks are kept before what is made of them leaves, and erased with the study's other secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import DataError, NotApproved, RemoteProtocolError, TallystickError
from tallystick.crypto.field import Vector
from tallystick.data.encoding import Tallies
from tallystick.data.held_columns import held_table, read_held
from tallystick.data.identifiers import Identifiers, check_shared, read_identifiers
from tallystick.engines.joint_map import JointMap, held_units
from tallystick.engines.setup import Setup
from tallystick.protocol import alignment, joint_products
from tallystick.protocol.alignment import messages as lists
from tallystick.protocol.alignment.machine import SEED
from tallystick.protocol.instructions import Aborted
from tallystick.protocol.joint_products import messages as rows
from tallystick.protocol.patience import FIRST_SECONDS
from tallystick.protocol.study.roster import Roster
from tallystick.protocol.summing import rule_of
from tallystick.roles.holders.facts import alignment_of, holders_limit, longest_said, products_of
from tallystick.roles.holders.packing import least_size, pack, unpack
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.wire import SEALED

_log = logging.getLogger("tallystick.roles")
_SENT = {
    lists.BlindedList: "blinded-list-sent",
    rows.DealWanted: "deal-wanted-sent",
    rows.OpenedRows: "opened-rows-sent",
}
_LISTS, _ROWS = alignment.codec.MAGIC, joint_products.codec.MAGIC


class HoldersWork:
    """See the module. ``done`` is told the vector, ``failed`` why there will be none; each once."""

    def __init__(
        self,
        session: Any,
        setup: Setup,
        roster: Roster,
        *,
        done: Callable[[Vector], None],
        failed: Callable[[TallystickError], None],
    ) -> None:
        self._session, self._setup, self._roster = session, setup, roster
        self._done, self._failed = done, failed
        self.name: str = session.process.name
        self.products = products_of(setup, roster)
        self.speakers = frozenset((self.products.dealer, *self.products.others(self.name)))
        self._drive = Driver(session, ROUNDS, send=self._send, other=self._step)
        self._limit, self._least = holders_limit(setup), least_size(longest_said(setup))
        self._table: Any = None
        self._found: Identifiers | None = None
        self._units: NDArray[np.float64] | None = None
        self._aligning: alignment.AligningMachine | None = None
        self._holder: joint_products.HolderMachine | None = None
        self._tallies: Tallies | None = None
        self._over = False

    @property
    def had_begun(self) -> bool:
        """Whether anything may have left before this process started."""
        return SEED in self._records()

    def _records(self) -> Any:
        return self._session.process.store.records(self._session.study_hash)

    def begin(self, source: str | Path) -> None:
        """Start, or take up again what was begun; nothing happens the second time."""
        if self._found is not None or self._over:
            return
        process, study = self._session.process, self._setup.study
        self._guarded(lambda: self._begin(source, process, study))

    def _begin(self, source: str | Path, process: Any, study: Any) -> None:
        self._table = held_table(study, self.name, source)  # once: a file may change before its cells are wanted
        self._found = read_identifiers(self._table, study.data.identifier, party=self.name)
        self._aligning, first = alignment.AligningMachine.restore(
            alignment_of(self._session, self._setup, self._roster),
            self.name,
            self._records(),
            process.parts.streams(self._session.study_hash, b"alignment", self.name.encode()),
        )
        self._drive(first)
        self._drive(self._aligning.start(self._found.names))
        self._look_again()

    # -- what comes in ------------------------------------------------------------------------------------------------

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        """A message of another institution or of the dealer; one that comes too early is asked for again."""
        if kind != SEALED or self._session.seals is None:
            raise RemoteProtocolError("what institutions and their dealer say is sealed", party=sender)
        try:
            raw = unpack(bytes(self._session.seals.open(sender, payload)), sender)
        except RemoteProtocolError as error:
            if error.rule == "replayed":  # overtaken on its way, or repeated: it is asked for again
                return
            raise
        machine: Any = {_LISTS: self._aligning, _ROWS: self._holder}.get(raw[:4])
        if machine is not None and not self._over:
            now = self._session.process.now()
            self._guarded(lambda: self._drive(machine.receive_bytes(sender, raw, now, limit=self._limit)))

    def tick(self) -> None:
        """Ask again for what has not come."""
        now, machines = self._session.process.now(), (self._aligning, self._holder)
        for machine in machines:
            if machine is not None and not self._over:
                self._guarded(lambda m=machine: self._drive(m.tick(now)))  # type: ignore[misc]

    # -- carrying out -------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: Any) -> None:
        module: Any = alignment if type(message).__module__.startswith(alignment.__name__) else joint_products
        said = pack(module.encode(message), 0 if to == self.products.dealer else self._least)
        pieces, _ = self._session.seals.seal(to, said)
        raw = b"".join(bytes(p if isinstance(p, memoryview) else p.view()) for p in pieces)
        self._session.process.send(to, raw)
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)
        if isinstance(message, (lists.Refused, rows.Refused)):
            code = (lists if isinstance(message, lists.Refused) else rows).Code(message.code)
            self._fail(RemoteProtocolError(message.cause, party=to, rule=rule_of(code)))

    def _step(self, step: Any) -> None:
        match step:
            case alignment.Aligned(positions=positions):
                self._read(positions)
            case joint_products.OwnRows() if self._holder is not None and self._units is not None:
                self._drive(self._holder.open_rows(self._units))
                self._look_again()
            case joint_products.ProductShares(shares=shares) if self._units is not None:
                self._done(JointMap(self._setup.design.program.rows, self.name, self._units, shares).vector)
                if self._tallies is not None:
                    self._session.tell(self._tallies)
            case Aborted(error=error):
                self._fail(error)
            case _:
                pass

    def _read(self, positions: NDArray[np.int64]) -> None:
        """The rows of the people whom all have in common, and zeros for as many as the study states beyond them."""
        study, found = self._setup.study, self._found
        if found is None:
            return
        _log.info(
            "%d of %d people named here are at all institutions (%d rows named nobody, %d somebody twice). "
            "This stays on this machine.",
            len(positions), len(found), found.blank, found.repeated,
        )  # fmt: skip
        check_shared(len(positions))
        if len(positions) > self.products.records:
            raise DataError(
                f"the study is stated for {self.products.records:,} people, and the institutions share "
                f"{len(positions):,}",
                rule="records-as-stated",
                remedy="Have the analyst state as many records as there may be, in a new version.",
            )
        held, self._table = read_held(study, self.name, self._table, found.rows[positions], lenient=True), None
        self._tallies = held.records.tallies
        units = held_units(self._setup.design.program, self.name, held)
        self._units = np.zeros((self.products.records, self.products.width(self.name)))
        self._units[: len(units)] = units
        records = self._records()
        self._holder = joint_products.HolderMachine(self.products, self.name, opened=records.get("opened"))
        self._drive(self._holder.begin(records.get("deal")))
        self._look_again()

    def _look_again(self) -> None:
        """In a moment: what others say unasked is on its way, and need not come twice."""
        process = self._session.process
        process.wake(process.now() + FIRST_SECONDS, self._session, ROUNDS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (DataError, NotApproved, RemoteProtocolError) as error:
            self._fail(error)

    def _fail(self, error: TallystickError) -> None:
        if not self._over:
            self._over = True
            self._failed(error)
