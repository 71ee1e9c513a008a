"""A server: keeps shares until the set is agreed, sums them, adds its noise, and says the result once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.engines.simulated import ServerNoise
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.machine import Machine as SumMachine
from tallystick.protocol.secure_sum.messages import Accepted, Agreement, Message, Partial, ReceivedList
from tallystick.protocol.secure_sum.open_round import OpenRound
from tallystick.protocol.study.roster import Roster
from tallystick.roles.crash_points import CrashPoint, crashpoint
from tallystick.roles.participant import ParticipantProcess, ParticipantSession
from tallystick.roles.process import Parts
from tallystick.roles.setup import Setup
from tallystick.roles.sharded_sum import SpoolSum
from tallystick.roles.spool import SpoolShares

__all__ = ["ServerProcess", "ServerSession"]

_SENT = {
    Accepted: CrashPoint.SERVER_SHARE_ACCEPTED,
    ReceivedList: CrashPoint.SERVER_LIST_SENT,
    Agreement: CrashPoint.SERVER_AGREEMENT_SENT,
    Partial: CrashPoint.SERVER_PARTIAL_SENT,
}


class _SpoolingServer(sums.ServerMachine):
    """Sums straight from the spool, with the process's workers: the same bits for every number of them."""

    summer: SpoolSum

    def _sum(self, current: OpenRound, agreed: tuple[int, ...]) -> NDArray[np.uint64]:
        if not isinstance(self._shares, SpoolShares):
            raise LocalProtocolError("a deployed server keeps its shares in a spool", party=self.name)
        return self.summer.total(self._shares, current.record.round, agreed, self.parameters.size)


class ServerSession(ParticipantSession):
    """A study at a server."""

    key_kept = CrashPoint.SERVER_KEY_KEPT
    ready_sent = CrashPoint.SERVER_READY_SENT
    keys_erased = CrashPoint.SERVER_KEYS_ERASED
    spool: SpoolShares | None = None

    def decide(self, setup: Setup) -> None:
        """A server holds no data: it takes part in whatever it can calibrate (the plan was made, so it can)."""
        if setup.plan.claim.servers != len(self.process.members.servers):
            raise LocalProtocolError(
                f"the study is for {setup.plan.claim.servers} servers, the consortium has "
                f"{len(self.process.members.servers)}",
                remedy="Set servers under [trust] to the number of servers of the consortium.",
            )

    def make_sum(self, setup: Setup, roster: Roster) -> tuple[SumMachine, Sequence[sums.Instruction]]:
        process = self.process
        self.spool = SpoolShares(process.directory(self.study_hash), party=process.name)

        def keyed(*labels: bytes) -> object:
            return process.parts.streams(self.study_hash, *labels)

        noise = ServerNoise(setup.plan, setup.size, process.name, keyed)  # type: ignore[arg-type]
        machine, first = _SpoolingServer.restore(
            setup.parameters(roster),
            process.name,
            process.store.records(self.study_hash),
            key=process.parts.identity.signing,
            noise=noise,
            shares=self.spool,
            boot=process.store.boot,
            now=process.now(),
        )
        if isinstance(machine, _SpoolingServer) and isinstance(process, ServerProcess):
            machine.summer = process.summer
        return machine, first

    def sum_step(self, step: sums.Instruction) -> None:
        if self.spool is None:
            return
        if isinstance(step, sums.Sync):
            crashpoint(CrashPoint.SERVER_SHARE_WRITTEN)
            self.spool.sync()
            crashpoint(CrashPoint.SERVER_SHARE_SYNCED)
        elif isinstance(step, sums.Drop):
            self.spool.drop(step.round)
            crashpoint(CrashPoint.SERVER_SHARES_DROPPED)
            self.process.health.rounds = step.round

    def sent(self, to: str, message: Message) -> None:
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()
            self.spool = None


class ServerProcess(ParticipantProcess):
    """``tallystick server start``."""

    role = "server"
    session = ServerSession
    booted = CrashPoint.SERVER_BOOTED

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.summer = SpoolSum(parts.config.workers)

    def start(self) -> None:
        if self.parts.config.workers > 1:
            self.summer.start()  # takes seconds; a round should not wait for it
        super().start()

    def close(self) -> None:
        super().close()
        self.summer.close()
