"""The processes of ``tallystick bench network``: servers and drivers of clients, told what to do through a pipe.

A server here is the deployed server's loop, machine, network and spool; only the walk that agrees on a study is left
out, and the round is opened from this file. A driver holds many clients: real machines, keys and lines of their own.
The spool that does not fsync exists in this module alone; no deployed role can be given it.
"""

from __future__ import annotations

import gc
import json
import logging
import resource
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallystick.bench.measuring import RoundNoise
from tallystick.bench.processes import obey
from tallystick.bench.raw_tls import Receiver, Sender
from tallystick.core.identifiers import digest
from tallystick.crypto.field import from_bytes, uniform
from tallystick.crypto.key_agreement import AgreementKey, StudyKey
from tallystick.crypto.prg import system_stream
from tallystick.protocol import secure_sum as sums
from tallystick.protocol.secure_sum.codec import encode_parts
from tallystick.protocol.secure_sum.messages import RoundOpen, Share, ShareKind, model_digest
from tallystick.protocol.study.roster import Roster
from tallystick.roles.identity.identity_files import load_identity, read_consortium, wall_clock
from tallystick.roles.identity.places import node_for
from tallystick.roles.identity.role_config import load_role_config
from tallystick.roles.operations.heap import keep_freed_memory
from tallystick.roles.processes.helper import HelperSession
from tallystick.roles.processes.part import ROUNDS, Driver
from tallystick.roles.processes.session import Parts, Session
from tallystick.roles.processes.start import SystemClock
from tallystick.roles.shares.spool import SpoolShares
from tallystick.roles.storage.stores import RoleStore
from tallystick.transport.network.node import Node
from tallystick.transport.wire import HEADER_BYTES, SUM, Seals
from tallystick.trust.servers.parts import sum_parameters
from tallystick.trust.servers.server import ServerPart, ServerProcess

STUDY = digest(b"bench network")
ABSENT = "absent"  # a client that never sends: the round stays open, so that no sum is measured


class _Plan:
    """What every process reads from the folder: who there is, how long the vectors are, everybody's keys."""

    def __init__(self, folder: Path) -> None:
        raw = json.loads((folder / "plan.json").read_text())
        self.folder, self.size = folder, int(raw["size"])
        self.consortium = read_consortium(folder / "consortium.toml")
        self.keys = {name: bytes.fromhex(key) for name, key in raw["keys"].items()}
        servers = tuple(p.name for p in self.consortium.by_role("server"))
        clients = tuple(raw["clients"])
        identities = tuple(p.identity for p in self.consortium.by_role("server"))
        keys = {
            name: StudyKey(study_hash=STUDY, party=name, role="", public=AgreementKey(key).public, signature=b"")
            for name, key in self.keys.items()
        }
        self.roster = Roster(
            study_hash=STUDY,
            attempt=1,
            consortium_hash=self.consortium.hash,
            coordinator="aggregator",
            helpers=servers,
            clients=(*clients, ABSENT),
            min_clients=2,
            helper_identities=identities,
            keys=keys,
        )
        self.parameters = sum_parameters(
            self.roster,
            size=self.size,
            honest=1,
            colluding=len(servers) - 1,
            result_limit=2**60,
            model_size=0,
            round_seconds=3600.0,
        )

    def opening(self, round: int) -> bytes:
        study = self.parameters.study_hash
        return sums.encode(
            RoundOpen(
                study_hash=study,
                round=round,
                deadline_ms=3_600_000,
                model_hash=model_digest(study, round, b""),
                model=b"",
            )
        )

    def seals(self, name: str) -> Seals:
        return Seals(AgreementKey(self.keys[name]), name, self.roster, system_stream(), 1)


class _UnsyncedShares(SpoolShares):
    """Not durable: what the disk's own speed hides is measured with it."""

    def sync(self) -> None:
        return


class _Part(ServerPart):
    """A server's part in rounds that are opened by hand."""

    def __init__(self, session: HelperSession, plan: _Plan, fsync: bool) -> None:
        process = session.process
        self.session, self.parameters = session, plan.parameters
        self.drive = Driver(session, ROUNDS, send=self.send, other=self.step)
        self.spool = (SpoolShares if fsync else _UnsyncedShares)(process.directory(STUDY), party=process.name)
        self.machine = sums.ServerMachine(
            plan.parameters,
            process.name,
            key=process.parts.identity.signing,
            noise=RoundNoise(plan.size),
            blinds=system_stream(),
            shares=self.spool,
            boot=1,
        )
        self.arrivals = self.open_for_shares(self.machine, self.spool, plan.seals(process.name))


class _Session(HelperSession):
    """A study that is already under way."""

    part: _Part

    def __init__(self, process: ServerProcess, plan: _Plan, fsync: bool) -> None:
        Session.__init__(self, process, STUDY)
        self.setup, self._stored, self.seals = None, True, plan.seals(process.name)
        self.part = _Part(self, plan, fsync)

    def connected(self, peer: str) -> None:
        return


class _Process:
    """What every process of the bench answers to."""

    _peak = 0.0

    def usage(self) -> dict[str, float]:
        """Processor seconds so far, and megabytes."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"cpu": used.ru_utime + used.ru_stime, "resident_mb": _resident(), "peak_mb": self._peak}

    def watch(self) -> None:
        """From now on ``usage`` tells the largest resident size, looked at often."""

        def look() -> None:
            while True:
                self._peak = max(self._peak, _resident())
                time.sleep(0.01)

        threading.Thread(target=look, daemon=True).start()


class _Server(_Process):
    """A server, and the receiver of the reference."""

    def __init__(self, plan: _Plan, name: str, fsync: bool) -> None:
        config = load_role_config(plan.folder / name / "role.toml", role="server")
        config.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        parts = Parts(
            config=config,
            consortium=plan.consortium,
            identity=load_identity(config, plan.consortium, wall_clock()),
            store=RoleStore(config.state / "role.sqlite", party=name),
            streams=lambda *_labels: system_stream(),
            clock=SystemClock(),
        )
        self._plan = plan
        from_bytes(bytes(8), 1)  # compiled before anything is measured
        self.process = ServerProcess(parts)
        parts.store.add_study(STUDY, b"", "")
        self.process.sessions[STUDY] = self._session = _Session(self.process, plan, fsync)
        self.process.start()
        threading.Thread(target=self.process.run, daemon=True).start()
        ca, raw = plan.consortium.ca_certificate.decode("ascii"), plan.folder / name / "raw"
        self._receiver = Receiver(config.certificate, config.key, ca, raw, fsync=fsync)

    def port(self) -> dict[str, int]:
        return {"port": self._receiver.port}

    def clear(self) -> None:
        self._receiver.clear()

    def open(self, round: int) -> None:
        done = threading.Event()

        def work() -> None:
            self._session.receive("aggregator", SUM, memoryview(self._plan.opening(round)))
            done.set()

        self.process.post(work)
        if not done.wait(60):
            raise SystemExit("the round did not open")

    def forget(self) -> None:
        """The shares of the rounds before."""
        part = self._session.part
        if part.spool is not None:
            part.spool.drop(part.machine.round - 1)

    def stop(self) -> None:
        self.process.stop()
        self.process.node.stop(grace=0.1)


class _Aggregator(_Process):
    """Listens and says nothing: everybody's idle line to it, as in a study, and nobody who dials again and again."""

    def __init__(self, plan: _Plan) -> None:
        config = load_role_config(plan.folder / "aggregator" / "role.toml", role="aggregator")
        identity = load_identity(config, plan.consortium, wall_clock())
        self._node = node_for(identity, plan.consortium, listen=config.listen).start()

    def stop(self) -> None:
        self._node.stop()


class _Client:
    def __init__(self, plan: _Plan, name: str) -> None:
        config = load_role_config(plan.folder / name / "role.toml", role="client")
        identity = load_identity(config, plan.consortium, wall_clock())
        self.certificate, self.key = config.certificate, config.key
        self.machine = sums.ClientMachine(plan.parameters, name)
        self.seals = plan.seals(name)
        self.node: Node = node_for(identity, plan.consortium, listen=None)
        self.servers = plan.parameters.servers
        self.shares: list[tuple[str, Share]] = []

    def prepare(self, opening: bytes, round: int, values: NDArray[np.uint64]) -> None:
        self.machine.receive_bytes("aggregator", opening, 0.0)
        steps = self.machine.contribute(round, values, system_stream(), 0.0)
        self.shares = [(s.to, s.message) for s in steps if isinstance(s, sums.Send) and isinstance(s.message, Share)]

    def send(self) -> None:
        """As the deployed client does: encoded, sealed piece by piece, handed over."""
        for to, share in self.shares:
            pieces, length = self.seals.seal(to, *encode_parts(share))
            if not self.node.offer(to, pieces, length=length, timeout=30.0):
                raise SystemExit(f"not connected to {to}")

    def wait(self, timeout: float) -> None:
        """Until every server has said that the share is durable."""
        until = time.monotonic() + timeout
        left = {to for to, _ in self.shares}
        while left:
            envelope = self.node.receive(timeout=max(0.0, until - time.monotonic()))
            if envelope is None:
                raise SystemExit("a share was not accepted in time")
            message = sums.decode(envelope.raw[HEADER_BYTES:])
            if not isinstance(message, sums.messages.Accepted):
                raise SystemExit(f"a share was refused: {message}")
            left.discard(envelope.sender)


class _Driver(_Process):
    """Some of the clients."""

    def __init__(self, plan: _Plan, names: list[str]) -> None:
        self._plan = plan
        self._clients = [_Client(plan, name) for name in names]
        self._raw: Sender | None = None

    def connect(self) -> None:
        for client in self._clients:
            client.node.start()
        for client in self._clients:
            if not client.node.wait_connected((*client.servers, "aggregator"), 60.0):
                raise SystemExit("not connected to every server and the aggregator")

    def prepare(self, round: int) -> None:
        values = uniform(self._plan.size, system_stream())
        opening = self._plan.opening(round)
        for client in self._clients:
            client.prepare(opening, round, values)
        gc.collect()

    def send(self, timeout: float) -> None:
        for client in self._clients:
            client.send()
        for client in self._clients:
            client.wait(timeout)

    def raw_connect(self, ports: list[int]) -> None:
        ca = self._plan.consortium.ca_certificate.decode("ascii")
        where = [ports[self._vector(client)[0]] for client in self._clients]
        self._raw = Sender(ca, [(c.certificate, c.key, port) for c, port in zip(self._clients, where)])

    def raw_send(self, threads: int) -> None:
        if self._raw is not None:
            self._raw.send([self._vector(client)[1] for client in self._clients], threads)

    @staticmethod
    def _vector(client: _Client) -> tuple[int, bytes]:
        return next((s.server, s.payload) for _, s in client.shares if s.kind == ShareKind.VECTOR)

    def stop(self) -> None:
        if self._raw is not None:
            self._raw.close()
        for client in self._clients:
            client.node.stop(grace=0.1)


def _resident() -> float:
    """Megabytes of memory that are this process's own: pages of the spool's files belong to the system's cache."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["RssAnon"].split()[0]) / 1024


KINDS = {"server": _Server, "aggregator": _Aggregator, "driver": _Driver}


def serve(line: Connection[Any, Any], folder: Path, kind: str, arguments: dict[str, Any]) -> None:
    """Be such a process."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    keep_freed_memory()  # as every role does
    obey(line, KINDS[kind](_Plan(folder), **arguments))
