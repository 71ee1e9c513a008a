"""A server: keeps shares until the set is agreed, sums them, adds its noise, and says the result once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tallystick.core.allowance import Allowances
from tallystick.core.errors import LocalProtocolError, RemoteProtocolError, TallystickError
from tallystick.core.identifiers import HASH_BYTES, parse_hash
from tallystick.engines.round_vectors import RoundNoise
from tallystick.engines.setup import Setup, set_up
from tallystick.privacy.chain import Head
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.machine import Machine as SumMachine
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
from tallystick.roles.governance.attestation import attestation_body, last_rounds, note_partial
from tallystick.roles.governance.clearance import pack_head
from tallystick.roles.governance.exchange import Op, pack_parts, unpack_parts
from tallystick.roles.ledger.seen_heads import MAX_LINKS, SeenHeads
from tallystick.roles.processes.participant import ParticipantProcess, ParticipantSession
from tallystick.roles.processes.process import Parts
from tallystick.roles.shares.sharded_sum import SpoolSum
from tallystick.roles.shares.share_sinks import Arrival, ShareArrivals
from tallystick.roles.shares.spool import SpoolShares
from tallystick.roles.storage.crash_points import CrashPoint, crashpoint
from tallystick.roles.streams.ticks import pack_tick, unpack_tick
from tallystick.transport.network.admission import Sink, Unwanted
from tallystick.transport.wire import HEADER_BYTES, SEALED, Seals

__all__ = ["ServerProcess", "ServerSession"]

_log = logging.getLogger("tallystick.roles")
HEADS_OF_A_STUDY = 4  # countersigned for one client: its charge, and again should its ledger have been recovered
LINKS_A_SECOND = 1.0  # new in one client's ledger, once a whole message of them was shown; a study makes a handful
FOLLOWING, FOLLOWING_AT_ONCE = 0.1, 5.0  # of a server's time for one client's ledger: a tenth, after five seconds
_SENT = {
    Accepted: CrashPoint.SERVER_SHARE_ACCEPTED,
    ReceivedList: CrashPoint.SERVER_LIST_SENT,
    Agreement: CrashPoint.SERVER_AGREEMENT_SENT,
    Partial: CrashPoint.SERVER_PARTIAL_SENT,
}


def allowances() -> tuple[Allowances, Allowances]:
    """What each client's notices may take: a server's time to follow its ledger, and links to be kept of it."""
    time = Allowances(rate=FOLLOWING, burst=FOLLOWING_AT_ONCE)
    return time, Allowances(rate=LINKS_A_SECOND, burst=float(MAX_LINKS))


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
    arrivals: ShareArrivals | None = None
    _summed: dict[str, int] | None = None
    """The last round each client was in, as noted; None when there is more to read."""

    def decide(self, setup: Setup) -> None:
        """A server holds no data: it takes part in whatever it can calibrate (the plan was made, so it can)."""
        setup.check_servers(len(self.process.members.servers))

    def make_sum(self, setup: Setup, roster: Roster) -> tuple[SumMachine, Sequence[sums.Instruction]]:
        process = self.process
        self.spool = SpoolShares(process.directory(self.study_hash), party=process.name)

        def keyed(*labels: bytes) -> object:
            return process.parts.streams(self.study_hash, *labels)

        noise = RoundNoise(setup.plan, setup.size, process.name, keyed)  # type: ignore[arg-type]
        machine, first = _SpoolingServer.restore(
            setup.parameters(roster),
            process.name,
            process.store.records(self.study_hash),
            key=process.parts.identity.signing,
            noise=noise,
            blinds=process.parts.streams(self.study_hash, b"blinds", process.name.encode()),
            shares=self.spool,
            boot=process.store.boot,
            boot_value=process.store.boot_value,
            boots=process.store.boots(self.study_hash),
            now=process.now(),
        )
        if isinstance(machine, _SpoolingServer) and isinstance(process, ServerProcess):
            machine.summer = process.summer
        if self.seals is not None:
            self.arrivals = self.open_for_shares(machine, self.spool, self.seals)
        return machine, first

    # -- shares: from the network's threads to the loop ---------------------------------------------------------------

    def open_for_shares(self, machine: SumMachine, spool: SpoolShares, seals: Seals) -> ShareArrivals:
        """Where the shares of this study come in."""

        def refuse(sender: str, round: int, code: Code) -> None:
            cause = "the round is over" if code == Code.PAST_ROUND else "this server has not opened that round yet"
            told = Refused(study_hash=machine.parameters.study_hash, round=round, code=code, cause=cause)
            self.process.post_for(self, lambda: self.sums([sums.Send(sender, told)]))

        return ShareArrivals(
            machine.parameters,
            spool,
            seals,
            round_now=lambda: machine.round,
            announce=lambda: self.process.post_for(self, self._take_arrivals),
            refuse=refuse,
        )

    def sink(self, sender: str, length: int) -> Sink:
        """Where a share goes that is too long for memory; on a thread of the network."""
        arrivals = self.arrivals
        if arrivals is None:
            raise Unwanted
        return arrivals.sink(sender, length)

    def receive(self, sender: str, kind: int, payload: memoryview) -> None:
        arrivals = self.arrivals
        if kind == SEALED and arrivals is not None and self.seals is not None and self.sum is not None:
            raw = self.seals.open(sender, payload)
            try:
                message = sums.decode(raw, limit=self.sum.parameters.message_limit)
            except RemoteProtocolError:
                message = None  # the machine says what is wrong with it
            if isinstance(message, Share):  # one fsync for all that wait
                arrivals.put(Arrival(sender, message), lambda: self.process.soon(self, self._take_arrivals))
            else:
                self.sums(self.sum.receive_bytes(sender, raw, self.process.now()))
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
            self.sum_step(sums.Sync())
        for steps in lists:
            self.sums([step for step in steps if not isinstance(step, sums.Sync)])
        if failed is not None:
            raise failed

    def _ask(self, arrival: Arrival) -> list[sums.Instruction]:
        machine, now = self.sum, self.process.now()
        if machine is None:
            return []
        if arrival.commitment is None or not isinstance(machine, sums.ServerMachine):
            return machine.receive(arrival.sender, arrival.share, now)
        return machine.receive_share(arrival.sender, arrival.share, arrival.commitment, now)

    def sum_step(self, step: sums.Instruction) -> None:
        if isinstance(step, sums.Blame):
            self.process.health.blamed += 1
            said = "%s equivocates in round %d: %s"
            _log.warning(said, step.party, step.round, step.cause, extra={"member": step.party})
            self.process.conduct.note(step.party, "equivocation")
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

    def last_round_of(self, client: str) -> int:
        """The last round in which this server holds a client's share, or has summed it; 0 if none. Durable."""
        if isinstance(self.sum, sums.ServerMachine) and self.sum.holds_share_of(client):
            return self.sum.round
        if self._summed is None:
            self._summed = last_rounds(self.process.store, self.study_hash)
        return self._summed.get(client, 0)

    def _send(self, to: str, message: Message) -> None:
        if isinstance(message, Partial) and self.sum is not None:
            note_partial(self.process.store, self.study_hash, message, self.sum.parameters.clients)
            self._summed = None
        super()._send(to, message)

    def finished(self, result: bytes | None, error: TallystickError | None) -> None:
        """Vouch for the rounds of a study that has a result."""
        stored, exchange = self.process.store.study(self.study_hash), self.process.exchange
        known = {s.signer for s in exchange.store.statements(self.study_hash) if s.kind == "attestation"}
        if error is not None or stored is None or self.process.name in known:
            return
        setup = self.setup or set_up(stored.canonical, stored.program, allow_not_private=True)
        body = attestation_body(self.process.store, self.study_hash, setup)
        if body is not None:
            exchange.say("attestation", body)

    def sent(self, to: str, message: Message) -> None:
        point = _SENT.get(type(message))
        if point is not None:
            crashpoint(point)

    def close(self) -> None:
        self.arrivals = None
        if self.spool is not None:
            self.spool.close()
            self.spool = None

    def _erase(self) -> None:
        self.arrivals = None
        if self.spool is not None:
            self.spool.erase()
        super()._erase()


class ServerProcess(ParticipantProcess):
    """``tallystick server start``."""

    role = "server"
    session = ServerSession
    booted = CrashPoint.SERVER_BOOTED

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.summer = SpoolSum(parts.config.workers)
        self.seen = SeenHeads(parts.config.state / "governance.sqlite", party=self.name)
        self.following, self.links = allowances()

    def sink_for(self, sender: str, length: int, head: bytes) -> Sink | None:
        if head[0] != SEALED:
            return super().sink_for(sender, length, head)
        session = self.sessions.get(head[1:HEADER_BYTES])
        if not isinstance(session, ServerSession):
            raise Unwanted
        return session.sink(sender, length)

    # -- what clients spend -------------------------------------------------------------------------------------------

    def governance(self, sender: str, study_hash: bytes, op: int, body: bytes) -> None:
        """A client shows its ledger's head, or asks which one was seen last."""
        if op == Op.TICK and sender in self.members.clients:
            session = self.sessions.get(study_hash)
            asked, _ = unpack_tick(body, sender)
            if isinstance(session, ServerSession) and session.sum is not None:
                answer = pack_tick(asked, session.last_round_of(sender))
                self.exchange.send(sender, Op.TICK_SEEN, answer, study_hash)
            return  # not up yet: it asks again
        if op not in (Op.NOTICE, Op.HEAD) or sender not in self.members.clients:
            super().governance(sender, study_hash, op, body)
            return
        if op == Op.NOTICE:
            self._countersign(sender, study_hash, body)
        else:
            self._tell_seen(sender)

    def _countersign(self, client: str, study_hash: bytes, body: bytes) -> None:
        parts = unpack_parts(body, client)
        if len(parts) != 2 or len(parts[1]) % HASH_BYTES:
            raise RemoteProtocolError("a notice of a charge is not one", rule="X14", party=client)
        charge = self.exchange.store.check(parts[0], sender=client)
        if charge.kind != "charge" or charge.signer != client or charge.study_hash != study_hash:
            raise RemoteProtocolError("a notice that is not of the client's own charge", party=client)
        if client not in self.exchange.standing(study_hash).approvals:
            raise RemoteProtocolError(
                "a charge of a study that this client has not approved, as far as is known here",
                party=client,
                rule="unknown-study",
                remedy="It is not countersigned. The client asks again; its approval may be on its way.",
            )
        told = charge.body
        head = Head(ledger=bytes.fromhex(told["ledger"]), sequence=told["sequence"], hash=parse_hash(str(told["head"])))
        links = [parts[1][i : i + HASH_BYTES] for i in range(0, len(parts[1]), HASH_BYTES)]
        named = {"hash": told["hash"], "client": client}
        body_of = {**named, "ledger": told["ledger"], "sequence": told["sequence"], "head": told["head"]}
        own = [
            s
            for s in self.exchange.store.statements(study_hash)
            if (s.kind, s.signer, s.body.get("client")) == ("countersignature", self.name, client)
        ]
        signed = next((s for s in own if s.body == body_of), None)
        if signed is None:
            if len(own) >= HEADS_OF_A_STUDY:  # what a server may sign about a study is limited, and meant for all
                raise RemoteProtocolError(
                    "more charges of one study than a client can have", party=client, rule="too-many-statements"
                )
            if not self._follow(client, head, links):
                return
            signed = self.exchange.say("countersignature", body_of)
        self.exchange.send(client, Op.STATEMENTS, pack_parts([signed.encode()]))

    def _follow(self, client: str, head: Head, links: Sequence[bytes]) -> bool:
        """Whether a client's ledger adds to what was seen of it; if not, or not now, the client is told, or asks again.

        A message may hold tens of thousands of links, a second's work and megabytes on disk, and a client may send
        eight of those a second: its ledger takes a share of this server's time, and grows at a rate.
        """
        now, last = self.now(), self.seen.last(client)
        fresh = min(len(links), max(0, head.sequence - last.sequence)) if last is not None else len(links)
        if self.following.wait(client, now) or not self.links.take(client, now, fresh):
            self.conduct.note(client, "ledger-links")
            return False
        try:
            verdict = self.seen.accept(client, head, links)
        finally:
            self.following.take(client, now, self.now() - now)
        if not verdict.accepted:
            said = "the ledger of %s is not countersigned: %s"
            _log.warning(said, client, verdict.why, extra={"member": client})
            self._tell_seen(client)
        return verdict.accepted

    def _tell_seen(self, client: str) -> None:
        last = self.seen.last(client)
        self.exchange.send(client, Op.SEEN, b"" if last is None else pack_head(last))

    def start(self) -> None:
        if self.parts.config.workers > 1:
            self.summer.start()  # takes seconds; a round should not wait for it
        super().start()

    def close(self) -> None:
        super().close()
        self.seen.close()
        self.summer.close()
