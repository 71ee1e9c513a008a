"""A whole consortium around one study, in one process, on a fake network, fake disks and a fake clock, from one seed.

Rounds are not played here: a started study finishes, or fails, some seconds after its start at the aggregator. The
oracle looks at who started with which roster, what was said twice, whose keys are still there, and how long it took.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from study_examples import HASH, PACKED, PROGRAM, STUDY, identity, members
from tests.transport.memory_network import Faults, MemoryNetwork

from tallystick.core.errors import RoundAborted
from tallystick.core.identifiers import digest
from tallystick.crypto.key_agreement import AgreementKey
from tallystick.crypto.prg import AesStream, derive
from tallystick.protocol.study import (
    AggregatorMachine,
    AnalystMachine,
    Confirm,
    Delivered,
    Ended,
    Erase,
    ParticipantMachine,
    Persist,
    Review,
    RoundsDone,
    Send,
    Started,
    StudyCode,
    Wake,
    decode,
    encode,
    result_digest,
)
from tallystick.protocol.study.messages import StudyEnd, StudyReady, StudyStart
from tallystick.trust.servers.parts import sum_parameters

MAX_STEPS = 20_000
READY_SECONDS = 30.0
MIN_CLIENTS = 3
PATIENCE = 200.0


class Broken(AssertionError):  # noqa: N818
    """A promise of the study layer did not hold."""


@dataclass(frozen=True)
class Op:
    kind: str  # crash | cut | decline | absent | slow | replay | hostile | again | repent
    party: str
    at: float
    amount: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Schedule:
    seed: int
    clients: int
    servers: int
    fails: bool
    faults: Faults
    ops: tuple[Op, ...]


class Dice:
    def __init__(self, seed: int, label: bytes) -> None:
        self._stream = AesStream(derive(seed.to_bytes(32, "little"), label))

    def below(self, n: int) -> int:
        return int(self._stream.words(1)[0]) % n

    def unit(self) -> float:
        return (int(self._stream.words(1)[0]) >> 11) * 2.0**-53


def schedule(seed: int) -> Schedule:
    """The schedule of this seed."""
    dice = Dice(seed, b"study schedule")
    n, m = 3 + dice.below(4), 2 + dice.below(2)
    bad = dice.below(4)
    faults = Faults(
        drop=(0.0, 0.05, 0.2, 0.4)[bad] * dice.unit(),
        duplicate=(0.0, 0.2, 0.4, 0.6)[bad] * dice.unit(),
        delay=(0.0, 0.5, 1.0, 1.0)[bad],
        longest_delay=(0.0, 1.0, 5.0, 25.0)[bad],
    )
    parties = ["hub", "hub", "ana", *(f"s{j}" for j in range(m)), *(f"c{i}" for i in range(n))]
    kinds = ("crash", "crash", "crash", "cut", "decline", "absent", "slow", "replay", "hostile", "again")
    ops = []
    for _ in range(dice.below(6)):
        kind, party = kinds[dice.below(len(kinds))], parties[dice.below(len(parties))]
        if kind in ("decline", "absent", "slow"):
            party = f"c{dice.below(n)}" if dice.below(6) else f"s{dice.below(m)}"
        at = 0.0 if kind in ("decline", "absent", "slow") else 60.0 * dice.unit() * dice.unit()
        ops.append(Op(kind, party, at, dice.below(8), 0.5 + (40.0 if dice.below(5) == 0 else 5.0) * dice.unit()))
    return Schedule(seed, n, m, dice.below(6) == 0, faults, tuple(sorted(ops, key=lambda o: o.at)))


class Process:
    """One party that can die between any two instructions and come back from its records."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.records: dict[str, bytes] = {}
        self.key: bytes | None = None  # the private key, on disk
        self.alive = False
        self.crash_in: int | None = None
        self.down_for = 1.0
        self.machine = None
        self.starts = 0

    def start(self) -> None:
        world, m = self.world, self.world.members
        self.alive, self.starts = True, self.starts + 1
        out = []
        if self.name in m.analysts:
            if self.name in world.answers:
                return
            request = derive(bytes(32), self.name.encode(), bytes([self.starts]))[:16]
            self.machine = AnalystMachine(
                m, self.name, study=STUDY, program=PROGRAM, request=request, patience_seconds=PATIENCE
            )
            out = self.machine.propose(world.now)
        elif self.name == m.coordinator:
            self.machine, out = AggregatorMachine.restore(m, HASH, self.records, world.now)
        else:
            self.machine, out = ParticipantMachine.restore(
                m, self.name, HASH, self.records, world.now, patience_seconds=PATIENCE
            )
        self.carry_out(out)

    def crash(self) -> None:
        self.alive, self.machine, self.crash_in = False, None, None
        self.world.later(self.down_for, self.start)

    def carry_out(self, instructions: list) -> None:
        world = self.world
        for step in instructions:
            match step:
                case Send(to=to, message=message):
                    world.post(self.name, to, message)
                case Persist(key=key, record=record):
                    self.records[key] = record
                case Wake(at=at):
                    world.later(at - world.now, self.tick)
                case Review():
                    world.later(world.review_seconds(self.name), lambda step=step: self.review(step))
                case Confirm(attempt=attempt):
                    self.confirm(attempt)
                case Started(roster=roster):
                    world.started(self, roster)
                case Erase():
                    self.key = None
                case RoundsDone(round=round, rounds=rounds):
                    world.told.append((round, rounds))
                case Delivered(packed=packed):
                    world.delivered(self.name, packed)
                case Ended(error=error):
                    world.ended(self, error)
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in < 0:
                    self.crash()
                    return

    def review(self, step: Review) -> None:
        world = self.world
        if not self.alive or step.study != STUDY or step.program != PROGRAM:
            return
        if self.name == world.members.coordinator:
            if self.machine.state.value == "reviewing":
                out = self.machine.accept(min_clients=MIN_CLIENTS, ready_seconds=READY_SECONDS, now=world.now)
                self.carry_out(out)
        elif self.name in world.declining:
            self.carry_out(self.machine.decline(StudyCode.NOT_APPROVED, "not our kind of study", attempt=step.attempt))
        else:
            world.draws += 1
            key = AgreementKey.generate(AesStream(derive(bytes(32), b"key", str(world.draws).encode())))
            if self.machine.state.value == "reviewing" and self.machine.attempt == step.attempt:
                self.key = key.reveal().reveal()
            role = world.members.role(self.name)
            signed = key.sign(identity(self.name), study_hash=HASH, party=self.name, role=role)
            self.carry_out(self.machine.approve(signed, attempt=step.attempt, min_clients=MIN_CLIENTS))

    def confirm(self, attempt: int) -> None:
        """The start is there: its steward may have changed their mind since it said that it was ready."""
        world = self.world
        if self.name in world.repenting:
            if self.name not in world.rosters:
                world.repented.add(self.name)
            self.carry_out(self.machine.decline(StudyCode.NOT_APPROVED, "taken back", attempt=attempt))
        else:
            self.carry_out(self.machine.begin(attempt=attempt, now=world.now))

    def tick(self) -> None:
        if self.alive and self.machine is not None:
            self.carry_out(self.machine.tick(self.world.now))

    def receive(self, sender: str, raw: bytes) -> None:
        if self.alive and self.machine is not None:
            self.carry_out(self.machine.receive_bytes(sender, raw, self.world.now))


class World:
    """The parties, the network, and the oracle."""

    def __init__(self, plan: Schedule) -> None:
        self.plan, self.now, self.steps, self.draws, self.count = plan, 0.0, 0, 0, 0
        self.dice = Dice(plan.seed, b"study run")
        self.members = members(plan.clients, plan.servers)
        self.network = MemoryNetwork(plan.faults, AesStream(derive(plan.seed.to_bytes(32, "little"), b"network")))
        m = self.members
        self.processes = {n: Process(self, n) for n in (m.coordinator, *m.helpers, *m.clients, *m.analysts)}
        self.timers: list = []
        self.log: list[tuple[str, str, bytes]] = []
        self.declining: set[str] = set()
        self.slow: set[str] = set()
        self.repenting: set[str] = set()  # whose stewards have taken their approval back
        self.repented: set[str] = set()
        self.rosters: dict[str, bytes] = {}  # party -> digest of the roster it started with
        self.said: dict[tuple, bytes] = {}
        self.answers: dict[str, RoundAborted | bytes] = {}
        self.ends: dict[str, int] = {}
        self.told: list[tuple[int, int]] = []
        self.running = False
        self.finals: set[bytes] = set()

    def later(self, seconds: float, action) -> None:
        self.count += 1
        heapq.heappush(self.timers, (self.now + max(seconds, 0.0), self.count, action))

    def review_seconds(self, name: str) -> float:
        return 45.0 if name in self.slow else 0.2

    def post(self, sender: str, to: str, message) -> None:
        raw = encode(message)
        if isinstance(message, (StudyStart, StudyReady)):
            key = (type(message).__name__, sender if isinstance(message, StudyReady) else "", message.attempt)
            if isinstance(message, StudyStart):
                key = ("StudyStart", "", 0)  # one start for ever
            if self.said.setdefault(key, raw) != raw:
                raise Broken(f"{sender} said two different things as {key}")
        if isinstance(message, StudyEnd) and message.code == StudyCode.FINISHED:
            self.finals.add(message.result)
        self.log.append((sender, to, raw))
        self.network.send(sender, to, raw, self.now)

    # -- what is observed ------------------------------------------------------------------------------------------

    def started(self, process: Process, roster) -> None:
        if process.name in self.repented:
            raise Broken(f"{process.name} started what it had taken back")
        if self.rosters.setdefault(process.name, roster.digest) != roster.digest:
            raise Broken(f"{process.name} started with two rosters")
        if len(set(self.rosters.values())) > 1:
            raise Broken("two parties started with different rosters")
        if process.name != "hub" and process.key is None:
            raise Broken(f"{process.name} started without its key")
        if roster.helpers != self.members.helpers or len(roster.clients) < MIN_CLIENTS:
            raise Broken(f"a roster of {roster.helpers} and {roster.clients}")
        if set(roster.clients) & self.declining:
            raise Broken("a client that declined is in the roster")
        parameters = sum_parameters(roster, size=4, honest=1, colluding=len(roster.helpers) - 1, result_limit=1000)
        session = digest(b"tallystick/study/session", HASH, roster.digest)
        if parameters.clients != roster.clients or parameters.study_hash != session:
            raise Broken("the parameters are not the roster's")
        if process.name == "hub" and not self.running:
            self.running = True
            self.later(2.0, lambda: self.round_done(1))

    def round_done(self, number: int) -> None:
        hub = self.processes["hub"]
        if not hub.alive or hub.machine.state.value != "running":
            if not hub.alive:
                self.later(1.0, lambda: self.round_done(number))
            return
        if number < 4:
            hub.carry_out(hub.machine.progress(number, 4))
            self.later(2.0, lambda: self.round_done(number + 1))
        elif self.plan.fails:
            hub.carry_out(
                hub.machine.fail(
                    RoundAborted("s0 is gone", party="s0", round=2, rule="missing-server", remedy="Start it.")
                )
            )
        else:
            hub.carry_out(hub.machine.finish(PACKED))
            if "study/end" not in hub.records:
                self.later(1.0, lambda: self.round_done(number))

    def delivered(self, analyst: str, packed: bytes) -> None:
        if packed != PACKED:
            raise Broken("another result was delivered")
        if "hub" not in self.rosters:
            raise Broken("a result without a start")
        self.answers[analyst] = packed

    def ended(self, process: Process, error) -> None:
        if error is not None and not (error.party and error.cause and error.remedy and error.rule):
            raise Broken(f"a failure must say who, why and what to do: {error.as_dict()}")
        if process.name in self.members.analysts:
            self.answers.setdefault(process.name, error if error is not None else PACKED)
        elif process.name != "hub":
            self.ends[process.name] = self.ends.get(process.name, 0) + 1

    # -- what goes wrong -------------------------------------------------------------------------------------------

    def apply(self, op: Op) -> None:
        process = self.processes[op.party]
        match op.kind:
            case "crash":
                process.crash_in, process.down_for = op.amount, op.seconds
            case "absent":
                process.down_for = 500.0
                process.crash()
            case "decline":
                self.declining.add(op.party)
            case "repent":
                self.repenting.add(op.party)
            case "slow":
                self.slow.add(op.party)
            case "cut":
                self.network.partition([op.party], [n for n in self.processes if n != op.party][op.amount % 3 :])
                self.later(op.seconds, self.network.heal)
            case "again":
                if not self.processes["bob"].starts:
                    self.processes["bob"].start()
            case "replay":
                for _ in range(4 * op.amount):
                    if self.log:
                        self.network.send(*self.log[self.dice.below(len(self.log))], self.now)
            case "hostile":
                self.hostile(op)

    def hostile(self, op: Op) -> None:
        """Someone who may send as an ordinary party, or as the aggregator, but signs for nobody."""
        if not self.log:
            return
        _, _, raw = self.log[self.dice.below(len(self.log))]
        message = decode(raw)
        sender = ("hub", "c0", "s0", "bob", "stranger")[op.amount % 5]
        if isinstance(message, StudyStart):
            smaller = [t for t in message.tickets if t.party != "c0"]
            raw = encode(StudyStart(study_hash=HASH, attempt=message.attempt, min_clients=2, tickets=tuple(smaller)))
        elif sender == "hub":
            return  # an aggregator that lies about ends can end a study: liveness is its own
        for to in self.processes:
            if self.dice.below(2):
                self.network.send(sender, to, raw, self.now)

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> World:
        self.declining.update(op.party for op in self.plan.ops if op.kind == "decline")
        for name, process in self.processes.items():
            if name not in self.members.analysts:
                process.start()
        for op in self.plan.ops:
            self.later(op.at, lambda op=op: self.apply(op))
        self.later(0.0, self.processes["ana"].start)
        while not self.over():
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Broken(f"not over after {MAX_STEPS} steps")
            due = [at for at in (self.network.next_at(), self.timers[0][0] if self.timers else None) if at is not None]
            if not due:
                raise Broken("nothing under way, nothing to wait for, and the study is not over")
            self.now = max(self.now, min(due))
            if self.now > 3000.0:
                raise Broken("it lasted more than 3,000 s")
            envelope = self.network.deliver(self.now)
            if envelope is not None:
                if envelope.to in self.processes:
                    self.processes[envelope.to].receive(envelope.sender, envelope.raw)
            elif self.timers and self.timers[0][0] <= self.now:
                heapq.heappop(self.timers)[2]()
        self.check()
        return self

    def over(self) -> bool:
        """The analysts have their answers, and nobody is in the middle of anything."""
        analysts = [p for n, p in self.processes.items() if n in self.members.analysts and p.starts]
        if not analysts or any(p.name not in self.answers for p in analysts):
            return False
        parties = [self.processes[n] for n in self.members.parties]
        return all(p.alive and p.machine.state.value in ("idle", "declined", "ended") for p in parties)

    def check(self) -> None:
        for name in self.members.parties:
            if self.processes[name].key is not None:
                raise Broken(f"{name} still has its key")
        if self.finals - {result_digest(HASH, PACKED)}:
            raise Broken("an end with another result's digest")
        hub = self.processes["hub"]
        results = {answer for answer in self.answers.values() if isinstance(answer, bytes)}
        if results and hub.alive and hub.machine.state.value not in ("finished",):
            raise Broken("a result was told and is not kept")
