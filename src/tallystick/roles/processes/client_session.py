"""A study at a client: decided by its own rules, charged before anything leaves, its records read when a round asks.

A record with a bad or missing cell adds zeros, and is counted here, on the institution's own screen: no record decides
whether its institution takes part. What no single record decides (no file, no column, a column of another type) is
shown here, in full; outside it is "unavailable", because what is wrong with the data is nobody else's business.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tallystick.core.errors import (
    DataError,
    RoundAborted,
    StudyError,
    TallystickError,
    VerificationError,
)
from tallystick.data.encoding import Tallies
from tallystick.engines.client_map import AnyMap, DistantMap, DistantRecords
from tallystick.engines.data_check import study_quality
from tallystick.engines.setup import Setup, set_up
from tallystick.privacy.ledger import charge_of
from tallystick.protocol.instructions import Compute
from tallystick.roles.governance.attestation import attest, noted
from tallystick.roles.governance.clearance import ASK_SECONDS, CLEARANCE, Clearance
from tallystick.roles.governance.messages import Op
from tallystick.roles.governance.own_approval import check_own_approval, check_own_rules
from tallystick.roles.processes.part import ClientPart
from tallystick.roles.processes.participant import ParticipantSession
from tallystick.roles.storage.database import is_storage_failure
from tallystick.roles.streams.batches import StreamMap
from tallystick.roles.streams.ticks import TICKS, SeenTicks
from tallystick.study import Study
from tallystick.study.holders import as_seen_by

if TYPE_CHECKING:
    from tallystick.roles.processes.client import ClientProcess

_log = logging.getLogger("tallystick.roles")


class ClientSession(ParticipantSession):
    """A study at a client."""

    part: ClientPart | None

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._map: AnyMap | StreamMap | None = None
        self._untold: Tallies | None = None
        self._rules_hold = False  # as this process has seen: its rules are read when it starts
        self._has_started = False
        self.charged_here = False
        """This very process has charged the ledger for the study: what lies between that and now is no restart."""
        own = self.own
        self._clearance = Clearance(
            self.study_hash,
            own.exchange,
            own.ledger,
            seen_by=own.seen_by,
            check=own.check_ledger,
            again=lambda: own.wake(own.now() + ASK_SECONDS, self, CLEARANCE),
            witnesses=self.cast.witnesses_of(own.name),
            needed=self.cast.countersigners_of(own.name),
        )
        self._held: Compute | None = None
        self._seen_ticks = SeenTicks(
            self.cast.witnesses,
            party=own.name,
            ask=lambda server, body: own.exchange.send(server, Op.TICK, body, self.study_hash),
            again=lambda: own.wake(own.now() + ASK_SECONDS, self, TICKS),
        )

    def _pause(self) -> None:
        super()._pause()
        self._held = None  # it is asked again, perhaps at another model

    def cleared(self) -> None:
        """A witness has countersigned: go on if it was the last one that is needed."""
        step, self._held = self._held, None
        if step is not None and self.part is not None and step.round == self.part.round:
            self.compute(step)

    def tick(self, layer: str) -> None:
        if layer == CLEARANCE:
            if self._held is not None:
                self._clearance.ask()
            return
        if layer == TICKS:
            self.cleared()  # asks again, if an answer is still missing
            return
        super().tick(layer)

    def heard_tick(self, server: str, body: bytes) -> None:
        """A server says which tick of a stream it has seen last: go on if it was the last answer."""
        if self._seen_ticks.hear(server, body):
            self.cleared()

    def _may_use_records(self, step: Compute) -> bool:
        """Whether no server knows a later tick of a stream than this client does.

        False while that is being asked: the step is taken up again with the last answer. False for good if one does:
        then this client sits the tick out, and every later one, until its newest state runs.
        """
        if self.setup is None or self.setup.study.stream is None or self.part is None:
            return True
        made = self._records()
        try:
            given = not isinstance(made, StreamMap) or self._seen_ticks.given(step.round, made.tick)
        except VerificationError as error:
            _log.error("this client takes no part in the stream: %s", error)
            self.own.health.green, self.own.health.reason = False, str(error)
            self.part.withdraw(step.round)
            return False
        self._held = None if given else step
        return given

    def approved(self) -> None:
        """This client has itself approved the study, and its approval is in force."""
        own = self.own
        check_own_approval(self.study_hash, own.exchange, own.ledger, own.parts.config)

    def reconsider(self) -> None:
        """The same, with the rules of a process that has not looked at the study before: it was started anew."""
        self._in_force()

    def _in_force(self, *, in_time: bool = False) -> None:
        own, look = self.own, check_own_approval if self._rules_hold else check_own_rules
        look(self.study_hash, own.exchange, own.ledger, own.parts.config, in_time=in_time)
        self._rules_hold = True

    def still_approved(self) -> None:
        """This client's own newest decision, by today's rules: whatever it has sent before a pause, it may leave now.

        That a proposal expires after its start changes nothing, in a pause as well as in a round.
        """
        own = self.own
        check_own_rules(self.study_hash, own.exchange, own.ledger, own.parts.config, in_time=True)

    def _may_start(self) -> bool:
        """Whether this client has itself started the study, with its charge released, or may do so now.

        Between the aggregator's start and the first share there may be as long as the aggregator likes. (A stream's
        first share leaves at the end of its first tick, as agreed: it was started before it expired, that is enough.)
        """
        if not self._has_started:
            self._has_started = self.own.ledger.standing(self.study_hash) in ("released", "committed")
        if not self._has_started:
            try:
                self._in_force(in_time=self.setup is not None and self.setup.study.stream is not None)
            except TallystickError as error:
                if is_storage_failure(error):
                    raise
                self.leave(error)
                return False
        return True

    def decide(self, setup: Setup) -> None:
        """Its steward has approved, its limits still hold, and its budget covers it: reserved before anything is said.

        The approval is the client's own word and counts for this very study; a limit made stricter since then holds.
        """
        process, exchange = self.own, self.process.exchange
        setup.check_cast(self.cast)
        process.check_ledger()
        check_own_rules(self.study_hash, exchange, process.ledger, process.parts.config)
        self._rules_hold = True
        policy = process.parts.config.policy
        self.charged_here = process.ledger.standing(self.study_hash) in (None, "voided")
        process.ledger.reserve(
            process.parts.config.dataset,
            charge_of(self.study_hash, setup.plan),
            study_name=setup.study.study.name,
            allow_not_private=policy is not None and policy.allow_not_private,
        )

    @property
    def own(self) -> ClientProcess:
        """The process, as what it is."""
        return cast("ClientProcess", self.process)

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """The charge is committed with the result's digest; given back only if nothing can have left."""
        if isinstance(self._map, DistantMap):
            self._map.close()
        ledger = self.own.ledger
        standing = ledger.standing(self.study_hash)
        if standing == "reserved":
            ledger.void(self.study_hash, reason="the study ended before anything was sent")
        elif standing == "released" and error is None and result is not None:
            ledger.commit(self.study_hash, result)
        if error is None and result is not None and self.cast.clients_make_noise:
            self._vouch(result)

    def _vouch(self, result: bytes) -> None:
        """Where clients make the noise: attest to the rounds that this one was in, once."""
        store, model = self.process.store, self.cast.model
        stored = store.study(self.study_hash)
        if stored is not None:
            setup = self.setup or set_up(stored.canonical, stored.program, allow_not_private=True)
            part: type[ClientPart] = model.load(model.parts[self.process.role])
            name = self.study_hash.hex()[:12]
            try:
                unknown = part.dispute(setup, self.cast, store.records(self.study_hash), result)
            except VerificationError as error:
                _log.error("this client does not vouch for the study %s: %s", name, error)
                self.own.health.green, self.own.health.reason = False, str(error)
                return
            if unknown is not None:
                _log.warning("this client does not vouch for the study %s: %s", name, unknown)
                return
            attest(self.process.exchange, store, self.study_hash, setup, noted(store, self.study_hash))

    def compute(self, step: Compute) -> None:
        """A round asks for the sum of the records: let it out if it may leave, now or when it may."""
        if self.part is None or self.setup is None or not self._may_start():
            return
        if not self._clearance.given(self.setup):
            self._held = step  # taken up again when the last witness has countersigned
            return
        if not self._may_use_records(step):
            return
        try:
            self.part.answer(step, self._records())
        except DataError as error:
            if isinstance(self._map, DistantMap):  # a cluster that has failed in this round may be there in the next
                self._map.close()
                self._map = None
            self.cannot_answer(step.round, error)
        except RoundAborted as error:  # of a program with a memory: it was away in the round before
            if is_storage_failure(error):
                raise  # what was to be kept first must not leave by another way
            _log.error("this client sits the round out: %s", error)
            self.part.withdraw(step.round)
        else:
            self._tell()

    def cannot_answer(self, round: int, error: TallystickError) -> None:
        """What is wrong is said on this machine; outside, this client is unavailable."""
        what = "the data of this client cannot be used" if isinstance(error, DataError) else "this client sits it out"
        _log.error("%s: %s", what, error)
        if self.part is not None:
            self.part.withdraw(round)

    def _records(self) -> AnyMap | StreamMap | str | Path:
        """The records, read when the first round asks for them, and kept for the study; a stream's tick by tick.

        Of columns that are to be aligned with others', where they are: which rows are read is not known yet.
        """
        if self.setup is not None and self.setup.study.vertical:
            return self.own.source()
        if self._map is None:
            if self.setup is None or self.part is None:
                raise StudyError("the study has not started")
            study, source = self.setup.study, self.own.source()
            if study.stream is not None:
                if self.own.parts.config.spark is not None:
                    raise DataError(
                        "a stream reads what is appended to a file, and the records of this client are with Spark",
                        rule="spark-records-stay",
                        remedy='Give the records as a file, with engine = "local".',
                    )
                self._map = StreamMap(self.setup, source, self.process.store, self.study_hash, party=self.process.name)
                return self._map
            records = self.own.open_records(study)
            try:
                check_stated(study, records.tallies.records + records.tallies.broken)
                self._map = self.part.prepare(records)
            except TallystickError:
                if isinstance(records, DistantRecords):  # nobody else knows that they are in a cluster's cache
                    records.forget()
                raise
            self._untold = records.tallies
        return self._map

    def _tell(self) -> None:
        tallies, self._untold = self._untold, None
        if tallies is not None:
            self.tell(tallies)

    def tell(self, tallies: Tallies) -> None:
        """Say in this machine's own log what the study has found in the records: after the answer has left, and as many
        lines for clean records as for bad ones."""
        if self.setup is None:
            return
        found = study_quality(as_seen_by(self.setup.study, self.own.name), tallies)
        _log.info("%s records read, %s can be used. This stays on this machine.", found.records, found.used)
        if found.left_out is not None:
            _log.warning("%s. This stays on this machine.", found.left_out)
        for column in found.columns:
            _log.log(logging.WARNING if column.meaning else logging.INFO, "column %s", column.line())


def check_stated(study: Study, own: int) -> None:
    """Refuse to take part with more records than the study says there are in all.

    ``own`` counts those that are left out for a bad cell or line too: else what is in one record would decide. And only
    where no neighbour has another number of records, so that refusing tells nothing about any one of them. What is
    computed rests on the number that is stated: thresholds, cells, and among parties the width of their circuits.
    """
    stated = study.data.records
    if study.counts_are_public and stated is not None and own > stated:
        raise DataError(
            f"the study is stated for {stated:,} records in all, and there are {own:,} here alone",
            rule="records-as-stated",
            remedy="Have the analyst state the number of records of all institutions together, in a new version.",
        )
