"""The curator's protocol, sans I/O: it opens a round, institutions send their sums, it adds them and noise drawn once.

curator   Persist noise (secret) → Persist open → Opening to every institution, again until it answers
client    Compute → Persist contribution → Contribution, the same bytes whenever it is asked again
curator   Persist each contribution (secret); with the last one, or at the deadline: Persist result → Forget → Finished
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import RemoteProtocolError, TooFewParties
from tallystick.protocol.instructions import Aborted, Compute, Finished, Forget, NoisySum, Persist, Send, Wake
from tallystick.protocol.machine import Machine
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.protocol.study.messages import StudyCode

_HEAD = Struct("<4sB32sI")
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Opening:
    study_hash: bytes
    round: int
    body: bytes  # the model


@dataclass(frozen=True)
class Contribution:
    study_hash: bytes
    round: int
    body: bytes  # little-endian int64


_KINDS: tuple[type[Any], ...] = (Opening, Contribution)


def encode(message: Any) -> bytes:
    return _HEAD.pack(b"CURA", _KINDS.index(type(message)), message.study_hash, message.round) + message.body


def decode(raw: bytes, *, limit: int | None = None) -> Any:
    if len(raw) < _HEAD.size or raw[:4] != b"CURA" or raw[4] >= len(_KINDS):
        raise RemoteProtocolError("bytes that are no message of a curator's study")
    _, kind, study, round = _HEAD.unpack_from(raw)
    return _KINDS[kind](study, round, raw[_HEAD.size :])


class State(Enum):
    IDLE = "idle"
    OPEN = "open"


class Event(Enum):
    OPENED = "opened"
    ENDED = "ended"


class _Base(Machine):
    TRANSITIONS = {(State.IDLE, Event.OPENED): State.OPEN, (State.OPEN, Event.ENDED): State.IDLE}  # noqa: RUF012
    CODES = StudyCode
    DECODE = staticmethod(decode)
    OTHER_STUDY = "this is not the study named"

    def _refuse(self, sender: str, message: Any, code: Any, cause: str) -> list[Any]:
        return []


class ClientMachine(_Base):
    """An institution: one sum a round, kept before it is sent."""

    def __init__(self, name: str, study_hash: bytes, curator: str, records: Mapping[str, bytes]) -> None:
        super().__init__(name, study_hash, State.IDLE)
        self.curator = curator
        self._handlers = {Opening: self._opened}
        kept = records.get("contribution")
        self._kept: Contribution | None = decode(kept) if kept is not None else None
        self.round = self._kept.round if self._kept is not None else 0

    def _opened(self, sender: str, message: Opening, now: float) -> list[Any]:
        if sender != self.curator or message.round < self.round:
            return []
        if self._kept is not None and self._kept.round == message.round:
            return [Send(self.curator, self._kept)]
        if self.state is State.OPEN and self.round == message.round:
            return []  # it is being computed
        if self.state is State.IDLE:
            self._move(Event.OPENED)
        self.round = message.round
        return [Compute(message.round, message.body)]

    def contribute(self, round: int, values: NDArray[np.int64]) -> list[Any]:
        self._move(Event.ENDED)
        self._kept = Contribution(self.study_hash, round, values.astype("<i8").tobytes())
        return [Persist("contribution", encode(self._kept)), Send(self.curator, self._kept)]

    def withdraw(self, round: int) -> list[Any]:
        self._move(Event.ENDED)
        return []

    def tick(self, now: float) -> list[Any]:
        return []


class CuratorMachine(_Base):
    """The curator of one study; ``noise`` is drawn once a round."""

    def __init__(
        self,
        name: str,
        study_hash: bytes,
        clients: tuple[str, ...],
        records: Mapping[str, bytes],
        *,
        min_clients: int,
        seconds: float,
        noise: NoiseSource,
    ) -> None:
        super().__init__(name, study_hash, State.IDLE)
        self.clients, self.min_clients, self.seconds, self._source = clients, min_clients, seconds, noise
        self._handlers = {Contribution: self._contributed}
        self._sums: dict[str, NDArray[np.int64]] = {}
        self._deadline = 0.0
        self._opening = decode(records["open"]) if "open" in records else None
        self._noise = np.frombuffer(records["noise"], dtype="<i8") if "noise" in records else None
        if self._opening is not None:
            self.round = self._opening.round
            if self._noise is not None:  # it was open when the process ended
                self.state = State.OPEN
                for client in clients:
                    kept = records.get(f"from.{client}")
                    if kept is not None and (said := decode(kept)).round == self.round:
                        self._sums[client] = np.frombuffer(said.body, dtype="<i8")

    def resume(self, now: float) -> list[Any]:
        """What a restarted curator does first."""
        if self.state is not State.OPEN:
            return []
        self._deadline = now + self.seconds
        return [*self._ask(), Wake(now + RETRY_SECONDS), *self._try_end(now)]

    def open_round(self, round: int, model: bytes, now: float) -> list[Any]:
        self._move(Event.OPENED)
        self.round, self._sums, self._deadline = round, {}, now + self.seconds
        self._opening = Opening(self.study_hash, round, model)
        admitted = self._source.admit(round, model)
        self._noise = self._source.draw(round)
        return [
            *([] if admitted is None else [Persist("prices", admitted)]),
            Persist("noise", self._noise.astype("<i8").tobytes(), secret=True),
            Persist("open", encode(self._opening)),
            *self._ask(),
            Wake(now + RETRY_SECONDS),
        ]

    def _ask(self) -> list[Any]:
        return [Send(client, self._opening) for client in self.clients if client not in self._sums]

    def _contributed(self, sender: str, message: Contribution, now: float) -> list[Any]:
        known = sender in self.clients and self.state is State.OPEN and message.round == self.round
        if not known or sender in self._sums or self._noise is None or len(message.body) != 8 * len(self._noise):
            return []
        self._sums[sender] = np.frombuffer(message.body, dtype="<i8")
        return [Persist(f"from.{sender}", encode(message), secret=True), *self._try_end(now)]

    def tick(self, now: float) -> list[Any]:
        if self.state is not State.OPEN:
            return []
        ended = self._try_end(now)
        return ended or [*self._ask(), Wake(now + RETRY_SECONDS)]

    def _try_end(self, now: float) -> list[Any]:
        if len(self._sums) < len(self.clients) and now < self._deadline:
            return []
        if self._noise is None:
            return []
        self._move(Event.ENDED)
        inside = tuple(c for c in self.clients if c in self._sums)
        gone = [Forget("noise"), *(Forget(f"from.{client}") for client in inside)]
        if len(inside) < self.min_clients:
            error = TooFewParties("too few institutions answered", rule="too-few-clients", round=self.round)
            return [*gone, Aborted(error)]
        total = np.sum([self._sums[c] for c in inside], axis=0, dtype=np.int64) + self._noise
        dropped = tuple(c for c in self.clients if c not in self._sums)
        summed = NoisySum(round=self.round, total=total, participants=inside, dropped=dropped)
        return [Finished(summed), *gone]
