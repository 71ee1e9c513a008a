"""All parties of an encrypted sum in one place, each with records that survive it: any of them can die at any step."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tallystick.crypto.homomorphic.scheme import DecryptingKey, Extent, scheme_for
from tallystick.crypto.prg import AesStream, system_stream
from tallystick.crypto.signing import SigningKey
from tallystick.protocol.boots import MemoryBoots, Witness
from tallystick.protocol.encrypted_sum import (
    DataUserMachine,
    Drop,
    EncryptedSumParameters,
    MemoryUploads,
    OwnerMachine,
    ProxyMachine,
    SumUp,
    decode,
    encode,
)
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, Persist, Send, Wake
from tallystick.protocol.noise_source import NoiseSource

STUDY = bytes(range(32))
OWNERS = ("north", "south", "west")
SIZE = 8192 * 5  # two chunks
KEYS = {name: SigningKey(bytes([i + 1]) * 32) for i, name in enumerate(("proxy", "data-user", "stranger"))}
MODEL = np.arange(3, dtype="<f8").tobytes()


@cache
def scheme(name: str = "bfv", size: int = SIZE) -> Any:
    return scheme_for(name, Extent(size=size, limit=2**45, owners=10, flood_bits=70 if name == "bfv" else 0))


@cache
def decrypting(name: str = "bfv", size: int = SIZE) -> DecryptingKey:
    return scheme(name, size).generate(system_stream())


def parameters(name: str = "bfv", size: int = SIZE, **other: Any) -> EncryptedSumParameters:
    facts: dict[str, Any] = {
        "study_hash": STUDY, "clients": OWNERS, "proxy": "proxy", "data_user": "data-user",
        "proxy_key": KEYS["proxy"].public, "data_user_key": KEYS["data-user"].public,
        "scheme": scheme(name, size), "min_clients": 2, "model_size": 3,
    }  # fmt: skip
    return EncryptedSumParameters(**facts | other)


class Noise(NoiseSource):
    """Another draw each time it is asked, so that a second one shows."""

    def __init__(self, seed: int, size: int) -> None:
        self._seed, self._size, self.draws = seed, size, 0

    def draw(self, round: int) -> np.ndarray:
        self.draws += 1
        stream = AesStream(bytes([self._seed]) * 32, bytes([round, self.draws]))
        return (stream.words(self._size) >> np.uint64(40)).astype(np.int64) - (1 << 23)


class World:
    """A lossless network, and a party that dies after its n-th instruction, if it is told to."""

    def __init__(self, p: EncryptedSumParameters, *, die: tuple[str, int] | None = None) -> None:
        self.p, self.die = p, die
        secret = {"decrypting-key": decrypting(p.scheme.name, p.size).reveal().reveal()}
        self.records: dict[str, dict[str, bytes]] = {name: {} for name in (*OWNERS, "proxy")} | {"data-user": secret}
        self.boots = {"proxy": MemoryBoots(), "data-user": MemoryBoots()}
        self.starts = dict.fromkeys(self.records, 0)
        self.uploads = MemoryUploads()
        self.noise = {"proxy": Noise(1, p.size), "data-user": Noise(2, p.size)}
        self.steps = dict.fromkeys(self.records, 0)
        self.sent: list[tuple[str, str, Any]] = []
        self.results: list[Any] = []
        self.aborts: list[tuple[str, Any]] = []
        self.queue: deque[tuple[str, str, bytes]] = deque()
        self.wakes: list[tuple[float, str]] = []
        self.now = 0.0
        self.absent: set[str] = set()
        self.lose: Callable[[str, Any], bool] = lambda _sender, _message: False
        self.machines: dict[str, Any] = {}
        for name in self.records:
            self.start(name)

    def vector(self, owner: str) -> np.ndarray:
        return np.arange(self.p.size, dtype=np.int64) * (OWNERS.index(owner) + 1) - 1000

    def start(self, name: str, *, records: dict[str, bytes] | None = None, boot: int | None = None) -> None:
        """A party begins, from its records."""
        kept = self.records[name] if records is None else records
        self.starts[name] = self.starts[name] + 1 if boot is None else boot
        if name in OWNERS:
            machine, first = OwnerMachine.restore(self.p, name, kept)
        else:
            parts: dict[str, Any] = {
                "key": KEYS[name], "noise": self.noise[name], "source": system_stream(),
                "boot": self.starts[name], "boot_value": system_stream().bytes(16), "boots": self.boots[name],
            }  # fmt: skip
            if name == "proxy":
                machine, first = ProxyMachine.restore(self.p, kept, now=self.now, uploads=self.uploads, **parts)
            else:
                machine, first = DataUserMachine.restore(self.p, kept, now=self.now, **parts)
        self.machines[name] = machine
        self.carry_out(name, first)

    def open(self, round: int) -> None:
        user = self.machines["data-user"]
        self.carry_out("data-user", user.open_round(round, MODEL, self.now))
        while self.machines["data-user"].round < round:  # it died before anybody had heard of the round
            self.carry_out("data-user", self.machines["data-user"].open_round(round, MODEL, self.now))

    def run(self, until: float = 1e9) -> None:
        while self.queue or (self.wakes and not self._over()):
            if not self.queue:
                at, name = heapq.heappop(self.wakes)
                if at > until:
                    return
                self.now = max(self.now, at)
                self.carry_out(name, self.machines[name].tick(self.now))
                continue
            sender, to, raw = self.queue.popleft()
            if to in self.machines and to not in self.absent and not self.lose(sender, decode(raw)):
                self.carry_out(to, self.machines[to].receive_bytes(sender, raw, self.now))

    def _over(self) -> bool:
        return self.machines["data-user"].state.value in ("finished", "aborted") and not self.queue

    def carry_out(self, name: str, instructions: list[Any]) -> None:
        for step in instructions:
            self.steps[name] += 1
            self._one(name, step)
            if self.die == (name, self.steps[name]):
                self.die = None
                self.start(name)
                return

    def _one(self, name: str, step: Any) -> None:
        machine, records = self.machines.get(name), self.records[name]
        match step:
            case Send(to=to, message=message):
                self.sent.append((name, to, message))
                self.queue.append((name, to, encode(message)))
            case Persist(key=key, record=record):
                records[key] = record
            case Forget(key=key):
                records.pop(key, None)
            case Wake(at=at):
                heapq.heappush(self.wakes, (at, name))
            case Compute(round=round):
                self.carry_out(name, machine.contribute(round, self.vector(name), system_stream(), self.now))
            case SumUp(round=round):
                job, digests = self.machines[name].sum_job() if name in self.machines else None, []
                for index in range(self.p.chunks):
                    payload = job.chunk(index, system_stream())
                    self.uploads.put_sum(round, index, payload)
                    digests.append(job.digest(index, payload))
                self.carry_out(name, self.machines[name].summed(round, tuple(digests)))
            case Drop(round=round, sums=sums):
                self.uploads.drop(round, sums=sums)
            case Witness():
                self.boots[name].note(step)
            case Finished(result=result):
                self.results.append(result)
            case Aborted(error=error):
                self.aborts.append((name, error))

    def said(self, kind: type) -> set[bytes]:
        """The distinct messages of a kind that were ever sent."""
        return {encode(message) for _, _, message in self.sent if isinstance(message, kind)}


__all__ = ["KEYS", "MODEL", "OWNERS", "SIZE", "STUDY", "World", "decode", "decrypting", "parameters", "scheme"]
