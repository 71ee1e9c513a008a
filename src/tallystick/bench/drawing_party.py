"""One computing party of ``tallystick bench quantiles``, in a process of its own.

Its place in the network, its sealed channels and the machine that draws are the deployed party's; what is left out is
the study around them: shares and words come through a pipe.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.bench.processes import PATIENCE, obey
from tallystick.core.identifiers import digest
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.prg import system_stream
from tallystick.protocol.selection import Aborted, Chosen, Question, SelectionMachine, Send, codec
from tallystick.protocol.selection.machine import message_limit
from tallystick.protocol.study.roster import Roster
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.places import node_for
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.operations.heap import keep_freed_memory
from tallystick.transport.wire import Seals, parse
from tallystick.trust.parties.parts import Assembler, cut

STUDY = digest(b"bench quantiles")


class _Party:
    """Draws when told to."""

    def __init__(self, folder: Path, name: str, through: Mapping[str, str]) -> None:
        consortium = read_consortium(folder / "consortium.toml")
        config = load_role_config(folder / name / "role.toml", role="party")
        parties = consortium.by_role("party")
        names = tuple(p.name for p in parties)
        # drawn for this bench, and gone with its folder
        own = {n: AgreementKey(bytes.fromhex(k)) for n, k in json.loads((folder / "keys.json").read_text()).items()}
        roster = Roster(
            study_hash=STUDY,
            attempt=1,
            consortium_hash=consortium.hash,
            coordinator="aggregator",
            helpers=names,
            clients=(),
            min_clients=0,
            helper_identities=tuple(p.identity for p in parties),
            keys={
                n: StudyKey(study_hash=STUDY, party=n, role="party", public=key.public, signature=b"")
                for n, key in own.items()
            },
        )
        self._name, self._names = name, names
        self._seals = Seals(own[name], name, roster, system_stream(), 1)
        later = names[names.index(name) + 1 :]
        identity = load_identity(config, consortium, wall_clock())
        there = [replace(p, address=through.get(p.name, p.address)) for p in consortium.parties]
        consortium = replace(consortium, parties=tuple(there))
        self._node = node_for(identity, consortium, listen=config.listen, dial=later).start()

    def connect(self) -> None:
        others = [n for n in self._names if n != self._name]
        if not self._node.wait_connected(others, 60.0):
            raise SystemExit("not connected to every party")

    def prepare(self, question: Question, share: NDArray[np.uint64], word: bytes, round: int, colluding: int) -> None:
        """The machine of the next draw."""
        self._machine = SelectionMachine(
            self._name, STUDY, self._names, colluding=colluding, round=round, question=question, share=share, word=word,
            source=system_stream(), retry_seconds=PATIENCE, give_up_seconds=PATIENCE,
        )  # fmt: skip
        self._assembler = Assembler(message_limit(question, len(self._names)))

    def select(self) -> dict[str, Any]:
        """From dealing the shares to the opened place."""
        machine, place = self._machine, None
        used = time.process_time()
        instructions = machine.begin(time.monotonic())
        while place is None:
            for step in instructions:
                if isinstance(step, Send):
                    self._say(step)
                elif isinstance(step, Chosen):
                    place = step.place
                elif isinstance(step, Aborted):
                    raise SystemExit(str(step.error))
            if place is None:
                envelope = self._node.receive(timeout=PATIENCE)
                if envelope is None:
                    raise SystemExit("a party of the draw is silent")
                _, _, sealed = parse(envelope.raw, envelope.sender)
                raw = self._assembler.take(envelope.sender, self._seals.open(envelope.sender, sealed))
                instructions = [] if raw is None else machine.receive_bytes(envelope.sender, raw, time.monotonic())
        return {
            "place": place,
            "layers": machine.layers,
            "bytes": machine.bytes_sent,
            "cpu": time.process_time() - used,
        }

    def _say(self, step: Send) -> None:
        for part in cut(*codec.encode_parts(step.message)):
            pieces, length = self._seals.seal(step.to, part)
            self._node.send(step.to, pieces, length=length)

    def stop(self) -> None:
        self._node.stop(grace=0.1)


def serve(line: Connection[Any, Any], folder: Path, name: str, through: Mapping[str, str]) -> None:
    """Be this party; ``through`` says where others are reached, if not at their own addresses."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    keep_freed_memory()  # as every role does
    party = _Party(folder, name, through)
    obey(line, party)
