"""Draws by computing parties in processes of their own, over mutual TLS on 127.0.0.1: what benches and figures time."""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tallystick.application.demo.free_ports import free_ports
from tallystick.bench import drawing_party, slow_links
from tallystick.bench.processes import ToldProcess, preload, tell
from tallystick.bench.slow_links import Link, Network
from tallystick.core.errors import LocalProtocolError
from tallystick.crypto.field import encode_signed
from tallystick.crypto.prg import SEED_BYTES, add_expanded, subtract_expanded, system_stream
from tallystick.protocol.selection import Question, ideal
from tallystick.roles.identity import enrolment
from tallystick.roles.identity.identity_files import wall_clock

__all__ = ["Drawers", "Drawn", "fastest"]


@dataclass(frozen=True, order=True, kw_only=True)
class Drawn:
    """One draw, from the word to begin until the last party has the place."""

    seconds: float
    cpu: float
    """Processor seconds of all parties together."""
    layers: int
    """Messages that wait for each other."""
    bytes: int
    """Sent by the party that sent most, to all others together, before sealing and TLS."""


class Drawers:
    """So many parties, connected; ``network`` between them, or nothing but this machine."""

    def __init__(self, parties: int, *, network: Network | None = None) -> None:
        self.names = [f"party-{number}" for number in range(1, parties + 1)]
        self._network, self._round = network, 0
        self._parties: list[ToldProcess] = []
        self._relay: list[ToldProcess] = []

    def __enter__(self) -> Drawers:
        preload("tallystick.bench.drawing_party")
        self._temporary = tempfile.TemporaryDirectory(prefix="tallystick-bench-")
        folder, now = Path(self._temporary.name) / "consortium", wall_clock()
        enrolment.create("bench", folder, now=now)
        pairs = list(combinations(self.names, 2)) if self._network is not None else []
        ports = free_ports(len(self.names) + len(pairs))
        own = dict(zip(self.names, ports))
        for name, port in own.items():
            enrolment.enrol(name, "party", folder, now=now, address=f"127.0.0.1:{port}")
        keys = {name: secrets.token_hex(32) for name in self.names}
        (folder / "keys.json").write_text(json.dumps(keys))
        links = [
            Link(caller=caller, callee=callee, port=port, to=own[callee])
            for (caller, callee), port in zip(pairs, ports[len(own) :])
        ]
        try:
            if self._network is not None:
                self._relay = [ToldProcess(slow_links.serve, self._network, links)]
                self._relay[0].answer()
            for name in self.names:
                through = {link.callee: f"127.0.0.1:{link.port}" for link in links if link.caller == name}
                self._parties.append(ToldProcess(drawing_party.serve, folder, name, through))
            for party in self._parties:
                party.answer()
            tell(self._parties, do="connect")
        except BaseException:
            self.__exit__()
            raise
        return self

    def select(self, question: Question, totals: Sequence[int]) -> Drawn:
        """One draw from these exact totals, shared afresh; it must be the ideal function's."""
        self._round += 1
        m, source = len(self.names), system_stream()
        shares = _shares(totals, m)
        words = [source.bytes(question.word_bytes) for _ in self.names]
        for party, share, word in zip(self._parties, shares, words):
            party.ask(
                do="prepare", question=question, share=share, word=word, round=self._round, colluding=(m - 1) // 2
            )
        for party in self._parties:
            party.answer()
        started = time.monotonic()
        answers = tell(self._parties, do="select")
        seconds = time.monotonic() - started
        if {a["place"] for a in answers} != {ideal(question, totals, words)}:
            raise LocalProtocolError("the parties drew something else than the ideal function")
        return Drawn(
            seconds=seconds,
            cpu=sum(a["cpu"] for a in answers),
            layers=answers[0]["layers"],
            bytes=max(a["bytes"] for a in answers),
        )

    def __exit__(self, *_exception: object) -> None:
        for process in (*self._parties, *self._relay):
            process.end()
        self._temporary.cleanup()


def fastest(drawers: Drawers, question: Question, totals: Sequence[int], repeat: int) -> Drawn:
    """The fastest of a few draws after one that warms up: machines are shared."""
    drawers.select(question, totals)
    return min(drawers.select(question, totals) for _ in range(repeat))


def _shares(totals: Sequence[int], parties: int) -> list[NDArray[np.uint64]]:
    """Additive shares modulo p, as a sum over clients leaves them."""
    rest, source = encode_signed(np.array(totals, dtype=np.int64)), system_stream()
    shares: list[NDArray[np.uint64]] = []
    for _ in range(parties - 1):
        seed, share = source.bytes(SEED_BYTES), np.zeros(len(rest), dtype=np.uint64)
        add_expanded(share, seed, b"bench")
        subtract_expanded(rest, seed, b"bench")
        shares.append(share)
    return [*shares, rest]
