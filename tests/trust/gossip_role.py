"""A nursery of peers and their relay: what ``tests.trust.proxy_role`` is, and faults besides. Not in the wheel.

A child loses a part of what it says in studies (the number in the file ``loss`` beside its config). One that has a file
``poison`` there forges the records that it passes on, and sends junk.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
from tests.trust import proxy_role
from tests.trust.gossip_deployment import text

import tallystick.trust.gossip.parts as gossip_parts
from tallystick.algorithms.gossip.golf.kernels import PEGASOS, walk
from tallystick.crypto.prg import system_stream
from tallystick.engines.setup import set_up
from tallystick.protocol.gossip.messages import Batch, Publication, Walk
from tallystick.roles.governance import exchange
from tallystick.roles.processes.process import RoleProcess
from tallystick.study import Study
from tallystick.transport.wire import RELAYED, SEALED, SUM
from tallystick.trust.gossip import peer, relay  # noqa: F401 - children must not take their time to load it

_child = proxy_role._child


def _lossy(rate: float) -> None:
    send, coin = RoleProcess.send, random.Random(os.getpid())

    def sometimes(self: Any, to: str, raw: Any, length: int | None = None) -> None:
        said = isinstance(raw, bytes) and raw[0] in (SUM, SEALED, RELAYED)
        if not said or coin.random() >= rate:
            send(self, to, raw, length)

    RoleProcess.send = sometimes  # type: ignore[method-assign]


def _poisonous() -> None:
    send = gossip_parts.PeerPart.send

    def forged(self: Any, to: str, message: Any) -> None:
        session = self.parameters.study_hash
        if isinstance(message, Batch):
            others = [p for p in message.publications if p.peer != self.machine.own]
            lies = [Publication(peer=p.peer, body=p.body[:-1] + b"\x00", signature=p.signature) for p in others]
            own = [p for p in message.publications if p.peer == self.machine.own]
            message = Batch(study_hash=session, publications=(*own, *lies))
        send(self, to, message)
        if to != self.roster.coordinator:
            send(self, to, Walk(study_hash=session, age=1 << 31, weights=np.full(3, 1e300)))
            other = (self.machine.own + 1) % len(self.parameters.peers)
            one = Publication(peer=other, body=b"junk", signature=b"x" * 64)
            send(self, to, Batch(study_hash=session, publications=(one,)))

    gossip_parts.PeerPart.send = forged  # type: ignore[method-assign]


def _faulty(role: str, config: Path, log: str) -> None:
    loss, poison = config.parent / "loss", config.parent / "poison"
    if loss.exists():
        _lossy(float(loss.read_text()))
    if poison.exists():
        _poisonous()
    gossip_parts.CYCLE_SECONDS = 0.25
    exchange.SHARED_DECISIONS = 2  # as among more than a hundred peers: nobody is shown what the others decide
    _child(role, config, log)


def _warm() -> None:
    """Load the compiled kernels once, for all children."""
    study = Study.parse(text(peers=3, each=1))
    publishing = gossip_parts.Publishing.of(set_up(study.canonical(), ""), study.hash)
    randomiser = publishing.randomiser
    vectors, labels = np.ones((1, randomiser.dimension), np.int64), np.zeros(1, np.int64)
    drawn = randomiser.perturb_all(vectors, labels, [bytes(32)], system_stream())
    randomiser.decode([bytes(32)], drawn)
    walk(np.zeros(2), 0, np.ones((1, 2)), np.ones(1), np.zeros(1, np.int64), 1, PEGASOS, 1.0)


if __name__ == "__main__":
    _warm()
    proxy_role._child = _faulty
    proxy_role.main()
