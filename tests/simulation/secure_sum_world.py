"""A whole secure-sum study in one process on a fake network, fake disks and a fake clock, all from one seed.

Every record has a bucket of its own, one for each of two models, so that a right total holds only 0 and 1, in
the model's half, exactly where the agreed clients' records are (the unique-bucket oracle): a 2 is a
double count, a 1 in the other half a second model, a huge number a disagreement on the set.

A schedule is a list of operations; ``run`` plays it and raises ``Broken`` when a promise does not hold. ``shrink``
drops operations one by one while it still breaks.
"""

from __future__ import annotations

import copy
import heapq
from dataclasses import dataclass, replace

import numpy as np
from tests.transport.memory_network import Faults, MemoryNetwork

from tallystick.core.errors import RoundAborted, TallystickError
from tallystick.crypto.field import HALF, encode_signed
from tallystick.crypto.prg import AesStream, derive
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.secure_sum import (
    Aborted,
    AggregatorMachine,
    ClientMachine,
    Compute,
    Drop,
    Finished,
    Forget,
    MemoryBoots,
    MemoryShares,
    Persist,
    Send,
    ServerMachine,
    SumParameters,
    Sync,
    Wake,
    Witness,
    decode,
    encode,
)
from tallystick.protocol.secure_sum.messages import Agreement, Partial, ReceivedList, RoundOpen, Share, model_digest
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.secure_sum.records import NoiseRecord

RECORDS = 2  # per client
MODELS = (np.array([0.0]).tobytes(), np.array([1.0]).tobytes())
MAX_STEPS = 20_000
DRAWN = "oracle/noise"  # where the oracle finds the last draw that was kept; it travels with copies of the disk
TWIN = 3  # what an equivocating client's other sharing says instead of 1


class Broken(AssertionError):  # noqa: N818
    """A promise of the protocol did not hold."""


@dataclass(frozen=True)
class Op:
    """One thing that goes wrong: what, to whom, when, and a number or two."""

    kind: str  # crash | absent | equivocate | deceive | hostile | replay | cut | copy | set_back | ...
    party: str
    at: float
    amount: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Schedule:
    seed: int
    clients: int
    servers: int
    min_clients: int
    rounds: int
    noisy: bool
    faults: Faults
    ops: tuple[Op, ...]


class Dice:
    """Small draws from a seeded stream."""

    def __init__(self, seed: int, label: bytes) -> None:
        self._stream = AesStream(derive(seed.to_bytes(32, "little"), label))

    def below(self, n: int) -> int:
        return int(self._stream.words(1)[0]) % n

    def chance(self, p: float) -> bool:
        return self.unit() < p

    def unit(self) -> float:
        return (int(self._stream.words(1)[0]) >> 11) * 2.0**-53


def schedule(seed: int) -> Schedule:
    """The schedule of this seed: who is there, how bad the network is, what goes wrong."""
    dice = Dice(seed, b"schedule")
    n, m, rounds = 3 + dice.below(4), 2 + dice.below(2), 2 + dice.below(2)
    bad = dice.below(4)
    faults = Faults(
        drop=(0.0, 0.02, 0.1, 0.25)[bad] * dice.unit(),
        duplicate=(0.0, 0.1, 0.3, 0.5)[bad] * dice.unit(),
        delay=(0.0, 0.5, 1.0, 1.0)[bad],
        longest_delay=(0.0, 0.5, 5.0, 30.0)[bad],
    )
    parties = ["aggregator", *(f"s{j}" for j in range(m)), *(f"s{j}" for j in range(m)), *(f"c{i}" for i in range(n))]
    horizon = 12.0 if bad == 0 else 70.0 * rounds
    ops = []
    for _ in range(dice.below(7)):
        kind = ("crash", "crash", "crash", "absent", "equivocate", "deceive", "hostile", "replay", "cut")[dice.below(9)]
        party = parties[dice.below(len(parties))]
        if kind in ("absent", "equivocate", "deceive"):
            party = f"c{dice.below(n)}"
        at = horizon * dice.unit() * dice.unit()
        ops.append(Op(kind, party, at, dice.below(12), 0.5 + (40.0 if dice.chance(0.2) else 4.0) * dice.unit()))
    return Schedule(
        seed, n, m, 2 + dice.below(2), rounds, dice.chance(0.5), faults, tuple(sorted(ops, key=lambda o: o.at))
    )


class CrashShares(MemoryShares):
    """A share store whose unsynced part is lost in a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.unsynced: list[tuple[int, int]] = []

    def put(self, share: Share) -> None:
        super().put(share)
        self.unsynced.append((share.round, share.client))

    def sync(self) -> None:
        self.unsynced.clear()

    def crash(self) -> None:
        for round, client in self.unsynced:
            self.discard(round, client)
        self.unsynced.clear()


class Noise(NoiseSource):
    """Fresh noise at every call, as the real one; or none at all."""

    def __init__(self, world: World, server: str, noisy: bool) -> None:
        self.world, self.server, self.noisy = world, server, noisy
        self._stream = AesStream(derive(world.plan.seed.to_bytes(32, "little"), b"noise", server.encode()))

    def draw(self, round: int) -> np.ndarray:
        size = self.world.parameters.size
        if not self.noisy:
            return np.zeros(size, dtype=np.int64)
        return (self._stream.words(size) % np.uint64(2001)).astype(np.int64) - 1000


class Process:
    """One party: a machine that can die between any two instructions and come back from its records."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.records: dict[str, bytes] = {}
        self.shares = CrashShares()
        self.boots = MemoryBoots()
        self.boot = self.starts = 0
        self.at_step: list[tuple[int, str]] = []  # after so many instructions: what to do to this process
        self.copies: list[tuple] = []
        self.alive = False
        self.crash_in: int | None = None
        self.down_for = 1.0
        self.machine: AggregatorMachine | ClientMachine | ServerMachine | None = None

    def start(self) -> None:
        world, p = self.world, self.world.parameters
        self.boot += 1
        self.starts += 1
        self.alive = True
        first = self.boot == 1
        out = []
        if self.name in p.server_index:
            kind = world.server_kinds.get(self.name, ServerMachine)
            given = {
                "key": world.keys[p.server_index[self.name]],
                "noise": world.noise[self.name],
                "blinds": world.blinds,
                "shares": self.shares,
                "boot": self.boot,
                "boot_value": derive(self.name.encode().ljust(32, b"\0"), b"boot", bytes([self.starts]))[:16],
                "boots": self.boots,
            }
            if first:
                self.machine = kind(p, self.name, **given)
            else:
                self.machine, out = kind.restore(p, self.name, self.records, now=world.now, **given)
        elif self.name in p.client_index:
            if first:
                self.machine = ClientMachine(p, self.name)
            else:
                self.machine, out = ClientMachine.restore(p, self.name, self.records)
        elif first:
            self.machine = AggregatorMachine(p, boots=self.boots)
        else:
            self.machine, out = AggregatorMachine.restore(p, self.records, world.now, boots=self.boots)
        self.carry_out(out)

    # -- copies: of the disk, and of the memory too --------------------------------------------------------------------

    def copy(self) -> None:
        world, machine = self.world, self.machine
        shared = (world.parameters, world.noise.get(self.name), world.blinds, self.boots, *world.keys)
        memo = {id(thing): thing for thing in shared}
        self.copies.append(copy.deepcopy((self.records, self.shares, self.boot, machine), memo))

    def set_back(self) -> None:
        """The disk as it was at the last copy; started anew."""
        self.records, self.shares, self.boot, _ = self.copies.pop()
        self.machine, self.crash_in = None, None
        self.world.set_back.add(self.name)
        self.start()

    def swap(self) -> None:
        """Go on as the copy before the last one, started anew if it never was; the one that ran so far is kept."""
        newest, older = self.copies.pop(), self.copies.pop()
        self.records, self.shares, self.boot, self.machine = older
        self.copies = [newest, newest]
        self.world.set_back.add(self.name)
        if self.boot == 1:
            self.start()

    def resume(self) -> None:
        """The whole machine as it was, memory included: it goes on without noticing."""
        self.records, self.shares, self.boot, self.machine = self.copies.pop()
        self.world.set_back.add(self.name)
        self.tick()
        self.world.later(self.world.parameters.retry_seconds, self.tick)

    def crash(self) -> None:
        self.alive = False
        self.machine = None
        self.crash_in = None
        self.shares.crash()
        self.world.later(self.down_for, self.start)

    def carry_out(self, instructions: list) -> None:
        world = self.world
        for step in instructions:
            match step:
                case Send(to=to, message=message):
                    world.post(self.name, to, message)
                case Persist(key=key, record=record):
                    self.records[key] = record
                    if key == "noise":
                        self.records[DRAWN] = record
                case Forget(key=key):
                    self.records.pop(key, None)
                case Witness():
                    self.boots.note(step)
                case Sync():
                    self.shares.sync()
                case Drop(round=round):
                    self.shares.drop(round)
                case Wake(at=at):
                    world.later(at - world.now, self.tick)
                case Compute(round=round, model=model):
                    world.compute(self, round, model)
                    if not self.alive:
                        return
                case Finished(result=result):
                    world.finished(result)
                case Aborted(error=error):
                    if self.name == world.parameters.aggregator:
                        world.aborted(error)
            if self.at_step:
                self.at_step = [(steps - 1, what) for steps, what in self.at_step]
                if self.at_step[0][0] < 0:
                    what = self.at_step.pop(0)[1]
                    getattr(self, what)()
                    if what != "copy":
                        return
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in < 0:
                    self.crash()
                    return

    def tick(self) -> None:
        if self.alive:
            self.carry_out(self.machine.tick(self.world.now))

    def receive(self, sender: str, raw: bytes) -> None:
        if self.alive:
            self.carry_out(self.machine.receive_bytes(sender, raw, self.world.now))


class World:
    """The study, its parties, its network, and the oracle."""

    def __init__(self, plan: Schedule, server_kinds: dict[str, type] | None = None) -> None:
        self.plan, self.now, self.steps = plan, 0.0, 0
        self.server_kinds = server_kinds or {}
        seed = plan.seed.to_bytes(32, "little")
        self.dice = Dice(plan.seed, b"run")
        self.keys = [SigningKey.generate(AesStream(derive(seed, b"key", bytes([j])))) for j in range(plan.servers)]
        self.parameters = SumParameters(
            study_hash=derive(seed, b"study"),
            size=2 * RECORDS * plan.clients,
            servers=tuple(f"s{j}" for j in range(plan.servers)),
            clients=tuple(f"c{i}" for i in range(plan.clients)),
            server_keys=tuple(key.public for key in self.keys),
            honest=1,
            min_clients=plan.min_clients,
            result_limit=HALF,  # the oracle, not the range check, is to see a wrong total
            model_size=1,
        )
        p = self.parameters
        self.network = MemoryNetwork(plan.faults, AesStream(derive(seed, b"network")))
        self.source = AesStream(derive(seed, b"clients"))
        self.blinds = AesStream(derive(seed, b"blinds"))
        self.noise = {server: Noise(self, server, plan.noisy) for server in p.servers}
        self.processes = {name: Process(self, name) for name in (p.aggregator, *p.servers, *p.clients)}
        self.timers: list = []
        self.count = 0
        self.said: dict[tuple, bytes] = {}  # (kind, server, round) -> bytes
        self.set_back: set[str] = (
            set()
        )  # servers that were: they may repeat themselves wrongly, but never release twice
        self.used_noise: dict[tuple[str, int], np.ndarray] = {}
        self.results: dict[int, object] = {}
        self.errors: dict[int, RoundAborted] = {}
        self.opened_at: dict[int, float] = {}
        self.models: dict[int, bytes] = {}
        self.log: list[tuple[str, str, bytes]] = []
        self.absent: set[str] = set()
        self.equivocators: set[str] = set()
        self.deceived: set[str] = set()
        self.next_round = 1
        self.after: dict[int, tuple[Op, ...]] = {}  # what happens between the end of a round and the next one

    # -- what processes do ---------------------------------------------------------------------------------------

    def later(self, seconds: float, action) -> None:
        self.count += 1
        heapq.heappush(self.timers, (self.now + max(seconds, 0.0), self.count, action))

    def post(self, sender: str, to: str, message) -> None:
        raw = encode(message)
        if isinstance(message, (Partial, ReceivedList, Agreement)) and sender in self.parameters.server_index:
            key = (type(message).__name__, sender, message.round)
            if isinstance(message, Partial):  # the last draw that was kept for this round is the one inside it
                disk = self.processes[sender].records
                if "noise" in disk and NoiseRecord.from_bytes(disk["noise"]).round == message.round:
                    raise Broken(f"{sender} said its partial of round {message.round} with the noise still on disk")
                drawn = NoiseRecord.from_bytes(disk[DRAWN])
                if drawn.round == message.round:
                    self.used_noise.setdefault((sender, message.round), drawn.noise)
            lapse = sender in self.set_back and not isinstance(message, Partial)
            if self.said.setdefault(key, raw) != raw and not lapse:
                raise Broken(f"{sender} said two different things as {key[0]} of round {message.round}")
        if isinstance(message, RoundOpen) and to in self.deceived:  # [Pasquini22]: one client is shown another model
            model = MODELS[1 - MODELS.index(message.model)]
            other = model_digest(message.study_hash, message.round, model)
            raw = encode(replace(message, model=model, model_hash=other))
        self.log.append((sender, to, raw))
        self.network.send(sender, to, raw, self.now)

    def vector(self, client: str, model: bytes) -> np.ndarray:
        i, n = self.parameters.client_index[client], self.plan.clients
        half = MODELS.index(model)
        values = np.zeros(self.parameters.size, dtype=np.int64)
        start = half * RECORDS * n + RECORDS * i
        values[start : start + RECORDS] = 1
        return values

    def compute(self, process: Process, round: int, model: bytes) -> None:
        if process.name in self.absent:
            out = process.machine.withdraw(round)
            silent = self.dice.chance(0.5)  # not everybody who drops out says so
            process.carry_out([step for step in out if not (silent and isinstance(step, Send))])
            return
        vector = encode_signed(self.vector(process.name, model))
        out = process.machine.contribute(round, vector, self.source, self.now)
        if process.name in self.equivocators:
            self.equivocate(process.name, round, out)
        process.carry_out(out)

    def equivocate(self, client: str, round: int, out: list) -> None:
        """A client that shares twice: some servers get the other sharing too, or instead."""
        opened = (
            replace(decode(self.processes["aggregator"].records["open"]), round=round)
            if "open" in self.processes["aggregator"].records
            else None
        )
        if opened is None:
            return
        twin = ClientMachine(self.parameters, client)
        compute = [step for step in twin.receive("aggregator", opened, self.now) if isinstance(step, Compute)]
        if not compute:
            return
        other = encode_signed(TWIN * self.vector(client, compute[0].model))
        for step in twin.contribute(round, other, self.source, self.now):
            if isinstance(step, Send) and self.dice.chance(0.6):
                self.network.send(client, step.to, encode(step.message), self.now)

    def finished(self, result) -> None:
        known = self.results.get(result.round)
        if known is not None:
            if known.agreement != result.agreement or not np.array_equal(known.total, result.total):
                raise Broken(f"round {result.round} finished twice with different results")
            return
        if result.round in self.errors:
            raise Broken(f"round {result.round} finished after it had been aborted")
        self.results[result.round] = result
        self.check(result)
        self.between(result.round)

    def aborted(self, error: RoundAborted) -> None:
        if error.round in self.results:
            raise Broken(f"round {error.round} aborted after it had finished")
        if not (error.party and error.round and error.cause and error.remedy):
            raise Broken(f"an abort must say party, round, cause and remedy: {error.as_dict()}")
        if error.round not in self.errors:
            self.errors[error.round] = error
            self.between(error.round)

    def between(self, round: int) -> None:
        for i, op in enumerate(self.after.get(round, ())):
            self.later(0.01 * (i + 1), lambda op=op: self.apply(op))
        self.later(0.1, self.open_next)

    def open_next(self) -> None:
        process = self.processes["aggregator"]
        if self.next_round > self.plan.rounds:
            return
        if not process.alive:
            self.later(1.0, self.open_next)
            return
        if process.machine.state.value == "open":
            return
        round = self.next_round
        self.models.setdefault(round, MODELS[self.dice.below(2)])
        self.opened_at.setdefault(round, self.now)
        self.absent.clear()
        out = process.machine.open_round(round, self.models[round], self.now)
        process.carry_out(out)
        if "open" in process.records and decode(process.records["open"]).round == round:
            self.next_round += 1
        else:
            self.later(1.0, self.open_next)  # it died before the round was on disk

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def apply(self, op: Op) -> None:
        process = self.processes[op.party]
        match op.kind:
            case "crash":
                process.crash_in, process.down_for = op.amount, op.seconds
            case "absent":
                self.absent.add(op.party)
            case "equivocate":
                self.equivocators.add(op.party)
            case "deceive":
                self.deceived = {op.party}
                self.later(op.seconds, self.deceived.clear)
            case "cut":
                others = [name for name in self.processes if name != op.party]
                self.network.partition([op.party], others[op.amount % len(others) :])
                self.later(op.seconds, self.network.heal)
            case "copy" | "set_back" | "resume" | "swap":
                process.at_step.append((op.amount, op.kind)) if op.seconds < 0 else getattr(process, op.kind)()
            case "hear_again":  # whatever was said to this server in a round is said once more
                for sender, to, raw in tuple(self.log):
                    if to == op.party and decode(raw).round == op.amount:
                        self.network.send(sender, to, raw, self.now)
            case "replay":
                for _ in range(op.amount):
                    if self.log:
                        sender, to, raw = self.log[self.dice.below(len(self.log))]
                        self.network.send(sender, to, raw, self.now)
            case "hostile":
                self.hostile(op)

    def hostile(self, op: Op) -> None:
        """The aggregator's wire in hostile hands: other models, old rounds, sets of its own choosing."""
        p = self.parameters
        current = max(self.next_round - 1, 1)
        targets = [*p.clients, *p.servers]
        other = MODELS[1 - MODELS.index(self.models.get(current, MODELS[0]))]

        def opening(round: int, model: bytes) -> RoundOpen:
            return RoundOpen(
                study_hash=p.study_hash,
                round=round,
                deadline_ms=5000,
                model_hash=model_digest(p.study_hash, round, model),
                model=model,
            )

        subset = Agreement(
            study_hash=p.study_hash, round=current, server=0, honest=1,
            model_hash=model_digest(p.study_hash, current, other), starts=(), clients=(0, 1), signature=bytes(64),
        )  # fmt: skip
        choice = (
            opening(current, other),
            opening(current, self.models.get(current, MODELS[0])),
            opening(max(current - 1, 1), other),
            subset,
        )[op.amount % 4]
        for to in targets:
            if self.dice.chance(0.5):
                self.network.send("aggregator", to, encode(choice), self.now)

    # -- the oracle ----------------------------------------------------------------------------------------------

    def check(self, result) -> None:
        p = self.parameters
        if len(result.participants) < p.min_clients:
            raise Broken("a round was released below min_clients")
        if set(result.participants) & set(result.dropped) or set(result.participants) | set(result.dropped) != set(
            p.clients
        ):
            raise Broken("participants and dropped do not make up the clients")
        total = result.total.copy()
        for server in p.servers if self.plan.noisy else ():
            if (server, result.round) not in self.used_noise:
                raise Broken("a server's record is not of the round it released")
            total -= self.used_noise[server, result.round]
        for client in p.clients:
            mine = self.vector(client, self.models[result.round])
            inside = client in result.participants
            # one who shares twice may be counted with either sharing, but with one of them and everywhere the same
            allowed = (1, TWIN) if inside and client in self.equivocators else (int(inside),)
            if not any(np.array_equal(total[mine > 0], times * mine[mine > 0]) for times in allowed):
                raise Broken(f"round {result.round}: the buckets of {client} are {total[mine > 0].tolist()}")
        half = MODELS.index(self.models[result.round])
        if total.reshape(2, -1)[1 - half].any():
            raise Broken(f"round {result.round}: a record was counted under another model")

    def run(self) -> World:
        for process in self.processes.values():
            process.start()
        for op in self.plan.ops:
            self.later(op.at, lambda op=op: self.apply(op))
        self.later(0.0, self.open_next)
        while len(self.results) + len(self.errors) < self.plan.rounds:
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise Broken(f"not over after {MAX_STEPS} steps")
            due = [at for at in (self.network.next_at(), self.timers[0][0] if self.timers else None) if at is not None]
            if not due:
                raise Broken("nothing under way, nothing to wait for, and a round is open")
            self.now = max(self.now, min(due))
            envelope = self.network.deliver(self.now)
            if envelope is not None:
                self.processes[envelope.to].receive(envelope.sender, envelope.raw)
            elif self.timers and self.timers[0][0] <= self.now:
                heapq.heappop(self.timers)[2]()
            if self.now > 1000.0 * self.plan.rounds:
                raise Broken("a round lasted more than 1,000 s")
        for server in self.parameters.servers:
            if len(self.processes[server].shares) > self.plan.clients:
                raise Broken("shares of old rounds were kept")
        return self


def breaks(plan: Schedule, server_kinds: dict[str, type] | None = None) -> str | None:
    """What is broken under this schedule, or None."""
    try:
        World(plan, server_kinds).run()
    except (Broken, TallystickError, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def shrink(plan: Schedule, server_kinds: dict[str, type] | None = None) -> Schedule:
    """A schedule with fewer operations and a better network that still breaks."""
    smaller = replace(plan, faults=Faults())
    if breaks(smaller, server_kinds):
        plan = smaller
    at = 0
    while at < len(plan.ops):
        smaller = replace(plan, ops=plan.ops[:at] + plan.ops[at + 1 :])
        if breaks(smaller, server_kinds):
            plan = smaller
        else:
            at += 1
    return plan
