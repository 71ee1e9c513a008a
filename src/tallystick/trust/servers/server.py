"""A server's part: keeps shares until the set is agreed, sums them, adds its noise, and says the result once."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError, RemoteProtocolError
from tallystick.core.identifiers import digest, format_hash
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.setup import Setup
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import (
    Accepted,
    Agreement,
    Code,
    Message,
    Partial,
    ReceivedList,
    Refused,
    Share,
)
from tallystick.protocol.secure_sum.open_round import OpenRound
from tallystick.protocol.study.roster import Roster
from tallystick.roles.processes.helper import HelperProcess
from tallystick.roles.processes.session import Parts
from tallystick.roles.shares.cluster_sum import ClusterSum
from tallystick.roles.shares.sharded_sum import SpoolSum
from tallystick.roles.shares.share_sinks import Arrival, ShareArrivals
from tallystick.roles.shares.spool import SpoolShares
from tallystick.roles.storage.crash_points import crashpoint
from tallystick.transport.network.admission import Sink, Unwanted
from tallystick.transport.wire import SEALED, Seals
from tallystick.trust.servers.parts import SumPart

_log = logging.getLogger("tallystick.roles")
_SENT = {
    Accepted: "share-accepted-sent",
    ReceivedList: "list-sent",
    Agreement: "agreement-sent",
    Partial: "partial-sent",
}


class _SpoolingServer(sums.ServerMachine):
    """Sums straight from the spool, with the process's workers: the same bits for every number of them."""

    summer: SpoolSum

    def _sum(self, current: OpenRound, agreed: tuple[int, ...]) -> NDArray[np.uint64]:
        if not isinstance(self._shares, SpoolShares):
            raise LocalProtocolError("a deployed server keeps its shares in a spool", party=self.name)
        # Half of what the others wait for this sum: it must still be in time if no executor comes and it is made here.
        self.summer.patience = self.parameters.agreement_seconds / 2
        return self.summer.total(self._shares, current.record.round, agreed, self.parameters.size)


class ServerPart(SumPart):
    """A study's rounds at a server."""

    machine: sums.ServerMachine
    _summed: dict[str, int] | None = None
    """The last round each client was in, as noted; None when there is more to read."""

    def __init__(self, session: Any, setup: Setup, roster: Roster) -> None:
        super().__init__(session, setup, roster)
        process, study = session.process, session.study_hash
        self.spool: SpoolShares | None = SpoolShares(process.directory(study), party=process.name)

        def keyed(*labels: bytes) -> Any:
            return process.parts.streams(study, *labels)

        machine, self.first = _SpoolingServer.restore(
            self.parameters,
            process.name,
            process.store.records(study),
            key=process.parts.identity.signing,
            noise=RoundNoise(
                setup.sum_plan, setup.size, process.name, keyed, admitted=process.store.records(study).get("prices")
            ),
            blinds=process.parts.streams(study, b"blinds", process.name.encode()),
            shares=self.spool,
            boot=process.store.boot,
            boot_value=process.store.boot_value,
            boots=process.store.boots(study),
            held=session.held_round,
            now=process.now(),
        )
        if isinstance(machine, _SpoolingServer) and isinstance(process, ServerProcess):
            machine.summer = process.summer
        self.machine = machine
        self.arrivals: ShareArrivals | None = self.open_for_shares(machine, self.spool, session.seals)

    # -- shares: from the network's threads to the loop ---------------------------------------------------------------

    def open_for_shares(self, machine: sums.ServerMachine, spool: SpoolShares, seals: Seals) -> ShareArrivals:
        """Where the shares of this study come in."""

        def refuse(sender: str, round: int, code: Code) -> None:
            cause = "the round is over" if code == Code.PAST_ROUND else "this server has not opened that round yet"
            told = Refused(study_hash=machine.parameters.study_hash, round=round, code=code, cause=cause)
            self.post(lambda: self.drive([sums.Send(sender, told)]))

        return ShareArrivals(
            machine.parameters,
            spool,
            seals,
            round_now=lambda: machine.round,
            announce=lambda: self.post(self._take_arrivals),
            refuse=refuse,
        )

    def sink(self, sender: str, length: int) -> Sink | None:
        """Where a share goes that is too long for memory; on a thread of the network."""
        arrivals = self.arrivals
        if arrivals is None:
            raise Unwanted
        return arrivals.sink(sender, length)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        arrivals, seals = self.arrivals, self.session.seals
        if kind == SEALED and arrivals is not None and seals is not None:
            raw = seals.open(sender, payload)
            try:
                message = sums.decode(raw, limit=self.parameters.message_limit)
            except RemoteProtocolError:
                message = None  # the machine says what is wrong with it
            if isinstance(message, Share):  # one fsync for all that wait
                soon = self.session.process.soon
                arrivals.put(Arrival(sender, message), lambda: soon(self.session, self._take_arrivals))
            else:
                self.drive(self.machine.receive_bytes(sender, raw, self.session.process.now()))
            return
        super().receive(sender, kind, payload)

    def _take_arrivals(self) -> None:
        """Ask the machine about every share that waits; then one fsync; then do what it said, in order.

        Each ``Sync`` is carried out earlier than asked, never later: all shares were put before it.
        """
        lists, failed = [], None
        for arrival in self.arrivals.take() if self.arrivals is not None else ():
            try:
                lists.append(self._ask(arrival))
            except Exception as error:
                failed = error
            finally:
                arrival.settle()
        if any(isinstance(step, sums.Sync) for steps in lists for step in steps):
            self.step(sums.Sync())
        for steps in lists:
            self.drive([step for step in steps if not isinstance(step, sums.Sync)])
        if failed is not None:
            raise failed

    def _ask(self, arrival: Arrival) -> list[sums.Instruction]:
        now = self.session.process.now()
        if arrival.commitment is None:
            return self.machine.receive(arrival.sender, arrival.share, now)
        return self.machine.receive_share(arrival.sender, arrival.share, arrival.commitment, now)

    def step(self, step: sums.Instruction) -> None:
        process = self.session.process
        if isinstance(step, sums.Blame):
            process.health.blamed += 1
            said = "%s equivocates in round %d: %s"
            _log.warning(said, step.party, step.round, step.cause, extra={"member": step.party})
            process.conduct.note(step.party, "equivocation")
        elif self.spool is None:
            return
        elif isinstance(step, sums.Sync):
            crashpoint("share-written")
            self.spool.sync()
            crashpoint("share-synced")
        elif isinstance(step, sums.Drop):
            self.spool.drop(step.round)
            crashpoint("shares-dropped")
            process.health.rounds = step.round
        else:
            super().step(step)

    def last_round_of(self, client: str) -> int:
        if self.machine.holds_share_of(client):
            return self.machine.round
        if self._summed is None:
            noted = self.session.notes().items()
            self._summed = {name: round for round, note in noted for name in note["participants"]}
        return self._summed.get(client, 0)

    def send(self, to: str, message: Message) -> None:
        if isinstance(message, Partial):
            self._note(message)
        super().send(to, message)
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)

    def _note(self, partial: Partial) -> None:
        """Before a partial sum leaves: its digest and whose shares are in it. A second, different one is refused."""
        store, study = self.session.process.store, self.session.study_hash
        if partial.round in {round for round, _ in store.releases(study)}:
            return
        kept = store.records(study).get("agreement")
        agreement = sums.decode(kept) if kept is not None else None
        names = [self.parameters.clients[i] for i in agreement.clients] if isinstance(agreement, Agreement) else []
        note = {"participants": names, "partial": format_hash(digest(partial.signed_part(), partial.signature))}
        store.put_release(study, partial.round, json.dumps(note).encode())
        self._summed = None

    def close(self) -> None:
        self.arrivals = None
        if self.spool is not None:
            self.spool.close()
            self.spool = None

    def erase(self) -> None:
        self.arrivals = None
        if self.spool is not None:
            self.spool.erase()
        self.close()


class ServerProcess(HelperProcess):
    """``tallystick server start``: with workers that sum."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        cluster = parts.config.spark
        self.summer = SpoolSum(parts.config.workers) if cluster is None else ClusterSum(*cluster)

    def start(self) -> None:
        if self.parts.config.workers > 1 or self.parts.config.spark is not None:
            self.summer.start()  # takes seconds; a round should not wait for it
        super().start()

    def close(self) -> None:
        super().close()
        self.summer.close()
