"""The input phase of a median: shares of very many clients, one value each, accepted and summed by computing parties.

Clients, parties' machines and share stores are the deployed ones: every client's shares are made, encoded and decoded,
every commitment is checked, every share goes to a spool file, is made durable (one fsync for a batch, as a party does
with what waits) and is read from there when the parties have signed who is in the sum. Clients come in batches, so
what is under way is bounded; a party keeps of each client only the head of its share.

Left out are the lines (TLS) and the seals, and the parties take turns on one core: each has its own clock, and the time
of a party is its own work.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallystick.core.errors import LocalProtocolError
from tallystick.core.identifiers import digest
from tallystick.crypto.field import decode_signed, encode_signed, sum_vectors
from tallystick.crypto.prg import system_stream
from tallystick.crypto.signing import SigningKey
from tallystick.privacy.mechanisms import discrete_laplace
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.messages import RoundOpen, model_digest
from tallystick.protocol.secure_sum.open_round import NoiseSource
from tallystick.roles.shares.spool import SpoolShares

__all__ = ["Intake", "take_in"]

_STUDY = digest(b"bench input phase")
_HOURS = 3_000_000.0
_BATCH = 1000


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What the slowest party took, in seconds of its own work."""

    accepting: float
    summing: float
    """Lists, agreements and the sum."""
    clients: float
    """All clients together, on this one core."""
    megabytes: float
    """That the party was sent."""


class _Kept(NoiseSource):
    """A round that ends in a draw opens no sum: what is kept at its opening stands for a party's random word."""

    def __init__(self, size: int) -> None:
        self._size = size

    def ends_in_a_draw(self, round: int) -> bool:
        return True

    def draw(self, round: int) -> NDArray[np.int64]:
        return discrete_laplace.sample(Fraction(64), self._size, system_stream())


class _Party:
    """A machine, its spool and its clock."""

    def __init__(self, parameters: sums.SumParameters, name: str, key: SigningKey, folder: Path) -> None:
        self.name, self.seconds, self.bytes = name, 0.0, 0
        self.share: NDArray[np.uint64] | None = None
        self._spool = SpoolShares(folder / name, party=name)
        self._machine = sums.ServerMachine(
            parameters, name, key=key, noise=_Kept(parameters.size), blinds=system_stream(), shares=self._spool
        )

    def take(self, messages: list[tuple[str, bytes]]) -> list[sums.Send]:
        """What arrived at once; one fsync; then what is to be said."""
        started = time.perf_counter()
        said: list[sums.Send] = []
        for sender, raw in messages:
            self.bytes += len(raw)
            for step in self._machine.receive_bytes(sender, raw, 0.0):
                if isinstance(step, sums.Send):
                    said.append(step)
                elif isinstance(step, sums.Draw):
                    self.share = step.share
                elif isinstance(step, sums.Aborted):
                    raise step.error
        self._spool.sync()
        self.seconds += time.perf_counter() - started
        return said

    def close(self) -> None:
        self._spool.erase()


def take_in(clients: int, cells: int, *, parties: int = 3) -> Intake:
    """So many clients, each with one record in one of the cells; the parties' shares must add up to the counts."""
    size = cells + 2
    names = tuple(f"party-{i}" for i in range(parties))
    keys = [SigningKey.generate(system_stream()) for _ in names]
    parameters = sums.SumParameters(
        study_hash=_STUDY,
        size=size,
        servers=names,
        clients=tuple([f"client-{i}" for i in range(clients)]),
        server_keys=tuple(key.public for key in keys),
        honest=parties - (parties - 1) // 2,
        min_clients=3,
        result_limit=2**60,
        model_size=0,
        round_seconds=_HOURS,
    )
    opening = sums.encode(
        RoundOpen(
            study_hash=_STUDY,
            round=1,
            deadline_ms=int(1000 * _HOURS),
            model_hash=model_digest(_STUDY, 1, b""),
            model=b"",
        )
    )
    values = (np.arange(clients) * 7919) % size  # made up: any will do
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as folder:
        there = {n: _Party(parameters, n, key, Path(folder)) for n, key in zip(names, keys)}
        try:
            return _run(parameters, there, opening, values)
        finally:
            for party in there.values():
                party.close()


def _run(
    parameters: sums.SumParameters, parties: dict[str, _Party], opening: bytes, values: NDArray[np.int64]
) -> Intake:
    for party in parties.values():
        party.take([(parameters.aggregator, opening)])
    own, said = 0.0, deque[tuple[str, sums.Send]]()
    for start in range(0, len(values), _BATCH):
        started = time.perf_counter()
        batch = _shares(parameters, opening, range(start, min(start + _BATCH, len(values))), values)
        own += time.perf_counter() - started
        for name, party in parties.items():
            for step in party.take(batch[name]):
                if step.to in parties:
                    said.append((name, step))
                elif isinstance(step.message, sums.messages.Refused):
                    raise LocalProtocolError(f"a share was refused: {step.message.cause}")
    accepting = {name: party.seconds for name, party in parties.items()}
    while said:
        sender, step = said.popleft()
        said.extend(
            (step.to, answer)
            for answer in parties[step.to].take([(sender, sums.encode(step.message))])
            if answer.to in parties
        )
    shares = [party.share for party in parties.values() if party.share is not None]
    counts = np.bincount(values, minlength=parameters.size)
    if len(shares) < len(parties) or not np.array_equal(decode_signed(sum_vectors(shares)), counts):
        raise LocalProtocolError("the parties' shares do not add up to the clients' counts")
    return Intake(
        accepting=max(accepting.values()),
        summing=max(party.seconds - accepting[name] for name, party in parties.items()),
        clients=own,
        megabytes=max(party.bytes for party in parties.values()) / 1e6,
    )


def _shares(
    parameters: sums.SumParameters, opening: bytes, which: range, values: NDArray[np.int64]
) -> dict[str, list[tuple[str, bytes]]]:
    """Messages of these clients for each party."""
    out: dict[str, list[tuple[str, bytes]]] = {name: [] for name in parameters.servers}
    vector = np.zeros(parameters.size, dtype=np.int64)
    source = system_stream()
    for client in which:
        name = parameters.clients[client]
        machine = sums.ClientMachine(parameters, name)
        machine.receive_bytes(parameters.aggregator, opening, 0.0)
        vector[values[client]] = 1
        for step in machine.contribute(1, encode_signed(vector), source, 0.0):
            if isinstance(step, sums.Send):
                out[step.to].append((name, sums.encode(step.message)))
        vector[values[client]] = 0
    return out
